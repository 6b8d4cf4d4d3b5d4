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

import os
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from semel import keys
from semel.errors import (
    StoreUnavailable,
    StoreVanished,
    UsageError,
)
from semel.model import (
    HistoryEntry,
    Operation,
    RunEvent,
    State,
    Write,
)
from semel.ports import Clock, Outcome
from semel.stores.callers import driver_connection
from semel.stores.clock import microseconds
from semel.stores.records import PAST_HEX, Durability, is_durable
from semel.stores.sqlite.connections import Connections
from semel.stores.sqlite.outbox import SqliteOutbox
from semel.stores.sqlite.place import check_place, memory_folder
from semel.stores.sqlite.plain_writes import apply_alone, apply_together
from semel.stores.sqlite.schema import Existing, prepare_schema, shared_clock
from semel.stores.sqlite.transaction import SqliteTransaction, joined, left_open
from semel.stores.sqlite.writes import ROWS, SQL, apply_one, written

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
            if flush == "FULL":
                connection.count_flush(self._path)
            if len(writes) == 1:
                alone = apply_alone(connection, writes[0], flush)
                if alone is not None:
                    return [alone]
            elif (together := apply_together(connection, writes, flush)) is not None:
                return together
            with written(connection, flush=flush):
                return [apply_one(connection, write) for write in writes]

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        self._check_still_there()
        with (
            self._connections.transacting() as connection,
            written(connection, flush=self._flush_level("FULL")),
            left_open(connection),
        ):
            yield SqliteTransaction(connection)

    @contextmanager
    def join(self, caller: Any) -> Iterator[SqliteTransaction]:
        connection = driver_connection(caller)
        self._require_ours(connection)
        with joined(connection):
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
        return _first(self._read("read", (key,), ROWS.operation))

    def read_run(self, namespace: str, run_id: str) -> list[Operation]:
        run = keys.run_name(namespace, run_id)
        return self._read("read_run", (namespace, run_id, run, run + PAST_HEX), ROWS.operation)

    def read_open(self, namespace: str, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        if state is State.INVOKED:
            return self._read("read_invoked", (namespace, after_key, limit), ROWS.operation)
        return self._read("read_at_rest", (namespace, state.value, after_key, limit), ROWS.operation)

    def read_ended_before(
        self, namespace: str, when: datetime, *, limit: int, after_key: str = ""
    ) -> list[Operation]:
        found = (namespace, microseconds(when), after_key, limit)
        return self._read("read_ended_before", found, ROWS.operation)

    def read_history(self, key: str) -> list[HistoryEntry]:
        return self._read("read_history", (key,), ROWS.entry)

    def read_divergences(self, namespace: str, *, limit: int) -> list[HistoryEntry]:
        return self._read("read_divergences", (namespace, limit), ROWS.entry)

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]:
        return self._read("read_log", (namespace, run_id), ROWS.event)

    def _read(self, name: str, parameters: tuple[Any, ...], make: Callable[[Any], T]) -> list[T]:
        self._check_still_there()
        with self._connections.reading() as connection:
            try:
                rows = connection.execute(SQL[name], parameters).fetchall()
            except sqlite3.Error as problem:
                raise StoreUnavailable(
                    f"Cannot read {self._path}: {problem}. Nothing was changed."
                ) from problem
        return [make(row) for row in rows]

    def has_announced(self, name: str) -> bool:
        """Never: whoever asks has written before, and so no other transaction was open then."""
        return False

    @property
    def outbox(self) -> SqliteOutbox:
        flush = self._flush_level("FULL" if self._durability == "strict" else "NORMAL")
        return SqliteOutbox(self._connections, self._check_still_there, flush)

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


def _first(found: list[T]) -> T | None:
    return found[0] if found else None


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
