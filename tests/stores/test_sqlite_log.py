"""The log is lengthened for speed alone: whatever is done to the process, the records are as they were."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from semel.model import Insert
from semel.stores.sqlite import log
from semel.stores.sqlite.connections import FLUSHES_FIRST
from semel.stores.sqlite.store import SqliteStore
from semel.testing.conformance import claimed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "agent.db")
    yield store
    store.close()


def log_bytes(folder: Path) -> int:
    return (folder / "agent.db-wal").stat().st_size


def write(store, names):
    claims = [claimed(store, str(name)) for name in names]
    for claim in claims:
        assert store.apply([Insert(claim)])[0].applied
    return claims


def assert_whole(folder: Path, claims) -> None:
    store = SqliteStore(folder / "agent.db")
    assert [store.read(claim.key) for claim in claims] == claims
    store.close()
    with sqlite3.connect(folder / "agent.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_program_that_writes_little_leaves_the_log_alone(store, tmp_path):
    write(store, range(FLUSHES_FIRST - 1))
    assert log_bytes(tmp_path) < log.CHECKPOINT_PAGES * 2048


def test_after_a_power_cut_a_lengthened_log_holds_what_was_flushed_and_nothing_else(store, tmp_path):
    claims = write(store, range(FLUSHES_FIRST + 10))
    length = log_bytes(tmp_path)
    assert length > log.CHECKPOINT_PAGES * 2048, "the log was never lengthened"
    claims += write(store, range(1000, 1040))
    assert log_bytes(tmp_path) == length, "it grew all the same"
    (tmp_path / "after").mkdir()
    for name in ("agent.db", "agent.db-wal"):  # what is on the disk; shared memory is gone
        shutil.copy(tmp_path / name, tmp_path / "after" / name)
    assert_whole(tmp_path / "after", claims)


def test_the_log_is_overwritten_from_its_beginning_and_does_not_grow_again(store, tmp_path, monkeypatch):
    monkeypatch.setattr(log, "CHECKPOINT_PAGES", 60)
    monkeypatch.setattr(log, "SPARE_PAGES", 60)
    with store._connections.turn():
        store._connections.writer().execute("PRAGMA wal_autocheckpoint = 60")
    claims = write(store, range(FLUSHES_FIRST + 5))
    length = log_bytes(tmp_path)
    claims += write(store, range(1000, 1200))
    assert log_bytes(tmp_path) == length
    store.close()
    assert_whole(tmp_path, claims)


def test_a_second_process_reads_and_writes_beside_a_lengthened_log(store, tmp_path):
    mine = write(store, range(FLUSHES_FIRST + 1))
    other = SqliteStore(tmp_path / "agent.db")
    theirs = write(other, range(100, 100 + FLUSHES_FIRST + 1))
    assert [store.read(claim.key) for claim in theirs] == theirs
    assert [other.read(claim.key) for claim in mine] == mine
    other.close()
    store.close()
    assert_whole(tmp_path, mine + theirs)


def test_a_log_that_cannot_be_lengthened_is_left_as_it_is(store, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log.os, "pwrite", full)
    claims = write(store, range(FLUSHES_FIRST + 1))
    assert log_bytes(tmp_path) < log.CHECKPOINT_PAGES * 2048
    assert [store.read(claim.key) for claim in claims] == claims
