"""A clock, a ledger and guards that are closed afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from workbench import ENGINES, NO_TIME, Child, Desk, Ledger

import semel
from semel.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def open_guard(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., semel.Guard]]:
    """More handles on one database, by the manual clock and without waiting unless told otherwise."""
    with ExitStack() as stack:

        def opened(**options: Any) -> semel.Guard:
            settings = {"clock": clock, "wait": NO_TIME} | options
            return stack.enter_context(semel.open(f"sqlite:///{tmp_path}/agent.db", **settings))

        yield opened


@pytest.fixture
def guard(open_guard: Callable[..., semel.Guard]) -> semel.Guard:
    return open_guard()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Desks on the test's own folder, as another process would open them: by the store's own clock."""
    with ExitStack() as stack:

        def opened(engine: str = "sync", **options: Any) -> Desk:
            made = Desk(tmp_path, engine, **options)
            stack.callback(made.guard.close)
            return made

        yield opened


@pytest.fixture
def narrow_sqlite(monkeypatch: pytest.MonkeyPatch) -> int:
    """SQLite as it may be built: no value is longer than this many characters."""
    connect, most = sqlite3.connect, 100_000

    def connect_narrow(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_narrow)
    return most


@pytest.fixture(autouse=True)
def _no_child_outlives_its_test() -> Iterator[None]:
    yield
    Child.end_all()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
