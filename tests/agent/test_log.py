"""The run's log: one run, one log, however many write it."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from office import RUN_ID
from workbench import FORKS, PATIENCE_SECONDS, Child, kill

import semel
from semel.agent.log import INPUT, READ, TURN, RunLog

STRANGE = {
    "text": "é ✓ \x00 \ud800",
    "tuple": (1, 2.5, None, True),
    "when": datetime(2026, 12, 1, tzinfo=UTC),
    "price": Decimal("250.00"),
    "$key": {1: b"\xff"},
}


@pytest.fixture
def guard(tmp_path):
    with semel.open(f"sqlite:///{tmp_path}/agent.db") as guard:
        yield guard


def test_an_empty_log_has_recorded_nothing_and_gives_back_what_it_then_records(guard):
    log = RunLog(guard, RUN_ID)
    assert log.recorded(INPUT) is None
    assert log.record(INPUT, "Renew sub_42.") == "Renew sub_42."
    assert log.recorded(TURN) is None


def test_a_log_opened_again_gives_back_its_events_in_order_as_they_went_in(guard):
    first = RunLog(guard, RUN_ID)
    first.record(INPUT, "Renew sub_42.")
    first.record(TURN, STRANGE)
    first.record_answer("1", "id:a", READ, STRANGE)
    first.record(TURN, "next")
    again = RunLog(guard, RUN_ID)
    assert again.recorded(INPUT) == "Renew sub_42."
    assert again.recorded(TURN) == STRANGE
    assert again.recorded_answer("1", "id:a") == (READ, STRANGE)
    assert again.recorded(TURN) == "next"
    assert again.recorded(TURN) is None


def test_what_is_recorded_comes_back_at_once_as_it_will_come_back_after_a_crash(guard):
    mutable = {"amounts": [1, 2]}
    told = RunLog(guard, RUN_ID).record(TURN, mutable)
    mutable["amounts"].append(3)
    assert told == RunLog(guard, RUN_ID).recorded(TURN) == {"amounts": [1, 2]}


def test_where_another_was_first_its_event_stands_and_is_read_instead(guard):
    mine, theirs = RunLog(guard, RUN_ID), RunLog(guard, RUN_ID)
    theirs.record(INPUT, "theirs")
    assert mine.record(INPUT, "mine") == "theirs"
    mine.record(TURN, "my turn")
    assert theirs.record(TURN, "their turn") == "my turn"
    assert [event.kind for event in guard.store.read_log("", RUN_ID)] == [INPUT, TURN]


def test_one_that_fell_behind_reads_all_that_the_other_wrote_meanwhile(guard):
    mine, theirs = RunLog(guard, RUN_ID), RunLog(guard, RUN_ID)
    for number in range(3):
        theirs.record(TURN, number)
    assert mine.record(TURN, "late") == 0
    assert [mine.recorded(TURN), mine.recorded(TURN), mine.recorded(TURN)] == [1, 2, None]


def test_where_the_log_says_something_else_the_program_is_refused_and_nothing_is_written(guard):
    log = RunLog(guard, RUN_ID)
    log.record(INPUT, "Renew sub_42.")
    log.record(TURN, "turn")
    again = RunLog(guard, RUN_ID)
    again.recorded(INPUT)
    with pytest.raises(semel.UsageError, match=r"recorded 'turn' at position 1.*comes to 'input'.*changed"):
        again.recorded(INPUT)
    assert again.recorded(TURN) == "turn", "the refusal used up the event"
    assert len(guard.store.read_log("", RUN_ID)) == 2


def test_where_another_was_first_with_something_else_the_program_is_refused(guard):
    mine, theirs = RunLog(guard, RUN_ID), RunLog(guard, RUN_ID)
    theirs.record(TURN, "turn")
    with pytest.raises(semel.UsageError, match="recorded 'turn' at position 0"):
        mine.record(INPUT, ["Renew."])


def test_another_run_and_another_namespace_have_logs_of_their_own(guard, tmp_path):
    RunLog(guard, RUN_ID).record(INPUT, "mine")
    assert RunLog(guard, RUN_ID + "!").recorded(INPUT) is None
    with semel.open(f"sqlite:///{tmp_path}/agent.db", namespace="other") as other:
        assert RunLog(other, RUN_ID).record(INPUT, "theirs") == "theirs"
    assert RunLog(guard, RUN_ID).recorded(INPUT) == "mine"


def test_what_has_no_faithful_form_is_refused_by_its_path_and_leaves_no_event(guard):
    log = RunLog(guard, RUN_ID)
    with pytest.raises(semel.Unencodable, match=r"\$\.calls\[0\]\.to"):
        log.record(TURN, {"calls": [{"to": object()}]})
    assert guard.store.read_log("", RUN_ID) == []
    assert log.record(TURN, "turn") == "turn"


# ------------------------------------------------------------------ processes


def record_and_die(url):
    log = RunLog(semel.open(url), RUN_ID)
    log.record(INPUT, "Renew sub_42.")
    log.record(TURN, STRANGE)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_was_recorded_is_there_after_a_kill_right_behind_it(guard, tmp_path):
    kill(record_and_die, f"sqlite:///{tmp_path}/agent.db")
    log = RunLog(guard, RUN_ID)
    assert log.recorded(INPUT) == "Renew sub_42."
    assert log.recorded(TURN) == STRANGE


def record_many(url, name, barrier):
    with semel.open(url) as guard:
        log = RunLog(guard, RUN_ID)
        barrier.wait(PATIENCE_SECONDS)
        return [log.record(TURN, f"{name} {number}") for number in range(30)]


def test_processes_that_write_one_log_at_once_all_read_the_same_one(guard, tmp_path):
    barrier = FORKS.Barrier(3)
    url = f"sqlite:///{tmp_path}/agent.db"
    children = [Child(record_many, url, name, barrier) for name in "abc"]
    one, two, three = (child.result() for child in children)
    assert one == two == three
    assert len(guard.store.read_log("", RUN_ID)) == 30
