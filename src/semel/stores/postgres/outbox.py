"""The outbox in the database: see `semel.ports.Outbox`. Each write is one statement, a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from semel.model import Message
from semel.stores.messages import MessageRows
from semel.stores.postgres.faults import explained
from semel.stores.postgres.place import Connection
from semel.stores.postgres.pool import Pool
from semel.stores.sqlfile import load_statements

_SQL: Final = {
    name: text.encode() for name, text in load_statements(Path(__file__).parent / "outbox.sql").items()
}
# Locks that end with their transaction, so that a pooler may stand between; the second asks, and does not wait.
ANNOUNCE: Final = b"SELECT pg_advisory_xact_lock_shared(hashtextextended(%s, 0))"
IS_QUIET: Final = b"SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"

_ROWS: Final = MessageRows(keep=lambda at: at, revive=lambda at: at.astimezone(UTC))


class PostgresOutbox:
    """`pool` gives the pool of the process: a fork has another."""

    def __init__(self, pool: Callable[[], Pool]) -> None:
        self._pool = pool

    def claim(self, before: Message, after: Message) -> bool:
        return self._write("claim_message", _ROWS.claim_row(before, after)) == 1

    def mark_delivered(self, key: str, *, at: datetime, error: str | None = None) -> bool:
        return self._write("mark_delivered", (at, error, key)) == 1

    def put_off(self, after: Message) -> bool:
        return self._write("put_off", _ROWS.put_off_row(after)) == 1

    def delete_delivered(self, namespace: str, before: datetime, *, limit: int) -> int:
        return self._write("delete_delivered", (namespace, before, limit))

    def read(self, key: str) -> Message | None:
        found = self._read("read_message", (key,))
        return found[0] if found else None

    def read_heads(self, namespace: str) -> list[Message]:
        return self._read("read_heads", {"namespace": namespace})

    def read_undelivered(self, namespace: str, *, limit: int) -> list[Message]:
        return self._read("read_undelivered", (namespace, limit))

    def _write(self, name: str, parameters: Sequence[Any]) -> int:
        with self._pool().link() as link, explained(link.connection, commits=True):
            return link.connection.execute(_SQL[name], parameters).rowcount

    def _read(self, name: str, parameters: Any) -> list[Message]:
        with self._pool().link() as link, explained(link.connection, commits=False):
            rows = link.connection.execute(_SQL[name], parameters).fetchall()
        return [_ROWS.message(row) for row in rows]


def enqueue(connection: Connection, message: Message) -> None:
    """In the transaction that is open."""
    with explained(connection, commits=False):
        psycopg.Cursor(connection, row_factory=tuple_row).execute(_SQL["enqueue"], _ROWS.row(message))
