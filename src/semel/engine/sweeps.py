"""Recover, reconcile, reap: what is done to many operations without a caller. None of them causes an effect."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from semel import actions, lifecycle
from semel.engine.core import Core
from semel.engine.course import Apply, Look, recordable
from semel.engine.intents import is_saga, parent_of
from semel.engine.tool import Tool
from semel.errors import UsageError
from semel.model import Answer, Evidence, Found, Move, Operation, State
from semel.ports import Outcome

PAGE: Final = 200  # operations read at a time
LOOKS_MAX: Final = 1  # lookups an operation and sweep: the next sweep asks again

Steps: TypeAlias = Generator[Apply | Look, Any, "Reconciled"]


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


def reconcile(core: Core, tools: Mapping[str, Tool]) -> Steps:
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
                outcome: Outcome = yield Apply(settling(operation, evidence, core))
                return ("settled" if outcome.applied else "waiting"), outcome.operation or operation
            case actions.Claim():
                return "resumable", operation
            case actions.Ask(why=why):
                return "needs_person", (operation, why)
            case _:
                break
    return "waiting", operation


def settling(operation: Operation, evidence: Any, core: Core) -> Move:
    """The move that the evidence proves."""
    if isinstance(evidence, Found):
        return lifecycle.find(operation, result=recordable(evidence.result), now=core.store.now())
    return lifecycle.find_absent(operation, now=core.store.now())


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
