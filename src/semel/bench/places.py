"""Where things are measured: one folder on one disk, and a PostgreSQL server of our own in it."""

from __future__ import annotations

import itertools
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from semel.bench.model import STORES
from semel.stores.sqlite.place import file_system_of


class Unavailable(Exception):
    """It cannot be measured here; the text says why."""


class Place(Protocol):
    """`store`: "sqlite" or "postgres"."""

    @property
    def store(self) -> str: ...

    def new_url(self) -> str:
        """Of an empty database."""

    def new_folder(self) -> Path: ...


class SqlitePlace:
    store = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))

    def new_url(self) -> str:
        return f"sqlite:///{self.new_folder()}/bench.db"


class PostgresPlace:
    """On a server that may be somebody's own (`SEMEL_POSTGRES_URL`); each database is dropped again."""

    store = "postgres"

    def __init__(self, server_url: str, folder: Path, server_process: int | None = None) -> None:
        self.server_url = server_url
        self.server_process = server_process
        self._folder = folder
        self._numbers = itertools.count(1)
        self._databases: list[str] = []

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))

    def new_url(self) -> str:
        name = f"semel_bench_{os.getpid()}_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        self._databases.append(name)
        return urlsplit(self.server_url)._replace(path=f"/{name}").geturl()

    def setting(self, name: str) -> str:
        return str(self._execute(f"SHOW {name}"))

    def close(self) -> None:
        for name in self._databases:
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _execute(self, statement: str) -> Any:
        import psycopg

        with psycopg.connect(self.server_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return (cursor.fetchone() or (None,))[0] if cursor.description else None


class Places:
    """One for each store that was asked for; a server is started when it is first needed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._made: dict[str, Place | Unavailable] = {}

    def of(self, store: str) -> Place:
        """Raises `Unavailable`."""
        if store not in self._made:
            self._made[store] = self._make(store)
        made = self._made[store]
        if isinstance(made, Unavailable):
            raise made
        return made

    def postgres(self) -> PostgresPlace:
        place = self.of("postgres")
        assert isinstance(place, PostgresPlace)
        return place

    def _make(self, store: str) -> Place | Unavailable:
        assert store in STORES
        if store == "sqlite":
            return SqlitePlace(self.folder)
        try:
            place = self._start_postgres()
        except Unavailable as problem:
            return problem
        self._stack.callback(place.close)
        return place

    def _start_postgres(self) -> PostgresPlace:
        try:
            import psycopg  # noqa: F401  (missed politely)
        except ImportError as problem:
            raise Unavailable(f"psycopg cannot be imported ({problem}): pip install 'semel[bench]'") from None
        given = os.environ.get("SEMEL_POSTGRES_URL")
        if given:
            return PostgresPlace(given, self.folder)
        from semel.testing.postgres_server import PostgresServer, ServerNotStarted

        try:
            server = PostgresServer(parent=self.folder)
        except ServerNotStarted as problem:
            raise Unavailable(str(problem)) from None
        self._stack.callback(server.close)
        return PostgresPlace(server.url, self.folder, server.pid)


@contextmanager
def opened() -> Iterator[Places]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semel-bench-")))
        folder.chmod(0o755)  # PostgreSQL runs as another user where we are root
        yield Places(folder, stack)


def machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "semel": version("semel"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "file_system": file_system_of(folder.resolve(), _mounts()),
        "platform": f"{sys.platform} {platform.release()}",
    }


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
