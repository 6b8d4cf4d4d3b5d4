"""The simulated store: compare and set, as every store does, and the loss of what was not flushed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from semel.model import Event, HistoryEntry, Insert, Move, Note, Operation, State, Write
from semel.ports import Outcome
from semel.stores.records import is_durable


class Table:
    """What the courses need of `semel.ports.Store`."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.notes: list[HistoryEntry] = []
        self._rows: dict[str, Operation] = {}
        self._flushed: dict[str, Operation] = {}

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = [self._apply(write) for write in writes]
        if any(is_durable(write) for write in writes):
            self._flushed = dict(self._rows)
        return outcomes

    def read(self, key: str) -> Operation | None:
        return self._rows.get(key)

    def read_open(self, namespace: str, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        """`namespace` and `limit` are not minded: there is one of the one, and few operations."""
        found = (row for row in self._rows.values() if row.state is state and row.key > after_key)
        return sorted(found, key=lambda row: row.key)

    def lose_unflushed(self) -> None:
        """The log is sequential: what comes before the last flushed claim is kept with it."""
        self._rows = dict(self._flushed)

    def _apply(self, write: Write) -> Outcome:
        if isinstance(write, Move):
            return self._move(write)
        if isinstance(write, Insert):
            return self._insert(write.operation)
        assert isinstance(write, Note), "no course writes to a run's log"
        self.notes.append(write.entry)
        return Outcome(True)

    def _insert(self, operation: Operation) -> Outcome:
        there = self._rows.get(operation.key) or self._of_same_event(operation)
        if there is not None:
            return Outcome(False, there)
        self._rows[operation.key] = operation
        return Outcome(True, operation)

    def _of_same_event(self, operation: Operation) -> Operation | None:
        if operation.once_key is None:
            return None
        rows = self._rows.values()
        return next(
            (r for r in rows if r.once_key == operation.once_key and r.state is not State.FAILED), None
        )

    def _move(self, move: Move) -> Outcome:
        before, there = move.before, self._rows.get(move.before.key)
        if there is None:
            return Outcome(False)
        must_be_invoked = move.event is Event.COMMITTED and there.state is not State.INVOKED
        if (there.state, there.fence) != (before.state, before.fence) or must_be_invoked:
            return Outcome(False, there)
        if move.seen_lease_at is not None and there.lease_expires_at != move.seen_lease_at:
            return Outcome(False, there)
        self._rows[before.key] = move.after
        return Outcome(True, move.after)
