"""One call of one tool, by the engine that fits it; and what is put around the tool's body for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from semel import keys
from semel.engine import atomic, refusals, steps, sync
from semel.engine.awaiting import in_thread
from semel.engine.core import Core
from semel.engine.course import Course
from semel.engine.tool import Tool
from semel.errors import OutcomeUnknown, Rejected
from semel.model import Atomic, Intent, Operation, Steps


def drive(
    core: Core,
    tool: Tool,
    intent: Intent,
    arguments: Mapping[str, Any],
    recorded: Operation | None = None,
    *,
    may_be_undone: bool,
) -> Any:
    """The call's result, or what it raises. `may_be_undone`: a compensation of its run must not miss it."""
    around = _around(core, tool, intent, may_be_undone=may_be_undone)
    try:
        if isinstance(tool.effect, Atomic) and recorded is None:
            return atomic.drive(core, around, intent, arguments)
        return sync.drive(Course(core, around, intent, arguments, recorded))
    except (_UndoneError, OutcomeUnknown) as error:
        raise _told(error, core, intent) from error.__cause__


async def drive_async(
    core: Core,
    tool: Tool,
    intent: Intent,
    arguments: Mapping[str, Any],
    recorded: Operation | None = None,
    *,
    may_be_undone: bool,
) -> Any:
    """The same; a plain tool runs in a thread, whole."""
    import asyncio  # slow to import, only for async callers

    if not tool.is_async:
        whole = functools.partial(drive, core, tool, intent, arguments, recorded, may_be_undone=may_be_undone)
        return await in_thread(whole)
    around = _around(core, tool, intent, may_be_undone=may_be_undone)
    try:
        return await _async_engine().drive(Course(core, around, intent, arguments, recorded))
    except (_UndoneError, OutcomeUnknown) as error:
        raise await asyncio.to_thread(_told, error, core, intent) from error.__cause__


def drive_within(core: Core, tool: Tool, intent: Intent, arguments: Mapping[str, Any], caller: Any) -> Any:
    """An Atomic tool in the caller's own transaction."""
    around = _around(core, tool, intent, may_be_undone=tool.may_be_undone)
    try:
        return atomic.drive_within(core, around, intent, arguments, caller)
    except _UndoneError as error:
        raise _told(error, core, intent) from None


@functools.cache
def _async_engine() -> Any:
    from semel.engine import aio  # imports asyncio, which is slow, only for async callers

    return aio


# ------------------------------------------------------------------ around the body


_DRIVES = steps.Drives(drive, drive_async)


def _around(core: Core, tool: Tool, intent: Intent, *, may_be_undone: bool) -> Tool:
    """The body, with what it needs around it; the tool as it is where it needs nothing."""
    if isinstance(tool.effect, Steps):
        tool = steps.with_steps(core, tool, _DRIVES, may_be_undone=may_be_undone)
    if may_be_undone:
        tool = tool.with_body(_checked_body(core, tool, intent))
        tool.announces = True
    return tool


class _UndoneError(Rejected):
    """The run is being compensated: what is not sent by now will not be."""


def _checked_body(core: Core, tool: Tool, intent: Intent) -> Callable[..., Any]:
    """Looks, once the claim is recorded, whether the run is being compensated.

    The compensation first records that it has begun and then reads what there is. So either it sees this claim, or
    this call sees that it has begun: none slips through between the two, and no lock is needed.
    """
    saga = keys.saga_key(intent.namespace, intent.run_id)

    def check() -> None:
        if core.store.read(saga) is not None:
            raise _UndoneError("the run is being compensated")

    def plain(**given: Any) -> Any:
        check()
        return tool.fn(**given)

    async def awaited(**given: Any) -> Any:
        import asyncio  # slow to import, only for async callers

        await asyncio.to_thread(check)
        return await tool.fn(**given)

    return awaited if tool.is_async else plain


def _told(error: _UndoneError | OutcomeUnknown, core: Core, intent: Intent) -> BaseException:
    if isinstance(error, _UndoneError):
        return refusals.compensated(intent, core.store.read(intent.key), f"The run {intent.run_id!r}")
    cause = error.__cause__
    if isinstance(cause, OutcomeUnknown) and cause.retry_after is not None:
        error.retry_after = (
            cause.retry_after
        )  # of a step in doubt: before that, repeating the call tells nothing new
    return error
