"""A run: where a tool's call stands, and therefore what its intent is called.

A run is named after the business event (`renewal:sub_42:2026-12`). Started twice under one name it is the same
run resumed: the calls at the same places are the same intents. On entry the operations it already has are read
in one query, so that a resumed run replays its finished calls without asking the store again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any, Final

from semel import keys, lifecycle, values
from semel.engine import atomic, sync
from semel.engine.call import call_of
from semel.engine.core import Core
from semel.engine.course import Course
from semel.engine.names import require_name
from semel.engine.tool import Tool
from semel.errors import UsageError
from semel.model import Atomic, Intent, Operation, Safe

CURRENT_RUN: Final[ContextVar[RunCore | None]] = ContextVar("semel_current_run", default=None)


class RunCore:
    """The coordinates of a run's calls, and what is already recorded of them."""

    def __init__(self, core: Core, run_id: str) -> None:
        require_name(run_id, "run id")
        self.core = core
        self.run_id = run_id
        self._positions = itertools.count(1)
        self._recorded: Mapping[str, Operation] = {}

    def load(self) -> None:
        """Read what the run has already ended, in one query."""
        operations = self.core.store.read_run(self.core.namespace, self.run_id)
        self._recorded = {op.key: op for op in operations if op.state in lifecycle.TERMINAL}

    def next_step(self) -> str:
        return str(next(self._positions))

    def intent(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Intent:
        """Raises `Unencodable` before anything is written or sent."""
        namespace = self.core.namespace
        identity = tool.business_identity(arguments)
        recorded, canonical = values.encode_and_canonical(dict(arguments))
        return Intent(
            key=keys.idempotency_key(namespace, self.run_id, step, call_id),
            namespace=namespace,
            run_id=self.run_id,
            step=step,
            call_id=call_id,
            tool=tool.name,
            effect=tool.effect.name,
            fingerprint=keys.fingerprint_of_canonical(tool.name, canonical),
            arguments=recorded,
            once_key=None if identity is None else keys.once_key(namespace, tool.name, identity),
        )

    def course(self, tool: Tool, intent: Intent, arguments: Mapping[str, Any]) -> Course:
        return Course(self.core, tool, intent, arguments, self._recorded.get(intent.key))

    def call_sync(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Any:
        if isinstance(tool.effect, Safe):
            return tool.fn(**arguments, **self._safe_extras(tool, arguments, step, call_id))
        intent = self.intent(tool, arguments, step, call_id)
        if isinstance(tool.effect, Atomic) and intent.key not in self._recorded:
            return atomic.drive(self.core, tool, intent, arguments)
        return sync.drive(self.course(tool, intent, arguments))

    def call_within(
        self, caller: Any, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str
    ) -> Any:
        if not isinstance(tool.effect, Atomic):
            raise UsageError(
                f"{tool.name} is {tool.effect.name}: only an Atomic tool's effect can be part of a transaction. "
                "Nothing was sent. Call it with run.call, or declare it Atomic()."
            )
        intent = self.intent(tool, arguments, step, call_id)
        if intent.key in self._recorded:
            return sync.drive(self.course(tool, intent, arguments))
        return atomic.drive_within(self.core, tool, intent, arguments, caller)

    async def call_async(self, tool: Tool, arguments: Mapping[str, Any], step: str, call_id: str) -> Any:
        if not tool.is_async:
            import asyncio  # slow to import, only for async callers

            return await asyncio.to_thread(self.call_sync, tool, arguments, step, call_id)
        if isinstance(tool.effect, Safe):
            return await tool.fn(**arguments, **self._safe_extras(tool, arguments, step, call_id))
        return await _async_engine().drive(
            self.course(tool, self.intent(tool, arguments, step, call_id), arguments)
        )

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


class RunEntrance:
    """Made by `guard.run(run_id)`: enter it with `with` or `async with`."""

    def __init__(self, core: Core, run_id: str) -> None:
        self._core = RunCore(core, run_id)
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


@functools.cache
def _async_engine() -> Any:
    from semel.engine import aio  # imports asyncio, which is slow, only for async callers

    return aio


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
    return tool
