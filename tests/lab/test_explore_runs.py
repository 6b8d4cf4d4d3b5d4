"""Explored runs: real processes struck at real places, and what the judge makes of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from semel.lab.explore import faults
from semel.lab.explore.campaign import Judge, Ran, acts_at, stage_for
from semel.lab.explore.controls import BROKEN, TRAPS, Walker, try_controls
from semel.lab.explore.drive import Astray, NeverThere, Stage
from semel.lab.explore.plan import Act, Deed, Plan
from semel.lab.model import ProviderKind, StoreKind
from semel.lab.scenario import intents_of

HONOURS, HAS_LOOKUP, BLIND = ProviderKind
SQLITE = StoreKind.SQLITE


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with stage_for(SQLITE) as stage:
        yield stage


@pytest.fixture(scope="module")
def judge(stage: Stage) -> Judge:
    return Judge(stage, lambda provider: Plan(provider=provider))


@pytest.fixture(scope="module")
def places(judge: Judge) -> list[str]:
    return list(judge.places(HAS_LOOKUP))


def kill(place: str, nth: int = 1) -> Act:
    return Act(deed=Deed.KILL, at=0, place=place, nth=nth)


def stop(place: str) -> Act:
    return Act(deed=Deed.STOP, at=0, place=place)


def found(ran: Ran | None) -> tuple[str, bool]:
    assert ran is not None
    assert not ran.finding.because, ran.finding.because
    return ran.finding.verdict, ran.is_bad


# ------------------------------------------------------------------ the places


def test_a_crash_free_run_tells_every_write_send_receive_and_checkpoint_in_order(places):
    start = places.index("calling charge")
    assert places[start : start + 13] == [
        "calling charge",
        "claiming charge",
        "write claim of charge (flushed): before",
        "write claim of charge (flushed): after",
        "claimed charge",
        "provider charge: sending",
        "provider charge: sent",
        "provider charge: received",
        "effect_done charge",
        "write committed of charge (not flushed): before",
        "write committed of charge (not flushed): after",
        "completed charge",
        "model: sending",
    ]
    assert places.count("model: sent") == 4
    assert len(places) == 60


def test_the_places_are_the_same_for_every_provider(judge, places):
    assert [list(judge.places(provider)) for provider in ProviderKind] == [places] * 3


def test_an_act_names_its_place_by_how_often_it_was_passed():
    assert [(act.at, act.nth) for act in acts_at(Deed.KILL, ["a", "b", "a"])] == [(1, 1), (2, 1), (3, 2)]


def test_a_place_that_is_never_passed_proves_nothing(stage):
    with pytest.raises(NeverThere):
        stage.run(Plan(provider=BLIND, acts=(kill("nowhere"),)))


def test_a_stop_that_is_never_reached_proves_nothing(stage):
    with pytest.raises(NeverThere):
        stage.run(Plan(provider=BLIND, fault="zombie", acts=(stop("nowhere"),)))


def test_a_run_that_cannot_be_made_is_unknown_and_bad(judge):
    ran = judge.run(Plan(provider=HONOURS, guard="no such guard", acts=(kill("claimed charge"),)))
    assert (ran.finding.verdict, ran.is_bad) == ("UNKNOWN", True)
    assert "no such guard" in ran.finding.because


def test_a_single_kill_that_does_not_come_about_is_unknown_and_a_later_one_is_no_run(judge):
    single = judge.run(Plan(provider=HONOURS, acts=(kill("nowhere"),)))
    assert (single.finding.verdict, single.is_bad) == ("UNKNOWN", True)
    assert judge.run(Plan(provider=HONOURS, acts=(kill("claimed charge"), kill("nowhere")))) is None


# ------------------------------------------------------------------ kills


@pytest.mark.parametrize("provider", ProviderKind)
def test_a_kill_in_doubt_and_another_in_recovery_leave_one_effect_of_each_intent(stage, judge, provider):
    first = Plan(provider=provider, acts=(kill("provider charge: received"),))
    recovery = judge.run(first).recovery
    assert "write owner_died of charge (not flushed): after" in recovery, "a fresh process found it dead"
    second = next(act for act in acts_at(Deed.KILL, recovery) if act.place.startswith("write owner_died"))
    ran = judge.run(Plan(provider=provider, acts=(*first.acts, second)))
    assert found(ran) == ("OK", False)
    assert sorted(ran.ledger) == sorted(intents_of("renewal"))
    assert len(ran.passed) == 3, "two processes killed, a third to the end"


def test_a_person_is_asked_once_for_each_doubt_that_nobody_else_can_settle(judge):
    asked = [
        judge.run(Plan(provider=provider, acts=(kill("claimed charge"),))).finding.asks
        for provider in ProviderKind
    ]
    assert asked == [0, 0, 1]


def test_a_kill_is_proved_by_the_signal(stage, monkeypatch):
    """A process that ends in any other way than by SIGKILL counts as one that was never there."""
    monkeypatch.setattr(signal, "SIGKILL", signal.SIGTERM)
    with pytest.raises(Astray):
        stage.run(Plan(provider=BLIND, acts=(kill("claimed charge"),)))


# ------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    "plan",
    [
        Plan(provider=HAS_LOOKUP, fault="zombie", acts=(stop("provider charge: sending"),)),
        Plan(provider=BLIND, fault="zombie", acts=(stop("effect_done charge"),)),
        Plan(
            provider=BLIND, fault="rival", acts=(Act(deed=Deed.RIVAL, at=0, place="provider charge: sent"),)
        ),
        Plan(provider=HONOURS, fault="response delayed", struck="charge"),
        Plan(provider=HONOURS, fault="request duplicated", struck="send_email"),
        Plan(
            provider=HAS_LOOKUP, fault="request held", struck="charge", acts=(kill("provider charge: sent"),)
        ),
        Plan(provider=BLIND, fault="request held, hasty person", struck="charge"),
        Plan(provider=HONOURS, fault="409 in progress", struck="charge"),
        Plan(provider=HAS_LOOKUP, fault="429", struck="charge"),
        Plan(provider=HAS_LOOKUP, fault="lookup processing", acts=(kill("effect_done charge"),)),
        Plan(provider=HAS_LOOKUP, fault="model's response dropped", struck="turn 2"),
    ],
    ids=lambda plan: plan.name,
)
def test_where_the_declarations_are_true_no_fault_repeats_or_loses_an_effect(judge, plan):
    assert found(judge.run(plan)) == ("OK", False)


@pytest.mark.parametrize(
    "deed", [pytest.param(Deed.POWER_LOSS, id="lost"), pytest.param(Deed.TORN_WRITES, id="torn")]
)
@pytest.mark.parametrize("place", ["claimed charge", "completed charge"])
def test_a_power_loss_repeats_nothing_and_loses_nothing(judge, deed, place):
    fault = next(fault for fault in faults.FAULTS if fault.deed is deed)
    act = Act(deed=deed, at=0, place=place)
    assert found(judge.run(Plan(provider=HAS_LOOKUP, fault=fault.name, acts=(act,)))) == ("OK", False)


@pytest.mark.parametrize(
    ("provider", "fault", "struck", "place"),
    [
        (HAS_LOOKUP, "broken: a zombie sends, nobody minds its deadline", "", "provider charge: sending"),
        (BLIND, "broken: a request lands after its deadline", "charge", "provider charge: sent"),
        (HAS_LOOKUP, "broken: the lookup lags longer than declared", "", "effect_done charge"),
        (HONOURS, "broken: keys are forgotten before key_ttl", "", "effect_done charge"),
    ],
)
def test_a_broken_declaration_makes_a_second_effect_that_the_guard_tells_of(
    judge, provider, fault, struck, place
):
    ran = judge.run(Plan(provider=provider, fault=fault, struck=struck, acts=(stop(place),)))
    assert found(ran) == ("DIVERGED", False)
    assert (ran.finding.duplicates, ran.finding.divergences) == (1, 1)


AUDITED = [
    ("broken, sender dead: a request lands after its deadline", "charge", "provider charge: sent"),
    ("broken, sender dead: the lookup lags longer than declared", "", "effect_done charge"),
]


@pytest.mark.parametrize(("fault", "struck", "place"), AUDITED)
def test_with_its_sender_dead_an_audit_tells_of_the_second_effect_that_the_lookup_shows(
    judge, fault, struck, place
):
    ran = judge.run(Plan(provider=HAS_LOOKUP, fault=fault, struck=struck, acts=(kill(place),)))
    assert found(ran) == ("DIVERGED", False)
    assert (ran.finding.duplicates, ran.finding.divergences) == (1, 1)


@pytest.mark.parametrize(("fault", "struck", "place"), AUDITED)
def test_a_guard_whose_audit_writes_nothing_down_is_caught(judge, fault, struck, place):
    guard = "keeps divergences to itself"
    ran = judge.run(Plan(provider=HAS_LOOKUP, fault=fault, struck=struck, guard=guard, acts=(kill(place),)))
    assert found(ran) == ("DUPLICATE", True)
    assert (ran.finding.duplicates, ran.finding.divergences) == (1, 0)


def test_where_the_declarations_are_true_an_audit_of_what_was_sent_twice_gives_no_alarm(
    stage, judge, monkeypatch
):
    """Refused with 429, it was looked up, absent, and sent again: the provider shows one effect."""
    monkeypatch.setitem(faults.BY_NAME, "429", replace(faults.BY_NAME["429"], is_audited=True))
    plan = Plan(provider=HAS_LOOKUP, fault="429", struck="charge")
    assert found(judge.run(plan)) == ("OK", False)
    places = stage.run(plan).recovery.places
    assert "write found_absent of charge (not flushed): after" in places
    assert places.count("provider charge: sending") == 2


@pytest.mark.parametrize(
    ("provider", "fault", "struck", "place"),
    [
        (BLIND, "a request lands after its deadline", "charge", "provider charge: sent"),
        (HONOURS, "keys are forgotten before key_ttl", "", "effect_done charge"),
    ],
)
def test_with_its_sender_dead_and_nobody_to_ask_the_second_effect_is_shown_as_the_duplicate_it_is(
    judge, provider, fault, struck, place
):
    fault = f"broken, sender dead, nobody to ask: {fault}"
    ran = judge.run(Plan(provider=provider, fault=fault, struck=struck, acts=(kill(place),)))
    assert found(ran) == ("DUPLICATE", False)
    assert not faults.BY_NAME[fault].is_true
    assert "Nobody can see it" in faults.BY_NAME[fault].meaning


def test_every_line_of_a_broken_declaration_says_whether_the_second_effect_is_told_of_or_cannot_be_seen():
    dead = [fault for fault in faults.FAULTS if "sender dead" in fault.name]
    assert all(fault.is_audited is not fault.beyond_sight for fault in dead)
    assert not any(HAS_LOOKUP in fault.providers for fault in dead if fault.beyond_sight)


# ------------------------------------------------------------------ controls


def test_broken_guards_are_caught_each_by_a_run_in_which_the_sound_one_is_not(stage, judge):
    names = [
        "runs again in doubt",
        "takes any error for final",
        "drops late results",
        "keeps divergences to itself",
    ]
    caught = try_controls(stage, judge, store=SQLITE, seed=0, names=names)
    assert [control.by and control.by.finding.verdict for control in caught] == [
        "DUPLICATE",
        "LOST",
        "DUPLICATE",
        "DUPLICATE",
    ]


def test_the_sound_guard_in_a_broken_ones_place_survives(stage, judge, monkeypatch):
    """So a campaign whose traps catch nothing says so."""
    from semel.lab.explore import controls

    monkeypatch.setattr(controls, "TRAPS", TRAPS[:2])
    monkeypatch.setattr(Walker, "catches_sound", lambda walker, trap: True)
    (control,) = try_controls(stage, judge, store=SQLITE, seed=0, names=["runs again in doubt"])
    assert not control.is_caught


def test_every_trap_is_a_line_of_the_catalogue_and_meant_for_guards_that_there_are():
    assert {trap.fault for trap in TRAPS} <= faults.BY_NAME.keys()
    assert {name for trap in TRAPS for name in trap.meant_for} <= {mutant.name for mutant in BROKEN}
