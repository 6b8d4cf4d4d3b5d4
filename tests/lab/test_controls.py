"""The guards broken on purpose: each is caught, by a trap that the sound guard walks through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel.lab import controls, injector
from semel.lab.controls import TRAPS, Semel, Trap, run_controls, undisturbed, verdict_of
from semel.lab.model import Control, ProviderKind, Verdict
from semel.lab.wire import Effect, Settings

BY_NAME = {trap.name: trap for trap in TRAPS}
BROKEN = [
    ("claims after the effect", Verdict.DUPLICATE),
    ("treats a timeout as failed", Verdict.DUPLICATE),
    ("key without the step", Verdict.LOST),
    ("take-over without fence", Verdict.DUPLICATE),
    ("believes an early absent", Verdict.DUPLICATE),
]
CAUGHT_AT_ONCE = BY_NAME["key without the step"]  # no crash, no lag: the quickest trap to try variants on


@pytest.fixture
def only(monkeypatch):
    """Run the controls with these traps alone."""

    def only(*traps):
        monkeypatch.setattr(controls, "TRAPS", traps)

    return only


# ------------------------------------------------------------------ the five


def test_all_five_are_caught_in_the_order_of_the_traps_and_by_the_verdict_they_deserve(address):
    assert run_controls(address, 7) == [
        Control(name=name, caught=True, verdict=verdict) for name, verdict in BROKEN
    ]


def test_each_trap_has_a_name_of_its_own():
    assert [trap.name for trap in TRAPS] == [name for name, _ in BROKEN]


@pytest.mark.parametrize("name", BY_NAME)
def test_the_sound_guard_walks_through_every_trap(address, only, name):
    """The two in each other's place: the sound one is found innocent, and nothing counts as caught."""
    trap = BY_NAME[name]
    assert isinstance(trap.sound, Semel)
    only(replace(trap, broken=trap.sound, sound=trap.broken))
    assert run_controls(address, 8) == [Control(name=name, caught=False, verdict=Verdict.OK)]


# ------------------------------------------------------------------ a trap that proves nothing is not counted


def test_a_trap_with_the_sound_guard_in_both_places_catches_nothing(address, only):
    only(replace(CAUGHT_AT_ONCE, broken=CAUGHT_AT_ONCE.sound))
    (found,) = run_controls(address, 9)
    assert (found.caught, found.verdict) == (False, Verdict.OK)


def test_a_trap_that_the_sound_guard_falls_into_as_well_catches_nothing(address, only):
    only(replace(CAUGHT_AT_ONCE, sound=CAUGHT_AT_ONCE.broken))
    (found,) = run_controls(address, 15)
    assert (found.caught, found.verdict) == (False, Verdict.LOST)


def raises(world, folder, checkpoint):
    raise RuntimeError("no guard at all")


def does_nothing(world, folder, checkpoint):
    """Ends well, and no intent has become an effect."""


def test_a_guard_that_cannot_run_at_all_is_not_counted_as_caught(address, only):
    only(replace(CAUGHT_AT_ONCE, broken=raises))
    (found,) = run_controls(address, 10)
    assert (found.caught, found.verdict) == (False, Verdict.UNKNOWN)


def test_a_trap_in_which_the_sound_guard_cannot_run_catches_nothing(address, only):
    only(replace(CAUGHT_AT_ONCE, sound=raises))
    (found,) = run_controls(address, 11)
    assert (found.caught, found.verdict) == (False, Verdict.LOST)


def test_a_trap_that_is_never_sprung_is_unknown(address, only):
    only(replace(BY_NAME["claims after the effect"], broken=does_nothing))
    (found,) = run_controls(address, 12)
    assert (found.caught, found.verdict) == (False, Verdict.UNKNOWN), "it never died by SIGKILL"


def test_an_interrupted_run_of_the_lab_is_no_finding(address, only):
    def given_up(run, world, folder):
        raise injector.GivenUp

    only(replace(CAUGHT_AT_ONCE, spring=given_up))
    with pytest.raises(injector.GivenUp):
        run_controls(address, 13)


def test_a_guard_that_loses_everything_is_caught(address, only):
    settings = Settings(provider=ProviderKind.HAS_LOOKUP)
    only(Trap(name="idle", broken=does_nothing, sound=Semel(), settings=settings, spring=undisturbed))
    assert run_controls(address, 14) == [Control(name="idle", caught=True, verdict=Verdict.LOST)]


# ------------------------------------------------------------------ the verdict


def effects(intents):
    return [
        Effect(sequence=number, tool="charge", intent=intent, arguments={})
        for number, intent in enumerate(intents, 1)
    ]


@pytest.mark.parametrize(
    ("happened", "meant", "verdict"),
    [
        ("", "", Verdict.OK),
        ("a", "a", Verdict.OK),
        ("ab", "ab", Verdict.OK),
        ("ba", "ab", Verdict.OK),  # by intent, whatever the order
        ("aa", "aa", Verdict.OK),  # two equal calls, both meant
        ("", "a", Verdict.LOST),
        ("a", "ab", Verdict.LOST),
        ("a", "aa", Verdict.LOST),
        ("aa", "a", Verdict.DUPLICATE),
        ("aaa", "aa", Verdict.DUPLICATE),
        ("a", "", Verdict.DUPLICATE),  # what nobody meant
        ("b", "a", Verdict.DUPLICATE),  # one lost, one that nobody meant: the graver counts
        ("aa", "ab", Verdict.DUPLICATE),
        ("aab", "abb", Verdict.DUPLICATE),
    ],
)
def test_the_verdict_is_by_intent_and_the_graver_one_counts(happened, meant, verdict):
    assert verdict_of(effects(happened), list(meant)) is verdict
