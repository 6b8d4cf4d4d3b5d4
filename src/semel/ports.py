"""What the guard needs from outside: a store, a clock, a checkpoint, and who knows whether an owner lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

from semel.model import HistoryEntry, Message, Move, Operation, RunEvent, State, Write


class Outcome(NamedTuple):
    """What became of one write. Not applied is an answer, not an error.

    `operation`  the record as it stands now: the write's own where it was applied, else the one that was in
                 its way (for an `Insert`, possibly another intent with the same `once_key`).
    """

    applied: bool
    operation: Operation | None = None


class SchemaStatus(NamedTuple):
    """`version` 0: there are none of Semel's tables."""

    version: int
    newest: int


class AtomicTransaction(Protocol):
    """An open transaction of the store. Leaving the block commits it; an exception rolls it back."""

    @property
    def handle(self) -> Any:
        """What the tool gets as `tx`: it can execute statements and cannot end the transaction."""

    def insert(self, operation: Operation) -> Outcome: ...

    def move(self, move: Move) -> Outcome: ...

    def enqueue(self, message: Message) -> None: ...

    def announce(self, name: str) -> None:
        """Until this transaction ends `Store.has_announced(name)` is true, or nobody else can write anything."""


class Outbox(Protocol):
    """The messages that transactions have left. It obeys, as the store does: each change says what it saw."""

    def claim(self, before: Message, after: Message) -> bool:
        """Whether the message was as `before` has it, and now is held as `after` has it."""

    def mark_delivered(self, key: str, *, at: datetime, error: str | None = None) -> bool:
        """Whether it was not delivered yet. No fence is asked for: whoever has delivered it has.

        `error`  why it was taken out undelivered, if it was.
        """

    def put_off(self, after: Message) -> bool:
        """Whether it was still held under the fence of `after`; it is then due again as `after` has it."""

    def read(self, key: str) -> Message | None: ...

    def read_heads(self, namespace: str) -> list[Message]:
        """The oldest undelivered message of each topic, oldest first. Costs by the number of topics."""

    def read_undelivered(self, namespace: str, *, limit: int) -> list[Message]:
        """The oldest of all topics, oldest first."""

    def delete_delivered(self, namespace: str, before: datetime, *, limit: int) -> int:
        """How many of those delivered before then are deleted, at most `limit`."""


class Store(Protocol):
    """A store obeys, it does not decide: whether a move is legal was settled in `semel.lifecycle`.

    Raises `StoreUnavailable` (nothing was written), `CommitInDoubt` (perhaps it was), `WriteRefused`
    (this write never will be), `StoreVanished`.
    """

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        """Apply all writes in one transaction, in order; one outcome a write.

        Durable against power loss on return if any of them is a claim (or the store is strict); otherwise
        ordered before whatever is durable next.
        """

    def read(self, key: str) -> Operation | None: ...

    def read_run(self, namespace: str, run_id: str) -> list[Operation]: ...

    def read_open(self, namespace: str, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        """A namespace's operations in one open state by key, a page at a time."""

    def read_ended_before(
        self, namespace: str, when: datetime, *, limit: int, after_key: str = ""
    ) -> list[Operation]:
        """A namespace's operations in a terminal state, last changed before `when`, not reaped, by key.

        No index serves it: a sweep reads the table once, page by page.
        """

    def read_history(self, key: str) -> list[HistoryEntry]: ...

    def read_divergences(self, namespace: str, *, limit: int) -> list[HistoryEntry]: ...

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]: ...

    def transaction(self) -> AbstractContextManager[AtomicTransaction]: ...

    def join(self, caller: Any) -> AbstractContextManager[AtomicTransaction]:
        """A part of the caller's own transaction: leaving the block ends nothing, an exception undoes this part.

        `caller`: a connection to this very database, in a transaction; else `UsageError`, nothing done.
        """

    @property
    def outbox(self) -> Outbox: ...

    def has_announced(self, name: str) -> bool:
        """Whether a transaction is open that has announced itself under this name. If not, then what all of those
        before wrote can be read by now."""

    def now(self) -> datetime:
        """The store's own clock: the one authority for leases, deadlines and ages. Costs no round trip."""

    def before_fork(self) -> None:
        """Whatever has to happen in the parent before it forks; `after_fork_in_parent` follows at once."""

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """Forget the parent's connections without closing them; the child opens its own when it needs one."""

    def close(self) -> None: ...


class Clock(Protocol):
    def now(self) -> datetime: ...


class Owners(Protocol):
    def me(self) -> str:
        """A token for a new claim: this process, and a number that no other claim of it has."""

    def is_gone(self, owner: str) -> bool:
        """True only if the owner's process certainly no longer runs. A paused one does."""


Checkpoint: TypeAlias = Callable[[str, str], None]
"""Called with the name of the place and the operation's key; the lab's kills the process there."""


def no_checkpoint(place: str, key: str) -> None:
    """Pass by."""
