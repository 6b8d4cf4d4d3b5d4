"""The sync engine: carries out one course, each step in the caller's own thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from semel.engine.awaiting import run_to_end
from semel.engine.call import CURRENT_CALL, call_of
from semel.engine.course import Apply, Course, Look, Pause, Perform, Raised, Read, Returned, Step
from semel.engine.tool import Tool
from semel.engine.verdicts import as_evidence, failed_lookup
from semel.errors import StoreError, UsageError
from semel.model import Evidence, Idempotent, Operation, Unsafe


def drive(course: Course) -> Any:
    """The call's result, or what it raises."""
    turns = course.turns()
    resume: Callable[[Any], Step] = turns.send
    answer: Any = None
    try:
        while True:  # bounded by the course
            step = resume(answer)
            try:
                answer, resume = _carry_out(course, step), turns.send
            except StoreError as problem:
                answer, resume = problem, turns.throw
    except StopIteration as end:
        return end.value
    finally:
        turns.close()


def _carry_out(course: Course, step: Step) -> Any:
    match step:
        case Apply(write):
            return course.core.committer.submit(write)
        case Perform():
            return _perform(course.tool, step)
        case Read(key):
            return course.core.store.read(key)
        case Look(operation):
            return look(course.tool, operation)
        case Pause(seconds):
            return time.sleep(seconds)


def _perform(tool: Tool, step: Perform) -> Returned | Raised:
    token = None
    try:
        step.claim.ensure_held()
        call = call_of(step.claim.operation, step.arguments, step.claim)
        token = CURRENT_CALL.set(call)
        return _returned(tool, tool.fn(**call.arguments, **tool.injected(call=call)))
    except BaseException as error:
        return Raised(error)
    finally:
        if token is not None:
            CURRENT_CALL.reset(token)


def _returned(tool: Tool, value: Any) -> Returned | Raised:
    """A value to await is no result: the body behind it has not run."""
    if not hasattr(value, "__await__"):
        return Returned(value)
    if hasattr(value, "close"):
        value.close()
    return Raised(UsageError(f"{tool.name} returned something to await; declare it with `async def`."))


def look(tool: Tool, operation: Operation) -> Evidence:
    """Ask the tool's lookup, sync or async."""
    assert isinstance(tool.effect, Idempotent | Unsafe), "decide asks only these kinds"
    assert tool.effect.lookup is not None, "decide asks only where a lookup is declared"
    try:
        answer = tool.effect.lookup(call_of(operation, None, None))
        if hasattr(answer, "__await__"):
            answer = run_to_end(answer)
    except Exception as problem:
        return failed_lookup(problem)
    return as_evidence(answer, operation.key)
