"""Records as rows and back, in the column order of every store's `queries.sql`.

A store says how it keeps an instant; everything else is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from semel.keys import run_name
from semel.model import Event, HistoryEntry, Insert, Move, Operation, RunEvent, State, Write

Durability: TypeAlias = Literal["one-flush", "strict"]
Row: TypeAlias = tuple[Any, ...]

PAST_HEX: Final = "g"  # sorts after every character of a key

_COLUMNS: Final = tuple(field.name for field in fields(Operation))  # in the order of every `queries.sql`

_DURABLE_EVENTS: Final = frozenset(
    {Event.CLAIMED, Event.RESENT, Event.REJECTED, Event.CONFIRMED, Event.CLEARED, Event.ABANDONED}
)


def is_durable(write: Write) -> bool:
    """Must survive power loss before anything is done on the strength of it. A completion need not: losing it
    leaves UNKNOWN, never a second effect. "It will not happen" must: whoever was told may have gone another way."""
    return isinstance(write, Insert) or (isinstance(write, Move) and write.event in _DURABLE_EVENTS)


def is_fresh_claim(op: Operation) -> bool:
    """Whether it is as `lifecycle.open_claim` makes it, so that few columns tell the rest."""
    return (
        op.state is State.INVOKED
        and op.fence == 1
        and op.first_sent_at == op.created_at == op.updated_at
        and op.lease_expires_at == op.send_deadline_at
        and not op.earlier_in_doubt
        and (op.result, op.error, op.reaped_at) == (None, None, None)
    )


def entry_of(move: Move) -> HistoryEntry:
    return HistoryEntry(
        key=move.before.key,
        event=move.event,
        from_state=move.before.state,
        to_state=move.after.state,
        fence=move.after.fence,
        at=move.after.updated_at,
        by=move.by,
        why=move.why,
    )


class Rows:
    """`keep` makes a column of an instant, `revive` an aware UTC instant of a column."""

    def __init__(self, *, keep: Callable[[datetime], Any], revive: Callable[[Any], datetime]) -> None:
        self._keep = keep
        self._revive = revive

    # -------------------------------------------------------------- out

    def operation_row(self, op: Operation) -> Row:
        """Its columns, and whether it stands apart from its run. A fresh claim has few instants, many times."""
        keep, created_at, lease_expires_at = self._keep, op.created_at, op.lease_expires_at
        created = keep(created_at)
        lease = None if lease_expires_at is None else keep(lease_expires_at)
        return (
            op.key,
            op.namespace,
            op.run_id,
            op.step,
            op.call_id,
            op.tool,
            op.effect,
            op.fingerprint,
            op.arguments,
            op.once_key,
            op.state.value,
            op.fence,
            op.owner,
            lease,
            created if op.first_sent_at is created_at else self._maybe_kept(op.first_sent_at),
            lease if op.send_deadline_at is lease_expires_at else self._maybe_kept(op.send_deadline_at),
            op.earlier_in_doubt,
            op.result,
            op.error,
            created,
            created if op.updated_at is created_at else keep(op.updated_at),
            self._maybe_kept(op.reaped_at),
            not op.key.startswith(run_name(op.namespace, op.run_id)),
        )

    def claim_row(self, op: Operation) -> Row:
        """What there is to say of a fresh claim; all else follows."""
        return (
            op.key,
            op.namespace,
            op.run_id,
            op.step,
            op.call_id,
            op.tool,
            op.effect,
            op.fingerprint,
            op.arguments,
            op.once_key,
            op.owner,
            self._keep(op.created_at),
            self._maybe_kept(op.lease_expires_at),
            not op.key.startswith(run_name(op.namespace, op.run_id)),
        )

    def move_row(self, move: Move) -> Row:
        before, after = move.before, move.after
        return (
            after.arguments,
            after.state.value,
            after.fence,
            after.owner,
            self._maybe_kept(after.lease_expires_at),
            self._maybe_kept(after.first_sent_at),
            self._maybe_kept(after.send_deadline_at),
            after.earlier_in_doubt,
            after.result,
            after.error,
            self._keep(after.updated_at),
            self._maybe_kept(after.reaped_at),
            before.key,
            before.state.value,
            before.fence,
            self._maybe_kept(move.seen_lease_at),
        )

    def commit_row(self, move: Move) -> Row:
        return (move.after.result, self._keep(move.after.updated_at), move.before.key, move.before.fence)

    def history_row(self, entry: HistoryEntry) -> Row:
        return (
            entry.key,
            entry.event.value,
            entry.from_state.value,
            entry.to_state.value,
            entry.fence,
            self._keep(entry.at),
            entry.by,
            entry.why,
        )

    def event_row(self, event: RunEvent) -> Row:
        return (
            event.namespace,
            event.run_id,
            event.position,
            event.kind,
            event.payload,
            self._keep(event.at),
        )

    # -------------------------------------------------------------- back

    def operation(self, row: Row) -> Operation:
        """Its fields as they are: a run of ten thousand is read in one go, and a constructor of 22 arguments costs
        more than all else that is done for each."""
        found = dict(zip(_COLUMNS, row, strict=False))  # what is selected besides is not the record's
        found["state"] = State(row[10])
        found["lease_expires_at"] = self._maybe_revived(row[13])
        found["first_sent_at"] = self._maybe_revived(row[14])
        found["send_deadline_at"] = self._maybe_revived(row[15])
        found["earlier_in_doubt"] = bool(row[16])
        found["created_at"] = self._revive(row[19])
        found["updated_at"] = self._revive(row[20])
        found["reaped_at"] = self._maybe_revived(row[21])
        operation = object.__new__(Operation)
        object.__setattr__(operation, "__dict__", found)
        return operation

    def entry(self, row: Row) -> HistoryEntry:
        return HistoryEntry(
            key=row[0],
            event=Event(row[1]),
            from_state=State(row[2]),
            to_state=State(row[3]),
            fence=row[4],
            at=self._revive(row[5]),
            by=row[6],
            why=row[7],
        )

    def event(self, row: Row) -> RunEvent:
        return RunEvent(
            namespace=row[0],
            run_id=row[1],
            position=row[2],
            kind=row[3],
            payload=row[4],
            at=self._revive(row[5]),
        )

    # -------------------------------------------------------------- maybe

    def _maybe_kept(self, at: datetime | None) -> Any:
        return None if at is None else self._keep(at)

    def _maybe_revived(self, column: Any) -> datetime | None:
        return None if column is None else self._revive(column)
