"""The PostgreSQL store: many workers on many hosts, directly or through a transaction pooler.

Danger lives here in five places:

- **Durability.** The claim must survive power loss before anything is sent, the completion need not (the log
  is sequential: the next claim's flush carries it). Each statement says so for its own transaction.
- **The answer that is lost.** A statement that is a transaction of its own, or a COMMIT, may have been carried
  out although its answer never came. That is `CommitInDoubt`, and the engine reads back.
- **What a statement cannot see.** An INSERT that runs into a record of another transaction changes nothing and
  does not show it: the record may be newer than the statement's snapshot. It is read by a statement after.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from semel import keys
from semel.errors import CommitInDoubt, StoreError, StoreUnavailable, TransactionConflict, UsageError
from semel.model import HistoryEntry, Insert, Move, Operation, RunEvent, State, Write
from semel.ports import Outcome
from semel.stores.callers import driver_connection
from semel.stores.postgres.answers import operation_of
from semel.stores.postgres.batch import Statement, key_of, statements_for
from semel.stores.postgres.clock import ServerClock
from semel.stores.postgres.faults import explained
from semel.stores.postgres.place import Connection, connect, conninfo_of, shown
from semel.stores.postgres.pool import Link, Pool
from semel.stores.postgres.schema import Migrations, prepare_schema
from semel.stores.postgres.transaction import (
    RACES_MAX,
    PostgresTransaction,
    joined_transaction,
    own_transaction,
)
from semel.stores.records import PAST_HEX, Durability, Row, Rows, is_durable
from semel.stores.sqlfile import load_statements

Isolation: TypeAlias = Literal["read committed", "repeatable read", "serializable"]
T = TypeVar("T")

TRIES_MAX: Final = 10  # of a batch that the database asks us to repeat
FIRST_LOOKS: Final = 3  # at the clock, of which the best counts
_ISOLATION: Final[Mapping[str, psycopg.IsolationLevel]] = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
    "serializable": psycopg.IsolationLevel.SERIALIZABLE,
}


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


def _as_it_is(at: datetime) -> datetime:
    return at


def _statements(how: str) -> Mapping[str, bytes]:
    """All statements, for one way to flush."""
    texts = load_statements(Path(__file__).parent / "queries.sql")
    return {name: text.replace("{how}", how).encode() for name, text in texts.items()}


_FLUSHED: Final = _statements("flushed")
_UNFLUSHED: Final = _statements("unflushed")
_UNTOUCHED: Final = _statements("untouched")
_ROWS: Final = Rows(keep=_as_it_is, revive=_in_utc)
_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
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
        outcomes: list[Outcome | None] = [None] * len(writes)
        try:
            self._settle(writes, outcomes)
        except StoreError as problem:
            if any(outcomes):
                raise CommitInDoubt(
                    f"Some of it is recorded, and what stood in the way of the rest cannot be read: {problem}"
                ) from problem
            raise
        return [outcome or Outcome(False) for outcome in outcomes]

    def _settle(self, writes: Sequence[Write], outcomes: list[Outcome | None]) -> None:
        left: Sequence[int] = range(len(writes))
        for _ in range(RACES_MAX):  # more than one only where what was in a claim's way has gone again
            for position, outcome in self._write(writes, left).items():
                outcomes[position] = outcome
            left = [position for position in left if outcomes[position] is None]
            if left:
                for position, in_the_way in self._explain(writes, left).items():
                    outcomes[position] = Outcome(False, in_the_way)
                left = [position for position in left if outcomes[position] is None]
            if not left:
                return

    def _write(self, writes: Sequence[Write], left: Sequence[int]) -> dict[int, Outcome]:
        """Of those that were applied, and of those of which it is known at once what stood in the way."""
        is_flushed = self._durability == "strict" or any(is_durable(writes[position]) for position in left)
        statements = statements_for(writes, left, _ROWS)
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                with self._short.link() as link:
                    answers = _carry_out(link, statements, is_flushed=is_flushed)
            except TransactionConflict:
                if not tries_left:
                    raise
                continue
            return _outcomes_of(writes, statements, answers)
        raise AssertionError("unreachable: the last try returns or raises")

    def _explain(self, writes: Sequence[Write], missed: Sequence[int]) -> dict[int, Operation | None]:
        """What stood in the way of each; nothing for a claim that ran into what is gone by now."""
        keys = {position: key_of(writes[position]) for position in missed}
        named = [key for key in keys.values() if key is not None]
        found = {op.key: op for op in self._read("read_many", (named,), _ROWS.operation)} if named else {}
        explained_by: dict[int, Operation | None] = {}
        for position in missed:
            write, in_the_way = writes[position], found.get(keys[position] or "")
            if in_the_way is None and isinstance(write, Insert):
                in_the_way = self._read_once(write.operation.once_key)
            if in_the_way is not None or not isinstance(write, Insert):
                explained_by[position] = in_the_way
        return explained_by

    def _read_once(self, once_key: str | None) -> Operation | None:
        return None if once_key is None else _first(self._read("read_once", (once_key,), _ROWS.operation))

    def transaction(self) -> AbstractContextManager[PostgresTransaction]:
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[PostgresTransaction]:
        with (
            self._long.link() as link,
            own_transaction(link.connection, _FLUSHED, _ROWS) as transaction,
        ):
            yield transaction

    @contextmanager
    def join(self, caller: Any) -> Iterator[PostgresTransaction]:
        connection = driver_connection(caller)
        self._require_ours(connection)
        with joined_transaction(connection, _UNTOUCHED, _ROWS) as transaction:
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
        return _first(self._read("read", (key,), _ROWS.operation))

    def read_run(self, namespace: str, run_id: str) -> list[Operation]:
        run = keys.run_name(namespace, run_id)
        sought = {"first": run, "past": run + PAST_HEX, "namespace": namespace, "run_id": run_id}
        return self._read("read_run", sought, _ROWS.operation)

    def read_open(self, namespace: str, state: State, *, limit: int, after_key: str = "") -> list[Operation]:
        if state is State.INVOKED:
            return self._read("read_invoked", (namespace, after_key, limit), _ROWS.operation)
        return self._read("read_at_rest", (namespace, state.value, after_key, limit), _ROWS.operation)

    def read_ended_before(
        self, namespace: str, when: datetime, *, limit: int, after_key: str = ""
    ) -> list[Operation]:
        return self._read("read_ended_before", (namespace, when, after_key, limit), _ROWS.operation)

    def read_history(self, key: str) -> list[HistoryEntry]:
        return self._read("read_history", (key,), _ROWS.entry)

    def read_divergences(self, namespace: str, *, limit: int) -> list[HistoryEntry]:
        return self._read("read_divergences", (namespace, limit), _ROWS.entry)

    def read_log(self, namespace: str, run_id: str) -> list[RunEvent]:
        return self._read("read_log", (namespace, run_id), _ROWS.event)

    def _read(
        self, name: str, parameters: Sequence[Any] | Mapping[str, Any], make: Callable[[Row], T]
    ) -> list[T]:
        with self._short.link() as link, explained(link.connection, commits=False):
            rows = link.connection.execute(_UNTOUCHED[name], parameters).fetchall()
        return [make(row) for row in rows]

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


def _carry_out(link: Link, statements: Sequence[Statement], *, is_flushed: bool) -> list[list[Row]]:
    """What each statement gives back. One transaction; one round trip if it is one statement, as nearly always,
    and else two."""
    flushing = _FLUSHED if is_flushed else _UNFLUSHED
    connection = link.connection
    if len(statements) == 1:
        (statement,) = statements
        execute = link.execute_once if statement.is_large else link.execute
        with explained(connection, commits=True):
            return [execute(flushing[statement.name], statement.parameters)]
    try:
        with explained(connection, commits=False), connection.pipeline():
            connection.execute(_BEGIN)
            connection.execute(flushing["set_flush"])
            cursors = [connection.execute(_UNTOUCHED[one.name], one.parameters) for one in statements]
        # Not within: psycopg ends a pipeline with a Flush, for which PgBouncer would take a session anew and
        # keep it until this connection speaks again.
        with explained(connection, commits=True):
            connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise
    return [cursor.fetchall() for cursor in cursors]


def _outcomes_of(
    writes: Sequence[Write], statements: Sequence[Statement], answers: Sequence[list[Row]]
) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    for statement, rows in zip(statements, answers, strict=True):
        for position in statement.changed(rows):
            outcomes[position] = Outcome(True, _left_by(writes[position]))
        if in_the_way := statement.in_the_way(rows):
            (position,) = statement.positions.values()
            outcomes[position] = Outcome(False, operation_of(in_the_way))
    return outcomes


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()


def _left_by(write: Write) -> Operation | None:
    """The record as the write left it."""
    match write:
        case Insert(operation):
            return operation
        case Move(after=after):
            return after
        case _:
            return None


def _first(found: list[T]) -> T | None:
    return found[0] if found else None


def _require(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{name}={value!r}: say {' or '.join(map(repr, allowed))}. Nothing was opened.")
