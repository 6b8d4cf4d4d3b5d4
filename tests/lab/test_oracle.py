"""Every verdict, its weight, and a judge that breaks."""

from __future__ import annotations

from itertools import product

import pytest

from semel.lab.model import Coordinates, ModelKind, ProviderKind, Verdict, Window
from semel.lab.oracle import is_false, judge
from semel.lab.scenario import PLANS, intent_of, intents_of
from semel.lab.wire import Ask, Effect

MEANT = intents_of("renewal")
BASELINE = [
    Effect(sequence=n, tool=s.tool, intent=intent_of(s.tool, s.at_first), arguments=s.at_first)
    for n, s in enumerate(PLANS["renewal"], 1)
]
CHARGE, EMAIL, GRANT = BASELINE


def at(window=Window.W3, step=1, provider=ProviderKind.BLIND):
    return Coordinates(level=5, window=window, step=step, provider=provider, model=ModelKind.REPEATS)


def ask(tool="charge", reference="ref"):
    return Ask(tool=tool, reference=reference, found=True)


def verdict(ledger, **more):
    return judge(ledger, BASELINE, meant=MEANT, **{"at": at(), **more}).verdict


def test_the_ledger_of_a_crash_free_run_is_ok():
    assert verdict(BASELINE) is Verdict.OK


def test_the_order_of_the_effects_does_not_matter():
    assert verdict([GRANT, CHARGE, EMAIL]) is Verdict.OK


def test_a_second_effect_of_one_intent_is_a_duplicate_whatever_its_wording_and_key():
    again = PLANS["renewal"][0].asked_again
    reworded = Effect(
        sequence=4, tool="charge", intent=intent_of("charge", again), arguments=again, key="new"
    )
    finding = judge([*BASELINE, reworded], BASELINE, meant=MEANT, at=at())
    assert (finding.verdict, finding.duplicates) == (Verdict.DUPLICATE, 1)


def test_a_charge_of_another_amount_is_another_intent():
    other = {"customer": "cus_42", "amount_cents": 100, "period": "2026-12"}
    effect = Effect(sequence=1, tool="charge", intent=intent_of("charge", other), arguments=other)
    finding = judge([effect, EMAIL, GRANT], BASELINE, meant=MEANT, at=at())
    assert (finding.duplicates, finding.lost) == (1, 1)


def test_a_missing_effect_of_a_plan_that_says_it_is_done_is_lost():
    finding = judge([CHARGE, GRANT], BASELINE, meant=MEANT, at=at())
    assert (finding.verdict, finding.lost) == (Verdict.LOST, 1)


def test_a_stuck_plan_has_not_lost_what_it_did_not_come_to():
    finding = judge([CHARGE], BASELINE, meant=MEANT, at=at(), is_stuck=True)
    assert (finding.verdict, finding.lost) == (Verdict.STUCK, 0)


def test_a_duplicate_outweighs_a_loss_and_being_stuck():
    assert verdict([CHARGE, CHARGE, EMAIL]) is Verdict.DUPLICATE
    assert verdict([CHARGE, CHARGE], is_stuck=True) is Verdict.DUPLICATE


def test_asking_about_what_nobody_can_know_is_ok():
    finding = judge(BASELINE, BASELINE, meant=MEANT, at=at(), asks=[ask()])
    assert (finding.verdict, finding.asks, finding.false_asks) == (Verdict.OK, 1, 0)


def test_asking_the_same_again_is_a_false_ask():
    finding = judge(BASELINE, BASELINE, meant=MEANT, at=at(), asks=[ask(), ask()])
    assert (finding.verdict, finding.asks, finding.false_asks) == (Verdict.FALSE_ASK, 2, 1)


def test_asking_about_another_step_than_the_killed_one_is_a_false_ask():
    assert verdict(BASELINE, at=at(step=2), asks=[ask("charge")]) is Verdict.FALSE_ASK


@pytest.mark.parametrize(("window", "provider"), list(product(Window, ProviderKind)))
def test_only_a_blind_provider_and_a_request_in_doubt_justify_an_ask(window, provider):
    in_doubt = window in ("W2", "W3") and provider == "blind"
    assert is_false(ask(), at(window=window, provider=provider)) is not in_doubt


def test_a_judge_that_breaks_says_unknown_and_keeps_its_traceback():
    finding = judge(["not an effect"], BASELINE, meant=MEANT, at=at())  # type: ignore[list-item]
    assert finding.verdict is Verdict.UNKNOWN
    assert "AttributeError" in (finding.because or "")


@pytest.mark.parametrize("baseline", [[], [CHARGE], [*BASELINE, CHARGE]])
def test_a_baseline_that_is_not_the_plan_measures_nothing(baseline):
    assert judge(baseline, baseline, meant=MEANT, at=at()).verdict is Verdict.UNKNOWN


def test_unknown_is_the_gravest_verdict():
    assert max(Verdict) is Verdict.UNKNOWN
