"""The floor: the same durable work by the raw driver, with nothing of Semel.

For each call a row that says what is about to be done must be on disk before it is done, and a second write
says that it was. `one_flush` lets the second write ride on the next flush; `two_flushes` does not; `batched`
does 64 calls in a transaction for the first write, and one for the second.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from semel.bench.measure import timed
from semel.bench.sizes import IN_FLIGHT

if TYPE_CHECKING:
    import psycopg

ARGUMENTS: Final = '{"n":1}'
RESULT: Final = "1"


class Floor(Protocol):
    """Each returns seconds a call."""

    def one_flush(self, calls: int) -> float: ...

    def two_flushes(self, calls: int) -> float: ...

    def batched(self, calls: int) -> float: ...


def _keys() -> Callable[[], str]:
    """As long as real keys, and as scattered."""
    numbers = itertools.count(1)
    return lambda: f"{next(numbers) * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * 4


class SqliteFloor:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next_key = _keys()

    def one_flush(self, calls: int) -> float:
        return timed(lambda: self._one_by_one(calls, "NORMAL"), calls)

    def two_flushes(self, calls: int) -> float:
        return timed(lambda: self._one_by_one(calls, "FULL"), calls)

    def batched(self, calls: int) -> float:
        return timed(lambda: self._in_batches(calls // IN_FLIGHT), calls)

    def _one_by_one(self, calls: int, completion: str) -> None:
        execute = self._connection.execute
        for _ in range(calls):
            key = self._next_key()
            execute("PRAGMA synchronous = FULL")
            execute(_SQLITE_CLAIM, (key, ARGUMENTS))
            execute(f"PRAGMA synchronous = {completion}")
            execute(_SQLITE_COMPLETE, (RESULT, key))

    def _in_batches(self, batches: int) -> None:
        for _ in range(batches):
            keys = [self._next_key() for _ in range(IN_FLIGHT)]
            self._write("FULL", _SQLITE_CLAIM, [(key, ARGUMENTS) for key in keys])
            self._write("NORMAL", _SQLITE_COMPLETE, [(RESULT, key) for key in keys])

    def _write(self, flush: str, statement: str, rows: Sequence[Any]) -> None:
        self._connection.execute(f"PRAGMA synchronous = {flush}")
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(statement, rows)
        self._connection.execute("COMMIT")


_SQLITE_CLAIM: Final = "INSERT INTO floor (key, state, arguments) VALUES (?, 'INVOKED', ?)"
_SQLITE_COMPLETE: Final = "UPDATE floor SET state = 'COMMITTED', result = ? WHERE key = ?"
_TABLE: Final = """
CREATE TABLE floor (key text NOT NULL PRIMARY KEY, state text NOT NULL, arguments text NOT NULL, result text)
"""


@contextmanager
def sqlite_floor(folder: Path) -> Iterator[SqliteFloor]:
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(_TABLE)
        yield SqliteFloor(connection)
    finally:
        connection.close()


class PostgresFloor:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._next_key = _keys()

    def one_flush(self, calls: int) -> float:
        return timed(lambda: self._one_by_one(calls, _LATER), calls)

    def two_flushes(self, calls: int) -> float:
        return timed(lambda: self._one_by_one(calls, _AT_ONCE), calls)

    def batched(self, calls: int) -> float:
        return timed(lambda: self._in_batches(calls // IN_FLIGHT), calls)

    def _one_by_one(self, calls: int, completion: bytes) -> None:
        execute = self._connection.execute
        for _ in range(calls):
            key = self._next_key()
            execute(_POSTGRES_CLAIM, (key, ARGUMENTS))
            execute(completion, (RESULT, key))

    def _in_batches(self, batches: int) -> None:
        for _ in range(batches):
            keys = [self._next_key() for _ in range(IN_FLIGHT)]
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.executemany(_POSTGRES_CLAIM, [(key, ARGUMENTS) for key in keys])
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute("SET LOCAL synchronous_commit = off")
                cursor.executemany(_AT_ONCE, [(RESULT, key) for key in keys])


_POSTGRES_CLAIM: Final = b"INSERT INTO floor (key, state, arguments) VALUES (%s, 'INVOKED', %s)"
_AT_ONCE: Final = b"UPDATE floor SET state = 'COMMITTED', result = %s WHERE key = %s"
_LATER: Final = (  # one statement, and so one round trip, that says for itself that it need not be waited for
    b"UPDATE floor SET state = 'COMMITTED', result = %s WHERE key = %s "
    b"RETURNING set_config('synchronous_commit', 'off', true)"
)


@contextmanager
def postgres_floor(url: str) -> Iterator[PostgresFloor]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TABLE)
        yield PostgresFloor(connection)
