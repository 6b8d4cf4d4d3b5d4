"""Guards broken on purpose, each in one place, and the oracle that has to catch them.

Each control is a trap in the world that the sound guard walks through and the broken one falls into. Both are
run: a control counts as caught only if the broken guard is found guilty *and* the sound one, in the same trap,
is not; else the trap proves nothing. The guards are Semel with one part replaced, in real processes.

To add one: write the broken guard, and add a line to `TRAPS`.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import semel
from semel import actions
from semel.agent import run_agent
from semel.decide import decide
from semel.engine.core import Decide
from semel.engine.tool import Tool
from semel.lab import durable, injector
from semel.lab.client import World
from semel.lab.injector import Checkpoint, Finished, Kill
from semel.lab.levels.l5_semel import Gaps, Script, answer_of
from semel.lab.model import Control, ProviderKind, Verdict, Window
from semel.lab.scenario import OPENING, RUN_ID, answered, intents_of, opening, said
from semel.lab.wire import Effect, Fault, Settings, Strike

LAG: Final = timedelta(seconds=2)  # what the sound guard is told of the lookup; ample on a busy machine
DEADLINE: Final = timedelta(milliseconds=100)
LEASE: Final = timedelta(milliseconds=400)
LONG_LEASE: Final = timedelta(minutes=1)  # for a broken guard that does not wait for it anyway
RESUMES_MAX: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Trap:
    """`broken` and `sound` are run like a level; `spring` makes the crash, or whatever the trap is."""

    name: str
    broken: injector.Run
    sound: injector.Run
    settings: Settings
    spring: Callable[[injector.Run, World, Path], None]


def run_controls(address: str, seed: int, postgres_url: str | None = None) -> Sequence[Control]:
    with tempfile.TemporaryDirectory(prefix="semel-controls-") as folder:
        return [_run(trap, address, seed, Path(folder), postgres_url) for trap in TRAPS]


def _run(trap: Trap, address: str, seed: int, folder: Path, postgres_url: str | None) -> Control:
    found = {}
    for number, (kind, run) in enumerate((("broken", trap.broken), ("sound", trap.sound))):
        world = World(address=address, cell_id=f"control-{number}-{kind}", postgres_url=postgres_url)
        found[kind] = _fall(trap, run, world, seed, folder)
    is_caught = Verdict.OK < found["broken"] < Verdict.UNKNOWN and found["sound"] is Verdict.OK
    return Control(name=trap.name, caught=is_caught, verdict=found["broken"])


def _fall(trap: Trap, run: injector.Run, world: World, seed: int, folder: Path) -> Verdict:
    """Spring the trap on one guard and judge it by the provider's ledger. What breaks here is UNKNOWN."""
    durable = folder / trap.name.replace(" ", "-") / world.cell_id / "durable"
    world = replace(world, cell_id=f"{world.cell_id}-{trap.name.replace(' ', '-')}")
    try:
        durable.mkdir(parents=True)
        world.prepare(replace(trap.settings, seed=seed))
        trap.spring(run, world, durable)
        return verdict_of(world.ledger(), intents_of(trap.settings.plan))
    except injector.GivenUp:
        raise
    except Exception:
        return Verdict.UNKNOWN


def verdict_of(ledger: Sequence[Effect], meant: Sequence[str]) -> Verdict:
    happened, wanted = Counter(effect.intent for effect in ledger), Counter(meant)
    if happened - wanted:
        return Verdict.DUPLICATE
    return Verdict.LOST if wanted - happened else Verdict.OK


# ------------------------------------------------------------------ how a trap is sprung


def killed_at(window: Window, step: int = 1) -> Callable[[injector.Run, World, Path], None]:
    def spring(run: injector.Run, world: World, folder: Path) -> None:
        injector.kill(run, world, folder, Kill(window=window, step=step))
        _resume(run, world, folder)

    return spring


def undisturbed(run: injector.Run, world: World, folder: Path) -> None:
    """No crash: the trap is in the world, or in the plan."""
    _resume(run, world, folder)


def overtaken_while_paused(run: injector.Run, world: World, folder: Path) -> None:
    """One process is stopped right after its claim; a second runs to the end; then the first goes on."""
    note = folder / "paused"
    first = threading.Thread(target=injector.finish, args=(_Pausing(run, note), world, folder))
    first.start()
    pid = _wait_until_stopped(note)
    try:
        _resume(run, world, folder)
    finally:
        os.kill(pid, signal.SIGCONT)
        first.join()


