"""An Atomic tool's transaction: the guard's own, or the caller's. The tool writes in it and cannot end it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from semel.errors import UsageError
from semel.model import Insert, Message, Move, Operation
from semel.ports import Outcome
from semel.stores.postgres.answers import operation_of
from semel.stores.postgres.batch import single
from semel.stores.postgres.faults import CONFLICTS, explain, explained, given_up, is_lost
from semel.stores.postgres.outbox import ANNOUNCE, enqueue
from semel.stores.postgres.place import Connection
from semel.stores.records import Row, Rows

RACES_MAX: Final = 3  # a claim that found something in its way, which was gone when we looked
_ENDS_TRANSACTION: Final = frozenset({"BEGIN", "START", "COMMIT", "END", "ABORT", "ROLLBACK", "PREPARE"})
_SKIPPED: Final = re.compile(r"\s+|;|--[^\n]*")
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_BACK_TO_SAVEPOINT: Final = re.compile(r"ROLLBACK\s+(WORK\s+|TRANSACTION\s+)?TO\b", re.IGNORECASE)
_PREPARED_STATEMENT: Final = re.compile(r"PREPARE\s+(?!TRANSACTION\b)", re.IGNORECASE)


@contextmanager
def own_transaction(
    connection: Connection, statements: Mapping[str, bytes], rows: Rows
) -> Iterator[PostgresTransaction]:
    """Begins with its first statement, in the same round trip, and ends with the block."""
    try:
        yield PostgresTransaction(connection, statements, rows)
    except BaseException as problem:
        meant = _what_it_means(problem, connection)
        _roll_back(connection)
        if meant is problem:
            raise
        raise meant from problem
    _commit(connection)


@contextmanager
def joined_transaction(
    connection: Connection, statements: Mapping[str, bytes], rows: Rows
) -> Iterator[PostgresTransaction]:
    """A part of the caller's: an exception undoes this part, and the caller's commit or rollback takes it."""
    with explained(connection, commits=False):
        connection.execute("SAVEPOINT semel_call")
    try:
        yield PostgresTransaction(connection, statements, rows)
    except BaseException as problem:
        meant = _what_it_means(problem, connection)
        _back_to_savepoint(connection)
        if meant is problem:
            raise
        raise meant from problem
    with explained(connection, commits=False):
        connection.execute("RELEASE semel_call")


class PostgresTransaction:
    """See `semel.ports.AtomicTransaction`."""

    def __init__(self, connection: Connection, statements: Mapping[str, bytes], rows: Rows) -> None:
        self._connection = connection
        self._statements = statements
        self._rows = rows
        self.handle = PostgresHandle(connection)

    def insert(self, operation: Operation) -> Outcome:
        statement = single(Insert(operation), self._rows)
        for _ in range(RACES_MAX):
            rows = self._execute(statement.name, statement.parameters)
            if statement.changed(rows):
                return Outcome(True, operation)
            if in_the_way := statement.in_the_way(rows):
                return Outcome(False, operation_of(in_the_way))
            found = self._read("read", operation.key) or self._read("read_once", operation.once_key)
            if found is not None:
                return Outcome(False, found)
        return Outcome(False)

    def move(self, move: Move) -> Outcome:
        statement = single(move, self._rows)
        if statement.changed(self._execute(statement.name, statement.parameters)):
            return Outcome(True, move.after)
        return Outcome(False, self._read("read", move.before.key))

    def enqueue(self, message: Message) -> None:
        enqueue(self._connection, message)

    def announce(self, name: str) -> None:
        with explained(self._connection, commits=False):
            psycopg.Cursor(self._connection, row_factory=tuple_row).execute(ANNOUNCE, (name,))

    def _read(self, name: str, value: str | None) -> Operation | None:
        rows = self._execute(name, (value,))
        return self._rows.operation(rows[0]) if rows else None

    def _execute(self, name: str, parameters: Sequence[Any]) -> list[Row]:
        with explained(self._connection, commits=False):
            cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
            if self._connection.pgconn.transaction_status != TransactionStatus.IDLE:
                return cursor.execute(self._statements[name], parameters).fetchall()
            with self._connection.pipeline():  # BEGIN goes along
                cursor.execute(self._statements[name], parameters)
            return cursor.fetchall()


class PostgresHandle:
    """What an `Atomic` tool gets as `tx`: it executes statements; the guard, or the caller, ends the
    transaction. Rows are tuples unless a cursor is asked for others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, query: Any, params: Any = None) -> psycopg.Cursor[Any]:
        return self.cursor().execute(query, params)

    def executemany(self, query: Any, params_seq: Any) -> psycopg.Cursor[Any]:
        cursor = self.cursor()
        cursor.executemany(query, params_seq)
        return cursor

    def cursor(self, *, row_factory: Any = tuple_row) -> psycopg.Cursor[Any]:
        return _ToolCursor(self._connection, row_factory=row_factory)


