"""Between the floor and a guarded call: the raw driver with Semel's own two statements on Semel's own table.

What it costs above the floor is the price of the record (its columns, indexes and constraints); what a guarded
call costs above it is the price of the guard.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import semel
from semel import lifecycle
from semel.bench.measure import timed
from semel.connect import open_store
from semel.model import Intent, Move
from semel.stores.clock import instant, microseconds
from semel.stores.records import Rows
from semel.stores.sqlfile import load_statements

OneByOne: TypeAlias = Callable[[int], float]
"""Does so many calls; seconds a call."""

STORES: Final = Path(semel.__file__).parent / "stores"
LEASE: Final = timedelta(seconds=30)
OWNER: Final = (
    "01234567-89ab-cdef-0123-456789abcdef/4026531836/12345/678901/01234567/1"  # as long as a real one
)
_NUMBERS: Final = itertools.count(1)


def _completions(calls: int) -> list[Move]:
    """As many claims, each with its completion; made before the time is taken."""
    now, found = datetime.now(UTC), []
    for _ in range(calls):
        number = next(_NUMBERS)
        intent = Intent(
            key=os.urandom(32).hex(),
            namespace="",
            run_id=f"bench {number // calls}",
            step=str(number),
            call_id="",
            tool="plain",
            effect="unsafe",
            fingerprint=os.urandom(32).hex(),
            arguments='{"n":1}',
        )
        claim = lifecycle.open_claim(intent, owner=OWNER, now=now, lease=LEASE)
        found.append(lifecycle.commit(claim, result="1", now=now))
    return found


@contextmanager
def on_sqlite(url: str) -> Iterator[OneByOne]:
    open_store(url).close()
    sql, rows = load_statements(STORES / "sqlite" / "queries.sql"), Rows(keep=microseconds, revive=instant)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    execute = connection.execute

    def one_by_one(calls: int) -> float:
        work = [(rows.operation_row(move.before), rows.commit_row(move)) for move in _completions(calls)]

        def write() -> None:
            for claim, completion in work:
                execute("PRAGMA synchronous = FULL")
                execute(sql["insert"], claim)
                execute("PRAGMA synchronous = NORMAL")
                execute(sql["commit"], completion)

        return timed(write, calls)

    try:
        yield one_by_one
    finally:
        connection.close()


@contextmanager
def on_postgres(url: str) -> Iterator[OneByOne]:
    import psycopg

    open_store(url).close()
    texts = load_statements(STORES / "postgres" / "queries.sql")
    rows = Rows(keep=_as_it_is, revive=_as_it_is)
    insert = texts["claim"].replace("{how}", "flushed").encode()
    commit = texts["commit"].replace("{how}", "unflushed").encode()
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        execute = connection.execute

        def one_by_one(calls: int) -> float:
            work = [(rows.claim_row(move.before), rows.commit_row(move)) for move in _completions(calls)]

            def write() -> None:
                for claim, completion in work:
                    execute(insert, claim)
                    execute(commit, completion)

            return timed(write, calls)

        yield one_by_one


def _as_it_is(at: Any) -> Any:
    return at
