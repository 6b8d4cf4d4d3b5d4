"""Every interleaving of two workers, exhaustively: the third loop over `decide`.

Two workers drive one intent. Each turn is the real thing: `decide` on what the worker last saw, and a move of
`lifecycle` compared and set against the record as it is. Around them everything that may go wrong does, at
every point: a worker dies and starts again (or is merely slow: it takes no turn while time passes and becomes
a zombie), the request is refused, lands at any time within `request_deadline`, or never; the answer is lost;
the lookup misses a fresh effect for up to `lookup_lag`, or fails; a person who is asked sees what has happened
by then, not what is still on its way. Time is counted in ticks and ends at a
horizon; deaths, refusals, time-outs and failed lookups are troubles, and their number is bounded.

What is declared is true here. That no duplicate and no silent loss is found is then a statement about the
whole small world, not about a sample; switch a rule off and it must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from semel import actions, lifecycle
from semel.decide import decide, decide_late_result, send_until
from semel.model import (
    Absent,
    Answer,
    Effect,
    Evidence,
    Found,
    Idempotent,
    Inconclusive,
    Intent,
    Move,
    Operation,
    State,
    Unsafe,
)

TICK: Final = timedelta(seconds=1)
START: Final = datetime(2026, 1, 1, tzinfo=UTC)

_INTENT: Final = Intent(
    key="k",
    namespace="",
    run_id="run",
    step="1",
    call_id="1",
    tool="charge",
    effect="unsafe",
    fingerprint="f",
    arguments="{}",
)
_FIRST: Final = lifecycle.open_claim(_INTENT, owner="", now=START, lease=TICK)


class Worker(NamedTuple):
    """One process. `life` counts its restarts; `phase` is where it stands between two turns.

    deciding → sent → returned | failed | unsent → deciding → done | asked | refused | diverged
    """

    life: int = 0
    phase: str = "deciding"
    seen: Operation | None = None
    held: Operation | None = None
    answer: Answer | None = None


class Request(NamedTuple):
    """On its way to the provider: lands by `lands_by`, or never."""

    worker: int
    life: int
    fence: int
    lands_by: int


class World(NamedTuple):
    """Everything there is. Two worlds that are equal have the same future."""

    tick: int = 0
    record: Operation | None = None
    workers: tuple[Worker, ...] = (Worker(), Worker())
    requests: frozenset[Request] = frozenset()
    effects: tuple[int, ...] = ()  # the provider's ledger: the tick of each effect
    troubles_left: int = 3


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`decide` and `send_until` are arguments, so that a test can switch a rule off.

    `stops_at` ends the search at the first flaw of this name.
    """

    effect: Effect
    lease: timedelta = TICK
    horizon: int = 8
    troubles: int = 3
    same_host: bool = True
    stops_at: str | None = None
    decide: Callable[..., actions.Action] = decide
    send_until: Callable[[Operation, Effect], datetime] = send_until


@dataclass(kw_only=True)
class Findings:
    """`states` visited; how often each end was reached; a path of step names to the first of each flaw."""

    states: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    flaws: dict[str, list[str]] = field(default_factory=dict)


def explore(setting: Setting) -> Findings:
    """Visit every reachable world once. Breadth first, so the path to a flaw is a shortest one."""
    start = World(troubles_left=setting.troubles)
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    findings = Findings()
    frontier = [start]
    while (
        frontier and setting.stops_at not in findings.flaws
    ):  # ends: ticks and troubles are bounded, and no world is entered twice
        following = []
        for world in frontier:
            for flaw in _flaws(world):
                if flaw not in findings.flaws:
                    findings.flaws[flaw] = _path(world, came_from)
            for step, after in _steps(setting, world):
                if after not in came_from:
                    came_from[after] = (world, step)
                    following.append(after)
            findings.ends.update(worker.phase for worker in world.workers if worker.phase in _COUNTED)
        frontier = following
    findings.states = len(came_from)
    return findings


