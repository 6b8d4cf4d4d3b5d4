"""The outbox in the file: see `semel.ports.Outbox`.

No write here needs a flush of its own: what is lost to a power cut is delivered again, under the same key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from semel.errors import StoreUnavailable
from semel.model import Message
from semel.stores.clock import instant, microseconds
from semel.stores.messages import MessageRows
from semel.stores.sqlfile import load_statements
from semel.stores.sqlite.connections import Connections
from semel.stores.sqlite.writes import Executor, explained, written

_SQL: Final = load_statements(Path(__file__).parent / "outbox.sql")
_ROWS: Final = MessageRows(keep=microseconds, revive=instant)


class SqliteOutbox:
    """`check` raises if the store cannot be used; `flush` is the level of its unflushed writes."""

    def __init__(self, connections: Connections, check: Callable[[], None], flush: str) -> None:
        self._connections = connections
        self._check = check
        self._flush = flush

    def claim(self, before: Message, after: Message) -> bool:
        return self._write("claim_message", _ROWS.claim_row(before, after)) == 1

    def mark_delivered(self, key: str, *, at: datetime, error: str | None = None) -> bool:
        return self._write("mark_delivered", (microseconds(at), error, key)) == 1

    def put_off(self, after: Message) -> bool:
        return self._write("put_off", _ROWS.put_off_row(after)) == 1

    def delete_delivered(self, namespace: str, before: datetime, *, limit: int) -> int:
        return self._write("delete_delivered", (namespace, microseconds(before), limit))

    def read(self, key: str) -> Message | None:
        found = self._read("read_message", (key,))
        return found[0] if found else None

    def read_heads(self, namespace: str) -> list[Message]:
        return self._read("read_heads", (namespace,))

    def read_undelivered(self, namespace: str, *, limit: int) -> list[Message]:
        return self._read("read_undelivered", (namespace, limit))

    def _write(self, name: str, parameters: tuple[Any, ...]) -> int:
        self._check()
        with self._connections.turn():
            connection = self._connections.writer()
            with written(connection, flush=self._flush), explained():
                return connection.execute(_SQL[name], parameters).rowcount

    def _read(self, name: str, parameters: tuple[Any, ...]) -> list[Message]:
        self._check()
        with self._connections.reading() as connection:
            try:
                rows = connection.execute(_SQL[name], parameters).fetchall()
            except sqlite3.Error as problem:
                raise StoreUnavailable(
                    f"Cannot read the outbox: {problem}. Nothing was changed."
                ) from problem
        return [_ROWS.message(row) for row in rows]


def enqueue(cursor: Executor, message: Message) -> None:
    """In the transaction that is open."""
    with explained():
        cursor.execute(_SQL["enqueue"], _ROWS.row(message))
