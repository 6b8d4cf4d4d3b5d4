"""One real server a test session, and a fresh database for each test.

`SEMEL_POSTGRES_URL` names a server to use instead; its role must be allowed to create databases. Tests that
restart the server need one of their own all the same.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from pooler import Pooler

from semel.testing.postgres_server import PostgresServer

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The session's own server. It may be restarted; nobody else's data is on it."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def maintenance_url(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SEMEL_POSTGRES_URL")
    if given:
        return given
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url


@pytest.fixture(scope="session")
def pooler(maintenance_url: str) -> Iterator[Pooler]:
    pooler = Pooler(maintenance_url)
    yield pooler
    pooler.close()


@pytest.fixture
def database(maintenance_url: str) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards with whatever still uses it."""
    yield from _fresh(maintenance_url)


@pytest.fixture
def own_database(postgres: PostgresServer) -> Iterator[str]:
    """The same, on a server that the test may restart."""
    yield from _fresh(postgres.url)


def _fresh(server_url: str) -> Iterator[str]:
    name = f"semel_test_{os.getpid()}_{next(_NUMBERS)}"
    _execute(server_url, f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
    yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


Query = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def query(database: str) -> Query:
    """One statement on the test's database, outside the guard; its rows."""

    def run(statement: str, *parameters: object) -> list[tuple[object, ...]]:
        with psycopg.connect(database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    return run