class _ToolCursor(psycopg.Cursor[Any]):
    """A cursor of psycopg's, less what ends a transaction."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        _refuse_to_end(query, self._conn)
        if params:
            return super().execute(query, params, **options)
        with self._conn.pipeline():  # one statement: without parameters a second could hide behind the first
            return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        _refuse_to_end(query, self._conn)
        super().executemany(query, params_seq, **options)

    def stream(self, query: Any, params: Any = None, **options: Any) -> Iterator[Any]:
        _refuse_to_end(query, self._conn)
        return super().stream(query, params, **options)


def _refuse_to_end(query: Any, connection: psycopg.Connection[Any]) -> None:
    text = _text_of(query, connection)
    statement = text[_start_of_statement(text) :]
    word = re.match(r"\w*", statement)
    if word is None or word[0].upper() not in _ENDS_TRANSACTION:
        return
    if _BACK_TO_SAVEPOINT.match(statement) or _PREPARED_STATEMENT.match(statement):
        return
    raise UsageError(
        f"An Atomic tool may not execute {statement.strip()[:40]!r}: effect and record end together, with the "
        "transaction. Nothing happened yet. Remove the statement."
    )


def _text_of(query: Any, connection: psycopg.Connection[Any]) -> str:
    if isinstance(query, str):
        return query
    if isinstance(query, bytes):
        return query.decode("utf-8", "replace")
    return sql.SQL("{}").format(query).as_string(connection)


def _start_of_statement(text: str) -> int:
    """Past white space, empty statements and comments, which nest in PostgreSQL."""
    at = 0
    while at < len(text):  # ends: each round goes forward, or stops
        skipped = _SKIPPED.match(text, at)
        if skipped is not None:
            at = skipped.end()
        elif text.startswith("/*", at):
            at = _end_of_comment(text, at)
        else:
            break
    return at


def _end_of_comment(text: str, start: int) -> int:
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


# ------------------------------------------------------------------ how it ends


def _what_it_means(problem: BaseException, connection: Connection) -> BaseException:
    """The tool's own error, but for those by which the database says what became of the transaction."""
    if isinstance(problem, CONFLICTS):
        return explain(problem, connection, commits=False)
    if isinstance(problem, psycopg.Error) and is_lost(connection, problem):
        return explain(problem, connection, commits=False)
    return problem


def _commit(connection: Connection) -> None:
    if connection.pgconn.transaction_status == TransactionStatus.INERROR:
        _roll_back(connection)
        raise given_up()
    try:
        connection.commit()
    except psycopg.Error as problem:
        is_users_own = isinstance(
            problem, psycopg.IntegrityError
        )  # a deferred constraint on a table of theirs
        _roll_back(connection)
        if is_users_own:
            raise
        raise explain(problem, connection, commits=True) from problem


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()  # the transaction ends with its connection


def _back_to_savepoint(connection: Connection) -> None:
    try:
        connection.execute("ROLLBACK TO semel_call")
        connection.execute("RELEASE semel_call")
    except psycopg.Error:
        return  # the caller's transaction is lost with its connection, or will tell at its own end
