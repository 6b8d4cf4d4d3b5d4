"""The servers that some contestants need, each started when it is first needed and ended with the bake-off."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from semel.lab.bakeoff.model import Service
from semel.lab.levels import temporal_server

Address: TypeAlias = Callable[[], str]  # of what one run may use


class NotAvailable(Exception):
    """The text says why."""


class Services:
    def __init__(self, folder: Path, path: Path, stack: ExitStack) -> None:
        """`path`: where a foreign environment finds Semel."""
        self._folder = folder
        self._path = path
        self._stack = stack
        self._lock = threading.Lock()
        self._started: dict[Service, Address] = {Service.NONE: lambda: ""}

    def of(self, service: Service, python: Path) -> Address:
        """`python`: of the environment that holds the server, if a package brings it. Raises `NotAvailable`."""
        with self._lock:
            if service not in self._started:
                start = self._start_postgres if service is Service.POSTGRES else self._start_temporal
                self._started[service] = start(python)
            return self._started[service]

    def _start_postgres(self, python: Path) -> Address:
        """One server; every run has a database of its own."""
        from semel.testing.postgres_server import PostgresServer, ServerNotStarted

        try:
            import psycopg

            server = PostgresServer()
        except (ImportError, ServerNotStarted) as problem:
            raise NotAvailable(f"no PostgreSQL for it: {problem} (pip install 'semel[bench]')") from None
        self._stack.callback(server.close)
        numbers = itertools.count(1)

        def new_database() -> str:
            name = f"bakeoff_{next(numbers)}"
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
            return server.url_of(name)

        return new_database

    def _start_temporal(self, python: Path) -> Address:
        asked = subprocess.run(
            [python, "-c", f"from {temporal_server.__name__} import binary; print(binary())"],
            env={**os.environ, "PYTHONPATH": str(self._path)},
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            running = temporal_server.running(self._folder, executable=Path(asked.stdout.strip()))
            address = self._stack.enter_context(running)
        except temporal_server.TemporalNotRunning as problem:
            raise NotAvailable(str(problem)) from None
        return lambda: address