_ENDS: Final = frozenset({"done", "refused", "diverged"})
_COUNTED: Final = _ENDS | {"asked"}


def _path(world: World, came_from: dict[World, tuple[World, str] | None]) -> list[str]:
    steps: list[str] = []
    while (origin := came_from[world]) is not None:
        world, step = origin
        steps.append(f"{world.tick}: {step}")
    return steps[::-1]


def _flaws(world: World) -> Iterator[str]:
    if len(world.effects) > 1:
        yield "duplicate"
    is_claimed_done = world.record is not None and world.record.state is State.COMMITTED
    if not world.effects and (is_claimed_done or any(w.phase == "done" for w in world.workers)):
        yield "lost"
    if any(worker.phase == "diverged" for worker in world.workers):
        yield "divergence"
    if any(worker.phase == "refused" for worker in world.workers):
        yield "refusal"


# ------------------------------------------------------------------ what can happen next


def _steps(setting: Setting, world: World) -> Iterator[tuple[str, World]]:
    if world.tick < setting.horizon:
        yield "time passes", _pass_time(world)
    for request in world.requests:
        yield from _land(setting, world, request)
    for number, worker in enumerate(world.workers):
        if worker.phase in _ENDS:
            continue
        for step, after in _turns(setting, world, number):
            yield f"worker {number} {step}", after
        if world.troubles_left:
            yield f"worker {number} dies", _die(world, number)


def _pass_time(world: World) -> World:
    tick = world.tick + 1
    return world._replace(tick=tick, requests=frozenset(r for r in world.requests if r.lands_by >= tick))


def _die(world: World, number: int) -> World:
    return _trouble(world, number, Worker(life=world.workers[number].life + 1))


def _trouble(world: World, number: int, worker: Worker) -> World:
    return _with_worker(world._replace(troubles_left=world.troubles_left - 1), number, worker)


def _land(setting: Setting, world: World, request: Request) -> Iterator[tuple[str, World]]:
    effects = world.effects if _is_known_key(setting, world) else (*world.effects, world.tick)
    landed = world._replace(requests=world.requests - {request}, effects=effects)
    yield f"the request of worker {request.worker} lands, its answer is lost", landed
    worker = world.workers[request.worker]
    if worker.phase == "sent" and (worker.life, worker.held and worker.held.fence) == (
        request.life,
        request.fence,
    ):
        answered = _with_worker(landed, request.worker, worker._replace(phase="returned"))
        yield f"the request of worker {request.worker} lands and is answered", answered


def _is_known_key(setting: Setting, world: World) -> bool:
    """The provider dedupes on the key while it remembers it."""
    if not isinstance(setting.effect, Idempotent) or not world.effects:
        return False
    return world.tick < world.effects[-1] + setting.effect.key_ttl // TICK


# ------------------------------------------------------------------ one turn of one worker


def _turns(setting: Setting, world: World, number: int) -> Iterator[tuple[str, World]]:
    worker, now = world.workers[number], _now(world)
    match worker.phase:
        case "deciding":
            action = setting.decide(
                worker.seen,
                setting.effect,
                worker.answer,
                now,
                fingerprint="f",
                held_fence=worker.held.fence if worker.held else None,
                owner_is_gone=_is_gone(setting, world, worker.seen),
            )
            yield from _act(setting, world, number, action)
        case "sent" if world.troubles_left:
            yield "gives up waiting", _trouble(world, number, worker._replace(phase="failed"))
        case "returned":
            yield "records the result", _record_result(setting, world, number)
        case "failed":
            yield "records the doubt", _report(world, number, lifecycle.leave_in_doubt)
        case "asked":
            yield "is answered by a person", _answer_truly(world, number)
        case "unsent":
            yield "records that nothing was sent", _report(world, number, lifecycle.not_sent)


