"""The simulator: the engine's own code in worlds drawn from seeds, and the oracle that catches the controls."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import semel
from semel import lifecycle
from semel.cli.main import main
from semel.connect import open_store
from semel.lab.model import Verdict
from semel.lab.mutants import MUTANTS, SOUND
from semel.lab.simulate import lease, process, report, steps
from semel.lab.simulate.campaign import Control, Simulation
from semel.lab.simulate.choices import Choices
from semel.lab.simulate.judge import judge
from semel.lab.simulate.provider import Provider
from semel.lab.simulate.search import case_of, failures, play, shrink, story
from semel.lab.simulate.setting import Kind, Plan, Untrue, draw_setting
from semel.lab.simulate.table import Table
from semel.lab.simulate.world import World
from semel.model import Event, Insert, Move, State

SEEDS = range(2_000)
FAR = range(40_000)  # ends at the first that is found
QUICK = "takes any error for final"


def world_of(seed, guard=SOUND):
    return World(guard, Choices(seed=seed)).run()


@pytest.fixture(scope="module")
def survey():
    """Two thousand worlds of the sound guard: what was found, what deviated, which moves were made."""
    found, deviated, moved = [], set(), set()

    class Watching(Passing):
        def apply(self, writes):
            outcomes = super().apply(writes)
            for write, outcome in zip(writes, outcomes, strict=True):
                if outcome.applied and isinstance(write, Move):
                    moved.add((write.before.state, write.event))
            return outcomes

    for seed in SEEDS:
        world = world_of(seed, replace(SOUND, store=Watching))
        found.append(judge(world))
        deviated.update((what, way) for (_, what, _), way in world.choices.made.items())
    return found, deviated, moved


class Passing:
    """A store that hands everything on."""

    def __init__(self, table):
        self._table = table

    def __getattr__(self, name):
        return getattr(self._table, name)

    def apply(self, writes):
        return self._table.apply(writes)


# ------------------------------------------------------------------ Semel, and the guards broken on purpose


def test_in_two_thousand_worlds_nothing_is_found_for_semel(survey):
    found, _, _ = survey
    assert [(seed, finding) for seed, finding in enumerate(found) if finding.verdict is not Verdict.OK] == []


@pytest.mark.parametrize(
    ("name", "verdict", "most"),
    [
        (QUICK, Verdict.LOST, 3),
        ("runs again in doubt", Verdict.DUPLICATE, 3),
        ("never leaves doubt", Verdict.STUCK, 3),
        ("asks a person in every doubt", Verdict.FALSE_ASK, 3),
    ],
)
def test_a_broken_guard_is_caught_and_shrunk_to_a_few_deviations(name, verdict, most):
    found = next(failure for failure in failures(name, SEEDS) if failure.finding.verdict is verdict)
    smallest = shrink(found)
    assert smallest.finding.verdict is verdict
    assert len(smallest.case.deviations) <= most
    assert play(replace(smallest.case, guard=SOUND.name)).verdict is Verdict.OK, (
        "the world itself is the trap"
    )
    assert story(smallest.case)[-1].startswith(verdict.name)


def test_taking_any_further_deviation_away_lets_the_broken_guard_pass():
    smallest = shrink(next(failures("overwrites a terminal state", SEEDS)))
    for label in smallest.case.deviations:
        less = {other: way for other, way in smallest.case.deviations.items() if other != label}
        assert play(replace(smallest.case, deviations=less)).verdict is not smallest.finding.verdict


@pytest.mark.slow
def test_most_broken_guards_are_caught_within_a_thousand_worlds():
    """The rest need more: `semel lab simulate --seeds 100000` fails if one of them survives."""
    caught = [mutant.name for mutant in MUTANTS if next(failures(mutant.name, SEEDS[:1_000]), None)]
    assert len(caught) >= 20


# ------------------------------------------------------------------ a world can be trusted


def test_a_seed_is_the_same_world_every_time_and_its_deviations_alone_make_it_again():
    for seed in range(50):
        case = case_of(SOUND.name, seed)
        assert story(case) == story(case_of(SOUND.name, seed))
        again = World(SOUND, Choices(given=case.deviations), kind=case.kind).run()
        assert again.choices.made == dict(case.deviations)


def test_without_a_deviation_every_kind_of_provider_sees_one_effect_and_everybody_is_told():
    for kind in Kind:
        world = World(SOUND, Choices(given={}), kind=kind).run()
        assert len(world.provider.ledger) == 1
        assert [process.told for process in world.processes] == [{0: "done"}, {0: "done"}]
        assert judge(world).verdict is Verdict.OK


def test_everything_that_can_go_wrong_does_in_some_world(survey):
    """A deviation that is never drawn would be no test of anything."""
    _, reached, _ = survey
    tables = {
        "write": steps.WRITE,
        "read": steps.READ,
        "send": steps.SEND,
        "look": steps.LOOK,
        "shows": steps.SHOWS,
        "restart": process.RESTART,
        "answer": process.PERSON,
        "beat": lease.BEAT,
    }
    wanted = {(what, way) for what, ways in tables.items() for way in range(1, len(ways) + 1)}
    assert wanted - reached == set()
    assert {("power loss", way) for way in range(1, 9)} <= reached


def test_every_kind_of_provider_every_plan_and_every_broken_declaration_is_drawn():
    settings = [draw_setting(Choices(seed=seed)) for seed in range(500)]
    assert {setting.kind for setting in settings} == set(Kind)
    assert {setting.plan for setting in settings} == set(Plan)
    assert {setting.untrue for setting in settings} == set(Untrue)


def test_every_move_of_the_lifecycle_is_made_in_some_world(survey):
    _, _, made = survey
    unmade = set(lifecycle.TRANSITIONS) - made
    assert unmade <= {
        (State.PENDING, Event.CONFIRMED),  # the simulated person answers only what was asked, once
        (State.PENDING, Event.ABANDONED),  # and never gives up
        (State.UNKNOWN, Event.ABANDONED),
        (State.PENDING, Event.REPORTED_LATE),  # where a declaration is broken, and rare there
    }


def test_the_simulated_store_answers_every_write_as_sqlite_does():
    compared = 0

    class Both(Passing):
        """Whatever is written to the table is written to a real store as well."""

        def apply(self, writes):
            nonlocal compared
            outcomes = super().apply(writes)
            assert outcomes == real.apply(writes)
            compared += len(writes)
            return outcomes

    for seed in range(60):
        if ("world", "power loss", 1) in case_of(SOUND.name, seed).deviations:
            continue  # the real one has no power to lose
        real = open_store(":memory:")
        world_of(seed, replace(SOUND, store=Both))
        real.close()
    assert compared > 200


def test_the_power_takes_from_the_table_what_no_claim_has_flushed():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    (_, intent), *_ = World(SOUND, Choices(given={})).processes[0].calls
    table = Table(lambda: now)
    claimed = lifecycle.open_claim(intent, owner="0.1.1", now=now, lease=timedelta(seconds=1))
    assert table.apply([Insert(claimed)])[0].applied
    assert table.apply([lifecycle.commit(claimed, result="1", now=now)])[0].applied
    table.lose_unflushed()
    assert table.read(claimed.key) == claimed


def test_the_provider_forgets_a_key_when_it_says_and_shows_an_effect_when_its_lookup_has_caught_up():
    setting = replace(draw_setting(Choices(given={})), kind=Kind.KEYS_AND_LOOKUP, key_ttl_ms=1_000)
    provider = Provider(setting)
    first = provider.receive("a", "k", 0, shows_after_ms=400)
    assert provider.receive("a", "k", 999, shows_after_ms=0) == first
    assert provider.find("k", 399) == semel.Absent()
    assert provider.find("k", 400) == semel.Found({"effect": 1}, key="k")
    assert provider.receive("a", "k", 1_000, shows_after_ms=0).number == 2
    assert isinstance(provider.find("k", 1_000), semel.Inconclusive), "two rows prove nothing"


# ------------------------------------------------------------------ where a declaration is broken on purpose


def test_a_second_effect_that_semel_hears_of_is_reported_as_a_divergence():
    """The world that catches a guard which drops late results: Semel, in it, says so."""
    found = shrink(next(failures("drops late results", FAR)))
    assert found.finding.why.endswith("nobody was told")
    told = story(replace(found.case, guard=SOUND.name))
    assert any("notes a divergence" in line for line in told)
    assert any(line.endswith("is told: diverged") for line in told)


# ------------------------------------------------------------------ the command


def test_json_is_one_object_of_three_names_and_nothing_else(capsys):
    status = main(["lab", "simulate", "--seeds", "200", "--control", QUICK, "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "seeds": 200,
        "violations": 0,
        "controls": [{"name": QUICK, "caught": True}],
    }
    assert status == 0


def test_a_control_that_survives_fails_the_run(capsys):
    assert main(["lab", "simulate", "--seeds", "2", "--control", "takes silence for death", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["controls"] == [
        {"name": "takes silence for death", "caught": False}
    ]


def test_one_seed_is_told_step_by_step(capsys):
    assert main(["lab", "simulate", "--seed", "7", "--seeds", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == list(story(case_of(SOUND.name, 7)))


def test_one_seed_of_a_broken_guard_is_told_and_then_shrunk(capsys):
    failure = next(failures(QUICK, SEEDS))
    arguments = ["--seed", str(failure.seed), "--seeds", "1", "--control", QUICK]
    assert main(["lab", "simulate", *arguments]) == 1
    smallest = shrink(failure)
    assert capsys.readouterr().out.splitlines() == [
        *story(failure.case),
        "",
        report.title_of(smallest),
        *story(smallest.case),
    ]


def test_an_unknown_control_is_refused_by_name(capsys):
    assert main(["lab", "simulate", "--control", "trusts nobody"]) == 2
    assert "no control 'trusts nobody'" in capsys.readouterr().err


# ------------------------------------------------------------------ what is reported


@pytest.fixture(scope="module")
def simulation():
    """A control that was caught and one that was not; and, as if it were Semel's, a violation."""
    failure = shrink(next(failures(QUICK, SEEDS)))
    return Simulation(
        first_seed=0,
        seeds=2_000,
        violations=1,
        shown=(failure,),
        controls=(Control(QUICK, (failure,)), Control("drops late results", ())),
        seconds=2.0,
    )


