"""Every decision, enumerated: the whole space of records, kinds, evidence and times is small enough."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from test_lifecycle import INTENT, in_state

from semel import actions, lifecycle
from semel.decide import PACE, decide, decide_late_result, quiet_at, resend_until
from semel.model import (
    Absent,
    Answer,
    Atomic,
    Effect,
    Event,
    Evidence,
    Found,
    Idempotent,
    Inconclusive,
    Operation,
    Safe,
    State,
    Unsafe,
)
from semel.testing.clock import START

SECOND = timedelta(seconds=1)
TTL = timedelta(hours=1)


def lookup(call: object) -> Evidence:
    raise AssertionError("decide is pure: it asks nobody")


EFFECTS: tuple[Effect, ...] = (
    Safe(),
    Atomic(),
    Unsafe(),
    Unsafe(lookup=lookup),
    Idempotent(key_ttl=TTL),
    Idempotent(key_ttl=TTL, lookup=lookup),
)
MAIL = Unsafe(lookup=lookup, lookup_lag=10 * SECOND, request_deadline=20 * SECOND)
EVIDENCE: tuple[Evidence | None, ...] = (
    None,
    Found("there"),
    Absent(),
    Inconclusive("in progress", retry_after=5 * SECOND),
    Inconclusive("two rows"),
)
AGES = (-TTL, timedelta(0), 29 * SECOND, 30 * SECOND, 2 * TTL)  # of now, from the claim on; the lease is 30 s
ASKED = (timedelta(0), 5 * SECOND, 2 * TTL)  # how long ago the evidence was asked for


def space():
    """Everything that decide can be asked, as (operation, effect, answer, now, more)."""
    operations = [None, *(in_state(state) for state in State)]
    operations += [replace(in_state(state), reaped_at=START) for state in (State.COMMITTED, State.FAILED)]
    for operation, effect, evidence, age, ago in itertools.product(
        operations, EFFECTS, EVIDENCE, AGES, ASKED
    ):
        now = START + age
        for fence in (1, 2):
            answer = None if evidence is None else Answer(evidence=evidence, asked_at=now - ago, fence=fence)
            for held, gone, name in itertools.product((None, 1, 2), (False, True), ("same", "other")):
                fingerprint = INTENT.fingerprint if name == "same" else "o" * 64
                yield operation, effect, answer, now, fingerprint, held, gone


def check(
    operation: Operation | None, effect: Effect, answer: Answer | None, now: datetime, action, held, gone
):
    """What must hold of a decision for a call that is the recorded one."""
    state = None if operation is None else operation.state
    match action:
        case actions.Invoke():
            assert state is State.INVOKED
            assert operation.fence == held
        case actions.Claim():
            assert state in (None, State.PENDING, State.UNKNOWN)
            if state is State.UNKNOWN:
                assert isinstance(effect, Idempotent)
                assert START <= now < START + TTL - effect.request_deadline
        case actions.Replay():
            assert state is State.COMMITTED
        case actions.Wait(until=until):
            assert until > now
            if state is State.INVOKED:
                assert not gone
                assert now < operation.lease_expires_at
        case actions.LeaveInDoubt(Event.CLEARED_TOO_EARLY):
            assert state is State.PENDING
            assert isinstance(effect, Unsafe)
            assert operation.updated_at < operation.send_deadline_at + effect.request_deadline <= now
        case actions.LeaveInDoubt(event):
            assert state is State.INVOKED
            assert operation.fence != held
            assert event is (Event.OWNER_DIED if gone else Event.LEASE_EXPIRED)
            assert gone or operation.lease_expires_at <= now
        case actions.Lookup() | actions.Settle() | actions.Ask():
            assert state is State.UNKNOWN
            if isinstance(action, actions.Settle):
                assert answer is not None
                assert action.evidence == answer.evidence
                assert answer.fence == operation.fence
                if action.evidence == Absent():
                    assert answer.asked_at >= quiet_at(operation, effect)
            if isinstance(action, actions.Lookup):
                assert effect.lookup is not None
        case actions.Refuse(reason):
            assert reason == ("reaped" if operation.reaped_at else "failed")


def test_every_decision_keeps_the_promise():
    seen = set()
    for operation, effect, answer, now, fingerprint, held, gone in space():
        action = decide(
            operation, effect, answer, now, fingerprint=fingerprint, held_fence=held, owner_is_gone=gone
        )
        if operation is not None and fingerprint != INTENT.fingerprint:
            assert action == actions.Refuse("key_reused")  # hazard 25
            continue
        seen.add(type(action))
        check(operation, effect, answer, now, action, held, gone)
    assert seen == set(actions.Action.__args__), "the space does not reach every action"


# ------------------------------------------------------------------ the corners, one by one


def ask(operation: Operation | None, effect: Effect, answer: Answer | None = None, *, at: timedelta, **more):
    return decide(operation, effect, answer, START + at, fingerprint=INTENT.fingerprint, **more)


def answered(evidence: Evidence, *, at: timedelta, fence: int = 1) -> Answer:
    return Answer(evidence=evidence, asked_at=START + at, fence=fence)


UNKNOWN = in_state(State.UNKNOWN)  # left in doubt ten seconds after the claim
QUIET = 40 * SECOND  # ten, and the deadline, and the lag


# hazard 3
@pytest.mark.parametrize(
    ("asked", "now", "action"),
    [
        (
            11 * SECOND,
            11 * SECOND,
            actions.Wait(START + QUIET, "an earlier request may still land, or not show yet"),
        ),
        (QUIET - timedelta(microseconds=1), QUIET, actions.Lookup()),
        (QUIET, QUIET, actions.Settle(Absent())),
        (QUIET, 2 * QUIET, actions.Settle(Absent())),
    ],
)
def test_absent_counts_only_if_it_was_asked_for_in_quiet(asked, now, action):
    assert quiet_at(UNKNOWN, MAIL) == START + QUIET
    assert ask(UNKNOWN, MAIL, answered(Absent(), at=asked), at=now) == action


# hazard 4
def test_the_quiet_begins_at_the_last_instant_at_which_a_paused_owner_could_send():
    expired = lifecycle.expire(in_state(State.INVOKED), now=START + TTL).after
    assert quiet_at(expired, MAIL) == START + 30 * SECOND + 30 * SECOND


def test_found_counts_at_once():
    found = Found("there")
    assert ask(UNKNOWN, MAIL, answered(found, at=11 * SECOND), at=11 * SECOND) == actions.Settle(found)


def test_evidence_about_another_attempt_is_no_evidence():
    for evidence in (Found("there"), Absent(), Inconclusive("?")):
        stale = answered(evidence, at=QUIET, fence=2)
        assert ask(UNKNOWN, MAIL, stale, at=QUIET) == actions.Lookup()


def test_a_lookup_that_cannot_tell_is_asked_again_no_faster_than_the_pace():
    soon = Inconclusive("in progress", retry_after=timedelta(0))
    wait = ask(UNKNOWN, MAIL, answered(soon, at=11 * SECOND), at=11 * SECOND)
    assert wait == actions.Wait(START + 11 * SECOND + PACE, "in progress")
    assert ask(UNKNOWN, MAIL, answered(soon, at=11 * SECOND), at=11 * SECOND + PACE) == actions.Lookup()


def test_a_lookup_that_never_can_tell_is_taken_to_a_person():
    never = answered(Inconclusive("two rows"), at=11 * SECOND)
    assert ask(UNKNOWN, MAIL, never, at=11 * SECOND) == actions.Ask("two rows")


# hazard 8
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.name)
def test_nobody_is_asked_and_nothing_is_looked_up_while_a_live_owner_works(effect):
    assert isinstance(ask(in_state(State.INVOKED), effect, at=29 * SECOND), actions.Wait)


def test_a_holder_invokes_and_the_holder_of_an_older_claim_does_not():
    assert ask(in_state(State.INVOKED), MAIL, at=SECOND, held_fence=1) == actions.Invoke()
    second = replace(in_state(State.INVOKED), fence=2)
    assert isinstance(ask(second, MAIL, at=SECOND, held_fence=1), actions.Wait)


# hazard 28
@pytest.mark.parametrize(
    ("age", "effect", "action"),
    [
        (TTL - 61 * SECOND, EFFECTS[4], actions.Claim),
        (TTL - 60 * SECOND, EFFECTS[4], actions.Ask),
        (TTL - 60 * SECOND, EFFECTS[5], actions.Lookup),
        (-SECOND, EFFECTS[4], actions.Ask),
        (-SECOND, EFFECTS[5], actions.Lookup),
    ],
)
def test_a_key_is_resent_only_while_it_would_arrive_remembered(age, effect, action):
    assert type(ask(UNKNOWN, effect, at=age)) is action


# hazard 28
def test_a_key_that_was_never_sent_is_not_too_old():
    unsent = replace(UNKNOWN, first_sent_at=None)
    assert resend_until(unsent, EFFECTS[4], START) > START + 1000 * TTL


@pytest.mark.parametrize("effect", [Safe(), Atomic()], ids=lambda effect: effect.name)
def test_a_doubt_that_a_tool_of_another_kind_left_is_taken_to_a_person(effect):
    assert ask(UNKNOWN, effect, at=2 * TTL) == actions.Ask(
        f"the operation was left in doubt by another kind of tool than {effect.name}"
    )


# ------------------------------------------------------------------ a result that comes late


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("is_same_attempt", [True, False])
@pytest.mark.parametrize("effect", [Unsafe(), Idempotent(key_ttl=TTL)], ids=lambda effect: effect.name)
def test_a_late_result_settles_is_accepted_or_diverges(state, is_same_attempt, effect):
    operation = replace(in_state(state), fence=1 if is_same_attempt else 2)
    action = decide_late_result(operation, effect, fence=1)
    is_one = is_same_attempt or isinstance(effect, Idempotent)
    if state is State.FAILED:
        assert action == actions.Diverge(), "somebody said that it did not happen"
    elif state is State.PENDING:
        assert action == actions.Report(), "nothing is in flight, and it did happen"
    elif state is State.UNKNOWN:
        assert action == (actions.Report() if is_one else actions.Diverge())
    elif state is State.COMMITTED:
        assert action == (actions.Accept() if is_one else actions.Diverge())
    else:
        assert action == (actions.Accept() if isinstance(effect, Idempotent) else actions.Diverge())
