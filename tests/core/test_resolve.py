"""A person's answer to UNKNOWN: bound to the call, taken once, and never over a live owner's head."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from workbench import FORKS, PATIENCE_SECONDS, Child, Desk, call, kill_at, register, stop_myself

import semel

QUIET = timedelta(seconds=60)  # the request_deadline of Unsafe() where none is stated
SAID = {"by": "ann", "why": "looked at the bank"}


@pytest.fixture
def charge(guard, ledger, engine):
    """A tool that times out at its first attempt, and the question that it leaves."""
    return register(guard, engine, _timing_out_once(ledger), name="charge", effect=semel.Unsafe())


def _timing_out_once(ledger):
    def charge(cents=100):
        ledger.enter("charge", cents=cents)
        if len(ledger.lines()) == 1:
            raise TimeoutError
        return "charged"

    return charge


def left_in_doubt(guard, engine, tool) -> semel.PausedForPerson:
    with pytest.raises(semel.PausedForPerson) as asked:
        call(guard, engine, "run", tool)
    return asked.value


def test_it_happened_gives_its_result_to_every_later_call(guard, ledger, engine, charge):
    asked = left_in_doubt(guard, engine, charge)
    done = guard.resolve(asked.key, semel.ItHappened({"id": 7}), **SAID)
    assert done.state is semel.State.COMMITTED
    assert call(guard, engine, "run", charge) == {"id": 7}
    assert len(ledger.lines()) == 1


def test_run_it_runs_it_once_more(guard, ledger, clock, engine, charge):
    asked = left_in_doubt(guard, engine, charge)
    clock.advance(QUIET)
    assert guard.resolve(asked.key, semel.RunIt(), **SAID).state is semel.State.PENDING
    assert len(ledger.lines()) == 1, "an answer causes no effect by itself"
    for _ in range(2):
        assert call(guard, engine, "run", charge) == "charged"
    assert len(ledger.lines()) == 2


def test_the_question_says_from_when_on_what_is_not_there_did_not_happen(
    guard, ledger, clock, engine, charge
):
    looks_from = f"{clock.now() + QUIET:%H:%M:%S} UTC"
    assert looks_from in str(left_in_doubt(guard, engine, charge))
    clock.advance(QUIET)
    assert " UTC" not in str(left_in_doubt(guard, engine, charge)), "by now whoever looks sees what there is"


# hazards 4, 26
def test_run_it_said_while_an_earlier_request_could_still_land_is_asked_again(
    guard, ledger, clock, engine, charge
):
    """A person looks and sees nothing, a moment after the time-out; the request lands a moment after that."""
    asked = left_in_doubt(guard, engine, charge)
    guard.resolve(asked.key, semel.RunIt(), **SAID)
    with pytest.raises(semel.OutcomeUnknown, match="may still land") as unknown:
        call(guard, engine, "run", charge)
    assert unknown.value.retry_after == QUIET
    clock.advance(QUIET - timedelta(microseconds=1))
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", charge)
    assert len(ledger.lines()) == 1
    clock.advance(timedelta(microseconds=1))
    with pytest.raises(semel.PausedForPerson, match="look again"):
        call(guard, engine, "run", charge)
    assert [entry.event for entry in guard.history(asked.key)][-2:] == ["cleared", "cleared_too_early"]
    guard.resolve(asked.key, semel.RunIt(), **SAID)
    assert len(ledger.lines()) == 1, "it has not run on the strength of a look that came too early"
    assert call(guard, engine, "run", charge) == "charged"


# hazard 26
def test_an_answer_about_one_attempt_is_not_taken_for_the_next(guard, ledger, clock, engine):
    """Two people are asked; the second answers when the first's answer has already been acted on."""

    def charge():
        ledger.enter("charge")
        raise TimeoutError

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    first = left_in_doubt(guard, engine, tool)
    clock.advance(QUIET)
    guard.resolve(first.key, semel.RunIt(), attempt=first.attempt, **SAID)
    second = left_in_doubt(guard, engine, tool)
    assert (first.attempt, second.attempt) == (1, 2)
    with pytest.raises(semel.UsageError, match="speaks of attempt 1"):
        guard.resolve(first.key, semel.RunIt(), attempt=first.attempt, **SAID)
    assert guard.read(first.key).state is semel.State.UNKNOWN
    clock.advance(QUIET)
    guard.resolve(first.key, semel.GiveUp(), attempt=second.attempt, **SAID)


