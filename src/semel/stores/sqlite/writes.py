"""The writes: what becomes of a claim, a move, a note, a log entry; and one transaction around them.

"Busy" at COMMIT means nothing was written; any other failure there means that we do not know.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from semel.errors import (
    CommitInDoubt,
    StoreError,
    StoreUnavailable,
    WriteRefused,
)
from semel.lifecycle import UNREMARKABLE
from semel.model import (
    Append,
    Event,
    Insert,
    Move,
    Note,
    Operation,
    RunEvent,
    Write,
)
from semel.ports import Outcome
from semel.stores.clock import instant, microseconds
from semel.stores.records import Rows, entry_of
from semel.stores.sqlfile import load_statements
from semel.stores.sqlite.connections import WritingConnection

SQL: Final = load_statements(Path(__file__).parent / "queries.sql")
ROWS: Final = Rows(keep=microseconds, revive=instant)


# ------------------------------------------------------------------ one write

Executor: TypeAlias = sqlite3.Connection | sqlite3.Cursor


def apply_one(connection: Executor, write: Write) -> Outcome:
    with explained():
        match write:
            case Insert(operation):
                return _insert(connection, operation)
            case Move():
                return _move(connection, write)
            case Note(entry):
                connection.execute(SQL["note"], ROWS.history_row(entry))
                return Outcome(True)
            case Append(events):
                return _append(connection, events)


def _insert(connection: Executor, operation: Operation) -> Outcome:
    if connection.execute(SQL["insert"], ROWS.operation_row(operation)).rowcount == 1:
        return Outcome(True, operation)
    in_the_way = connection.execute(SQL["read"], (operation.key,)).fetchone()
    if in_the_way is None:
        in_the_way = connection.execute(SQL["read_once"], (operation.once_key,)).fetchone()
    return Outcome(False, ROWS.operation(in_the_way))


def _move(connection: Executor, move: Move) -> Outcome:
    before, after = move.before, move.after
    if move.event is Event.COMMITTED:
        cursor = connection.execute(SQL["commit"], ROWS.commit_row(move))
    else:
        cursor = connection.execute(SQL["move"], ROWS.move_row(move))
    if cursor.rowcount != 1:
        row = connection.execute(SQL["read"], (before.key,)).fetchone()
        return Outcome(False, None if row is None else ROWS.operation(row))
    if move.event not in UNREMARKABLE:
        connection.execute(SQL["note"], ROWS.history_row(entry_of(move)))
    return Outcome(True, after)


def _append(connection: Executor, events: tuple[RunEvent, ...]) -> Outcome:
    for event in events:
        if connection.execute(SQL["append"], ROWS.event_row(event)).rowcount != 1:
            if event is events[0]:
                return Outcome(False)
            raise StoreError(f"The log of run {event.run_id!r} has a gap before {event.position}.")
    return Outcome(True)


@contextmanager
def written(connection: WritingConnection, *, flush: str) -> Iterator[None]:
    """One transaction. An exception of the block rolls back and passes through."""
    with explained():
        connection.flush_at(flush)
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        _roll_back(connection)
        raise
    if not connection.in_transaction:
        raise rolled_back_inside()
    _commit(connection)


def rolled_back_inside() -> StoreUnavailable:
    return StoreUnavailable(
        "The transaction was rolled back by one of its own statements (ON CONFLICT ROLLBACK, RAISE(ROLLBACK), a "
        "full disk). Nothing of it happened, nothing was recorded. Let such an error leave the tool."
    )


@contextmanager
def explained() -> Iterator[None]:
    """Our own statements' errors in our own words: until COMMIT, nothing is written."""
    try:
        yield
    except (sqlite3.DataError, OverflowError) as problem:
        raise WriteRefused(f"The store cannot hold this: {problem}. Nothing was recorded.") from problem
    except sqlite3.Error as problem:
        raise StoreUnavailable(f"The store takes no writes: {problem}. Nothing was recorded.") from problem


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
