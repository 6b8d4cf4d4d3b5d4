"""Recover, reconcile, audit, reap: what is done to many operations without a caller. None causes an effect."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias, assert_never

from semel import actions, lifecycle
from semel.decide import shows_at
from semel.engine.core import Core
from semel.engine.course import Apply, Look, settle
from semel.engine.intents import is_saga, parent_of
from semel.engine.tool import Tool
from semel.errors import UsageError
from semel.model import (
    Absent,
    Answer,
    Event,
    Evidence,
    Found,
    Idempotent,
    Inconclusive,
    Move,
    Note,
    Operation,
    State,
    Unsafe,
)
from semel.ports import Outcome

PAGE: Final = 200  # operations read at a time
LOOKS_MAX: Final = 1  # lookups an operation and sweep: the next sweep asks again

Reconciling: TypeAlias = Generator[Apply | Look, Any, "Reconciled"]
Auditing: TypeAlias = Generator[Apply | Look, Any, "Audited"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconciled:
    """What a sweep over everything UNKNOWN came to.

    `settled`        now COMMITTED or PENDING, by evidence
    `waiting`        the evidence does not count yet; sweep again later
    `resumable`      the next call of the same intent resends under the same key; nothing to find out
    `needs_person`   (operation, why): only `guard.resolve` helps
    """

    settled: tuple[Operation, ...] = ()
    waiting: tuple[Operation, ...] = ()
    resumable: tuple[Operation, ...] = ()
    needs_person: tuple[tuple[Operation, str], ...] = ()


def recover(core: Core) -> list[Operation]:
    """Move every claim whose owner is gone to UNKNOWN. Two sweeps at once: each claim is moved by one."""
    return [outcome.operation for outcome in _moved(core) if outcome.applied and outcome.operation]


def _moved(core: Core) -> Iterator[Outcome]:
    for operation in open_operations(core, State.INVOKED):
        move = leave_in_doubt(core, operation)
        if move is not None:
            yield core.committer.submit(move)


def leave_in_doubt(core: Core, operation: Operation) -> Move | None:
    """The move that says the owner is gone, or None while it lives."""
    now = core.store.now()
    if operation.owner is not None and core.owners.is_gone(operation.owner):
        return lifecycle.declare_owner_dead(operation, now=now)
    if operation.lease_expires_at is not None and operation.lease_expires_at <= now:
        return lifecycle.expire(operation, now=now)
    return None


def reconcile(core: Core, tools: Mapping[str, Tool]) -> Reconciling:
    """Settle what is UNKNOWN by evidence; yields what is to be done, like a course."""
    found: dict[str, list[Any]] = {"settled": [], "waiting": [], "resumable": [], "needs_person": []}
    for operation in open_operations(core, State.UNKNOWN):
        if is_saga(operation):
            found["resumable"].append(operation)
            continue
        tool = tools.get(operation.tool)
        if tool is None:
            why = _why_nobody_asks(operation)
            found["needs_person"].append((operation, why))
            continue
        kind, entry = yield from _reconcile_one(core, tool, operation)
        found[kind].append(entry)
    return Reconciled(**{name: tuple(entries) for name, entries in found.items()})


def _why_nobody_asks(operation: Operation) -> str:
    if parent_of(operation) is not None:
        return "it is a step: calling its tool again settles it, or a person does"
    return f"no tool named {operation.tool!r} is registered here"


def _reconcile_one(
    core: Core, tool: Tool, operation: Operation
) -> Generator[Apply | Look, Any, tuple[str, Any]]:
    answer: Answer | None = None
    for looks_left in reversed(range(LOOKS_MAX + 1)):
        now = core.store.now()
        action = core.decide(operation, tool.effect, answer, now, fingerprint=operation.fingerprint)
        match action:
            case actions.Lookup() if looks_left:
                evidence: Evidence = yield Look(operation)
                answer = Answer(evidence=evidence, asked_at=now, fence=operation.fence)
            case actions.Settle(evidence=evidence):
                outcome = yield from settle(operation, evidence, core)
                return ("settled" if outcome.applied else "waiting"), outcome.operation or operation
            case actions.Claim():
                return "resumable", operation
            case actions.Ask(why=why):
                return "needs_person", (operation, why)
            case _:
                break
    return "waiting", operation


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """What asking once more about everything that was sent more than once came to.

    `single`    the provider shows one effect
    `diverged`  (operation, how many effects the provider shows); `guard.divergences()` tells of each
    `waiting`   recorded less than a `lookup_lag` ago: audit again later
    `unclear`   (operation, why): there was nobody to ask, or the answer does not say
    """

    single: tuple[Operation, ...] = ()
    diverged: tuple[tuple[Operation, int], ...] = ()
    waiting: tuple[Operation, ...] = ()
    unclear: tuple[tuple[Operation, str], ...] = ()


ASKABLE: Final = frozenset({Idempotent.name, Unsafe.name})


def audit(core: Core, tools: Mapping[str, Tool]) -> Auditing:
    """Ask again about what is COMMITTED and was sent more than once; yields what is to be done, like a course."""
    found: dict[str, list[Any]] = {"single": [], "diverged": [], "waiting": [], "unclear": []}
    for operation in _sent_again(core):
        tool = tools.get(operation.tool)
        if tool is None:
            found["unclear"].append((operation, _why_nobody_audits(operation)))
        elif isinstance(tool.effect, Idempotent | Unsafe) and tool.effect.lookup is not None:
            kind, entry = yield from _audit_one(core, tool.effect, operation)
            found[kind].append(entry)
    return Audited(**{name: tuple(entries) for name, entries in found.items()})


def _sent_again(core: Core) -> Iterator[Operation]:
    """A second effect takes a second request, unless the network makes one; that is no guard's to see."""
    now = core.store.now()
    ended = pages(
        lambda after: core.store.read_ended_before(core.namespace, now, limit=PAGE, after_key=after)
    )
    for operation in ended:
        if operation.state is State.COMMITTED and operation.fence > 1 and operation.effect in ASKABLE:
            yield operation