def _act(setting: Setting, world: World, number: int, action: actions.Action) -> Iterator[tuple[str, World]]:
    worker, now = world.workers[number], _now(world)
    match action:
        case actions.Claim():
            yield "claims", _claim(setting, world, number)
        case actions.Invoke():
            yield from _invoke(setting, world, number)
        case actions.Wait():
            yield "looks again", _see(world, number, world.record)
        case actions.LeaveInDoubt(event):
            leave = lifecycle.IN_DOUBT[event]
            yield f"finds that {event}", _apply(world, number, leave(_known(worker), now=now))
        case actions.Lookup():
            for evidence in _answers(setting, world):
                answer = Answer(evidence=evidence, asked_at=now, fence=_known(worker).fence)
                step = f"asks the provider: {type(evidence).__name__}"
                asked = worker._replace(answer=answer)
                if isinstance(evidence, Inconclusive):
                    yield step, _trouble(world, number, asked)
                else:
                    yield step, _with_worker(world, number, asked)
        case actions.Settle(Found()):
            yield "settles: found", _apply(world, number, lifecycle.find(_known(worker), result="1", now=now))
        case actions.Settle():
            yield "settles: absent", _apply(world, number, lifecycle.find_absent(_known(worker), now=now))
        case actions.Ask():
            yield "asks a person", _with_worker(world, number, worker._replace(phase="asked"))
        case actions.Replay():
            yield "has the result", _with_worker(world, number, worker._replace(phase="done"))
        case actions.Refuse():
            yield "refuses", _with_worker(world, number, worker._replace(phase="refused"))


def _claim(setting: Setting, world: World, number: int) -> World:
    worker, now, owner = world.workers[number], _now(world), _owner(world, number)
    if worker.seen is not None:
        move = lifecycle.claim(worker.seen, owner=owner, now=now, lease=setting.lease)
        return _apply(world, number, move, holds=True)
    if world.record is not None:
        return _see(world, number, world.record)
    record = _plain(lifecycle.open_claim(_INTENT, owner=owner, now=now, lease=setting.lease))
    return _with_worker(world._replace(record=record), number, worker._replace(seen=record, held=record))


def _invoke(setting: Setting, world: World, number: int) -> Iterator[tuple[str, World]]:
    worker = world.workers[number]
    assert worker.held is not None, "decide says Invoke only to the holder of the claim"
    unsent = worker._replace(phase="unsent")
    if _now(world) >= setting.send_until(worker.held, setting.effect):
        yield "finds its claim lapsed", _with_worker(world, number, unsent)
        return
    if world.troubles_left:
        yield "is refused the connection", _trouble(world, number, unsent)
    lands_by = world.tick + _request_deadline(setting.effect) // TICK
    request = Request(number, worker.life, worker.held.fence, lands_by)
    sent = world._replace(requests=world.requests | {request})
    yield "sends the request", _with_worker(sent, number, worker._replace(phase="sent"))


def _record_result(setting: Setting, world: World, number: int) -> World:
    worker, now = world.workers[number], _now(world)
    assert worker.held is not None
    assert world.record is not None
    committed = _compare_and_set(world, lifecycle.commit(worker.held, result="1", now=now))
    if committed is not None:
        return _with_worker(committed, number, worker._replace(phase="done"))
    late = decide_late_result(world.record, setting.effect, fence=worker.held.fence)
    if isinstance(late, actions.Report):
        reported = _compare_and_set(world, lifecycle.report_late(world.record, result="1", now=now))
        assert reported is not None
        world = reported
    phase = "diverged" if isinstance(late, actions.Diverge) else "done"
    return _with_worker(world, number, worker._replace(phase=phase))


def _answer_truly(world: World, number: int) -> World:
    """The person looks into the provider's books now; what is still on its way is not in them."""
    worker, now, record = world.workers[number], _now(world), world.record
    deciding = _with_worker(world, number, worker._replace(phase="deciding", seen=record))
    if record is None or record.state is not State.UNKNOWN:
        return deciding
    if world.effects:
        move = lifecycle.confirm(record, result="1", by="person", why="seen", now=now)
    else:
        move = lifecycle.clear(record, by="person", why="not seen", now=now)
    return _apply(deciding, number, move)