@dataclass(frozen=True, slots=True)
class _Pausing:
    """A run that stops itself at W2 of step 1. A class, so that it can be sent to the child."""

    run: injector.Run
    note: Path

    def __call__(self, world: World, folder: Path, checkpoint: Checkpoint) -> None:
        self.run(world, folder, self._pause)

    def _pause(self, window: Window, step: int) -> None:
        if (window, step) == (Window.W2, 1) and not self.note.exists():
            self.note.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)


def _wait_until_stopped(note: Path) -> int:
    """The id of the stopped process. Polls: nothing announces a SIGSTOP to anyone but the parent."""
    pause = threading.Event()
    for _ in range(3_000):  # thirty seconds
        text = note.read_text() if note.exists() else ""
        if text and Path(f"/proc/{text}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return int(text)
        pause.wait(0.01)
    raise injector.WindowNeverReached("the first process never stopped at W2")


def _resume(run: injector.Run, world: World, folder: Path) -> None:
    outcome = injector.resume(run, world, folder)
    if not isinstance(outcome, Finished):
        raise RuntimeError(outcome.because)


# ------------------------------------------------------------------ the sound guard, and where it can be broken


@dataclass(frozen=True, kw_only=True, slots=True)
class Semel:
    """Semel on the trap's plan. Each field is a part that a control replaces."""

    decide: Decide = decide
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    attempts: int = 1
    lease: timedelta = LEASE
    checks_claim: bool = True
    run_plan: Callable[..., None] | None = None

    def __call__(self, world: World, folder: Path, checkpoint: Checkpoint) -> None:
        gaps = Gaps(checkpoint)
        options = {"lease": self.lease, "checkpoint": gaps.in_guard, "decide": self.decide}
        with durable.open_guard(world, folder, **options) as guard:
            tools = {name: self._tool(guard, world, name, parameters) for name, parameters in _TOOLS.items()}
            for _ in self._until_settled():
                try:
                    (self.run_plan or _run_plan)(guard, world, tools, gaps)
                    return
                except semel.OutcomeUnknown as unknown:
                    _pass_time(unknown.retry_after)

    def _until_settled(self) -> Iterator[int]:
        yield from range(RESUMES_MAX)
        raise RuntimeError(f"still in doubt after {RESUMES_MAX} calls")

    def _tool(self, guard: semel.Guard, world: World, name: str, make: Callable[..., Any]) -> Tool:
        def perform(call: semel.Call, arguments: dict[str, Any]) -> dict[str, Any]:
            if self.checks_claim:
                call.ensure_held()
            return world.provider.perform(name, arguments, reference=call.key)

        def find(call: semel.Call) -> semel.Evidence:
            effect = world.provider.find(name, call.key)
            return semel.Absent() if effect is None else semel.Found(answer_of(effect), key=effect.reference)

        effect = semel.Unsafe(lookup=find, lookup_lag=LAG, request_deadline=DEADLINE)
        fn = make(perform if self.wrap is None else self.wrap(perform))
        return guard.tool(effect=effect, name=name, attempts=self.attempts)(fn)


def _charge(perform: Callable[..., Any]) -> Callable[..., Any]:
    def charge(customer: str, amount_cents: int, period: str, *, call: semel.Call) -> Any:
        return perform(call, dict(call.arguments))

    return charge


def _send_email(perform: Callable[..., Any]) -> Callable[..., Any]:
    def send_email(to: str, subject: str, body: str, *, call: semel.Call) -> Any:
        return perform(call, dict(call.arguments))

    return send_email


def _grant_entitlement(perform: Callable[..., Any]) -> Callable[..., Any]:
    def grant_entitlement(customer: str, plan: str, period: str, *, call: semel.Call) -> Any:
        return perform(call, dict(call.arguments))

    return grant_entitlement


_TOOLS: Final = {"charge": _charge, "send_email": _send_email, "grant_entitlement": _grant_entitlement}


def _run_plan(guard: semel.Guard, world: World, tools: dict[str, Tool], gaps: Gaps) -> None:
    run_agent(guard, Script(world), tools, run_id=RUN_ID, opening=OPENING, checkpoint=gaps.in_loop)


def _pass_time(span: timedelta | None) -> None:
    threading.Event().wait((span or timedelta(0)).total_seconds())


# ------------------------------------------------------------------ the broken ones


def claims_after_the_effect(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    """The effect first, the record of it afterwards: a crash between them leaves no trace."""
    with durable.open_guard(world, folder) as guard, guard.run(RUN_ID) as run:

        @guard.tool(effect=semel.Unsafe())
        def remember(answer: dict[str, Any]) -> dict[str, Any]:
            return answer

        messages = opening()
        step = 0
        while (turn := world.model.next_turn(messages)).calls:
            messages.append(said(turn))
            for call in turn.calls:
                step += 1
                answer = world.provider.perform(call.name, call.arguments)
                checkpoint(Window.W3, step)
                messages.append(answered(call, run.call(remember, answer=answer)))


def believing_at_once(operation: Any, effect: Any, *rest: Any, **named: Any) -> actions.Action:
    """An "absent" counts however early it comes."""
    if isinstance(effect, semel.Unsafe):
        effect = replace(effect, lookup_lag=timedelta(0), request_deadline=timedelta(0))
    return decide(operation, effect, *rest, **named)


def without_fence(operation: Any, effect: Any, answer: Any, now: Any, **named: Any) -> actions.Action:
    """Whatever is claimed and not done may be claimed by the next one, at once."""
    if operation is not None and operation.state in (semel.State.INVOKED, semel.State.UNKNOWN):
        if operation.fence == named.get("held_fence"):
            return actions.Invoke()
        in_doubt = operation.state is semel.State.UNKNOWN
        return actions.Settle(semel.Absent()) if in_doubt else actions.LeaveInDoubt(semel.Event.OWNER_DIED)
    return decide(operation, effect, answer, now, **named)


def timeout_is_failure(perform: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever the client raises is taken for "it did not happen", and so may be tried again."""

    def trusting(call: semel.Call, arguments: dict[str, Any]) -> Any:
        try:
            return perform(call, arguments)
        except Exception as error:
            raise semel.NotSent(str(error)) from error

    return trusting


def run_without_step(guard: semel.Guard, world: World, tools: dict[str, Tool], gaps: Gaps) -> None:
    """The key is made of run and tool: two calls of one tool are one intent."""

    with guard.run(RUN_ID) as run:
        messages = opening()
        while (turn := world.model.next_turn(messages)).calls:
            messages.append(said(turn))
            for call in turn.calls:
                answer = run.call_at(tools[call.name], call.arguments, step="1", call_id=call.name)
                messages.append(answered(call, answer))


LOOKUP_LAGS: Final = Settings(provider=ProviderKind.HAS_LOOKUP, lag_lookups=1)  # the first one misses
ANSWER_IS_LOST: Final = Settings(
    provider=ProviderKind.HAS_LOOKUP, faults=(Fault(strike=Strike.DROP_ANSWER, tool="charge"),)
)

TRAPS: Final = (
    Trap(
        name="claims after the effect",
        broken=claims_after_the_effect,
        sound=Semel(),
        settings=Settings(provider=ProviderKind.HAS_LOOKUP),
        spring=killed_at(Window.W3),
    ),
    Trap(
        name="treats a timeout as failed",
        broken=Semel(wrap=timeout_is_failure, attempts=2),
        sound=Semel(attempts=2),
        settings=ANSWER_IS_LOST,
        spring=undisturbed,
    ),
    Trap(
        name="key without the step",
        broken=Semel(run_plan=run_without_step),
        sound=Semel(),
        settings=Settings(provider=ProviderKind.HAS_LOOKUP, plan="two equal charges"),
        spring=undisturbed,
    ),
    Trap(
        name="take-over without fence",
        broken=Semel(decide=without_fence, checks_claim=False, lease=LONG_LEASE),
        sound=Semel(),
        settings=Settings(provider=ProviderKind.HAS_LOOKUP),
        spring=overtaken_while_paused,
    ),
    Trap(
        name="believes an early absent",
        broken=Semel(decide=believing_at_once),
        sound=Semel(),
        settings=LOOKUP_LAGS,
        spring=killed_at(Window.W3),
    ),
)
