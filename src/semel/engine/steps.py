"""Recovery points inside a tool: each `call.step` is an operation of its own under the key of the tool's call.

The tool's body is entered again after a crash. So that this is safe, two things are seen to here:

- **The body does not get past a step in doubt.** Once a step of an attempt has ended without being known, every
  further step of that attempt is refused, and whatever the body returns, the tool is left in doubt. So is one whose
  body no longer comes to a step that an earlier attempt left open.
- **A tool did not "certainly not happen" while a step of it stands.** `Rejected` and `NotSent` are believed of the
  whole only if no step has taken effect or may have.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from semel import keys, lifecycle
from semel.engine import refusals
from semel.engine.call import CURRENT_CALL, Call, current_call
from semel.engine.core import Core
from semel.engine.intents import make_intent, parent_of
from semel.engine.names import require_name
from semel.engine.tool import Tool
from semel.errors import NotSent, Rejected, UsageError
from semel.model import Atomic, Effect, Idempotent, Intent, Operation, State, Steps, Unsafe

OPEN: Final = frozenset({State.INVOKED, State.UNKNOWN})
STANDING: Final = OPEN | {State.COMMITTED}


class Drives(NamedTuple):
    """How one call is carried out in each colour (`semel.engine.calls`, which is built on this module)."""

    plain: Callable[..., Any]
    awaited: Callable[..., Awaitable[Any]]


def with_steps(core: Core, tool: Tool, drives: Drives, *, may_be_undone: bool) -> Tool:
    """The same tool, whose body can take steps; made anew for each call of it."""
    make = functools.partial(StepBook, core, tool, drives, may_be_undone)
    return tool.with_body(_awaited_body(tool, make) if tool.is_async else _plain_body(tool, make))


def _plain_body(tool: Tool, make: Callable[[], StepBook]) -> Callable[..., Any]:
    def body(**given: Any) -> Any:
        book = make()
        token = CURRENT_CALL.set(book.call)
        try:
            book.read_earlier_attempts()
            value = tool.fn(**(given | tool.injected(call=book.call)))
            book.require_known()
        except (Rejected, NotSent) as error:
            raise book.meaning_of(error) from error.__cause__
        finally:
            CURRENT_CALL.reset(token)
        return value

    return body


def _awaited_body(tool: Tool, make: Callable[[], StepBook]) -> Callable[..., Any]:
    async def body(**given: Any) -> Any:
        import asyncio  # slow to import, only for async callers

        book = make()
        is_first = book.call.attempt == 1  # and then nothing is read
        token = CURRENT_CALL.set(book.call)
        try:
            if not is_first:
                await asyncio.to_thread(book.read_earlier_attempts)
            value = await tool.fn(**(given | tool.injected(call=book.call)))
            if is_first:
                book.require_known()
            else:
                await asyncio.to_thread(book.require_known)
        except (Rejected, NotSent) as error:
            raise await asyncio.to_thread(book.meaning_of, error) from error.__cause__
        finally:
            CURRENT_CALL.reset(token)
        return value

    return body


class StepBook:
    """The steps of one attempt of one tool."""

    def __init__(self, core: Core, tool: Tool, drives: Drives, may_be_undone: bool) -> None:
        self._core = core
        self._may_be_undone = may_be_undone
        self._parent = tool
        self._drives = drives
        self._taken: set[str] = set()
        self._recorded: Mapping[str, Operation] = {}
        self._unknown: BaseException | None = None
        self.call: Call = dataclasses.replace(current_call(), steps=self)

    # -------------------------------------------------------------- one step

    def take(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        effect: Effect | None,
    ) -> Any:
        """The step's result; in an async tool, what is to be awaited for it."""
        require_name(name, "step's name")
        tool = self._tool(name, fn, effect)
        arguments = tool.bind(args, kwargs)
        intent = self._intent(tool, arguments, name)
        self._begin(name)
        recorded = self._recorded.get(intent.key)
        if self._parent.is_async:
            return self._await(tool, intent, arguments, recorded)
        try:
            return self._drives.plain(
                self._core, tool, intent, arguments, recorded, may_be_undone=self._may_be_undone
            )
        except BaseException as error:
            self._see(error)
            raise

    async def _await(
        self, tool: Tool, intent: Intent, arguments: Mapping[str, Any], recorded: Operation | None
    ) -> Any:
        try:
            return await self._drives.awaited(
                self._core, tool, intent, arguments, recorded, may_be_undone=self._may_be_undone
            )
        except BaseException as error:
            self._see(error)
            raise

    def _begin(self, name: str) -> None:
        if self._unknown is not None:
            raise refusals.past_a_step_in_doubt(self.call, name, self._unknown) from self._unknown
        if name in self._taken:
            raise UsageError(
                f"{self.call.tool} takes the step {name!r} twice in one attempt. The second one sent nothing. Its "
                "name is all that tells a step from another: number those of a loop."
            )
        self._taken.add(name)

    def _see(self, error: BaseException) -> None:
        """Whatever does not say how the step ended leaves it unknown, a cancellation among it."""
        if getattr(error, "outcome", "unknown") == "unknown" and self._unknown is None:
            self._unknown = error

    def _intent(self, tool: Tool, arguments: Mapping[str, Any], name: str) -> Intent:
        return make_intent(
            tool,
            arguments,
            key=keys.step_key(self.call.key, name),
            namespace=self._core.namespace,
            run_id=self.call.run_id,
            step=self.call.key,
            call_id=name,
        )

    def _tool(self, name: str, fn: Callable[..., Any], effect: Effect | None) -> Tool:
        tool = fn if isinstance(fn, Tool) else self._made(name, fn, effect)
        if isinstance(fn, Tool) and effect is not None:
            raise _wrong(self.call, name, f"{fn.name} is a tool and has declared its effect already")
        if not isinstance(tool.effect, Idempotent | Atomic | Unsafe | Steps):
            raise _wrong(self.call, name, "what only reads needs no step: call it")
        if tool.is_async and not self._parent.is_async:
            raise _wrong(self.call, name, "an async step needs an async tool around it")
        if tool.compensates is not None:
            raise _wrong(self.call, name, f"{tool.name} undoes {tool.compensates}; run.compensate calls it")
        return tool

    def _made(self, name: str, fn: Callable[..., Any], effect: Effect | None) -> Tool:
        parent = self._parent.effect
        kind = effect or (parent.each if isinstance(parent, Steps) else None)
        if kind is None:
            raise _wrong(
                self.call, name, "its effect is not declared; say effect=, or Steps(each=...) on the tool"
            )
        return Tool(fn, name=f"{self._parent.name}/{name}", effect=kind)

    # -------------------------------------------------------------- what the steps say of the whole

    def read_earlier_attempts(self) -> None:
        """What they finished is given back without asking the store for each."""
        if self.call.attempt > 1:
            self._recorded = {op.key: op for op in self._read() if op.state in lifecycle.TERMINAL}

    def require_known(self) -> None:
        """Raise unless every step of this attempt, and of those before it, has ended one way or the other."""
        if self._unknown is not None:
            raise self._unknown
        left_open = [op.call_id for op in self._read() if op.state in OPEN] if self.call.attempt > 1 else []
        if left_open:
            raise refusals.steps_left_open(self.call, left_open)

    def meaning_of(self, error: Rejected | NotSent) -> Exception:
        """What it says of the whole tool."""
        steps = {keys.step_key(self.call.key, name) for name in self._taken}
        if error.key not in steps | {None, self.call.key}:
            return error  # of a guarded tool called inside this one
        standing = [op.call_id for op in self._read() if op.state in STANDING]
        if standing:
            return refusals.partly_done(self.call, standing, error)
        error.key = self.call.key
        return error

    def _read(self) -> list[Operation]:
        operations = self._core.store.read_run(self._core.namespace, self.call.run_id)
        return [operation for operation in operations if parent_of(operation) == self.call.key]


def _wrong(call: Call, name: str, what: str) -> UsageError:
    return UsageError(f"{call.tool} cannot take the step {name!r}: {what}. Nothing of it was sent.")
