"""What the guard needs from outside: a store, a clock, a checkpoint, and who knows whether an owner lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

from semel.model import HistoryEntry, Move, Operation, RunEvent, State, Write


class Outcome(NamedTuple):
    """What became of one write. Not applied is an answer, not an error.

    `operation`  the record as it stands now: the write's own where it was applied, else the one that was in
                 its way (for an `Insert`, possibly another intent with the same `once_key`).
    """

    applied: bool
    operation: Operation | None = None


class AtomicTransaction(Protocol):
    """An open transaction of the store. Leaving the block commits it; an exception rolls it back."""

    @property
    def handle(self) -> Any:
        """What the tool gets as `tx`: it can execute statements and cannot end the transaction."""

    def insert(self, operation: Operation) -> Outcome: ...

    def move(self, move: Move) -> Outcome: ...


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

    def read_open(self, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        """Operations in one open state by key, a page at a time."""

    def read_ended_before(self, when: datetime, *, limit: int) -> list[Operation]:
        """Operations in a terminal state, last changed before `when`, not reaped; oldest first."""

    def read_history(self, key: str) -> list[HistoryEntry]: ...

    def read_divergences(self, *, limit: int) -> list[HistoryEntry]: ...

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]: ...

    def transaction(self) -> AbstractContextManager[AtomicTransaction]: ...

    def now(self) -> datetime:
        """The store's own clock: the one authority for leases, deadlines and ages. Costs no round trip."""

    def reset_after_fork(self) -> None:
        """Forget, without closing them, the connections that belong to the parent process."""

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