def test_a_violation_is_told_in_the_terminal_and_the_run_does_not_hold(simulation):
    lines = list(report.lines_of(simulation))
    assert not simulation.holds
    assert lines[-1] == ("Does not hold: 1 found for Semel in 2000 seeds; 1 of 2 broken guards caught.")
    assert set(story(simulation.shown[0].case)) <= set(lines)
    assert any(line.endswith("SURVIVED") for line in lines)


def test_each_violation_is_written_to_a_file_of_its_own(simulation, tmp_path):
    report.write(simulation, tmp_path)
    (violation,) = tmp_path.glob("violation-*.txt")
    assert violation.read_text().splitlines()[1:] == list(story(simulation.shown[0].case))


def test_the_page_has_a_square_for_every_guard_and_provider_and_a_click_tells_the_story(
    open_page, simulation
):
    page = open_page(report.page(simulation))
    squares = page.locator("button.square")
    assert squares.count() == 3 * len(Kind)
    assert squares.get_by_text("not met").count() == len(Kind) - 1
    assert page.locator("button.square:enabled").count() == len(Kind) + 1
    _of_control(page, simulation).click()
    run = page.locator("[data-run]").first
    run.locator("summary").click()
    assert run.locator("pre").inner_text().splitlines() == list(story(simulation.shown[0].case))
    assert page.requests_made == [page.url]


def test_on_a_phone_the_page_is_no_wider_than_the_screen(open_page, simulation):
    page = open_page(report.page(simulation), width=360)
    _of_control(page, simulation).click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def _of_control(page, simulation):
    """The square in which the control was caught: the second row, in the column of its provider."""
    column = list(Kind).index(simulation.controls[0].failures[0].case.kind)
    return page.locator("button.square").nth(len(Kind) + column)