# hazard 4
def test_give_up_is_refused_while_a_request_may_still_land(guard, ledger, clock, engine, charge):
    """FAILED tells the caller and the model that it will not happen."""
    asked = left_in_doubt(guard, engine, charge)
    clock.advance(QUIET - timedelta(microseconds=1))
    with pytest.raises(semel.OutcomeUnknown, match="may still land") as early:
        guard.resolve(asked.key, semel.GiveUp(), **SAID)
    assert early.value.retry_after == timedelta(microseconds=1)
    assert guard.read(asked.key).state is semel.State.UNKNOWN
    clock.advance(timedelta(microseconds=1))
    assert guard.resolve(asked.key, semel.GiveUp(), **SAID).state is semel.State.FAILED


def test_give_up_is_for_good(guard, ledger, clock, engine, charge):
    asked = left_in_doubt(guard, engine, charge)
    clock.advance(QUIET)
    assert guard.resolve(asked.key, semel.GiveUp(), **SAID).state is semel.State.FAILED
    with pytest.raises(semel.PreviouslyFailed, match="given up by ann: looked at the bank"):
        call(guard, engine, "run", charge)
    assert len(ledger.lines()) == 1


def test_who_said_what_and_why_is_kept(guard, engine, charge):
    asked = left_in_doubt(guard, engine, charge)
    guard.resolve(asked.key, semel.RunIt(), by="ann", why="not on the statement")
    entry = guard.history(asked.key)[-1]
    assert (entry.event, entry.by, entry.why) == (semel.Event.CLEARED, "ann", "not on the statement")
    assert entry.from_state is semel.State.UNKNOWN


@pytest.mark.parametrize("first", [semel.ItHappened(1), semel.GiveUp()])
@pytest.mark.parametrize("second", [semel.ItHappened(2), semel.GiveUp(), semel.RunIt()])
def test_an_answer_after_the_last_word_is_refused(guard, clock, engine, charge, first, second):
    asked = left_in_doubt(guard, engine, charge)
    clock.advance(QUIET)
    ended = guard.resolve(asked.key, first, **SAID)
    with pytest.raises(semel.IllegalTransition, match="Nothing was written"):
        guard.resolve(asked.key, second, **SAID)
    assert guard.read(asked.key) == ended


def test_there_is_nothing_to_answer_where_it_is_known(guard, ledger, engine):
    tool = register(guard, engine, lambda: "charged", name="charge", effect=semel.Unsafe())
    call(guard, engine, "run", tool)
    (operation,) = guard.store.read_run("", "run")
    for answer in (semel.ItHappened("other"), semel.RunIt(), semel.GiveUp()):
        with pytest.raises(semel.IllegalTransition):
            guard.resolve(operation.key, answer, **SAID)
    assert call(guard, engine, "run", tool) == "charged"


# hazard 26
def test_an_answer_is_bound_to_the_call_that_was_shown(guard, engine, charge):
    asked = left_in_doubt(guard, engine, charge)
    with pytest.raises(semel.UsageError, match="bound to fingerprint"):
        guard.resolve(asked.key, semel.RunIt(), fingerprint="f" * 64, **SAID)
    assert guard.read(asked.key).state is semel.State.UNKNOWN
    guard.resolve(asked.key, semel.RunIt(), fingerprint=asked.fingerprint, **SAID)
    with pytest.raises(semel.KeyReused):  # answered for 100, and the arguments say 50
        call(guard, engine, "run", charge, cents=50)


