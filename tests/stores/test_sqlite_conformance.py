"""The SQLite store keeps every promise of the port, on disk and in memory."""

from pathlib import Path

import pytest

from semel.stores.sqlite.store import SqliteStore
from semel.testing.conformance import OpenStore, StoreConformance


class TestSqliteOnDisk(StoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path):
        yield from _opener(tmp_path / "agent.db")


class TestSqliteStrict(StoreConformance):
    @pytest.fixture
    def open_store(self, tmp_path: Path):
        yield from _opener(tmp_path / "agent.db", durability="strict")


def _opener(path: Path, **options):
    opened: list[SqliteStore] = []

    def open_one() -> SqliteStore:
        opened.append(SqliteStore(path, **options))
        return opened[-1]

    opener: OpenStore = open_one
    yield opener
    for store in opened:
        store.close()
