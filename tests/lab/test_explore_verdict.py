"""What one explored run is called: by the provider's books, by what the guard told, and by who was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel.lab.explore import faults
from semel.lab.explore.drive import Seen
from semel.lab.explore.places import Journal
from semel.lab.explore.plan import Act, Deed, Plan
from semel.lab.explore.verdict import GRAVITY, is_bad, judge, worst
from semel.lab.model import ProviderKind
from semel.lab.scenario import PLANS, intent_of
from semel.lab.wire import Ask, Counters, Effect

HONOURS, HAS_LOOKUP, BLIND = ProviderKind
BOOKS = [
    Effect(sequence=n, tool=s.tool, intent=intent_of(s.tool, s.at_first), arguments=s.at_first)
    for n, s in enumerate(PLANS["renewal"], 1)
]
CHARGE = BOOKS[0]
KILL = Act(deed=Deed.KILL, at=14, place="claimed charge")
IN_DOUBT = Journal(in_doubt=["charge"], claimed=["charge"])
ENDED = Journal(claimed=["charge"])


def seen(*, asks: int = 0, divergences: int = 0, ledger=BOOKS, journals=(IN_DOUBT, ENDED), **more) -> Seen:
    plan = Plan(**{"provider": BLIND, "acts": (KILL,), **more.pop("plan", {})})
    asked = tuple(Ask(tool="charge", reference="k", found=True) for _ in range(asks))
    return Seen(
        **{
            "plan": plan,
            "ledger": ledger,
            "counters": Counters(requests=3, lookups=0, model_calls={}, asks=asked),
            "journals": [*journals[:-1], replace(journals[-1], divergences=divergences)],
            "stuck": "",
            "seconds": 0.0,
            **more,
        }
    )


def verdict(**more) -> str:
    return judge(seen(**more), BOOKS).verdict


def test_the_books_of_a_crash_free_run_are_ok():
    assert verdict() == "OK"


def test_a_second_effect_is_a_duplicate_and_diverged_only_if_the_guard_has_told_of_each():
    twice, thrice = [*BOOKS, CHARGE], [*BOOKS, CHARGE, CHARGE]
    assert verdict(ledger=twice) == "DUPLICATE"
    assert verdict(ledger=twice, divergences=1) == "DIVERGED"
    assert verdict(ledger=thrice, divergences=1) == "DUPLICATE"


def test_what_is_missing_is_lost_and_telling_of_a_divergence_does_not_help():
    assert verdict(ledger=BOOKS[1:], divergences=1) == "LOST"


def test_a_divergence_without_a_second_effect_is_a_false_alarm():
    assert verdict(divergences=1) == "FALSE_ALARM"


def test_a_run_without_an_end_is_stuck_and_says_why():
    finding = judge(seen(stuck="it waits", ledger=BOOKS[:1]), BOOKS)
    assert (finding.verdict, finding.because) == ("STUCK", "it waits")


@pytest.mark.parametrize(
    ("provider", "journals", "asks", "expected"),
    [
        (BLIND, (IN_DOUBT, ENDED), 1, "OK"),
        (BLIND, (IN_DOUBT, ENDED), 2, "FALSE_ASK"),  # once answered, it is not asked again
        (BLIND, (ENDED, ENDED), 1, "FALSE_ASK"),  # nothing was in doubt when it was killed
        (BLIND, (ENDED, Journal(unanswered={"charge": 1})), 1, "OK"),  # a request got no answer
        (BLIND, (Journal(in_doubt=["send_email"]), ENDED), 1, "FALSE_ASK"),  # another tool's doubt
        (HAS_LOOKUP, (IN_DOUBT, ENDED), 1, "FALSE_ASK"),
        (HONOURS, (IN_DOUBT, ENDED), 1, "FALSE_ASK"),
    ],
)
def test_a_person_may_be_asked_about_a_doubt_that_only_a_person_can_settle_once(
    provider, journals, asks, expected
):
    assert verdict(plan={"provider": provider}, journals=journals, asks=asks) == expected


def test_of_a_process_that_was_never_ended_nothing_may_be_asked():
    rival = {"fault": "rival", "acts": (replace(KILL, deed=Deed.RIVAL),)}
    assert verdict(plan=rival, asks=1) == "FALSE_ASK"


def test_after_a_power_loss_a_completion_may_be_in_doubt_again():
    lost = {"fault": "power loss", "acts": (replace(KILL, deed=Deed.POWER_LOSS),)}
    assert verdict(plan=lost, journals=(ENDED, ENDED), asks=1) == "OK"


def test_a_judge_that_breaks_says_unknown():
    finding = judge(seen(ledger=["no effect"]), BOOKS)
    assert finding.verdict == "UNKNOWN"
    assert "Traceback" in finding.because


def test_only_under_a_broken_declaration_is_a_divergence_no_finding():
    told = seen(ledger=[*BOOKS, CHARGE], divergences=1)
    assert is_bad(told, judge(told, BOOKS))
    broken = next(fault.name for fault in faults.FAULTS if not fault.is_true)
    told = replace(told, plan=replace(told.plan, fault=broken))
    assert not is_bad(told, judge(told, BOOKS))


def test_a_silent_duplicate_is_a_finding_except_where_nobody_can_be_asked_about_it():
    allowed = {fault.name for fault in faults.FAULTS if "DUPLICATE" in fault.allowed}
    assert allowed == {
        fault.name for fault in faults.FAULTS if fault.name.startswith("broken, sender dead, nobody to ask: ")
    }


def test_verdicts_fold_by_gravity():
    assert worst([]) == ""
    assert worst(["OK", "DIVERGED", "FALSE_ASK"]) == "FALSE_ASK"
    assert worst(GRAVITY) == "UNKNOWN"
