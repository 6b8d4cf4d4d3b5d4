"""Undoing a run, or some of its operations: each once, and not "compensated" until all of it is.

The undoing has a record of its own, the saga: an operation whose body has no effect outside the compensations, so
it is entered again after any crash, held by one process at a time, and UNKNOWN while something is left to undo.
A compensation's key comes from the operation that it undoes. So an abort and a sweep, two sweeps, or a process
that died in the middle and its successor all ask for the same intents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from semel import keys, values
from semel.engine import calls, sweeps, sync
from semel.engine.awaiting import run_to_end
from semel.engine.core import Core
from semel.engine.course import Apply, Course, Pause, Read
from semel.engine.intents import SAGA, is_saga, make_intent, original_of
from semel.engine.names import require_name
from semel.engine.tool import Tool
from semel.engine.undoing import Ask, HasAnnounced, ReadRun, Step, Tools, Turns, Undo, Undoing
from semel.errors import NotExecuted, OutcomeUnknown, UsageError
from semel.model import Intent, Operation, State, Steps

Named: TypeAlias = Tool | Operation | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Saga:
    """An undoing that has begun and is not finished: `guard.compensate(saga.run_id, *saga.operations)` goes on.

    `operations`  the keys of what is to be undone; empty for the whole run.
    `record`      the saga's own operation: why it is open, and the key by which a person can close it.
    """

    run_id: str
    operations: tuple[str, ...]
    record: Operation


def compensate(core: Core, tools: Tools, run_id: str, originals: Sequence[str]) -> list[str]:
    """The keys of what was undone. In the caller's thread; async compensations in a loop of their own."""

    def undo(operations: list[str] | None) -> list[str]:
        return _drive(core, Undoing(core, tools, run_id, operations).turns())

    tool, intent, arguments = _saga(core, run_id, originals, undo)
    try:
        return list(sync.drive(Course(core, tool, intent, arguments)) or ())
    except OutcomeUnknown as error:
        raise _cause_of(error, intent) from error.__cause__


async def compensate_async(core: Core, tools: Tools, run_id: str, originals: Sequence[str]) -> list[str]:
    from semel.engine import aio  # imports asyncio, which is slow, only for async callers

    async def undo(operations: list[str] | None) -> list[str]:
        return await _drive_async(core, Undoing(core, tools, run_id, operations).turns())

    tool, intent, arguments = _saga(core, run_id, originals, undo)
    try:
        return list(await aio.drive(Course(core, tool, intent, arguments)) or ())
    except OutcomeUnknown as error:
        raise _cause_of(error, intent) from error.__cause__


def open_sagas(core: Core) -> list[Saga]:
    found = []
    for state in (State.INVOKED, State.UNKNOWN, State.PENDING):
        for operation in sweeps.open_operations(core, state):
            if is_saga(operation):
                named = values.decode(operation.arguments)["operations"]
                found.append(Saga(run_id=operation.run_id, operations=tuple(named or ()), record=operation))
    return found


def named_keys(core: Core, run_id: str, named: Sequence[Named]) -> list[str]:
    """The keys of the run's operations that are meant; none if none are named, which means the whole run."""
    require_name(run_id, "run id")
    if not named:
        return []
    operations = [op for op in core.store.read_run(core.namespace, run_id) if original_of(op) is None]
    found: set[str] = set()
    for name in named:
        meant = {op.key for op in operations if _means(name, op)}
        if not meant:
            raise UsageError(f"Run {run_id!r} has no operation {name!r} to compensate. Nothing was sent.")
        found |= meant
    return sorted(found)


def _means(name: Named, operation: Operation) -> bool:
    if isinstance(name, Tool):
        return operation.tool == name.name
    return operation.key == (name.key if isinstance(name, Operation) else name)


def _saga(
    core: Core, run_id: str, originals: Sequence[str], undo: Any
) -> tuple[Tool, Intent, dict[str, Any]]:
    tool = Tool(undo, name=SAGA, effect=Steps())
    arguments = {"operations": list(originals) or None}
    intent = make_intent(
        tool,
        arguments,
        key=keys.saga_key(core.namespace, run_id, originals),
        namespace=core.namespace,
        run_id=run_id,
        step=SAGA,
        call_id="",
    )
    return tool, intent, arguments


def _cause_of(error: OutcomeUnknown, intent: Intent) -> BaseException:
    """What stopped the saga, rather than that something did."""
    cause = error.__cause__
    return cause if error.key == intent.key and isinstance(cause, Exception) else error


# ------------------------------------------------------------------ carrying it out


def _drive(core: Core, turns: Turns) -> list[str]:
    resume: Callable[[Any], Step] = turns.send
    answer: Any = None
    try:
        while True:  # bounded by the generator
            step = resume(answer)
            try:
                answer, resume = _carry_out(core, step), turns.send
            except NotExecuted as error:
                answer, resume = error, turns.throw
    except StopIteration as end:
        return list(end.value)


def _carry_out(core: Core, step: Step) -> Any:
    match step:
        case Undo(tool, intent, arguments) if tool.is_async:
            return run_to_end(calls.drive_async(core, tool, intent, arguments, may_be_undone=False))
        case Undo(tool, intent, arguments):
            return calls.drive(core, tool, intent, arguments, may_be_undone=False)
        case Ask(tool, operation):
            return sync.look(tool, operation)
        case Pause(seconds):
            return time.sleep(seconds)
        case _:
            return _touch_store(core, step)


def _touch_store(core: Core, step: ReadRun | HasAnnounced | Read | Apply) -> Any:
    match step:
        case HasAnnounced(name):
            return core.store.has_announced(name)
        case ReadRun(run_id):
            return core.store.read_run(core.namespace, run_id)
        case Read(key):
            return core.store.read(key)
        case Apply(write):
            return core.committer.submit(write)


async def _drive_async(core: Core, turns: Turns) -> list[str]:
    resume: Callable[[Any], Step] = turns.send
    answer: Any = None
    try:
        while True:  # bounded by the generator
            step = resume(answer)
            try:
                answer, resume = await _carry_out_async(core, step), turns.send
            except NotExecuted as error:
                answer, resume = error, turns.throw
    except StopIteration as end:
        return list(end.value)


async def _carry_out_async(core: Core, step: Step) -> Any:
    import asyncio  # slow to import, only for async callers

    from semel.engine import aio

    match step:
        case Undo(tool, intent, arguments):
            return await calls.drive_async(core, tool, intent, arguments, may_be_undone=False)
        case Ask(tool, operation):
            return await aio.look(tool, operation)
        case Pause(seconds):
            return await asyncio.sleep(seconds)
        case _:
            return await asyncio.to_thread(_touch_store, core, step)
