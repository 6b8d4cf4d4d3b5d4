"""Outbox, compensation and steps on both databases: real processes, killed for real at each point."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from saga_worker import RUN, TOPICS, Ledger, Worker

import semel
from semel.ports import no_checkpoint
from semel.stores.postgres.store import PostgresStore

PROGRAM = Path(__file__).with_name("saga_worker.py")
PATIENCE_SECONDS = 60


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/agent.db"
    database: str = request.getfixturevalue("database")
    return database


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    """A process that is ready to do something, and begins when told to."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(what: str, place: str = "nowhere", nth: int = 1) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, str(tmp_path), what, place, str(nth)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def begin(*processes: subprocess.Popen[bytes]) -> list[int]:
    """Let them all begin at once; how they ended."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=PATIENCE_SECONDS)
    return [process.returncode for process in processes]


def killed(process: subprocess.Popen[bytes]) -> None:
    assert begin(process) == [-signal.SIGKILL], "the window was never reached"


@pytest.fixture
def here(url: str, tmp_path: Path) -> Iterator[Worker]:
    """The same tools in this process."""
    worker = Worker(url, tmp_path, no_checkpoint)
    yield worker
    worker.guard.close()


def deliveries(folder: Path) -> list[tuple[str, str, int]]:
    """Key, topic and number of each, in order."""
    return [(key, topic, int(number)) for _, key, topic, number in Ledger(folder).lines("delivered")]


def lost(folder: Path, many: int) -> set[int]:
    return set(range(many)) - {number for _, _, number in deliveries(folder)}


# ------------------------------------------------------------------ the relay


@pytest.mark.parametrize(
    ("place", "twice"), [("message_claimed", 0), ("message_delivered", 1), ("message_marked", 0)]
)
@pytest.mark.parametrize("nth", [1, 3])
def test_a_relay_killed_at_any_point_loses_nothing_and_repeats_at_most_one_under_its_key(
    tmp_path, start, here, place, twice, nth
):
    here.do_send()
    killed(start("relay", place, nth))
    here.do_relay()
    assert lost(tmp_path, 4) == set()
    keys_of = Counter(key for key, _, _ in deliveries(tmp_path))
    assert sorted(keys_of.values()) == sorted([1] * 4 + [2] * twice)[-4:]
    assert len(keys_of) == 4
    for topic in TOPICS:
        first_seen = list(dict.fromkeys(number for _, at, number in deliveries(tmp_path) if at == topic))
        assert first_seen == sorted(first_seen)
    assert here.guard.outbox() == []


def test_a_relay_that_marks_before_it_delivers_is_caught_losing(tmp_path, start, here):
    here.do_send()
    killed(start("relay_carelessly", "message_marked", 2))
    here.do_relay()
    assert lost(tmp_path, 4) != set()


def test_relays_side_by_side_deliver_each_message_once_and_each_topic_in_order(tmp_path, start, here):
    here.do_send_many()
    assert begin(*[start("relay") for _ in range(3)]) == [0] * 3
    here.do_relay()  # what a relay left because another was at the topic when it looked
    assert Counter(number for _, _, number in deliveries(tmp_path)) == Counter(range(120))
    for topic in TOPICS:
        numbers = [number for _, at, number in deliveries(tmp_path) if at == topic]
        assert numbers == sorted(numbers)
    assert here.guard.outbox() == []


# ------------------------------------------------------------------ message and record


@pytest.mark.parametrize(
    ("place", "is_there"), [("claimed", False), ("effect_done", False), ("completed", True)]
)
def test_a_sender_killed_anywhere_leaves_its_messages_with_its_record_or_neither(
    start, here, place, is_there
):
    killed(start("send", place))
    recorded = here.guard.store.read_run("", RUN)
    assert [op.state for op in recorded] == (["COMMITTED"] if is_there else [])
    assert len(here.guard.outbox()) == (4 if is_there else 0)
    here.do_send()
    assert len(here.guard.outbox()) == 4


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_within_the_callers_transaction_messages_are_there_if_and_only_if_they_commit(url, here, ends):
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(url)
    with here.guard.run(RUN) as run:
        run.call_within(connection, here.send, first=0, many=4)
    assert here.guard.outbox() == [], "nobody sees them yet"
    getattr(connection, ends)()
    connection.close()
    assert len(here.guard.outbox()) == (4 if ends == "commit" else 0)
    here.do_send()
    assert len(here.guard.outbox()) == 4


# ------------------------------------------------------------------ compensation, and steps


@pytest.mark.parametrize("place", ["claimed", "effect_done", "completed"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_across_a_crash_anywhere_in_a_compensation_each_refund_is_one(tmp_path, start, here, place, nth):
    here.do_charge()
    killed(start("compensate", place, nth))
    here.do_compensate()
    refunds = [key for _, key in Ledger(tmp_path).lines("refund")]
    assert len(refunds) == len(set(refunds)) == 2
    assert here.guard.open_sagas() == []


def test_several_sweeps_at_once_refund_each_charge_once(tmp_path, start, here):
    here.do_charge()
    assert begin(*[start("compensate") for _ in range(3)]) == [0] * 3
    refunds = [key for _, key in Ledger(tmp_path).lines("refund")]
    assert len(refunds) == len(set(refunds)) == 2


@pytest.mark.parametrize("place", ["claiming", "claimed", "effect_done", "completed"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_between_two_steps_of_a_tool_resumes_there_and_repeats_none(
    tmp_path, start, here, place, nth
):
    killed(start("check_out", place, nth))
    here.do_check_out()
    assert [line[0] for line in Ledger(tmp_path).lines()] == ["reserve", "capture"]


def undo_beside_an_open_transaction(database: str, ends: str) -> list[str]:
    """What stands, after a run was undone while one of its calls was in a transaction that then ended so."""
    with semel.open(database, wait=timedelta(0)) as guard, psycopg.connect(database) as connection:

        @guard.tool(effect=semel.Atomic())
        def grant(plan: str, *, tx: Any) -> None:
            tx.execute("INSERT INTO grants VALUES (%s)", (plan,))

        @grant.compensation(effect=semel.Atomic())
        def revoke(arguments: Any, result: Any, *, tx: Any) -> None:
            tx.execute("DELETE FROM grants WHERE plan = %s", (arguments["plan"],))

        connection.execute("CREATE TABLE grants (plan text)")
        connection.commit()
        with guard.run(RUN) as run:
            run.call_within(connection, grant, plan="pro")
        with suppress(semel.OutcomeUnknown):
            guard.compensate(RUN)
        getattr(connection, ends)()
        for saga in guard.open_sagas():
            guard.compensate(saga.run_id, *saga.operations)
        assert guard.open_sagas() == []
        return [plan for (plan,) in connection.execute("SELECT plan FROM grants").fetchall()]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_call_whose_transaction_is_open_when_the_undoing_begins_is_waited_for(database, ends):
    assert undo_beside_an_open_transaction(database, ends) == []


def test_without_waiting_for_it_such_a_call_is_caught_slipping_past_the_undoing(database, monkeypatch):
    monkeypatch.setattr(PostgresStore, "has_announced", lambda self, name: False)
    assert undo_beside_an_open_transaction(database, "commit") == ["pro"]
