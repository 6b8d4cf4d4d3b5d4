"""A run: where a tool's call stands, and therefore what its intent is called.

A run is named after the business event (`renewal:sub_42:2026-12`). Started twice under one name it is the same
run resumed: the calls at the same places are the same intents. On entry the operations it already has are read
in one query, so that a resumed run replays its finished calls without asking the store again.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any, Final

from semel import keys, lifecycle
from semel.engine import calls, refusals
from semel.engine.awaiting import in_thread
from semel.engine.call import CURRENT_CALL, call_of
from semel.engine.compensate import Named, compensate, compensate_async, named_keys
from semel.engine.core import Core
from semel.engine.intents import make_intent, original_of, with_wholes
from semel.engine.names import require_name
from semel.engine.tool import Tool
from semel.errors import UsageError
from semel.model import Atomic, Intent, Operation, Safe

CURRENT_RUN: Final[ContextVar[RunCore | None]] = ContextVar("semel_current_run", default=None)


class RunCore:
    """The coordinates of a run's calls, and what is already recorded of them."""

    def __init__(self, core: Core, run_id: str, tools: Mapping[str, Tool] = MappingProxyType({})) -> None:
        require_name(run_id, "run id")
        self.core = core
        self.run_id = run_id
        self.tools = tools
        self._positions = itertools.count(1)
        self._inside = ""
        self._made_inside = CURRENT_CALL.get()  # of what a tool enters itself, it counts the positions
        self._recorded: Mapping[str, Operation] = {}
        self._undone: set[str] = set()
        self._is_undone = False

    def load(self) -> None:
        """Read what the run has already ended, and what of it was undone, in one query."""
        operations = self.core.store.read_run(self.core.namespace, self.run_id)
        saga = keys.saga_key(self.core.namespace, self.run_id)
        self._recorded = {op.key: op for op in operations if op.state in lifecycle.TERMINAL}
        undone = [original for op in operations if (original := original_of(op)) is not None]
        self._undone = with_wholes(undone, operations) if undone else set()
        self._is_undone = any(op.key == saga for op in operations)

    def is_undone(self, key: str) -> bool:
        """Whether this operation, or the whole run, was compensated, or is being."""
        return self._is_undone or key in self._undone

    def next_step(self) -> str:
        """Of the call whose body runs here, if one of this run does; else of the run."""
        call = CURRENT_CALL.get()
        if call is not None and call is not self._made_inside and call.run_id == self.run_id:
            return call.next_step_inside()
        return f"{self._inside}{next(self._positions)}"

    def inside(self, step: str, call_id: str) -> RunCore:
        """The same run, for the guarded tools that the tool at this place calls itself.

        They are named by that place and counted from one: a resumed run, which replays what came before, would
        count others in the run's own positions.
        """
        inner = copy.copy(self)
        inner._positions = itertools.count(1)
        inner._inside = f"{step}/{call_id}/"  # unambiguous: a position has no "/", and the last part has none
        return inner

    def intent(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Intent:
        """Raises `Unencodable` before anything is written or sent."""
        namespace = self.core.namespace
        return make_intent(
            tool,
            arguments,
            key=keys.idempotency_key(namespace, self.run_id, step, call_id),
            namespace=namespace,
            run_id=self.run_id,
            step=step,
            call_id=call_id,
        )

    def call_sync(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Any:
        if isinstance(tool.effect, Safe):
            return tool.fn(**arguments, **self._safe_extras(tool, arguments, step, call_id))
        intent = self.intent(tool, arguments, step, call_id)
        self._refuse_undone(intent)
        recorded = self._recorded.get(intent.key)
        return calls.drive(self.core, tool, intent, arguments, recorded, may_be_undone=tool.may_be_undone)

    def call_within(
        self, caller: Any, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str
    ) -> Any:
        if not isinstance(tool.effect, Atomic):
            raise UsageError(
                f"{tool.name} is {tool.effect.name}: only an Atomic tool's effect can be part of a transaction. "
                "Nothing was sent. Call it with run.call, or declare it Atomic()."
            )
        intent = self.intent(tool, arguments, step, call_id)
        self._refuse_undone(intent)
        recorded = self._recorded.get(intent.key)
        if recorded is not None:
            return calls.drive(self.core, tool, intent, arguments, recorded, may_be_undone=tool.may_be_undone)
        return calls.drive_within(self.core, tool, intent, arguments, caller)

    async def call_async(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Any:
        if not tool.is_async:
            return await in_thread(self.call_sync, tool, arguments, step, call_id)
        if isinstance(tool.effect, Safe):
            return await tool.fn(**arguments, **self._safe_extras(tool, arguments, step, call_id))
        intent = self.intent(tool, arguments, step, call_id)
        self._refuse_undone(intent)
        recorded = self._recorded.get(intent.key)
        return await calls.drive_async(
            self.core, tool, intent, arguments, recorded, may_be_undone=tool.may_be_undone
        )

    def _refuse_undone(self, intent: Intent) -> None:
        """What was undone is not given back as if it stood; and a run that was undone does not go on."""
        if not self.is_undone(intent.key):
            return
        what = f"The run {intent.run_id!r}" if self._is_undone else "It"
        recorded = self._recorded.get(intent.key) or self.core.store.read(intent.key)
        raise refusals.compensated(intent, recorded, what)

    def compensate(self, named: Sequence[Named]) -> list[str]:
        originals = self._undoing(named)
        return compensate(self.core, self.tools, self.run_id, originals)

    async def compensate_async(self, named: Sequence[Named]) -> list[str]:
        import asyncio  # slow to import, only for async callers

        originals = await asyncio.to_thread(self._undoing, named)
        return await compensate_async(self.core, self.tools, self.run_id, originals)

    def _undoing(self, named: Sequence[Named]) -> Sequence[str]:
        """From now on this run does not call, or give back, what is being undone."""
        originals = named_keys(self.core, self.run_id, named)
        self._is_undone = self._is_undone or not originals
        if originals:
            operations = self.core.store.read_run(self.core.namespace, self.run_id)
            self._undone |= with_wholes(originals, operations)
        return originals

    def _safe_extras(
        self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str
    ) -> dict[str, Any]:
        if not tool.wants_call:
            return {}
        intent = self.intent(tool, arguments, step, call_id)
        now = self.core.store.now()
        operation = lifecycle.open_claim(intent, owner="", now=now, lease=self.core.lease)
        return tool.injected(call=call_of(operation, arguments, None))


class Run:
    """What `with guard.run(...)` gives: every call blocks until its result is recorded."""

    def __init__(self, core: RunCore) -> None:
        self._core = core

    @property
    def run_id(self) -> str:
        return self._core.run_id

    def call(self, tool: Tool, /, *args: Any, **kwargs: Any) -> Any:
        """Call at the run's next position."""
        arguments = _registered(tool).bind(args, kwargs)
        return self._call(tool, arguments, self._core.next_step(), "")

    def call_within(self, connection: Any, tool: Tool, /, *args: Any, **kwargs: Any) -> Any:
        """Call an Atomic tool at the run's next position, in your own transaction.

        `connection`  in a transaction on the guard's own database: of psycopg or sqlite3, or an SQLAlchemy
                      `Session` or `Connection` over one of them.
        It happened, and is recorded, if and only if you commit. An exception undoes this call and nothing else
        of your transaction; after a `TransactionConflict` roll back and run the whole of it again.
        """
        arguments = _registered(tool).bind(args, kwargs)
        return self._core.call_within(connection, tool, arguments, self._core.next_step(), "")

    def call_at(
        self, tool: Tool, arguments: Mapping[str, Any], *, step: str, call_id: str, within: Any = None
    ) -> Any:
        """Call at coordinates of your own: a framework's step and the model's call id.

        `within`  a connection of yours, as in `call_within`.
        """
        require_name(step, "step")
        require_name(call_id, "call id")
        bound = _registered(tool).bind((), arguments)
        if within is not None:
            return self._core.call_within(within, tool, bound, step, call_id)
        return self._call(tool, bound, step, call_id)

    def compensate(self, *operations: Named) -> list[str]:
        """Undo the run, or the operations named by tool, key or record, last one first; the keys of those undone.

        Each is undone by what `@tool.compensation` registered, as an intent whose key comes from the operation:
        asked for again, from elsewhere or after a crash, it is the same one. What is in doubt is first found out
        by evidence; what failed or was never sent needs nothing. Whatever cannot be undone keeps the saga open
        (`guard.open_sagas()`), and raises: `PausedForPerson` where only a person knows, `SagaOpen` at the end.
        A run that is undone does not go on: its calls raise `Compensated`, here and when it is resumed.
        """
        return self._core.compensate(operations)

    def _call(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Any:
        if tool.is_async:
            raise UsageError(
                f"{tool.name} is async; nothing was sent. Enter the run with `async with` and await the call."
            )
        return self._core.call_sync(tool, arguments, step, call_id)


class AsyncRun:
    """What `async with guard.run(...)` gives: every call is awaited; plain tools run in threads."""

    def __init__(self, core: RunCore) -> None:
        self._core = core

    @property
    def run_id(self) -> str:
        return self._core.run_id

    def call(self, tool: Tool, /, *args: Any, **kwargs: Any) -> Any:
        """Call at the run's next position; await what comes back.

        The position is taken now, not when the call is first awaited, so `gather` keeps the written order.
        """
        arguments = _registered(tool).bind(args, kwargs)
        return self._core.call_async(tool, arguments, self._core.next_step(), "")

    def call_at(self, tool: Tool, arguments: Mapping[str, Any], *, step: str, call_id: str) -> Any:
        """Call at coordinates of your own: a framework's step and the model's call id."""
        require_name(step, "step")
        require_name(call_id, "call id")
        return self._core.call_async(tool, _registered(tool).bind((), arguments), step, call_id)

    def compensate(self, *operations: Named) -> Coroutine[Any, Any, list[str]]:
        """Undo the run, or the operations named, as `Run.compensate` does; await what comes back."""
        return self._core.compensate_async(operations)


class RunEntrance:
    """Made by `guard.run(run_id)`: enter it with `with` or `async with`."""

    def __init__(self, core: Core, run_id: str, tools: Mapping[str, Tool]) -> None:
        self._core = RunCore(core, run_id, tools)
        self._token: Token[RunCore | None] | None = None

    def __enter__(self) -> Run:
        self._core.load()
        self._token = CURRENT_RUN.set(self._core)
        return Run(self._core)

    def __exit__(self, *_: object) -> None:
        self._leave()

    async def __aenter__(self) -> AsyncRun:
        import asyncio  # slow to import, only for async callers

        await asyncio.to_thread(self._core.load)
        self._token = CURRENT_RUN.set(self._core)
        return AsyncRun(self._core)

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._token is not None:
            CURRENT_RUN.reset(self._token)
            self._token = None


def call_in_current_run(tool: Tool, arguments: dict[str, Any]) -> Any:
    """A tool called like a function: an async one gives an awaitable, a plain one its result."""
    run = CURRENT_RUN.get()
    if run is None:
        raise UsageError(
            f"{tool.name} was called outside a run, so its intent has no name; nothing was sent. Call it inside "
            "`with guard.run(run_id):`, or call the bare function as `.fn` if the guard is not wanted."
        )
    if tool.is_async:
        return run.call_async(tool, arguments, run.next_step(), "")
    return run.call_sync(tool, arguments, run.next_step(), "")


def _registered(tool: Any) -> Tool:
    if not isinstance(tool, Tool):
        raise UsageError(
            f"{tool!r} is not registered, so nothing is known of its effect; nothing was sent. Decorate it with "
            "@guard.tool(effect=...)."
        )
    if tool.compensates is not None:
        tool(arguments=None, result=None)  # refuses, and says why
    return tool
