"""The connections of one store in one process, and what a fork does to them.

SQLite keeps locks and shared memory per process and file. A child that inherits an open connection would share
that state without holding the locks behind it: the parent, closing later, would take itself for the last user
and delete the log that the child still writes to. And a child forked while another thread is inside SQLite
inherits a mutex that nobody will release. So before a fork every connection is closed, with no thread inside
SQLite; both processes open their own when they next need one. (sqlite.org/howtocorrupt.html, section 2.6.)
A transaction that the forking thread itself has open cannot be closed: the child keeps its connection, unused.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from semel.errors import StoreUnavailable
from semel.stores.sqlite.log import CHECKPOINT_PAGES, lengthen_log

FLUSHES_FIRST: Final = 32  # of a connection, before it is worth the while to lengthen the log
_INHERITED: Final[list[sqlite3.Connection]] = []  # kept in the child so that nothing closes them


class WritingConnection(sqlite3.Connection):
    """Knows how far its commits are flushed, so that the setting is changed only when it changes, and how often."""

    _flush = ""
    _flushes = 0

    def count_flush(self, path: Path) -> None:
        """Before a transaction that is flushed."""
        self._flushes += 1
        if self._flushes == FLUSHES_FIRST:
            lengthen_log(self, path)

    def flush_at(self, level: str) -> None:
        if level != self._flush:
            self._flush = ""
            self.execute(f"PRAGMA synchronous = {level}")
            self._flush = level


class Connections:
    """One for writing, one for reading, and one for each open transaction."""

    def __init__(self, path: Path, busy_timeout_seconds: float) -> None:
        self._path = path
        self._busy_timeout_seconds = busy_timeout_seconds
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._writer: WritingConnection | None = None
        self._reader: sqlite3.Connection | None = None
        self._idle: list[WritingConnection] = []
        self._in_use: dict[WritingConnection, int] = {}  # by the thread that holds the transaction
        self._writing_turn = threading.Lock()
        self._reading_turn = threading.Lock()
        self._transactions = threading.Condition()

    def turn(self) -> threading.Lock:
        """To be held by whoever uses the writer."""
        return self._writing_turn

    def writer(self) -> WritingConnection:
        if self._writer is None:
            self._writer = self.connect()
        return self._writer

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._reading_turn:
            if self._reader is None:
                self._reader = self.connect()
            yield self._reader

    @contextmanager
    def transacting(self) -> Iterator[WritingConnection]:
        """A connection of its own: SQLite's lock, not ours, keeps it apart from the other writers."""
        with self._transactions:
            connection = self._idle.pop() if self._idle else self.connect()
            self._in_use[connection] = threading.get_ident()
        try:
            yield connection
        finally:
            with self._transactions:
                if self._in_use.pop(connection, None) is not None:
                    self._idle.append(connection)
                    self._transactions.notify_all()

    def connect(self) -> WritingConnection:
        try:
            connection: WritingConnection = sqlite3.connect(
                self._path,
                timeout=self._busy_timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
                factory=WritingConnection,
            )
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        except sqlite3.Error as problem:
            raise StoreUnavailable(
                f"Cannot open {self._path} for writing: {problem}. Nothing was recorded, nothing was sent. "
                "Check that the folder exists and that this user may write to it."
            ) from problem
        return connection

    def close(self) -> None:
        with self._writing_turn, self._reading_turn, self._transactions:
            self._close_idle()

    # -------------------------------------------------------------- fork

    def before_fork(self) -> None:
        """Keep every thread out of SQLite and close what is open; `after_fork_in_parent` lets them in again."""
        self._writing_turn.acquire()
        self._reading_turn.acquire()
        self._transactions.acquire()
        self._transactions.wait_for(self._others_are_out, timeout=self._busy_timeout_seconds)
        self._close_idle()

    def after_fork_in_parent(self) -> None:
        self._transactions.release()
        self._reading_turn.release()
        self._writing_turn.release()

    def after_fork_in_child(self) -> None:
        _INHERITED.extend(self._in_use)
        self._begin_anew()

    def _others_are_out(self) -> bool:
        return set(self._in_use.values()) <= {threading.get_ident()}

    def _close_idle(self) -> None:
        for connection in (self._writer, self._reader, *self._idle):
            if connection is not None:
                connection.close()
        self._writer, self._reader, self._idle = None, None, []
