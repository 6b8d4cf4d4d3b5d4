"""Two workers, every interleaving: the small world in which what is declared is true holds no duplicate.

`SEMEL_EXPLORE=full` looks further (a second trouble, a later horizon); it takes tens of minutes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest

import semel
from semel import actions
from semel.decide import decide
from semel.model import Effect, Idempotent, Operation, Unsafe
from semel.testing.explore import TICK, Findings, Setting, explore

IS_FULL = os.environ.get("SEMEL_EXPLORE") == "full"
HORIZON, TROUBLES = (5, 2) if IS_FULL else (4, 1)


def never_called(call: semel.Call) -> None:
    raise AssertionError("the explorer answers lookups itself")


LOOKUP = Unsafe(lookup=never_called, lookup_lag=TICK, request_deadline=TICK)
PERSON = Unsafe(request_deadline=1.5 * TICK)  # nothing lands at the very instant from which on it is quiet
KEY = Idempotent(key_ttl=4 * TICK, request_deadline=TICK)
KEY_AND_LOOKUP = Idempotent(key_ttl=3 * TICK, request_deadline=TICK, lookup=never_called, lookup_lag=TICK)


def look(effect: Effect, **changes: object) -> Findings:
    return explore(replace(Setting(effect=effect, horizon=HORIZON, troubles=TROUBLES), **changes))


@pytest.mark.parametrize(
    ("effect", "same_host"),
    [(LOOKUP, True), (LOOKUP, False), (PERSON, True), (PERSON, False), (KEY, True), (KEY_AND_LOOKUP, True)],
    ids=["lookup", "lookup, another host", "person", "person, another host", "key", "key and lookup"],
)
@pytest.mark.timeout(7200 if IS_FULL else 240)
def test_no_interleaving_repeats_or_loses_the_effect(effect: Effect, same_host: bool, capsys) -> None:
    found = look(effect, same_host=same_host)
    with capsys.disabled():
        print(f"\n  {found.states} states visited, ends: {dict(found.ends)}", end=" ")
    assert found.flaws == {}
    assert found.ends["done"] > 0
    assert (found.ends["asked"] > 0) == (effect in (PERSON, KEY)), (
        "a person is asked only where nobody else knows"
    )


def test_without_the_quiescence_rule_the_duplicate_is_found() -> None:
    def decide_at_once(
        operation: Operation, effect: Effect, *rest: object, **named: object
    ) -> actions.Action:
        believes_early = replace(effect, lookup_lag=timedelta(0), request_deadline=timedelta(0))
        return decide(operation, believes_early, *rest, **named)

    found = look(LOOKUP, decide=decide_at_once, stops_at="duplicate")
    assert "duplicate" in found.flaws
    print(*found.flaws["duplicate"], sep="\n")


def test_without_the_limit_on_resending_the_duplicate_is_found() -> None:
    def send_while_the_lease_lasts(operation: Operation, effect: Effect):
        return operation.lease_expires_at

    found = look(KEY, lease=2 * TICK, horizon=5, send_until=send_while_the_lease_lasts, stops_at="duplicate")
    assert "duplicate" in found.flaws
    assert look(KEY, lease=2 * TICK, horizon=5).flaws == {}


def test_with_take_over_from_a_live_owner_the_duplicate_is_found() -> None:
    def overtake(operation: Operation | None, effect: Effect, answer, now, **named) -> actions.Action:
        if operation is not None and operation.state is semel.State.INVOKED and not named["held_fence"]:
            return actions.LeaveInDoubt(semel.Event.OWNER_DIED)
        return decide(operation, effect, answer, now, **named)

    assert "duplicate" in look(LOOKUP, decide=overtake, stops_at="duplicate", lease=3 * TICK, horizon=5).flaws


def test_with_a_person_believed_who_looked_too_early_the_duplicate_is_found() -> None:
    """They saw nothing, and waiting until nothing can land any more does not make it true of what has landed."""

    def believe(operation: Operation | None, *rest: object, **named: object) -> actions.Action:
        action = decide(operation, *rest, **named)
        is_doubted = action == actions.LeaveInDoubt(semel.Event.CLEARED_TOO_EARLY)
        return actions.Claim() if is_doubted else action

    assert "duplicate" in look(PERSON, decide=believe, stops_at="duplicate").flaws


def test_with_a_person_answered_by_a_machine_the_duplicate_is_found() -> None:
    def decide_for_the_person(operation: Operation | None, *rest: object, **named: object) -> actions.Action:
        action = decide(operation, *rest, **named)
        return actions.Settle(semel.Absent()) if isinstance(action, actions.Ask) else action

    assert "duplicate" in look(PERSON, decide=decide_for_the_person, stops_at="duplicate").flaws
