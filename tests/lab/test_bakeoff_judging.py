"""What a run of the bake-off is worth: plain data in, a verdict and a story out."""

from __future__ import annotations

import pytest

from semel.lab.bakeoff.judging import Seen, judged
from semel.lab.bakeoff.model import Case, Column
from semel.lab.contestants.stage import Death, Place
from semel.lab.model import ProviderKind, Verdict
from semel.lab.scenario import PLANS, intent_of
from semel.lab.wire import Ask, Effect, Settings

BASELINE = [
    Effect(
        sequence=number,
        tool=step.tool,
        intent=intent_of(step.tool, step.at_first),
        arguments=step.at_first,
    )
    for number, step in enumerate(PLANS["renewal"], start=1)
]
ASK = Ask(tool="charge", reference="r", found=True)


def case(first: Place, second: Place | None = None, kind: ProviderKind = ProviderKind.BLIND) -> Case:
    return Case(
        column=Column.TWICE,
        settings=Settings(provider=kind),
        first=Death(place=first, step=1),
        second=None if second is None else Death(place=second, step=1),
    )


def found(case: Case, *, asks: int = 0, signals=(9, 9), ledger=BASELINE, why_stuck: str | None = None):
    seen = Seen(signals=signals, why_stuck=why_stuck, ledger=ledger, asks=[ASK] * asks)
    return judged(case, seen, BASELINE)


def test_each_death_inside_the_step_justifies_one_question():
    assert found(case(Place.W2, Place.W3), asks=2).verdict is Verdict.OK
    assert found(case(Place.W2, Place.W3), asks=3).verdict is Verdict.FALSE_ASK


@pytest.mark.parametrize(
    ("twice", "signals"),
    [
        (case(Place.W3, Place.W4), (9, 9)),  # the second death left nothing in doubt
        (case(Place.W2, Place.W3), (9, 0)),  # it never came
        (case(Place.W3), (9,)),
    ],
)
def test_without_a_second_doubt_a_second_question_is_false(twice, signals):
    assert found(twice, asks=1, signals=signals).verdict is Verdict.OK
    assert found(twice, asks=2, signals=signals).verdict is Verdict.FALSE_ASK


def test_after_a_request_that_is_still_on_its_way_a_person_may_be_asked_about_a_blind_provider_only():
    assert found(case(Place.IN_FLIGHT), asks=1).verdict is Verdict.OK
    with_keys = case(Place.IN_FLIGHT, kind=ProviderKind.HONOURS_KEYS)
    assert found(with_keys, asks=1).verdict is Verdict.FALSE_ASK


def test_the_gravest_finding_is_the_verdict():
    twice = [*BASELINE, BASELINE[0]]
    assert found(case(Place.W3), asks=2, ledger=twice).verdict is Verdict.DUPLICATE
    assert found(case(Place.W3), ledger=BASELINE[1:]).verdict is Verdict.LOST
    assert found(case(Place.W3), ledger=BASELINE[1:], why_stuck="it refuses").verdict is Verdict.STUCK


def test_a_baseline_that_is_not_the_plan_makes_the_run_unknown():
    seen = Seen(signals=(9,), why_stuck=None, ledger=BASELINE, asks=[])
    broken = judged(case(Place.W3), seen, BASELINE[1:])
    assert broken.verdict is Verdict.UNKNOWN
    assert "did not carry out the plan" in broken.story[-1]


def test_the_story_tells_every_process_every_question_and_what_happened():
    story = found(case(Place.W2, Place.W3), asks=1, signals=(9, 0), why_stuck="it refuses").story
    assert story == (
        "first process: killed by signal 9 at W2 of step 1",
        "second process: ended before W3 of step 1",
        "then: stuck: it refuses",
        "asked a person about charge: found",
        "effects: charge 1, send_email 1, grant_entitlement 1",
    )
