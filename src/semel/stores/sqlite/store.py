"""The SQLite store: embedded, one file, many processes on one host.

Danger lives here in four places:

- **Durability.** The claim must survive power loss before anything is sent, the completion need not (the log
  is sequential: the next claim's flush carries it, and losing it leaves UNKNOWN, never a duplicate). In WAL
  mode `synchronous=FULL` flushes each commit and `NORMAL` does not, so the setting changes per transaction.
- **COMMIT.** "Busy" at COMMIT means nothing was written; any other failure there means we do not know.
- **Fork.** See `connections.py`.
- **The file itself.** A file on a network has no reliable locks; a file that was deleted or replaced still
  takes writes that nobody will ever see. Both are refused.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from semel.errors import (
    CommitInDoubt,
    StoreError,
    StoreUnavailable,
    StoreVanished,
    UsageError,
    WriteRefused,
)
from semel.lifecycle import UNREMARKABLE
from semel.model import (
    Append,
    Event,
    HistoryEntry,
    Insert,
    Move,
    Note,
    Operation,
    RunEvent,
    State,
    Write,
)
from semel.ports import Clock, Outcome
from semel.stores.callers import driver_connection
from semel.stores.clock import instant, microseconds
from semel.stores.records import Durability, Rows, entry_of, is_durable
from semel.stores.sqlfile import load_statements
from semel.stores.sqlite.connections import Connections, WritingConnection
from semel.stores.sqlite.place import check_place, memory_folder
from semel.stores.sqlite.schema import Existing, prepare_schema, shared_clock

_HERE: Final = Path(__file__).parent
_SQL: Final = load_statements(_HERE / "queries.sql")
_ROWS: Final = Rows(keep=microseconds, revive=instant)
_ENDS_TRANSACTION: Final = frozenset(
    {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
)

T = TypeVar("T")


class SqliteStore:
    """See `semel.ports.Store`.

    `path`        the database file; None keeps everything in memory for tests (a private file on a memory
                  file system that is never flushed and is deleted on close).
    `durability`  "one-flush": claims are flushed; "strict": every write is.
    `existing`    what to do with a database that holds other tables and none of ours: "refuse" or "adopt".
    `busy_timeout_seconds`  how long to wait for another process's write.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        durability: Durability = "one-flush",
        existing: Existing = "refuse",
        busy_timeout_seconds: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        if durability not in ("one-flush", "strict"):
            raise UsageError(f"durability={durability!r}: say 'one-flush' or 'strict'. Nothing was opened.")
        if existing not in ("refuse", "adopt"):
            raise UsageError(f"existing={existing!r}: say 'refuse' or 'adopt'. Nothing was opened.")
        self._remove_folder: weakref.finalize[Any, SqliteStore] | None = None
        if path is None:
            folder = tempfile.mkdtemp(prefix="semel-", dir=memory_folder())
            self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = Path(folder) / "memory.db"
        self._path = path.absolute()
        self._path_as_text = str(self._path)  # looked at with every write
        self._durability = durability
        self._busy_timeout_seconds = busy_timeout_seconds
        self._is_in_memory = self._remove_folder is not None
        self._is_closed = False
        check_place(self._path)
        self._connections = Connections(self._path, busy_timeout_seconds)
        self._clock = self._prepare(existing, clock)
        self._identity = _identity(self._path)

    def _prepare(self, existing: Existing, clock: Clock | None) -> Clock:
        try:
            with self._connections.turn():
                connection = self._connections.writer()
                _patiently(
                    lambda: prepare_schema(connection, self._path, existing=existing),
                    self._busy_timeout_seconds,
                )
                return clock or shared_clock(connection)
        except BaseException as problem:
            self._connections.close()
            if not isinstance(problem, sqlite3.Error):
                raise
            raise StoreUnavailable(
                f"Cannot prepare {self._path}: {problem}. Nothing was recorded."
            ) from problem

    # -------------------------------------------------------------- writing

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        self._check_still_there()
        flush = self._flush_for(writes)
        with self._connections.turn():
            connection = self._connections.writer()
            if len(writes) == 1:
                alone = _apply_alone(connection, writes[0], flush)
                if alone is not None:
                    return [alone]
            elif (together := _apply_together(connection, writes, flush)) is not None:
                return together
            with _written(connection, flush=flush):
                return [_apply_one(connection, write) for write in writes]

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        self._check_still_there()
        with (
            self._connections.transacting() as connection,
            _written(connection, flush=self._flush_level("FULL")),
            _left_open(connection),
        ):
            yield SqliteTransaction(connection)

    @contextmanager
    def join(self, caller: Any) -> Iterator[SqliteTransaction]:
        connection = driver_connection(caller)
        self._require_ours(connection)
        with _joined(connection):
            yield SqliteTransaction(connection)

    def _require_ours(self, connection: Any) -> None:
        """A caller's connection counts only if it is in a transaction on this very file."""
        if not isinstance(connection, sqlite3.Connection) or connection.text_factory is not str:
            raise UsageError(
                f"{type(connection).__name__} is not a connection of sqlite3 that returns text as str, nor an "
                "SQLAlchemy Session or Connection over one. Nothing was done."
            )
        files = connection.cursor()
        files.row_factory = None
        main = next((file for _, name, file in files.execute("PRAGMA database_list") if name == "main"), "")
        if _identity(Path(main)) != self._identity:
            raise UsageError(
                f"The connection leads to {main or 'a database in memory'}, and the guard's records are in "
                f"{self._path}: effect and record would not end together. Nothing was done. Connect to that file."
            )
        if not connection.in_transaction and (
            connection.isolation_level is None or getattr(connection, "autocommit", None) is True
        ):
            raise UsageError("The connection is in no transaction. Nothing was done. BEGIN one first.")

    def _flush_for(self, writes: Sequence[Write]) -> str:
        needs_flush = self._durability == "strict" or any(is_durable(write) for write in writes)
        return self._flush_level("FULL" if needs_flush else "NORMAL")

    def _flush_level(self, level: str) -> str:
        return "OFF" if self._is_in_memory else level

    # -------------------------------------------------------------- reading

    def read(self, key: str) -> Operation | None:
        return _first(self._read("read", (key,), _ROWS.operation))

    def read_run(self, namespace: str, run_id: str) -> list[Operation]:
        return self._read("read_run", (namespace, run_id), _ROWS.operation)

    def read_open(self, namespace: str, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        return self._read("read_open", (namespace, state.value, after_key, limit), _ROWS.operation)

    def read_ended_before(
        self, namespace: str, when: datetime, *, limit: int, after_key: str = ""
    ) -> list[Operation]:
        found = (namespace, microseconds(when), after_key, limit)
        return self._read("read_ended_before", found, _ROWS.operation)

    def read_history(self, key: str) -> list[HistoryEntry]:
        return self._read("read_history", (key,), _ROWS.entry)

    def read_divergences(self, namespace: str, *, limit: int) -> list[HistoryEntry]:
        return self._read("read_divergences", (namespace, limit), _ROWS.entry)

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]:
        return self._read("read_log", (namespace, run_id), _ROWS.event)

    def _read(self, name: str, parameters: tuple[Any, ...], make: Callable[[Any], T]) -> list[T]:
        self._check_still_there()
        with self._connections.reading() as connection:
            try:
                rows = connection.execute(_SQL[name], parameters).fetchall()
            except sqlite3.Error as problem:
                raise StoreUnavailable(
                    f"Cannot read {self._path}: {problem}. Nothing was changed."
                ) from problem
        return [make(row) for row in rows]

    # -------------------------------------------------------------- time, fork, end

    def now(self) -> datetime:
        return self._clock.now()

    def before_fork(self) -> None:
        self._connections.before_fork()

    def after_fork_in_parent(self) -> None:
        self._connections.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        self._connections.after_fork_in_child()
        if self._remove_folder is not None:
            self._remove_folder.detach()  # the folder is the parent's to delete

    def close(self) -> None:
        self._is_closed = True
        self._connections.close()
        if self._remove_folder is not None:
            self._remove_folder()

    def _check_still_there(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"The store {self._path} was closed. Nothing was sent. Open it again.")
        if _identity(self._path_as_text) != self._identity:
            raise StoreVanished(
                f"{self._path} was removed or replaced while it was open. Nothing was sent: a record written "
                "now could never be read again. Put the file back, or restart the program on the new one."
            )


