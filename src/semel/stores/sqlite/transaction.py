"""An open transaction, as an Atomic tool gets it: it executes statements, and the guard alone ends it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from semel.errors import (
    UsageError,
)
from semel.model import (
    Insert,
    Message,
    Move,
    Operation,
)
from semel.ports import Outcome
from semel.stores.sqlite.outbox import enqueue
from semel.stores.sqlite.writes import apply_one, explained, rolled_back_inside

_ENDS_TRANSACTION: Final = frozenset(
    {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
)


class SqliteTransaction:
    """See `semel.ports.AtomicTransaction`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()
        self._cursor.row_factory = None  # a caller's connection may make other rows than tuples
        self.handle = SqliteHandle(connection)

    def insert(self, operation: Operation) -> Outcome:
        return apply_one(self._cursor, Insert(operation))

    def move(self, move: Move) -> Outcome:
        return apply_one(self._cursor, move)

    def enqueue(self, message: Message) -> None:
        enqueue(self._cursor, message)

    def announce(self, name: str) -> None:
        """Nothing: while this transaction is open nobody else writes."""


class SqliteHandle:
    """What an `Atomic` tool gets as `tx`: it executes statements; the guard alone ends the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        with self._statement(sql):
            return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        with self._statement(sql):
            return self._connection.executemany(sql, parameters)

    @contextmanager
    def _statement(self, sql: str) -> Iterator[None]:
        if not self._connection.in_transaction:
            raise rolled_back_inside()
        with _statement_named(sql):
            yield


@contextmanager
def left_open(connection: sqlite3.Connection) -> Iterator[None]:
    """No statement in the block can end the transaction."""
    connection.set_authorizer(_leave_transaction_alone)
    try:
        yield
    finally:
        connection.set_authorizer(None)


def _leave_transaction_alone(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in _ENDS_TRANSACTION else sqlite3.SQLITE_OK


@contextmanager
def _statement_named(sql: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as problem:
        if getattr(problem, "sqlite_errorcode", None) != sqlite3.SQLITE_AUTH:
            raise
        raise UsageError(
            f"An Atomic tool may not execute {sql.strip()[:40]!r}: the guard ends the transaction, effect and "
            "record together. Nothing happened yet. Remove the statement."
        ) from problem


@contextmanager
def joined(connection: sqlite3.Connection) -> Iterator[None]:
    """A part of the caller's transaction. An exception of the block undoes it and passes through."""
    with explained():
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")  # as sqlite3 does before a first write, but surely in time
        connection.execute("SAVEPOINT semel_call")
    try:
        with left_open(connection):
            yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO semel_call")
            connection.execute("RELEASE semel_call")
        raise
    with explained():
        connection.execute("RELEASE semel_call")
