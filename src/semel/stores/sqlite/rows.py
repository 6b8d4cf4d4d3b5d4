"""Records as rows and back. Times are microseconds since 1970."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from semel.model import Event, HistoryEntry, Move, Operation, RunEvent, State
from semel.stores.clock import instant, microseconds


def operation_row(op: Operation) -> tuple[Any, ...]:
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
        _maybe_us(op.lease_expires_at),
        _maybe_us(op.first_sent_at),
        _maybe_us(op.send_deadline_at),
        op.earlier_in_doubt,
        op.result,
        op.error,
        microseconds(op.created_at),
        microseconds(op.updated_at),
        _maybe_us(op.reaped_at),
    )


def move_row(move: Move) -> tuple[Any, ...]:
    before, after = move.before, move.after
    return (
        after.arguments,
        after.state.value,
        after.fence,
        after.owner,
        _maybe_us(after.lease_expires_at),
        _maybe_us(after.first_sent_at),
        _maybe_us(after.send_deadline_at),
        after.earlier_in_doubt,
        after.result,
        after.error,
        microseconds(after.updated_at),
        _maybe_us(after.reaped_at),
        before.key,
        before.state.value,
        before.fence,
        _maybe_us(move.seen_lease_at),
    )


def operation_from(row: tuple[Any, ...]) -> Operation:
    return Operation(
        key=row[0],
        namespace=row[1],
        run_id=row[2],
        step=row[3],
        call_id=row[4],
        tool=row[5],
        effect=row[6],
        fingerprint=row[7],
        arguments=row[8],
        once_key=row[9],
        state=State(row[10]),
        fence=row[11],
        owner=row[12],
        lease_expires_at=_maybe_instant(row[13]),
        first_sent_at=_maybe_instant(row[14]),
        send_deadline_at=_maybe_instant(row[15]),
        earlier_in_doubt=bool(row[16]),
        result=row[17],
        error=row[18],
        created_at=instant(row[19]),
        updated_at=instant(row[20]),
        reaped_at=_maybe_instant(row[21]),
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


def history_row(entry: HistoryEntry) -> tuple[Any, ...]:
    return (
        entry.key,
        entry.event.value,
        entry.from_state.value,
        entry.to_state.value,
        entry.fence,
        microseconds(entry.at),
        entry.by,
        entry.why,
    )


def entry_from(row: tuple[Any, ...]) -> HistoryEntry:
    return HistoryEntry(
        key=row[0],
        event=Event(row[1]),
        from_state=State(row[2]),
        to_state=State(row[3]),
        fence=row[4],
        at=instant(row[5]),
        by=row[6],
        why=row[7],
    )


def event_from(row: tuple[Any, ...]) -> RunEvent:
    return RunEvent(
        namespace=row[0], run_id=row[1], position=row[2], kind=row[3], payload=row[4], at=instant(row[5])
    )


def _maybe_us(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)


def _maybe_instant(us: int | None) -> datetime | None:
    return None if us is None else instant(us)
