"""The guard: what a program holds in its hands."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Generator
from datetime import timedelta
from typing import Any, Final, TypeVar

from semel import keys
from semel.decide import decide as decide_soundly
from semel.engine import compensate as sagas
from semel.engine import outbox as messages
from semel.engine import sweeps, sync
from semel.engine.claims import Heartbeat
from semel.engine.core import Core, Decide
from semel.engine.course import Apply, Look
from semel.engine.group_commit import GroupCommit
from semel.engine.names import require_text
from semel.engine.owner import ProcessOwners
from semel.engine.resolve import resolve
from semel.engine.run import RunEntrance, call_in_current_run
from semel.engine.tool import OncePer, Tool
from semel.errors import UsageError
from semel.model import Effect, HistoryEntry, Message, Operation, Resolution, State
from semel.ports import Checkpoint, Store, no_checkpoint

LEASE: Final = timedelta(seconds=30)
WAIT: Final = timedelta(seconds=10)
CLOSING: Final = timedelta(seconds=5)

Swept = TypeVar("Swept")


class Guard:
    """One intent, one effect. Made by `semel.open(url)`; safe to share between threads, tasks and forks."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = "",
        lease: timedelta = LEASE,
        wait: timedelta = WAIT,
        checkpoint: Checkpoint = no_checkpoint,
        decide: Decide = decide_soundly,
    ) -> None:
        """
        `namespace`  keeps several programs apart in one store.
        `lease`      how long a silent owner counts as alive; renewed while its effect runs.
        `wait`       how long a call waits for a live owner, or for evidence to count, before it says so.
        """
        _check_options(namespace, lease, wait)
        keys.prepare()
        committer = GroupCommit(store.apply)
        self._core = Core(
            store=store,
            committer=committer,
            heartbeat=Heartbeat(committer.submit, store.now, lease),
            owners=ProcessOwners(),
            namespace=namespace,
            lease=lease,
            wait=wait,
            checkpoint=checkpoint,
            decide=decide,
        )
        self._tools: dict[str, Tool] = {}
        _take_part_in_forks(self)

    @property
    def store(self) -> Store:
        return self._core.store

    @property
    def namespace(self) -> str:
        return self._core.namespace

    # -------------------------------------------------------------- tools and runs

    def tool(
        self,
        *,
        effect: Effect,
        once_per: OncePer | None = None,
        name: str | None = None,
        attempts: int = 1,
        irreversible: bool = False,
    ) -> Callable[[Callable[..., Any]], Tool]:
        """Register a function as a tool.

        `effect`    what a crash means for it: Safe(), Idempotent(...), Atomic(), Unsafe(...) or Steps(...).
        `once_per`  the business identity: names of arguments, or a function of them. A second intent with the
                    same identity does not run; it gets the first one's result, or waits, or is refused.
        `attempts`  how often one call may try, where another attempt is licensed; 1 leaves retrying to you.
        `irreversible`  what it does stands when its run is compensated; else it needs a `@tool.compensation`.
        """

        def register(fn: Callable[..., Any]) -> Tool:
            tool = Tool(
                fn,
                name=name,
                effect=effect,
                once_per=once_per,
                attempts=attempts,
                irreversible=irreversible,
                caller=call_in_current_run,
                registrar=self._register,
            )
            self._register(tool)
            return tool

        return register

    def _register(self, tool: Tool) -> None:
        if tool.name in self._tools:
            raise UsageError(
                f"A tool named {tool.name!r} is registered already. Nothing was registered. Pass name=."
            )
        self._tools[tool.name] = tool

    def run(self, run_id: str) -> RunEntrance:
        """Enter with `with` or `async with`. The same id is the same run, resumed."""
        return RunEntrance(self._core, run_id, self._tools)

    # -------------------------------------------------------------- looking

    def read(self, key: str) -> Operation | None:
        return self.store.read(key)

    def history(self, key: str) -> list[HistoryEntry]:
        """What happened to an operation besides the plain claim and completion, oldest first."""
        return self.store.read_history(key)

    def in_doubt(self) -> list[Operation]:
        """Everything UNKNOWN."""
        return list(sweeps.open_operations(self._core, State.UNKNOWN))

    def divergences(self, *, limit: int = 100) -> list[HistoryEntry]:
        """Effects that happened against what was declared, newest first."""
        return self.store.read_divergences(self.namespace, limit=limit)

    # -------------------------------------------------------------- settling

    def resolve(
        self,
        key: str,
        answer: Resolution,
        *,
        by: str,
        why: str,
        fingerprint: str | None = None,
        attempt: int | None = None,
    ) -> Operation:
        """A person's answer: ItHappened(result), RunIt() or GiveUp(); recorded with who and why.

        `fingerprint`, `attempt`: as shown to the person (`PausedForPerson` carries both); refused if the call was
        another one, or if another attempt has begun since.
        Raises `ClaimHeld` while it still runs, `IllegalTransition` where there is nothing to answer, and for a
        GiveUp() `OutcomeUnknown` while a request may still land (`request_deadline`; the default's, where the tool
        is not registered here).
        """
        operation = self.read(key)
        tool = None if operation is None else self._tools.get(operation.tool)
        return resolve(
            self._core,
            key,
            answer,
            by=by,
            why=why,
            fingerprint=fingerprint,
            attempt=attempt,
            effect=None if tool is None else tool.effect,
        )

    def recover(self) -> list[Operation]:
        """Move every claim whose owner is gone to UNKNOWN; those moved. Causes no effect."""
        return sweeps.recover(self._core)

    def reconcile(self) -> sweeps.Reconciled:
        """Ask the lookups about everything UNKNOWN, and settle what they prove. Causes no effect."""
        return self._swept(sweeps.reconcile(self._core, self._tools))

    def audit(self) -> sweeps.Audited:
        """Ask the lookups once more about everything COMMITTED that was sent more than once. Causes no effect.

        Where a declaration was false (a request landed after its `request_deadline`, a lookup lagged longer than
        its `lookup_lag`) and whoever sent first is dead, nobody comes back with a second result. But the provider
        shows two effects, and a lookup that says so (`Found(…, times=2)`) brings it to light: recorded as a
        divergence, once for each number.

        Nobody can see it where there is no lookup (a blind provider, a key forgotten before its time), and nobody
        looks where the record is reaped: audit first. Costs a pass over all ended operations that are not reaped,
        page by page, and a lookup for each that was sent more than once.
        """
        return self._swept(sweeps.audit(self._core, self._tools))

    def _swept(self, steps: Generator[Apply | Look, Any, Swept]) -> Swept:
        answer: Any = None
        try:
            while True:  # bounded by the number of operations
                match steps.send(answer):
                    case Apply(write):
                        answer = self._core.committer.submit(write)
                    case Look(operation):
                        answer = sync.look(self._tools[operation.tool], operation)
        except StopIteration as end:
            result: Swept = end.value
            return result

    # -------------------------------------------------------------- compensating

    def compensate(self, run_id: str, *operations: sagas.Named) -> list[str]:
        """Undo a run, or the operations named, without its program: see `Run.compensate`.

        The tools must be registered. Async compensations run to their end in a loop of their own.
        """
        return sagas.compensate(
            self._core, self._tools, run_id, sagas.named_keys(self._core, run_id, operations)
        )

    async def compensate_async(self, run_id: str, *operations: sagas.Named) -> list[str]:
        """The same from async code: async compensations run in this loop, plain ones in threads."""
        import asyncio  # slow to import, only for async callers

        named = await asyncio.to_thread(sagas.named_keys, self._core, run_id, operations)
        return await sagas.compensate_async(self._core, self._tools, run_id, named)

    def open_sagas(self) -> list[sagas.Saga]:
        """Every undoing that has begun and is not finished."""
        return sagas.open_sagas(self._core)

    # -------------------------------------------------------------- messages

    def relay(
        self, deliver: messages.Deliver, *, topics: Collection[str] | None = None, limit: int = 100
    ) -> messages.Relayed:
        """Deliver what Atomic tools have enqueued (`call.enqueue`): in each topic the oldest first.

        `deliver`  gets a `Delivery`, and raises if it did not succeed: the message then stays, holds its topic up,
                   and is due again after a delay that grows (1 s to 5 min). At least once outwards, once by `key`.
                   It must end within the guard's `lease`, or another relay delivers the message too; where it is
                   interrupted, the message is taken up again after that.
        `topics`   only these; `limit`, at most so many. Relays may run side by side, and one that dies is replaced.
        """
        return messages.relay(self._core, deliver, topics=topics, limit=limit)

    async def relay_async(
        self, deliver: messages.Deliver, *, topics: Collection[str] | None = None, limit: int = 100
    ) -> messages.Relayed:
        """The same from async code; a plain `deliver` runs in a thread."""
        return await messages.relay_async(self._core, deliver, topics=topics, limit=limit)

    def outbox(self, *, limit: int = 100) -> list[Message]:
        """What is not delivered yet, oldest first, with `failures`, `error` and `due_at`."""
        return self.store.outbox.read_undelivered(self.namespace, limit=limit)

    def skip_message(self, key: str, *, by: str, why: str) -> None:
        """Take a message out of its topic's way, undelivered; recorded with who and why."""
        messages.skip(self._core, key, by=by, why=why)

    def reap(self, *, older_than: timedelta) -> int:
        """Delete arguments and results of operations that ended longer ago than this; how many operations.

        Their keys stay: a late repeat is refused, not run again. Messages delivered before then are deleted.
        """
        reaped = sweeps.reap(self._core, older_than=older_than)
        messages.delete_delivered(self._core, older_than=older_than)
        return reaped

    # -------------------------------------------------------------- the end

    def close(self) -> None:
        """Wait a moment for calls in flight, then close. What has not ended is in doubt, as after a crash."""
        self._core.heartbeat.wait_until_idle(min(self._core.lease, CLOSING))
        self._core.heartbeat.close()
        self._core.committer.close()
        self.store.close()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _after_fork_in_child(self) -> None:
        core = self._core
        core.store.after_fork_in_child()
        core.committer.reset_after_fork()
        core.heartbeat.reset_after_fork()
        core.owners = ProcessOwners()
        core.never_sent = set()


def _check_options(namespace: str, lease: timedelta, wait: timedelta) -> None:
    require_text(namespace, "namespace")
    if not isinstance(lease, timedelta) or lease <= timedelta(0):
        raise UsageError(f"lease={lease!r} must be a timedelta and positive. Nothing was opened.")
    if not isinstance(wait, timedelta) or wait < timedelta(0):
        raise UsageError(f"wait={wait!r} must be a timedelta and not negative. Nothing was opened.")


def _take_part_in_forks(guard: Guard) -> None:
    """A forked child gets connections, locks, threads and an identity of its own."""
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.ref(guard)

    def tell(what: Callable[[Guard], None]) -> Callable[[], None]:
        def with_guard() -> None:
            alive = reference()
            if alive is not None:
                what(alive)

        return with_guard

    os.register_at_fork(
        before=tell(lambda alive: alive.store.before_fork()),
        after_in_parent=tell(lambda alive: alive.store.after_fork_in_parent()),
        after_in_child=tell(Guard._after_fork_in_child),
    )