@pytest.mark.parametrize(
    ("answer", "reasons", "what"),
    [
        (semel.ItHappened(object()), SAID, "no faithful form"),
        (semel.RunIt(), {"by": "", "why": "x"}, "needs `by`"),
        (semel.RunIt(), {"by": "ann", "why": ""}, "needs `by`"),
        (semel.RunIt(), {"by": "ann", "why": "\ud800"}, "Nothing was"),
        ("yes", SAID, "is no answer"),
        (True, SAID, "is no answer"),
        (semel.RunIt, SAID, "is no answer"),
    ],
)
def test_an_answer_that_cannot_be_taken_changes_nothing(guard, engine, charge, answer, reasons, what):
    asked = left_in_doubt(guard, engine, charge)
    before = guard.read(asked.key)
    with pytest.raises(semel.SemelError, match=what):
        guard.resolve(asked.key, answer, **reasons)
    assert guard.read(asked.key) == before


def test_an_answer_to_nothing_is_refused(guard):
    with pytest.raises(semel.UsageError, match="No operation has the key"):
        guard.resolve("0" * 64, semel.RunIt(), **SAID)


# ------------------------------------------------------------------ other processes


def call_and_die(folder: Path, place: str) -> None:
    Desk(folder, checkpoint=kill_at(place)).call("letter")


def answer_when_both_are_there(folder: Path, key: str, answer: Any, barrier: Any) -> Any:
    mine = Desk(folder)
    barrier.wait(PATIENCE_SECONDS)
    with suppress(semel.SemelError):
        return mine.guard.resolve(key, answer, by="ann", why="looked")


# hazard 26
@pytest.mark.parametrize("answer", [semel.ItHappened("by hand"), semel.GiveUp(), semel.RunIt()])
def test_of_two_equal_answers_at_once_one_is_taken(tmp_path, desk, answer):
    Child(call_and_die, tmp_path, "claimed").assert_killed()
    key = desk().operation().key
    barrier = FORKS.Barrier(2)
    children = [Child(answer_when_both_are_there, tmp_path, key, answer, barrier) for _ in range(2)]
    taken = [child.result() for child in children]
    assert taken.count(None) == 1
    assert len(desk().guard.history(key)) == 2  # the owner died, and one answer


# hazard 26
def test_answered_twice_at_once_and_called_twice_at_once_it_runs_once(tmp_path, desk):
    Child(call_and_die, tmp_path, "claimed").assert_killed()
    key = desk().operation().key
    barrier = FORKS.Barrier(2)
    children = [Child(answer_and_call, tmp_path, key, barrier) for _ in range(2)]
    assert [child.result() for child in children] == ["letter done"] * 2
    assert desk().effects("letter") == 1


def answer_and_call(folder: Path, key: str, barrier: Any) -> Any:
    answer_when_both_are_there(folder, key, semel.RunIt(), barrier)
    return Desk(folder, wait=timedelta(seconds=PATIENCE_SECONDS)).call("letter")


def test_a_dead_owners_operation_can_be_answered_at_once(tmp_path, desk):
    Child(call_and_die, tmp_path, "effect_done").assert_killed()
    mine = desk()
    assert mine.operation().state is semel.State.INVOKED
    mine.guard.resolve(mine.operation().key, semel.ItHappened("seen"), **SAID)
    assert mine.call("letter") == "seen"
    assert mine.effects("letter") == 1


def call_and_freeze(folder: Path) -> Any:
    mine = Desk(folder, after=lambda call: stop_myself(), lease=timedelta(seconds=0.2))
    return mine.call("letter")


# hazard 7
@pytest.mark.parametrize(
    ("answer", "state"),
    [(semel.GiveUp(), semel.State.FAILED), (semel.ItHappened("no id"), semel.State.COMMITTED)],
)
def test_the_last_word_stands_when_the_owner_wakes_and_only_a_contradiction_is_raised(
    tmp_path, desk, answer, state
):
    zombie = Child(call_and_freeze, tmp_path)
    zombie.wait_until_stopped()
    mine = desk(wait=timedelta(seconds=PATIENCE_SECONDS))
    with pytest.raises(semel.PausedForPerson) as asked:
        mine.call("letter")
    ended = mine.guard.resolve(asked.value.key, answer, **SAID)
    zombie.resume()
    if state is semel.State.FAILED:
        with pytest.raises(semel.Diverged, match="FAILED"):
            zombie.result()
    else:
        assert zombie.result() == "letter done"
    assert mine.operation() == ended
    assert ended.state is state
    assert len(mine.guard.divergences()) == (state is semel.State.FAILED)
