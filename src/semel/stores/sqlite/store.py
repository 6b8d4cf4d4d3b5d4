"""The SQLite store: embedded, one file, many processes on one host.

Danger lives here in four places:

- **Durability.** The claim must survive power loss before anything is sent, the completion need not (the log
  is sequential: the next claim's flush carries it, and losing it leaves UNKNOWN, never a duplicate). In WAL
  mode `synchronous=FULL` flushes each commit and `NORMAL` does not, so the setting changes per transaction.
- **COMMIT.** "Busy" at COMMIT means nothing was written; any other failure there means we do not know.
- **Fork.** A connection belongs to the process that opened it. A child abandons, and never closes, what it
  inherited: closing would drop locks and could delete the log under the parent.
- **The file itself.** A file on a network has no reliable locks; a file that was deleted or replaced still
  takes writes that nobody will ever see. Both are refused.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

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
from semel.stores.clock import microseconds
from semel.stores.sqlfile import load_statements
from semel.stores.sqlite.place import check_place, memory_folder
from semel.stores.sqlite.rows import (
    entry_from,
    entry_of,
    event_from,
    history_row,
    move_row,
    operation_from,
    operation_row,
)
from semel.stores.sqlite.schema import Existing, prepare_schema, shared_clock

_HERE: Final = Path(__file__).parent
_SQL: Final = load_statements(_HERE / "queries.sql")
_DURABLE_EVENTS: Final = frozenset(
    {Event.CLAIMED, Event.RESENT, Event.CONFIRMED, Event.CLEARED, Event.ABANDONED}
)
_ENDS_TRANSACTION: Final = frozenset(
    {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
)
_ABANDONED: Final[list[sqlite3.Connection]] = []  # inherited over a fork; kept so that nothing closes them

Durability = Literal["one-flush", "strict"]
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
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if path is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="semel-", dir=memory_folder())
            path = Path(self._temporary.name) / "memory.db"
        self._path = path.absolute()
        self._durability = durability
        self._busy_timeout_seconds = busy_timeout_seconds
        check_place(self._path)
        self._writer: sqlite3.Connection | None
        self._reader: sqlite3.Connection | None
        self._spare: list[sqlite3.Connection]
        self._writer_lock: threading.Lock
        self._reader_lock: threading.Lock
        self._closed: bool
        self._reset()
        writer = self._connect()
        try:
            prepare_schema(writer, self._path, existing=existing)
            self._clock = clock or shared_clock(writer)
        except sqlite3.Error as problem:
            writer.close()
            raise StoreUnavailable(
                f"Cannot prepare {self._path}: {problem}. Nothing was recorded."
            ) from problem
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._identity = _identity(self._path)

    # -------------------------------------------------------------- writing

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        with self._writer_lock:
            connection = self._writing()
            with _written(connection, flush=self._flush_for(writes)):
                return [_apply_one(connection, write) for write in writes]

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """A connection of its own: SQLite's lock, not ours, keeps it apart from the other writers."""
        connection = self._take_spare()
        try:
            with _written(connection, flush=self._flush_level("FULL")):
                connection.set_authorizer(_leave_transaction_alone)
                try:
                    yield SqliteTransaction(connection)
                finally:
                    connection.set_authorizer(None)
        finally:
            self._spare.append(connection)

    def _flush_for(self, writes: Sequence[Write]) -> str:
        needs_flush = self._durability == "strict" or any(_is_durable(write) for write in writes)
        return self._flush_level("FULL" if needs_flush else "NORMAL")

    def _flush_level(self, level: str) -> str:
        return "OFF" if self._temporary else level

    # -------------------------------------------------------------- reading

    def read(self, key: str) -> Operation | None:
        return _first(self._read("read", (key,), operation_from))

    def read_run(self, namespace: str, run_id: str) -> list[Operation]:
        return self._read("read_run", (namespace, run_id), operation_from)

    def read_open(self, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        return self._read("read_open", (state.value, after_key, limit), operation_from)

    def read_ended_before(self, when: datetime, *, limit: int) -> list[Operation]:
        return self._read("read_ended_before", (microseconds(when), limit), operation_from)

    def read_history(self, key: str) -> list[HistoryEntry]:
        return self._read("read_history", (key,), entry_from)

    def read_divergences(self, *, limit: int) -> list[HistoryEntry]:
        return self._read("read_divergences", (limit,), entry_from)

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]:
        return self._read("read_log", (namespace, run_id), event_from)

    def _read(self, name: str, parameters: tuple[Any, ...], make: Callable[[Any], T]) -> list[T]:
        with self._reader_lock:
            self._check_still_there()
            try:
                if self._reader is None:
                    self._reader = self._connect()
                rows = self._reader.execute(_SQL[name], parameters).fetchall()
            except sqlite3.Error as problem:
                raise StoreUnavailable(
                    f"Cannot read {self._path}: {problem}. Nothing was changed."
                ) from problem
        return [make(row) for row in rows]

    # -------------------------------------------------------------- time, fork, end

    def now(self) -> datetime:
        return self._clock.now()

    def reset_after_fork(self) -> None:
        _ABANDONED.extend(c for c in (self._writer, self._reader, *self._spare) if c is not None)
        self._reset()

    def close(self) -> None:
        with self._writer_lock, self._reader_lock:
            for connection in (self._writer, self._reader, *self._spare):
                if connection is not None:
                    connection.close()
            self._writer, self._reader, self._spare = None, None, []
            self._closed = True
            if self._temporary is not None:
                self._temporary.cleanup()

    def _reset(self) -> None:
        self._writer, self._reader = None, None
        self._spare = []
        self._writer_lock, self._reader_lock = threading.Lock(), threading.Lock()
        self._closed = False

    # -------------------------------------------------------------- connections

    def _writing(self) -> sqlite3.Connection:
        self._check_still_there()
        if self._writer is None:
            self._writer = self._connect()
        return self._writer

    def _take_spare(self) -> sqlite3.Connection:
        self._check_still_there()
        try:
            return self._spare.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection: sqlite3.Connection = sqlite3.connect(
                self._path,
                timeout=self._busy_timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as problem:
            raise StoreUnavailable(
                f"Cannot open {self._path} for writing: {problem}. Nothing was recorded, nothing was sent. "
                "Check that the folder exists and that this user may write to it."
            ) from problem
        return connection

    def _check_still_there(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} was closed. Nothing was sent. Open it again.")
        if _identity(self._path) != self._identity:
            raise StoreVanished(
                f"{self._path} was removed or replaced while it was open. Nothing was sent: a record written "
                "now could never be read again. Put the file back, or restart the program on the new one."
            )


class SqliteTransaction:
    """See `semel.ports.AtomicTransaction`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.handle = SqliteHandle(connection)

    def insert(self, operation: Operation) -> Outcome:
        return _apply_one(self._connection, Insert(operation))

    def move(self, move: Move) -> Outcome:
        return _apply_one(self._connection, move)


class SqliteHandle:
    """What an `Atomic` tool gets as `tx`: it executes statements; the guard alone ends the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        with _statement_named(sql):
            return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        with _statement_named(sql):
            return self._connection.executemany(sql, parameters)


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


# ------------------------------------------------------------------ one write


def _apply_one(connection: sqlite3.Connection, write: Write) -> Outcome:
    with _explained():
        match write:
            case Insert(operation):
                return _insert(connection, operation)
            case Move():
                return _move(connection, write)
            case Note(entry):
                connection.execute(_SQL["note"], history_row(entry))
                return Outcome(True)
            case Append(events):
                return _append(connection, events)


def _insert(connection: sqlite3.Connection, operation: Operation) -> Outcome:
    if connection.execute(_SQL["insert"], operation_row(operation)).rowcount == 1:
        return Outcome(True, operation)
    in_the_way = connection.execute(_SQL["read"], (operation.key,)).fetchone()
    if in_the_way is None:
        in_the_way = connection.execute(_SQL["read_once"], (operation.once_key,)).fetchone()
    return Outcome(False, operation_from(in_the_way))


def _move(connection: sqlite3.Connection, move: Move) -> Outcome:
    before, after = move.before, move.after
    if move.event is Event.COMMITTED:
        seen = (before.key, before.fence)
        cursor = connection.execute(_SQL["commit"], (after.result, microseconds(after.updated_at), *seen))
    else:
        cursor = connection.execute(_SQL["move"], move_row(move))
    if cursor.rowcount != 1:
        row = connection.execute(_SQL["read"], (before.key,)).fetchone()
        return Outcome(False, None if row is None else operation_from(row))
    if move.event not in UNREMARKABLE:
        connection.execute(_SQL["note"], history_row(entry_of(move)))
    return Outcome(True, after)


def _append(connection: sqlite3.Connection, events: tuple[RunEvent, ...]) -> Outcome:
    for event in events:
        row = (
            event.namespace,
            event.run_id,
            event.position,
            event.kind,
            event.payload,
            microseconds(event.at),
        )
        if connection.execute(_SQL["append"], row).rowcount != 1:
            if event is events[0]:
                return Outcome(False)
            raise StoreError(f"The log of run {event.run_id!r} has a gap before {event.position}.")
    return Outcome(True)


def _is_durable(write: Write) -> bool:
    return isinstance(write, Insert) or (isinstance(write, Move) and write.event in _DURABLE_EVENTS)


@contextmanager
def _written(connection: sqlite3.Connection, *, flush: str) -> Iterator[None]:
    """One transaction. An exception of the block rolls back and passes through."""
    with _explained():
        connection.execute(f"PRAGMA synchronous = {flush}")
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        _roll_back(connection)
        raise
    _commit(connection)


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


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
