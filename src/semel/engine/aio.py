"""The async engine: carries out one course without ever blocking the loop on the store.

Cancellation is taken where it is safe. While a claim is being written it is held back, and the claim is given
back unsent; while the effect runs it reaches the tool, and the operation is in doubt; after the effect it
cannot take back the record, which is queued before anything else in the loop gets to run.
A plain function is run by the sync engine, whole, in a thread: what ran the effect also records it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from semel.engine import sync
from semel.engine.awaiting import in_thread
from semel.engine.call import CURRENT_CALL, call_of
from semel.engine.course import Apply, Course, Look, Pause, Perform, Raised, Read, Returned, Step
from semel.engine.tool import Tool
from semel.engine.verdicts import as_evidence, failed_lookup
from semel.errors import NotSent, StoreError
from semel.model import Evidence, Idempotent, Operation, Unsafe, Write
from semel.ports import Outcome


def drive(course: Course) -> Coroutine[Any, Any, Any]:
    """To be awaited: the call's result, or what it raises."""
    if not course.tool.is_async:
        return in_thread(sync.drive, course)
    return _Driver(course).drive()


class _Answer(asyncio.Future[Outcome]):
    """The store's answer to a write. Who waits for it and is cancelled learns of that once it is there: a write
    is bounded by the store's own time-out."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False


class _Driver:
    def __init__(self, course: Course) -> None:
        self._course = course
        self._loop = asyncio.get_running_loop()
        self._cancelled: asyncio.CancelledError | None = None
        self._has_performed = False

    async def drive(self) -> Any:
        turns = self._course.turns()
        resume: Callable[[Any], Step] = turns.send
        answer: Any = None
        try:
            while True:  # bounded by the course
                step = resume(answer)
                try:
                    if isinstance(step, Apply):
                        answer = await self._apply(step.write)
                    elif isinstance(step, Perform):
                        answer = await self._perform(step)
                    else:
                        answer = await self._carry_out(step)
                    resume = turns.send
                except StoreError as problem:
                    answer, resume = problem, turns.throw
        except StopIteration as end:
            if self._cancelled is not None:
                raise self._cancelled from None
            return end.value
        except Exception:
            if self._cancelled is not None:
                raise self._cancelled from None
            raise
        finally:
            turns.close()

    async def _carry_out(self, step: Read | Look | Pause) -> Any:
        match step:
            case Pause(seconds) if self._has_performed:
                return await self._sleep_on(seconds)
            case _ if self._cancelled is not None:
                raise self._cancelled
            case Read(key):
                return await asyncio.to_thread(self._course.core.store.read, key)
            case Look(operation):
                return await look(self._course.tool, operation)
            case Pause(seconds):
                return await asyncio.sleep(seconds)

    async def _apply(self, write: Write) -> Any:
        committer, answer = self._course.core.committer, _Answer(loop=self._loop)
        future = committer.enqueue(write, self._loop, answer)
        if future is None:
            await committer.wait_for_room()  # nothing is queued yet: a cancellation is taken at once
            future = committer.enqueue_in_room(write, answer)
        try:
            return await future
        except asyncio.CancelledError as cancelled:
            if not future.done():
                raise
            self._cancelled = cancelled
            return future.result()

    async def _sleep_on(self, seconds: float) -> None:
        """Between two tries of a completion: the effect stands, and a cancellation has to wait for its record."""
        ends_at = self._loop.time() + seconds
        while (left := ends_at - self._loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError as cancelled:
                self._cancelled = cancelled

    async def _perform(self, step: Perform) -> Returned | Raised:
        if self._cancelled is not None:
            return Raised(NotSent("cancelled before anything was sent"))
        self._has_performed = True
        tool, token = self._course.tool, None
        try:
            step.claim.ensure_held()
            call = call_of(step.claim.operation, step.arguments, step.claim)
            token = CURRENT_CALL.set(call)
            return Returned(await tool.fn(**call.arguments, **tool.injected(call=call)))
        except BaseException as error:
            return Raised(error)
        finally:
            if token is not None:
                CURRENT_CALL.reset(token)


async def look(tool: Tool, operation: Operation) -> Evidence:
    """Ask the tool's lookup; a plain one in a thread."""
    assert isinstance(tool.effect, Idempotent | Unsafe), "decide asks only these kinds"
    lookup = tool.effect.lookup
    assert lookup is not None, "decide asks only where a lookup is declared"
    call = call_of(operation, None, None)
    try:
        if asyncio.iscoroutinefunction(lookup):
            answer = await lookup(call)
        else:
            answer = await in_thread(lookup, call)
            if hasattr(answer, "__await__"):
                answer = await answer
    except Exception as problem:
        return failed_lookup(problem)
    return as_evidence(answer, operation.key)
