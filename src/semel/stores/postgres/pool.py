"""Connections, kept and handed out: made in the caller's thread when needed, checked without a round trip.

Not psycopg_pool, for three reasons. It has threads, which a fork does not copy. It reconnects in them with a
pause that doubles, so that a worker can sit out a minute of a server that is back, while a lease runs out.
And a refused connection reaches the caller as a time-out: late, and without its cause.
"""

from __future__ import annotations

import queue
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.types.string import StrDumper

from semel.errors import StoreUnavailable
from semel.stores.postgres.faults import must_reconnect
from semel.stores.postgres.place import Connection
from semel.stores.records import Row

AGE_MAX_SECONDS: Final = 3600.0  # so that a changed address, or a rebalanced pooler, is noticed some time


class Link:
    """A connection, and what is kept beside it."""

    __slots__ = ("_cursors", "_poll", "born", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.born = time.monotonic()
        self._cursors: dict[bytes, psycopg.Cursor[Row]] = {}
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)

    def execute(self, statement: bytes, parameters: Sequence[Any]) -> list[Row]:
        """For the statements that are repeated for ever: each keeps its cursor, and so its conversions."""
        cursor = self._cursors.get(statement)
        if cursor is None:
            cursor = self._cursors[statement] = self.connection.cursor()
            cursor.adapters.register_dumper(str, StrDumper)  # as text, not as yet unknown: found faster
        return cursor.execute(statement, parameters).fetchall()

    def execute_once(self, statement: bytes, parameters: Sequence[Any]) -> list[Row]:
        """Keeps nothing: neither a large parameter nor a large result."""
        return self.connection.execute(statement, parameters).fetchall()

    def is_idle(self) -> bool:
        connection = self.connection
        return not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE

    def is_alive(self) -> bool:
        """A server that has gone left its last words, or its end, in the socket; a sound one is silent."""
        pgconn = self.connection.pgconn
        try:
            if not self._poll.poll(0):
                return True
            pgconn.consume_input()  # a notice, a changed parameter, a TLS ticket: no harm
            return pgconn.status == ConnStatus.OK and not self._poll.poll(0)
        except psycopg.Error:
            return False


class Pool:
    """`freshen` is called with each link before it is handed out; what it raises is the caller's answer."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        limit: int,
        wait_seconds: float,
        freshen: Callable[[Connection], None],
    ) -> None:
        self._connect = connect
        self._freshen = freshen
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(limit):
            self._permits.put(None)
        self._idle: list[Link] = []  # the most recently used last
        self._is_closed = False

    def link(self) -> Lent:
        """For a `with` block: one that works, as far as can be told without asking."""
        return Lent(self)

    def take(self) -> Link:
        """Raises `StoreUnavailable`."""
        if self._is_closed:
            raise StoreUnavailable("The store was closed. Nothing was recorded. Open it again.")
        try:
            self._permits.get(timeout=self._wait_seconds)
        except queue.Empty:
            raise StoreUnavailable(
                f"All {self._limit} connections of this process have been in use for {self._wait_seconds} s. "
                "Nothing was recorded. Shorten what runs in transactions, or allow more connections."
            ) from None
        link = None
        try:
            link = self._working_link()
            self._freshen(link.connection)
        except BaseException:
            self.give_back(link)
            raise
        return link

    def give_back(self, link: Link | None, *, is_usable: bool = True) -> None:
        if link is not None and is_usable and not self._is_closed and link.is_idle():
            self._idle.append(link)
        elif link is not None:
            link.connection.close()
        self._permits.put(None)

    def close(self) -> None:
        self._is_closed = True
        for link in self.abandon():
            link.connection.close()

    def abandon(self) -> list[Link]:
        """Forget the idle connections; returned so that the caller can keep them from being closed."""
        idle, self._idle = self._idle, []
        return idle

    def _working_link(self) -> Link:
        now = time.monotonic()
        while True:  # ends: each round takes one of the idle away
            try:
                link = self._idle.pop()
            except IndexError:
                return Link(self._connect())
            if now - link.born < AGE_MAX_SECONDS and link.is_alive():
                return link
            link.connection.close()


class Lent:
    """A class, and not a generator, because every read and write passes here."""

    __slots__ = ("_link", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._link: Link | None = None

    def __enter__(self) -> Link:
        self._link = self._pool.take()
        return self._link

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        is_usable = problem is None or not must_reconnect(problem.__cause__)
        self._pool.give_back(self._link, is_usable=is_usable)