def _patiently(prepare: Callable[[], None], seconds: float) -> None:
    """The switch to a write-ahead log does not wait for another process's: wait for it here."""
    gives_up_at = time.monotonic() + seconds
    while True:  # ends when the patience does
        try:
            return prepare()
        except sqlite3.OperationalError as problem:
            is_busy = getattr(problem, "sqlite_errorcode", 0) & 0xFF in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_LOCKED,
            )
            if not is_busy or time.monotonic() >= gives_up_at:
                raise
        time.sleep(0.01)


class SqliteTransaction:
    """See `semel.ports.AtomicTransaction`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()
        self._cursor.row_factory = None  # a caller's connection may make other rows than tuples
        self.handle = SqliteHandle(connection)

    def insert(self, operation: Operation) -> Outcome:
        return _apply_one(self._cursor, Insert(operation))

    def move(self, move: Move) -> Outcome:
        return _apply_one(self._cursor, move)


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
            raise _rolled_back_inside()
        with _statement_named(sql):
            yield


@contextmanager
def _left_open(connection: sqlite3.Connection) -> Iterator[None]:
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


# ------------------------------------------------------------------ the happy path, kept short

# What may have reached the log although the statement failed; every other error comes before that.
_MAY_BE_WRITTEN: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERNAL})


class _Short(NamedTuple):
    """A claim or a completion: one statement, its parameters, and the record that it leaves."""

    statement: str
    parameters: tuple[Any, ...]
    left: Operation


def _short(write: Write) -> _Short | None:
    if isinstance(write, Insert):
        return _Short(_SQL["insert"], _ROWS.operation_row(write.operation), write.operation)
    if isinstance(write, Move) and write.event is Event.COMMITTED:
        return _Short(_SQL["commit"], _ROWS.commit_row(write), write.after)
    return None


def _apply_alone(connection: WritingConnection, write: Write, flush: str) -> Outcome | None:
    """A statement that is a transaction of its own: no BEGIN, no COMMIT.

    None if it changed nothing, or is another kind of write: a transaction then does it, and says why.
    """
    short = _short(write)
    if short is None:
        return None
    try:
        connection.flush_at(flush)
        if connection.execute(short.statement, short.parameters).rowcount != 1:
            return None
    except (sqlite3.DataError, OverflowError) as problem:
        raise WriteRefused(f"The store cannot hold this: {problem}. Nothing was recorded.") from problem
    except sqlite3.Error as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF in _MAY_BE_WRITTEN:
            raise CommitInDoubt(f"A write failed: {problem}. It may or may not be recorded.") from problem
        raise StoreUnavailable(f"The store takes no writes: {problem}. Nothing was recorded.") from problem
    return Outcome(True, short.left)


def _apply_together(
    connection: WritingConnection, writes: Sequence[Write], flush: str
) -> list[Outcome] | None:
    """In one transaction, each run of a kind in one sweep of its statement.

    None, and nothing is written, if one of them would change nothing, or is another kind of write.
    """
    shorts = [short for write in writes if (short := _short(write)) is not None]
    if len(shorts) < len(writes):
        return None
    try:
        with _written(connection, flush=flush), _explained():
            for statement, run in itertools.groupby(shorts, key=itemgetter(0)):
                rows = [short.parameters for short in run]
                if connection.executemany(statement, rows).rowcount != len(rows):
                    raise _ChangedNothingError
    except _ChangedNothingError:
        return None
    return [Outcome(True, short.left) for short in shorts]


class _ChangedNothingError(Exception):
    """Something stood in the way of one of them; the transaction is rolled back."""


# ------------------------------------------------------------------ one write

Executor: TypeAlias = sqlite3.Connection | sqlite3.Cursor


def _apply_one(connection: Executor, write: Write) -> Outcome:
    with _explained():
        match write:
            case Insert(operation):
                return _insert(connection, operation)
            case Move():
                return _move(connection, write)
            case Note(entry):
                connection.execute(_SQL["note"], _ROWS.history_row(entry))
                return Outcome(True)
            case Append(events):
                return _append(connection, events)


def _insert(connection: Executor, operation: Operation) -> Outcome:
    if connection.execute(_SQL["insert"], _ROWS.operation_row(operation)).rowcount == 1:
        return Outcome(True, operation)
    in_the_way = connection.execute(_SQL["read"], (operation.key,)).fetchone()
    if in_the_way is None:
        in_the_way = connection.execute(_SQL["read_once"], (operation.once_key,)).fetchone()
    return Outcome(False, _ROWS.operation(in_the_way))


def _move(connection: Executor, move: Move) -> Outcome:
    before, after = move.before, move.after
    if move.event is Event.COMMITTED:
        cursor = connection.execute(_SQL["commit"], _ROWS.commit_row(move))
    else:
        cursor = connection.execute(_SQL["move"], _ROWS.move_row(move))
    if cursor.rowcount != 1:
        row = connection.execute(_SQL["read"], (before.key,)).fetchone()
        return Outcome(False, None if row is None else _ROWS.operation(row))
    if move.event not in UNREMARKABLE:
        connection.execute(_SQL["note"], _ROWS.history_row(entry_of(move)))
    return Outcome(True, after)


def _append(connection: Executor, events: tuple[RunEvent, ...]) -> Outcome:
    for event in events:
        if connection.execute(_SQL["append"], _ROWS.event_row(event)).rowcount != 1:
            if event is events[0]:
                return Outcome(False)
            raise StoreError(f"The log of run {event.run_id!r} has a gap before {event.position}.")
    return Outcome(True)


@contextmanager
def _written(connection: WritingConnection, *, flush: str) -> Iterator[None]:
    """One transaction. An exception of the block rolls back and passes through."""
    with _explained():
        connection.flush_at(flush)
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        _roll_back(connection)
        raise
    if not connection.in_transaction:
        raise _rolled_back_inside()
    _commit(connection)


def _rolled_back_inside() -> StoreUnavailable:
    return StoreUnavailable(
        "The transaction was rolled back by one of its own statements (ON CONFLICT ROLLBACK, RAISE(ROLLBACK), a "
        "full disk). Nothing of it happened, nothing was recorded. Let such an error leave the tool."
    )


@contextmanager
def _joined(connection: sqlite3.Connection) -> Iterator[None]:
    """A part of the caller's transaction. An exception of the block undoes it and passes through."""
    with _explained():
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")  # as sqlite3 does before a first write, but surely in time
        connection.execute("SAVEPOINT semel_call")
    try:
        with _left_open(connection):
            yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO semel_call")
            connection.execute("RELEASE semel_call")
        raise
    with _explained():
        connection.execute("RELEASE semel_call")


@contextmanager
def _explained() -> Iterator[None]:
    """Our own statements' errors in our own words: until COMMIT, nothing is written."""
    try:
        yield
    except (sqlite3.DataError, OverflowError) as problem:
        raise WriteRefused(f"The store cannot hold this: {problem}. Nothing was recorded.") from problem
    except sqlite3.Error as problem:
        raise StoreUnavailable(f"The store takes no writes: {problem}. Nothing was recorded.") from problem


def _first(found: list[T]) -> T | None:
    return found[0] if found else None


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as problem:
        was_open = connection.in_transaction
        _roll_back(connection)
        if was_open and getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            raise StoreUnavailable(f"The store was busy: {problem}. Nothing was recorded.") from problem
        raise CommitInDoubt(f"COMMIT failed: {problem}. It may or may not be recorded.") from problem


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            return  # the transaction is dead either way; the next BEGIN tells if the connection is too


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
