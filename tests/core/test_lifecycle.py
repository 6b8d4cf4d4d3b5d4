"""The table of legal moves: complete, closed at its ends, and the only way to change a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta

import pytest

import semel
from semel import lifecycle
from semel.model import Event, Intent, Move, Operation, State
from semel.testing.clock import START

LEASE = timedelta(seconds=30)
LATER = START + timedelta(seconds=10)
LONG_AFTER = START + timedelta(hours=1)

INTENT = Intent(
    key="k" * 64,
    namespace="",
    run_id="run",
    step="1",
    call_id="",
    tool="charge",
    effect="unsafe",
    fingerprint="f" * 64,
    arguments="{}",
)

# Each constructor, and the event that it makes of an operation without earlier doubts.
CONSTRUCTORS: dict[Event, Callable[[Operation], Move]] = {
    Event.RENEWED: lambda op: lifecycle.renew(op, now=LATER, lease=LEASE),
    Event.COMMITTED: lambda op: lifecycle.commit(op, result="1", now=LATER),
    Event.REJECTED: lambda op: lifecycle.reject(op, error="no", now=LATER),
    Event.NOT_SENT: lambda op: lifecycle.not_sent(op, error="no", now=LATER),
    Event.LEFT_IN_DOUBT: lambda op: lifecycle.leave_in_doubt(op, error="?", now=LATER),
    Event.LEASE_EXPIRED: lambda op: lifecycle.expire(op, now=LONG_AFTER),
    Event.OWNER_DIED: lambda op: lifecycle.declare_owner_dead(op, now=LATER),
    Event.FOUND: lambda op: lifecycle.find(op, result="1", now=LATER),
    Event.FOUND_ABSENT: lambda op: lifecycle.find_absent(op, now=LATER),
    Event.REPORTED_LATE: lambda op: lifecycle.report_late(op, result="1", now=LATER),
    Event.CONFIRMED: lambda op: lifecycle.confirm(op, result="1", by="ann", why="saw it", now=LATER),
    Event.CLEARED: lambda op: lifecycle.clear(op, by="ann", why="not there", now=LATER),
    Event.ABANDONED: lambda op: lifecycle.abandon(op, by="ann", why="too late", now=LATER),
    Event.CLEARED_TOO_EARLY: lambda op: lifecycle.doubt_clearance(op, now=LATER),
}


def claimed() -> Operation:
    return lifecycle.open_claim(INTENT, owner="me/1", now=START, lease=LEASE)


def in_state(state: State) -> Operation:
    """An operation as its first attempt leaves it in that state."""
    operation = claimed()
    match state:
        case State.INVOKED:
            return operation
        case State.PENDING:
            return CONSTRUCTORS[Event.NOT_SENT](operation).after
        case State.UNKNOWN:
            return CONSTRUCTORS[Event.LEFT_IN_DOUBT](operation).after
        case State.COMMITTED:
            return CONSTRUCTORS[Event.COMMITTED](operation).after
        case State.FAILED:
            return CONSTRUCTORS[Event.REJECTED](operation).after


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", CONSTRUCTORS)
def test_a_constructor_makes_the_move_of_the_table_or_none(state, event):
    before, target = in_state(state), lifecycle.TRANSITIONS.get((state, event))
    if target is None:
        with pytest.raises(semel.IllegalTransition, match=f"{state} cannot be {event.value}"):
            CONSTRUCTORS[event](before)
        return
    move = CONSTRUCTORS[event](before)
    assert (move.event, move.before, move.after.state) == (event, before, target)
    assert move.after.fence == before.fence


@pytest.mark.parametrize("state", State)
def test_a_claim_is_a_new_attempt_from_pending_a_resend_from_unknown_and_else_illegal(state):
    before = in_state(state)
    licensed = {State.PENDING: Event.CLAIMED, State.UNKNOWN: Event.RESENT}
    if state not in licensed:
        with pytest.raises(semel.IllegalTransition):
            lifecycle.claim(before, owner="you/1", now=LATER, lease=LEASE)
        return
    move = lifecycle.claim(before, owner="you/1", now=LATER, lease=LEASE)
    assert move.event is licensed[state]
    assert (move.after.state, move.after.fence) == (State.INVOKED, before.fence + 1)
    assert move.after.earlier_in_doubt == (state is State.UNKNOWN)


def test_every_move_of_the_table_has_a_constructor():
    made = {event for _, event in lifecycle.TRANSITIONS} - {Event.CLAIMED, Event.RESENT}
    assert made == set(CONSTRUCTORS)


# hazard 7
def test_a_terminal_state_is_never_left():
    assert {State.COMMITTED, State.FAILED} == lifecycle.TERMINAL
    assert not [pair for pair in lifecycle.TRANSITIONS if pair[0] in lifecycle.TERMINAL]


def test_the_table_cannot_be_changed_at_run_time():
    with pytest.raises(TypeError):
        lifecycle.TRANSITIONS[State.COMMITTED, Event.CLAIMED] = State.INVOKED  # type: ignore[index]


@pytest.mark.parametrize("state", State)
def test_only_what_has_ended_is_reaped_and_keeps_its_name(state):
    before = in_state(state)
    if state not in lifecycle.TERMINAL:
        with pytest.raises(semel.IllegalTransition):
            lifecycle.reap(before, now=LATER)
        return
    after = lifecycle.reap(before, now=LATER).after
    assert (after.arguments, after.result, after.error, after.reaped_at) == ("{}", None, None, LATER)
    kept = {"key", "fingerprint", "once_key", "state", "fence", "run_id", "created_at"}
    assert all(getattr(after, name) == getattr(before, name) for name in kept)


@pytest.mark.parametrize("event", CONSTRUCTORS)
@pytest.mark.parametrize("state", State)
def test_no_move_changes_what_names_the_intent(state, event):
    if (state, event) not in lifecycle.TRANSITIONS:
        return
    move = CONSTRUCTORS[event](in_state(state))
    names = {field.name for field in fields(Intent)} | {"created_at", "owner"}
    assert all(getattr(move.after, name) == getattr(move.before, name) for name in names)


# ------------------------------------------------------------------ what each move knows


def test_a_claim_is_born_invoked_with_a_lease_and_the_age_of_its_key():
    operation = claimed()
    assert (operation.state, operation.fence) == (State.INVOKED, 1)
    assert operation.first_sent_at == operation.created_at == START
    assert operation.lease_expires_at == operation.send_deadline_at == START + LEASE


# hazard 28
def test_the_age_of_a_key_counts_from_its_first_send_whatever_is_sent_later():
    resent = lifecycle.claim(in_state(State.UNKNOWN), owner="you/1", now=LONG_AFTER, lease=LEASE).after
    assert resent.first_sent_at == START
    again = lifecycle.claim(
        lifecycle.leave_in_doubt(resent, error="?", now=LONG_AFTER).after,
        owner="you/2",
        now=LONG_AFTER,
        lease=LEASE,
    )
    assert again.after.first_sent_at == START


# hazard 28
def test_a_key_that_was_certainly_never_sent_has_no_age():
    assert in_state(State.PENDING).first_sent_at is None
    second = lifecycle.claim(in_state(State.PENDING), owner="you/1", now=LATER, lease=LEASE).after
    assert second.first_sent_at == LATER


def test_of_two_attempts_the_second_not_sent_does_not_make_the_first_unsent():
    absent = lifecycle.find_absent(in_state(State.UNKNOWN), now=LATER).after
    second = lifecycle.claim(absent, owner="you/1", now=LATER, lease=LEASE).after
    assert lifecycle.not_sent(second, error="no", now=LATER).after.first_sent_at == START


@pytest.mark.parametrize("event", [Event.REJECTED, Event.NOT_SENT])
def test_a_refusal_of_a_resend_proves_nothing_about_the_attempt_before_it(event):
    resent = lifecycle.claim(in_state(State.UNKNOWN), owner="you/1", now=LATER, lease=LEASE).after
    move = CONSTRUCTORS[event](resent)
    assert (move.event, move.after.state) == (Event.LEFT_IN_DOUBT, State.UNKNOWN)
    assert "earlier attempt" in str(move.after.error)


@pytest.mark.parametrize("event", [Event.FOUND_ABSENT, Event.CLEARED])
def test_once_the_doubt_is_settled_the_next_attempt_stands_for_itself(event):
    settled = CONSTRUCTORS[event](in_state(State.UNKNOWN)).after
    claim = lifecycle.claim(settled, owner="you/1", now=LATER, lease=LEASE).after
    assert not claim.earlier_in_doubt
    assert CONSTRUCTORS[Event.REJECTED](claim).after.state is State.FAILED


# hazard 4
def test_whoever_may_still_be_running_may_send_until_its_lease_ends():
    assert lifecycle.expire(claimed(), now=LONG_AFTER).after.send_deadline_at == START + LEASE


# hazard 4
@pytest.mark.parametrize("event", [Event.LEFT_IN_DOUBT, Event.OWNER_DIED])
def test_whoever_has_certainly_ended_sends_nothing_more(event):
    assert CONSTRUCTORS[event](claimed()).after.send_deadline_at == LATER


# hazard 20
@pytest.mark.parametrize("event", [Event.LEASE_EXPIRED, Event.OWNER_DIED])
def test_whoever_declares_an_owner_gone_says_which_lease_it_saw(event):
    assert CONSTRUCTORS[event](claimed()).seen_lease_at == START + LEASE


def test_only_an_invoked_operation_has_a_lease():
    for (state, event), target in lifecycle.TRANSITIONS.items():
        if event in CONSTRUCTORS:
            after = CONSTRUCTORS[event](in_state(state)).after
            assert (after.lease_expires_at is not None) == (target is State.INVOKED)


def test_a_persons_answer_keeps_who_and_why():
    for event in (Event.CONFIRMED, Event.CLEARED, Event.ABANDONED):
        move = CONSTRUCTORS[event](in_state(State.UNKNOWN))
        assert move.by == "ann"
        assert move.why


def test_an_illegal_move_names_the_operation_and_says_that_nothing_was_written():
    with pytest.raises(semel.IllegalTransition, match="Nothing was written") as raised:
        lifecycle.commit(replace(in_state(State.FAILED), result=None), result="1", now=LATER)
    assert raised.value.key == INTENT.key
