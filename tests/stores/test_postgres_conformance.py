"""The PostgreSQL store keeps every promise of the port, directly and through a transaction pooler."""

from collections.abc import Iterator

import pytest
from pooler import Pooler

from semel.stores.postgres.store import PostgresStore
from semel.testing.conformance import OpenStore, StoreConformance


class TestPostgres(StoreConformance):
    @pytest.fixture
    def open_store(self, database: str) -> Iterator[OpenStore]:
        yield from _opener(database)


class TestPostgresStrict(StoreConformance):
    @pytest.fixture
    def open_store(self, database: str) -> Iterator[OpenStore]:
        yield from _opener(database, durability="strict")


class TestPostgresSerializable(StoreConformance):
    @pytest.fixture
    def open_store(self, database: str) -> Iterator[OpenStore]:
        yield from _opener(database, isolation="serializable")


class TestPostgresBehindAPooler(StoreConformance):
    @pytest.fixture
    def open_store(self, database: str, pooler: Pooler) -> Iterator[OpenStore]:
        yield from _opener(pooler.url_of(database))


def _opener(url: str, **options: str) -> Iterator[OpenStore]:
    opened: list[PostgresStore] = []

    def open_one() -> PostgresStore:
        opened.append(PostgresStore(url, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
