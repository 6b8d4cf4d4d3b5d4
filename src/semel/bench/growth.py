"""(c) Claim latency with a little and with very much in the table.

The tables are filled by SQL in the database, not call by call: ended operations with scattered keys, ten to a
run. Each claim is one write of the store, timed by itself; the completion after it is not.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

from semel import lifecycle
from semel.bench.measure import figures, interleaved, percentile
from semel.bench.model import Row
from semel.bench.places import Place
from semel.bench.sizes import Sizes
from semel.connect import open_store
from semel.model import Insert, Intent, Operation
from semel.ports import Store

LEASE: Final = timedelta(seconds=30)
BATCH_ROWS: Final = 250_000  # a transaction: enough to be quick, not so much that the log fills the disk


def name_of(rows: int) -> str:
    return f"claim, {rows:,} operations in the table"


def measure(place: Place, sizes: Sizes) -> list[Row]:
    """Rounds are chunks of claims; the samples of all of them make the percentiles."""
    samples: dict[str, list[float]] = {}
    p99s: dict[str, list[float]] = {}
    with ExitStack() as stack:
        stores: dict[str, Store] = {}
        for rows in sizes.table_rows:
            url = place.new_url()
            store = open_store(url)
            stack.callback(store.close)
            fill(place, url, rows)
            stores[name_of(rows)] = store
        a_round = max(1, sizes.claims // sizes.rounds)

        def claims(name: str) -> float:
            found = [_claim(stores[name]) for _ in range(a_round)]
            samples.setdefault(name, []).extend(found)
            p99s.setdefault(name, []).append(percentile(found, 0.99))
            return sum(found) / a_round

        rounds = interleaved({name: lambda name=name: claims(name) for name in stores}, sizes.rounds)  # type: ignore[misc]
    return [
        Row(
            section="growth",
            name=name,
            store=place.store,
            figures=figures(rounds[name])
            | {
                "p50_microseconds": round(percentile(samples[name], 0.5) * 1e6, 1),
                "p99_microseconds": round(percentile(samples[name], 0.99) * 1e6, 1),
            },
            rounds=p99s[name][-len(rounds[name]) :],
            note="rounds: the p99 of each",
        )
        for name in stores
    ]


def _claim(store: Store) -> float:
    """Seconds."""
    operation = _new_claim(store)
    write = [Insert(operation)]
    begun = time.perf_counter()
    (outcome,) = store.apply(write)
    seconds = time.perf_counter() - begun
    assert outcome.applied, "a new key is free"
    store.apply([lifecycle.commit(operation, result="1", now=store.now())])
    return seconds


def _new_claim(store: Store) -> Operation:
    intent = Intent(
        key=os.urandom(32).hex(),
        namespace="",
        run_id=f"bench {os.urandom(4).hex()}",
        step="1",
        call_id="",
        tool="plain",
        effect="unsafe",
        fingerprint=os.urandom(32).hex(),
        arguments='{"n":1}',
    )
    return lifecycle.open_claim(intent, owner="bench/1", now=store.now(), lease=LEASE)


def fill(place: Place, url: str, rows: int) -> None:
    """That many ended operations, by the database itself."""
    _FILLS[place.store](url, rows)


def _fill_sqlite(url: str, rows: int) -> None:
    """Indexes are dropped and built again, sorted: in random order 5 million keys would take an hour."""
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -262144")
        listed = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'semel_operations'"
        indexes = [(name, sql) for name, sql in connection.execute(listed).fetchall() if sql is not None]
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        for begin in range(0, rows, BATCH_ROWS):
            connection.execute(_FILL_SQLITE, (begin, min(begin + BATCH_ROWS, rows)))
        for _, sql in indexes:
            connection.execute(sql)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _fill_postgres(url: str, rows: int) -> None:
    """The primary key stays, and keys come in any order: it costs minutes less than it would on SQLite."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET maintenance_work_mem = '512MB'")
        listed = (
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index "
            "WHERE indrelid = 'semel_operations'::regclass"
        )
        indexes = connection.execute(listed).fetchall()
        keeps = connection.execute(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid = 'semel_operations'::regclass AND contype = 'p'"
        ).fetchall()
        constraints = {name for name, _ in keeps}
        for name, _ in keeps:
            connection.execute(f"ALTER TABLE semel_operations DROP CONSTRAINT {name}".encode())
        for name, _ in indexes:
            if name not in constraints:
                connection.execute(f"DROP INDEX {name}".encode())
        connection.execute(_FILL_POSTGRES, (rows,))
        for name, definition in keeps:
            connection.execute(f"ALTER TABLE semel_operations ADD CONSTRAINT {name} {definition}".encode())
        for name, definition in indexes:
            if name not in constraints:
                connection.execute(definition.encode())
        connection.execute("VACUUM ANALYZE semel_operations")
        connection.execute("CHECKPOINT")


_FILLS: Final = {"sqlite": _fill_sqlite, "postgres": _fill_postgres}

_FILL_SQLITE: Final = """
WITH RECURSIVE numbers (n) AS (SELECT ?1 + 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
INSERT INTO semel_operations (
    key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, state, fence,
    first_sent_at, send_deadline_at, earlier_in_doubt, result, created_at, updated_at
)
SELECT lower(hex(randomblob(32))), '', 'filled ' || (n / 10), n % 10, '', 'plain', 'unsafe',
       lower(hex(randomblob(32))), '{"n":1}', 'COMMITTED', 1, 1, 1, 0, '1', 1, 1
  FROM numbers
"""
_FILL_POSTGRES: Final = b"""
INSERT INTO semel_operations (
    key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, state, fence,
    first_sent_at, send_deadline_at, earlier_in_doubt, result, created_at, updated_at
)
SELECT encode(sha256(n::text::bytea), 'hex'), '', 'filled ' || (n / 10), mod(n, 10), '', 'plain', 'unsafe',
       encode(sha256(('f' || n)::bytea), 'hex'), '{"n":1}', 'COMMITTED', 1,
       clock_timestamp(), clock_timestamp(), false, '1', clock_timestamp(), clock_timestamp()
  FROM generate_series(1, %s) AS n
"""
