"""Messages as rows and back, in the column order of every store's `outbox.sql`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from semel.model import Message
from semel.stores.records import Row


class MessageRows:
    """`keep` makes a column of an instant, `revive` an aware UTC instant of a column."""

    def __init__(self, *, keep: Callable[[datetime], Any], revive: Callable[[Any], datetime]) -> None:
        self.keep = keep
        self._revive = revive

    def row(self, message: Message) -> Row:
        return (
            message.key,
            message.namespace,
            message.topic,
            message.operation,
            message.number,
            message.payload,
            message.fence,
            message.owner,
            self._maybe_kept(message.lease_expires_at),
            message.failures,
            message.error,
            self.keep(message.enqueued_at),
            self.keep(message.due_at),
            self._maybe_kept(message.delivered_at),
        )

    def claim_row(self, before: Message, after: Message) -> Row:
        return (after.fence, after.owner, self._maybe_kept(after.lease_expires_at), before.key, before.fence)

    def put_off_row(self, after: Message) -> Row:
        return (after.failures, after.error, self.keep(after.due_at), after.key, after.fence)

    def message(self, row: Row) -> Message:
        return Message(
            key=row[0],
            namespace=row[1],
            topic=row[2],
            operation=row[3],
            number=row[4],
            payload=row[5],
            fence=row[6],
            owner=row[7],
            lease_expires_at=self._maybe_revived(row[8]),
            failures=row[9],
            error=row[10],
            enqueued_at=self._revive(row[11]),
            due_at=self._revive(row[12]),
            delivered_at=self._maybe_revived(row[13]),
        )

    def _maybe_kept(self, at: datetime | None) -> Any:
        return None if at is None else self.keep(at)

    def _maybe_revived(self, column: Any) -> datetime | None:
        return None if column is None else self._revive(column)
