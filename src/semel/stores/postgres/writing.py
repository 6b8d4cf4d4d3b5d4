"""Writes, as few statements and round trips as can be, and what stood in the way of those that changed nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg

from semel.errors import CommitInDoubt, StoreError, TransactionConflict
from semel.model import Insert, Move, Operation, Write
from semel.ports import Outcome
from semel.stores.postgres.answers import operation_of
from semel.stores.postgres.batch import Statement, key_of, statements_for
from semel.stores.postgres.faults import explained
from semel.stores.postgres.place import Connection
from semel.stores.postgres.pool import Lent, Link
from semel.stores.postgres.transaction import RACES_MAX
from semel.stores.records import Durability, Row, Rows, is_durable
from semel.stores.sqlfile import load_statements

TRIES_MAX: Final = 10  # of a batch that the database asks us to repeat


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


def _as_it_is(at: datetime) -> datetime:
    return at


def _statements(how: str) -> Mapping[str, bytes]:
    """All statements, for one way to flush."""
    texts = load_statements(Path(__file__).parent / "queries.sql")
    return {name: text.replace("{how}", how).encode() for name, text in texts.items()}


FLUSHED: Final = _statements("flushed")
UNFLUSHED: Final = _statements("unflushed")
UNTOUCHED: Final = _statements("untouched")
ROWS: Final = Rows(keep=_as_it_is, revive=_in_utc)
BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


class Writing:
    """`link` gives a connection for as long as it is needed."""

    def __init__(self, link: Callable[[], Lent], durability: Durability) -> None:
        self._link = link
        self._durability = durability

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
        statements = statements_for(writes, left, ROWS)
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                with self._link() as link:
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
        found = {op.key: op for op in self._read("read_many", (named,))} if named else {}
        explained_by: dict[int, Operation | None] = {}
        for position in missed:
            write, in_the_way = writes[position], found.get(keys[position] or "")
            if in_the_way is None and isinstance(write, Insert):
                in_the_way = self._read_once(write.operation.once_key)
            if in_the_way is not None or not isinstance(write, Insert):
                explained_by[position] = in_the_way
        return explained_by

    def _read_once(self, once_key: str | None) -> Operation | None:
        found = [] if once_key is None else self._read("read_once", (once_key,))
        return found[0] if found else None

    def _read(self, name: str, parameters: Sequence[Any]) -> list[Operation]:
        with self._link() as link, explained(link.connection, commits=False):
            rows = link.connection.execute(UNTOUCHED[name], parameters).fetchall()
        return [ROWS.operation(row) for row in rows]


def _carry_out(link: Link, statements: Sequence[Statement], *, is_flushed: bool) -> list[list[Row]]:
    """What each statement gives back. One transaction; one round trip if it is one statement, as nearly always,
    and else two."""
    flushing = FLUSHED if is_flushed else UNFLUSHED
    connection = link.connection
    if len(statements) == 1:
        (statement,) = statements
        execute = link.execute_once if statement.is_large else link.execute
        with explained(connection, commits=True):
            return [execute(flushing[statement.name], statement.parameters)]
    try:
        with explained(connection, commits=False), connection.pipeline():
            connection.execute(BEGIN)
            connection.execute(flushing["set_flush"])
            cursors = [connection.execute(UNTOUCHED[one.name], one.parameters) for one in statements]
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
