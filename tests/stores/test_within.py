"""An Atomic tool in the caller's own transaction: it happened if and only if the caller commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import semel
from semel.model import State

WAYS = [
    "psycopg",
    "psycopg, autocommit with BEGIN",
    "psycopg, dict rows",
    "sqlalchemy connection",
    "sqlalchemy session",
    "sqlite3",
    "sqlite3, autocommit with BEGIN",
    "sqlite3, dict rows",
    "sqlalchemy connection on sqlite",
    "sqlalchemy session on sqlite",
]


class Caller:
    """A connection of the caller's, in whatever they hold it, and its two ends."""

    def __init__(self, held: Any, commit: Callable[[], Any], rollback: Callable[[], Any]) -> None:
        self.held = held
        self.commit = commit
        self.rollback = rollback

    def add(self, customer: str) -> None:
        """The caller's own effect, in the same transaction."""
        statement = f"INSERT INTO grants (customer) VALUES ('{customer}')"
        text = sqlalchemy.text(statement) if isinstance(self.held, SQLALCHEMY) else statement
        self.held.execute(text)


SQLALCHEMY = (sqlalchemy.Connection, orm.Session)


@contextmanager
def opened(way: str, url: str) -> Iterator[Caller]:
    if way.startswith("sqlalchemy"):
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.connect() if "connection" in way else orm.Session(engine) as held:
            yield Caller(held, held.commit, held.rollback)
        engine.dispose()
        return
    is_manual = "autocommit" in way
    if way.startswith("psycopg"):
        options = {"row_factory": psycopg.rows.dict_row} if "dict" in way else {}
        connection: Any = psycopg.connect(url, autocommit=is_manual, **options)
    else:
        level = {"isolation_level": None} if is_manual else {}
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), **level)
        if "dict" in way:
            connection.row_factory = lambda cursor, row: {
                column[0]: value for column, value in zip(cursor.description, row, strict=True)
            }
    if is_manual:
        connection.execute("BEGIN")
    commit = (lambda: connection.execute("COMMIT")) if is_manual else connection.commit
    rollback = (lambda: connection.execute("ROLLBACK")) if is_manual else connection.rollback
    yield Caller(connection, commit, rollback)
    connection.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(way: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if "sqlite" in way:
        return f"sqlite:///{tmp_path}/agent.db"
    return str(request.getfixturevalue("database"))


@pytest.fixture
def guard(url: str) -> Iterator[semel.Guard]:
    with semel.open(url) as guard:
        with guard.store.transaction() as transaction:
            transaction.handle.execute("CREATE TABLE grants (customer TEXT)")
        yield guard


@pytest.fixture
def grant(guard: semel.Guard, way: str) -> semel.Tool:
    mark = "?" if "sqlite" in way else "%s"

    @guard.tool(effect=semel.Atomic())
    def grant(customer: str, *, tx: Any) -> str:
        tx.execute(f"INSERT INTO grants (customer) VALUES ({mark})", (customer,))
        if customer == "nobody":
            raise semel.Rejected("there is no such customer")
        if customer == "everybody":
            raise ZeroDivisionError
        return f"granted to {customer}"

    return grant


def granted(guard: semel.Guard) -> list[str]:
    with guard.store.transaction() as transaction:
        rows = transaction.handle.execute("SELECT customer FROM grants ORDER BY customer").fetchall()
    return [row[0] for row in rows]


def test_it_happened_and_is_recorded_when_the_caller_commits(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with opened(way, url) as caller:
        with guard.run("r") as run:
            caller.add("before")
            assert run.call_within(caller.held, grant, customer="ann") == "granted to ann"
        assert guard.store.read_run("", "r") == [], "it shows before the caller has committed"
        caller.commit()
    assert granted(guard) == ["ann", "before"]
    (operation,) = guard.store.read_run("", "r")
    assert operation.state is State.COMMITTED
    with guard.run("r") as run:
        assert run.call(grant, customer="ann") == "granted to ann"
    assert granted(guard) == ["ann", "before"]


def test_nothing_happened_when_the_caller_rolls_back_and_it_can_be_called_again(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with guard.run("r") as run:
        with opened(way, url) as caller:
            caller.add("before")
            run.call_within(caller.held, grant, customer="ann")
            caller.rollback()
        assert granted(guard) == []
        assert guard.store.read_run("", "r") == []
    with guard.run("r") as run:
        assert run.call(grant, customer="ann") == "granted to ann"
    assert granted(guard) == ["ann"]


def test_an_exception_undoes_the_call_and_nothing_else_of_the_transaction(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with opened(way, url) as caller:
        with guard.run("r") as run:
            caller.add("before")
            with pytest.raises(ZeroDivisionError):
                run.call_within(caller.held, grant, customer="everybody")
            caller.add("after")
        caller.commit()
    assert granted(guard) == ["after", "before"]
    assert guard.store.read_run("", "r") == []


def test_a_rejection_is_recorded_with_the_callers_commit_and_leaves_no_effect(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with opened(way, url) as caller:
        with guard.run("r") as run, pytest.raises(semel.Rejected):
            run.call_within(caller.held, grant, customer="nobody")
        caller.commit()
    assert granted(guard) == []
    (operation,) = guard.store.read_run("", "r")
    assert operation.state is State.FAILED


def test_what_somebody_else_has_recorded_meanwhile_is_given_back_and_not_done_again(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with guard.run("r") as entered_before:
        with guard.run("r") as other:
            other.call(grant, customer="ann")
        with opened(way, url) as caller:
            assert entered_before.call_within(caller.held, grant, customer="ann") == "granted to ann"
            caller.commit()
    with guard.run("r") as entered_after, opened(way, url) as caller:
        assert entered_after.call_within(caller.held, grant, customer="ann") == "granted to ann"
    assert granted(guard) == ["ann"]


def test_it_can_stand_at_coordinates_of_the_callers_own(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with guard.run("r") as run, opened(way, url) as caller:
        where = {"step": "7", "call_id": "c"}
        assert run.call_at(grant, {"customer": "ann"}, **where, within=caller.held) == "granted to ann"
        caller.commit()
    (operation,) = guard.store.read_run("", "r")
    assert (operation.step, operation.call_id, granted(guard)) == ("7", "c", ["ann"])


def test_the_tool_cannot_end_the_callers_transaction(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    @guard.tool(effect=semel.Atomic())
    def end(*, tx: Any) -> None:
        tx.execute("COMMIT")

    with opened(way, url) as caller:
        caller.add("before")
        with guard.run("r") as run, pytest.raises(semel.UsageError, match="COMMIT"):
            run.call_within(caller.held, end)
        caller.rollback()
    assert granted(guard) == []


def test_only_an_atomic_tool_can_be_called_within(guard: semel.Guard, way: str, url: str) -> None:
    @guard.tool(effect=semel.Unsafe())
    def charge() -> None:
        raise AssertionError("it ran")

    with (
        opened(way, url) as caller,
        guard.run("r") as run,
        pytest.raises(semel.UsageError, match="only an Atomic tool"),
    ):
        run.call_within(caller.held, charge)


# ------------------------------------------------------------------ what is no transaction of this store


def test_a_connection_to_another_database_is_refused_and_stays_usable(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str, tmp_path: Path
) -> None:
    elsewhere = f"sqlite:///{tmp_path}/other.db" if "sqlite" in way else url.rpartition("/")[0] + "/postgres"
    with opened(way, elsewhere) as caller:
        with guard.run("r") as run, pytest.raises(semel.UsageError, match="would not end together"):
            run.call_within(caller.held, grant, customer="ann")
        caller.rollback()
    assert granted(guard) == []


@pytest.mark.parametrize("way", ["psycopg", "sqlite3"], indirect=True)
def test_a_connection_in_no_transaction_is_refused(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with opened(f"{way}, autocommit with BEGIN", url) as caller:
        caller.commit()
        with guard.run("r") as run, pytest.raises(semel.UsageError, match="in no transaction"):
            run.call_within(caller.held, grant, customer="ann")
    assert granted(guard) == []


@pytest.mark.parametrize("way", ["psycopg"], indirect=True)
def test_a_transaction_that_has_failed_is_refused(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with opened(way, url) as caller:
        with pytest.raises(psycopg.errors.UndefinedTable):
            caller.held.execute("SELECT * FROM nowhere")
        with guard.run("r") as run, pytest.raises(semel.UsageError, match="INERROR"):
            run.call_within(caller.held, grant, customer="ann")


@pytest.mark.parametrize("way", ["psycopg", "sqlite3"], indirect=True)
def test_anything_else_is_refused(guard: semel.Guard, grant: semel.Tool, way: str) -> None:
    with guard.run("r") as run:
        for no_connection in (None, object(), "postgresql://h/d"):
            with pytest.raises(semel.UsageError, match="Nothing was done"):
                run.call_within(no_connection, grant, customer="ann")


@pytest.mark.parametrize("way", ["psycopg"], indirect=True)
def test_a_snapshot_older_than_the_record_is_a_conflict_for_the_caller_to_repeat(
    guard: semel.Guard, grant: semel.Tool, way: str, url: str
) -> None:
    with guard.run("r") as run, opened(way, url) as caller:
        caller.held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        caller.add("before")  # takes the snapshot
        with guard.run("r") as other:
            other.call(grant, customer="ann")
        with pytest.raises(semel.TransactionConflict):
            run.call_within(caller.held, grant, customer="ann")
        caller.rollback()
    assert granted(guard) == ["ann"]