def _report(world: World, number: int, make: Callable[..., Move]) -> World:
    """Report the end of an attempt, then decide anew. A late doubt changes nothing."""
    worker = world.workers[number]
    assert worker.held is not None
    after = _compare_and_set(world, make(worker.held, error="?", now=_now(world))) or world
    return _with_worker(after, number, worker._replace(phase="deciding", held=None, seen=after.record))


# ------------------------------------------------------------------ the record


def _apply(world: World, number: int, move: Move, *, holds: bool = False) -> World:
    after = _compare_and_set(world, move)
    if after is None:
        return _see(world, number, world.record)
    worker = after.workers[number]._replace(seen=after.record, answer=None)
    return _with_worker(after, number, worker._replace(held=after.record) if holds else worker)


def _compare_and_set(world: World, move: Move) -> World | None:
    record, before = world.record, move.before
    if record is None or (record.state, record.fence) != (before.state, before.fence):
        return None
    if move.seen_lease_at is not None and record.lease_expires_at != move.seen_lease_at:
        return None
    return world._replace(record=_plain(move.after))


class _OneOfAKind(Operation):
    """An operation of which there is one object a value: compared and hashed by identity, which is fast."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


_KINDS: Final[dict[tuple[Any, ...], _OneOfAKind]] = {}


def _plain(operation: Operation) -> Operation:
    """Without what no decision reads, so that equal futures are equal worlds."""
    changing = {name: getattr(operation, name) for name in _CHANGING}
    is_cleared = operation.state is State.PENDING and operation.send_deadline_at is not None
    changing["updated_at"] = operation.updated_at if is_cleared else START  # when a person looked
    value = tuple(changing.values())
    if value not in _KINDS:
        _KINDS[value] = _OneOfAKind(**(_FIXED | changing))
    return _KINDS[value]


_CHANGING: Final = (
    "state",
    "fence",
    "owner",
    "lease_expires_at",
    "first_sent_at",
    "send_deadline_at",
    "earlier_in_doubt",
    "result",
)
_FIXED: Final = {
    name: getattr(_FIRST, name)
    for name in Operation.__dataclass_fields__
    if name not in (*_CHANGING, "updated_at")
}


def _see(world: World, number: int, record: Operation | None) -> World:
    return _with_worker(world, number, world.workers[number]._replace(seen=record))


def _with_worker(world: World, number: int, worker: Worker) -> World:
    if worker.phase in _ENDS:
        worker = Worker(life=worker.life, phase=worker.phase)  # the rest is never read again
    workers = tuple(worker if n == number else other for n, other in enumerate(world.workers))
    return world._replace(workers=workers)


def _known(worker: Worker) -> Operation:
    assert worker.seen is not None
    return worker.seen


# ------------------------------------------------------------------ the outside


def _answers(setting: Setting, world: World) -> Iterator[Evidence]:
    """All that the lookup may say: a fresh effect may be missed for `lookup_lag`; the lookup may fail."""
    lag: Any = getattr(setting.effect, "lookup_lag", timedelta(0)) // TICK
    if world.effects:
        yield Found("1")
    if not world.effects or world.tick < world.effects[0] + lag:
        yield Absent()
    if world.troubles_left:
        yield Inconclusive("down", retry_after=TICK)


def _request_deadline(effect: Effect) -> timedelta:
    assert isinstance(effect, Idempotent | Unsafe)
    return effect.request_deadline


def _now(world: World) -> datetime:
    return START + world.tick * TICK


def _owner(world: World, number: int) -> str:
    return f"{number}.{world.workers[number].life}"


def _is_gone(setting: Setting, world: World, seen: Operation | None) -> bool:
    """The dead are known to be dead at once on the same host, and never on another."""
    if not setting.same_host or seen is None or seen.owner is None:
        return False
    number, life = map(int, seen.owner.split("."))
    return world.workers[number].life != life
