"""Claims and completions, which are nearly all there is, kept short.

Alone, one is a statement without BEGIN and COMMIT. In a batch many are one statement: SQLite then does them all
in one go, while the interpreter is free for other threads. If anything stands in the way of any of them, none is
written here; `writes` does them one by one, and says what it was.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from semel.errors import CommitInDoubt, StoreUnavailable, WriteRefused
from semel.model import Event, Insert, Move, Operation, Write
from semel.ports import Outcome
from semel.stores.sqlite.connections import WritingConnection
from semel.stores.sqlite.writes import ROWS, SQL, explained, written

# What may have reached the log although the statement failed; every other error comes before that.
_MAY_BE_WRITTEN: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERNAL})

ROWS_MOST: Final = 64  # in a statement; it is prepared once for each power of two up to it


class _Plain(NamedTuple):
    """Its kind, its parameters, and the record that it leaves."""

    kind: str
    parameters: tuple[Any, ...]
    left: Operation


def _plain(write: Write) -> _Plain | None:
    if isinstance(write, Insert):
        return _Plain("insert", ROWS.operation_row(write.operation), write.operation)
    if isinstance(write, Move) and write.event is Event.COMMITTED:
        return _Plain("commit", ROWS.commit_row(write), write.after)
    return None


def apply_alone(connection: WritingConnection, write: Write, flush: str) -> Outcome | None:
    """A statement that is a transaction of its own: no BEGIN, no COMMIT.

    None if it changed nothing, or is another kind of write: a transaction then does it, and says why.
    """
    plain = _plain(write)
    if plain is None:
        return None
    try:
        connection.flush_at(flush)
        if connection.execute(SQL[plain.kind], plain.parameters).rowcount != 1:
            return None
    except (sqlite3.DataError, OverflowError) as problem:
        raise WriteRefused(f"The store cannot hold this: {problem}. Nothing was recorded.") from problem
    except sqlite3.Error as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF in _MAY_BE_WRITTEN:
            raise CommitInDoubt(f"A write failed: {problem}. It may or may not be recorded.") from problem
        raise StoreUnavailable(f"The store takes no writes: {problem}. Nothing was recorded.") from problem
    return Outcome(True, plain.left)


def apply_together(
    connection: WritingConnection, writes: Sequence[Write], flush: str
) -> list[Outcome] | None:
    """In one transaction. None, and nothing is written, if one of them would change nothing, or is another kind."""
    plains = [plain for write in writes if (plain := _plain(write)) is not None]
    if len(plains) < len(writes):
        return None
    try:
        with written(connection, flush=flush), explained():
            for kind, run in itertools.groupby(plains, key=itemgetter(0)):
                _write_run(connection, kind, [plain.parameters for plain in run])
    except _ChangedNothingError:
        return None
    return [Outcome(True, plain.left) for plain in plains]


class _ChangedNothingError(Exception):
    """Something stood in the way of one of them; the transaction is rolled back."""


def _write_run(connection: sqlite3.Connection, kind: str, rows: Sequence[tuple[Any, ...]]) -> None:
    by_size, at = _FOR_MANY[kind], 0
    for size in _sizes(len(rows)):
        parameters = [*itertools.chain.from_iterable(rows[at : at + size])]
        if connection.execute(by_size[size], parameters).rowcount != size:
            raise _ChangedNothingError
        at += size


def _sizes(rows: int) -> Iterator[int]:
    """Powers of two that add up to it."""
    size = ROWS_MOST
    while rows:  # ends: each round halves the size or takes some away, and 1 is a size
        if size <= rows:
            rows -= size
            yield size
        else:
            size //= 2


def _for_many(name: str) -> Mapping[int, str]:
    """The statement, written for one row, for each number of rows."""
    before, row, after = SQL[name].partition(_ROW_OF[name])
    assert row, "each has its row of places in the file"
    return {size: before + ", ".join([row] * size) + after for size in _sizes(2 * ROWS_MOST - 1)}


_ROW_OF: Final = {"insert": f"({', '.join('?' * 23)})", "commit_many": "(?, ?, ?, ?)"}
_FOR_MANY: Final = {"insert": _for_many("insert"), "commit": _for_many("commit_many")}
