"""The PostgreSQL store: many workers on many hosts, directly or through a transaction pooler.

Danger lives here in five places:

- **Durability.** The claim must survive power loss before anything is sent, the completion need not (the log
  is sequential: the next claim's flush carries it). Each statement says so for its own transaction.
- **The answer that is lost.** A statement that is a transaction of its own, or a COMMIT, may have been carried
  out although its answer never came. That is `CommitInDoubt`, and the engine reads back.
- **What a statement cannot see.** An INSERT that runs into a record of another transaction changes nothing and
  does not show it: the record may be newer than the statement's snapshot. It is read by a statement after it,
  in `semel_claim` or by us.
- **Sessions are not ours.** Behind a pooler each transaction may run in another session, which others use too.
  Nothing is set for a session, prepared in one, or expected to be as it was left.
- **Fork.** A connection belongs to the process that opened it. A child abandons, and never closes, what it
  inherited.

Set `lock_timeout` for the role if people take table locks on Semel's tables: claims wait for them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from semel import keys
from semel.errors import StoreUnavailable, UsageError
from semel.model import HistoryEntry, Operation, RunEvent, State, Write
from semel.ports import Outcome
from semel.stores.callers import driver_connection
from semel.stores.postgres.clock import ServerClock
from semel.stores.postgres.faults import explained
from semel.stores.postgres.outbox import IS_QUIET, PostgresOutbox
from semel.stores.postgres.place import Connection, connect, conninfo_of, shown
from semel.stores.postgres.pool import Link, Pool
from semel.stores.postgres.schema import Migrations, prepare_schema
from semel.stores.postgres.transaction import (
    PostgresTransaction,
    joined_transaction,
    own_transaction,
)
from semel.stores.postgres.writing import FLUSHED, ROWS, UNTOUCHED, Writing
from semel.stores.records import PAST_HEX, Durability, Row

Isolation: TypeAlias = Literal["read committed", "repeatable read", "serializable"]
T = TypeVar("T")

FIRST_LOOKS: Final = 3  # at the clock, of which the best counts
_ISOLATION: Final[Mapping[str, psycopg.IsolationLevel]] = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
    "serializable": psycopg.IsolationLevel.SERIALIZABLE,
}
_ABANDONED: Final[list[Link]] = []  # inherited over a fork; kept so that nothing closes them


class PostgresStore:
    """See `semel.ports.Store`.

    `url`         anything libpq takes: postgresql://user@host/database, several hosts, sslmode, …
    `durability`  "one-flush": claims are flushed; "strict": every write is.
    `migrations`  "apply" those that are missing, or "require" that somebody else has.
    `isolation`   of the transactions of `Atomic` tools.
    `connections_max`   at once, for the guard's own reads and writes; each is held for one round trip or two.
    `transactions_max`  at once, for `Atomic` tools; each is held while its tool runs.
    `wait_seconds`      how long to wait for one of them to be free.
    """

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "one-flush",
        migrations: Migrations = "apply",
        isolation: Isolation = "read committed",
        connections_max: int = 4,
        transactions_max: int = 8,
        wait_seconds: float = 10.0,
    ) -> None:
        _require("durability", durability, ("one-flush", "strict"))
        _require("migrations", migrations, ("apply", "require"))
        _require("isolation", isolation, tuple(_ISOLATION))
        self._conninfo = conninfo_of(url)
        self._durability = durability
        self._isolation = _ISOLATION[isolation]
        self._limits = (connections_max, transactions_max, wait_seconds)
        self._clock = ServerClock()
        self._writing = Writing(lambda: self._short.link(), durability)
        self._leading_here: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()
        self._short: Pool
        self._long: Pool
        self._reset()
        try:
            self._identity = self._prepare(migrations)
        except BaseException:
            self.close()
            raise

    def _prepare(self, migrations: Migrations) -> Any:
        """The tables, the clock, and what tells this store from others."""
        with self._short.link() as link:
            connection = link.connection
            try:
                prepare_schema(connection, migrations=migrations)
                for _ in range(FIRST_LOOKS - 1):
                    self._clock.ask(connection)
                return _identity_behind(connection)
            except psycopg.Error as problem:
                raise StoreUnavailable(
                    f"Cannot prepare {self}: {problem}. Nothing was recorded."
                ) from problem

    def __str__(self) -> str:
        return shown(self._conninfo)

    # -------------------------------------------------------------- writing

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        return self._writing.apply(writes)

    def transaction(self) -> AbstractContextManager[PostgresTransaction]:
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[PostgresTransaction]:
        with (
            self._long.link() as link,
            own_transaction(link.connection, FLUSHED, ROWS) as transaction,
        ):
            yield transaction

    @contextmanager
    def join(self, caller: Any) -> Iterator[PostgresTransaction]:
        connection = driver_connection(caller)
        self._require_ours(connection)
        with joined_transaction(connection, UNTOUCHED, ROWS) as transaction:
            yield transaction

    def _require_ours(self, connection: Any) -> None:
        """A caller's connection counts only if it is in a transaction that leads to this very store."""
        if not isinstance(connection, psycopg.Connection):
            raise UsageError(
                f"{type(connection).__name__} is not a (sync) connection of psycopg, nor an SQLAlchemy Session or "
                "Connection over one. Nothing was done. Connect with psycopg, or postgresql+psycopg://."
            )
        status = connection.pgconn.transaction_status
        is_open = status == TransactionStatus.INTRANS
        if not is_open and (connection.autocommit or status != TransactionStatus.IDLE):
            raise UsageError(
                f"The connection is in no transaction that could take this ({TransactionStatus(status).name}). "
                "Nothing was done. Begin one first, and go back to a savepoint after an error."
            )
        if not self._leads_here(connection):
            raise UsageError(
                f"The connection leads to another database than the guard's ({self}): effect and record would not "
                "end together. Nothing was done. Pass a connection to the guard's own database."
            )

    def _leads_here(self, connection: psycopg.Connection[Any]) -> bool:
        """Asked once a connection: it cannot come to lead elsewhere."""
        if connection not in self._leading_here:
            with explained(connection, commits=False):
                if _identity_behind(connection) != self._identity:
                    return False
            self._leading_here.add(connection)
        return True

    # -------------------------------------------------------------- reading

    def read(self, key: str) -> Operation | None:
        return _first(self._read("read", (key,), ROWS.operation))

    def read_run(self, namespace: str, run_id: str) -> list[Operation]:
        run = keys.run_name(namespace, run_id)
        sought = {"first": run, "past": run + PAST_HEX, "namespace": namespace, "run_id": run_id}
        return self._read("read_run", sought, ROWS.operation)

    def read_open(self, namespace: str, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        if state is State.INVOKED:
            return self._read("read_invoked", (namespace, after_key, limit), ROWS.operation)
        return self._read("read_at_rest", (namespace, state.value, after_key, limit), ROWS.operation)

    def read_ended_before(
        self, namespace: str, when: datetime, *, limit: int, after_key: str = ""
    ) -> list[Operation]:
        return self._read("read_ended_before", (namespace, when, after_key, limit), ROWS.operation)

    def read_history(self, key: str) -> list[HistoryEntry]:
        return self._read("read_history", (key,), ROWS.entry)

    def read_divergences(self, namespace: str, *, limit: int) -> list[HistoryEntry]:
        return self._read("read_divergences", (namespace, limit), ROWS.entry)

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]:
        return self._read("read_log", (namespace, run_id), ROWS.event)

    def _read(
        self, name: str, parameters: Sequence[Any] | Mapping[str, Any], make: Callable[[Row], T]
    ) -> list[T]:
        with self._short.link() as link, explained(link.connection, commits=False):
            rows = link.connection.execute(UNTOUCHED[name], parameters).fetchall()
        return [make(row) for row in rows]

    def has_announced(self, name: str) -> bool:
        with self._short.link() as link, explained(link.connection, commits=False):
            row = link.connection.execute(IS_QUIET, (name,)).fetchone()
        return row != (True,)

    @property
    def outbox(self) -> PostgresOutbox:
        return PostgresOutbox(lambda: self._short)

    # -------------------------------------------------------------- time, fork, end

    def now(self) -> datetime:
        return self._clock.now()

    def before_fork(self) -> None:
        """Nothing: a connection of the parent's stays sound as long as the child leaves it alone."""

    def after_fork_in_parent(self) -> None:
        """Nothing, likewise."""

    def after_fork_in_child(self) -> None:
        _ABANDONED.extend(self._short.abandon() + self._long.abandon())
        self._reset()

    def close(self) -> None:
        self._short.close()
        self._long.close()

    # -------------------------------------------------------------- connections

    def _reset(self) -> None:
        connections_max, transactions_max, wait_seconds = self._limits
        self._short = Pool(
            self._connect, limit=connections_max, wait_seconds=wait_seconds, freshen=self._freshen
        )
        self._long = Pool(
            self._connect_for_transactions,
            limit=transactions_max,
            wait_seconds=wait_seconds,
            freshen=lambda _: None,  # a question would begin the transaction
        )

    def _freshen(self, connection: Connection) -> None:
        if self._clock.is_due():
            with explained(connection, commits=False):
                self._clock.ask(connection)

    def _connect(self) -> Connection:
        connection = connect(self._conninfo)
        with explained(connection, commits=False):
            self._clock.ask(connection)
        return connection

    def _connect_for_transactions(self) -> Connection:
        connection = self._connect()
        connection.autocommit = False
        connection.isolation_level = self._isolation
        return connection


def _identity_behind(connection: psycopg.Connection[Any]) -> Any:
    """None where there is no store. No statement fails, which would fail the caller's transaction too."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    if cursor.execute("SELECT to_regclass('semel_store')").fetchone() == (None,):
        return None
    row = cursor.execute("SELECT identity FROM semel_store").fetchone()
    return None if row is None else row[0]


def _first(found: list[T]) -> T | None:
    return found[0] if found else None


def _require(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{name}={value!r}: say {' or '.join(map(repr, allowed))}. Nothing was opened.")