def _why_nobody_audits(operation: Operation) -> str:
    if parent_of(operation) is not None:
        return "it is a step whose lookup is declared nowhere but in its tool"
    return _why_nobody_asks(operation)


def _audit_one(
    core: Core, effect: Idempotent | Unsafe, operation: Operation
) -> Generator[Apply | Look, Any, tuple[str, Any]]:
    if core.store.now() < shows_at(operation, effect):
        return "waiting", operation
    evidence: Evidence = yield Look(operation)
    match evidence:
        case Found(times=1):
            return "single", operation
        case Found(times=times):
            yield from _note_once(core, operation, times)
            return "diverged", (operation, times)
        case Absent():
            return "unclear", (operation, "the provider does not show what is recorded")
        case Inconclusive(why=why):
            return "unclear", (operation, why)
        case _:
            assert_never(evidence)


def _note_once(core: Core, operation: Operation, times: int) -> Generator[Apply, Any, None]:
    """Not if the same was noted before. What a late worker has told in its own words may be told again: to take two
    effects for one is worse than to tell of one twice."""
    entry = lifecycle.note_more_than_one(operation, times=times, now=core.store.now())
    noted = {(line.event, line.why) for line in core.store.read_history(operation.key)}
    if (Event.DIVERGED, entry.why) not in noted:
        yield Apply(Note(entry))


def reap(core: Core, *, older_than: timedelta) -> int:
    """Blank ended operations last changed longer ago than this; how many. Their keys stay, and are refused."""
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise UsageError(
            f"older_than={older_than!r} must be a timedelta and not negative. Nothing was deleted."
        )
    before, reaped = core.store.now() - older_than, 0
    ended = pages(
        lambda after: core.store.read_ended_before(core.namespace, before, limit=PAGE, after_key=after)
    )
    while batch := list(itertools.islice(ended, PAGE)):  # ends with the pages
        now = core.store.now()
        outcomes = core.store.apply([lifecycle.reap(operation, now=now) for operation in batch])
        reaped += sum(outcome.applied for outcome in outcomes)
    return reaped


def open_operations(core: Core, state: State) -> Iterator[Operation]:
    """All operations in an open state, read a page at a time."""
    return pages(lambda after: core.store.read_open(core.namespace, state, limit=PAGE, after_key=after))


def pages(read: Callable[[str], list[Operation]]) -> Iterator[Operation]:
    after_key = ""
    while page := read(after_key):  # ends: each page begins after the last key of the one before
        yield from page
        after_key = page[-1].key
