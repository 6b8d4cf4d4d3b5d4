"""The 60-point experiment: real kills, counted by what really happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from semel.cli.main import main
from semel.lab.client import World
from semel.lab.incident import agents, experiment, report
from semel.lab.incident.experiment import Experiment, Row, judged
from semel.lab.incident.plan import PLAN, STEP_OF, Nature, intent, intents, turn
from semel.lab.incident.provider import serving
from semel.lab.injector import Kill
from semel.lab.model import Verdict, Window
from semel.lab.wire import Ask, Effect

pytestmark = pytest.mark.timeout(300)  # dozens of real processes, on machines as busy as they come
ONE_OF_EACH = tuple(
    STEP_OF[tool] for tool in ("read_alert", "page_on_call", "open_ticket", "note_timeline", "disable_flag")
)


@pytest.fixture(scope="module")
def found() -> Experiment:
    """One step of each nature, in all windows, under all agents."""
    return experiment.run(steps=ONE_OF_EACH)


def row(found: Experiment, name: str) -> Row:
    return next(row for row in found.rows if row.name == name)


# ------------------------------------------------------------------ the plan


def test_fifteen_calls_of_every_nature_make_sixty_points():
    assert len(PLAN) * len(Window) == 60
    assert {step.nature for step in PLAN} == set(Nature)
    assert len(set(intents())) == sum(step.changes_the_world for step in PLAN) == 10


def test_the_model_gives_new_call_ids_whenever_it_is_asked_and_ends():
    assert turn(1).calls[0].id != turn(1).calls[0].id
    assert turn(1).calls[0].arguments == turn(1).calls[0].arguments
    assert turn(len(PLAN) + 1).calls == ()


# ------------------------------------------------------------------ what comes of the crashes


def test_semel_repeats_nothing_that_matters_and_loses_nothing(found):
    semel = row(found, "Semel")
    assert {point.verdict for point in semel.points} == {Verdict.OK}
    assert found.holds


def test_a_person_is_asked_exactly_where_nobody_else_can_know(found):
    asked = {(point.step, point.window) for point in row(found, "Semel").points if point.asks}
    assert asked == {(STEP_OF["page_on_call"], window) for window in (Window.W2, Window.W3)}


def test_naive_recovery_repeats_an_action_after_every_exposed_crash(found):
    naive = row(found, "naive")
    assert naive.repeated == naive.exposed > 0
    assert all(point.extra == point.done_before for point in naive.points)


def test_checkpoints_leave_one_gap_and_it_is_w3(found):
    repeating = {(p.step, p.window) for p in row(found, "checkpoint").points if p.extra}
    assert repeating == {
        (number, Window.W3) for number in ONE_OF_EACH if PLAN[number - 1].nature is not Nature.READS
    }


def test_setting_a_state_again_is_counted_and_is_no_duplicate(found):
    (point,) = [
        point
        for point in row(found, "checkpoint").points
        if (point.step, point.window) == (STEP_OF["disable_flag"], Window.W3)
    ]
    assert (point.extra, point.harmless, point.verdict) == (1, 1, Verdict.OK)


# ------------------------------------------------------------------ the judge


def effects_of(intended: Sequence[str]) -> list[Effect]:
    return [
        Effect(sequence=number, tool=name.split()[0], intent=name, arguments={})
        for number, name in enumerate(intended, start=1)
    ]


AT = Kill(window=Window.W3, step=STEP_OF["page_on_call"])
PAGE = intent("page_on_call", PLAN[AT.step - 1].arguments)


def test_a_missing_action_is_lost_unless_the_plan_is_stuck():
    most = [name for name in intents() if name != PAGE]
    lost = judged(AT, effects_of(most), [], done_before=0, stuck=None)
    assert (lost.lost, lost.verdict) == (1, Verdict.LOST)
    stuck = judged(AT, effects_of(most), [], done_before=0, stuck="it refuses")
    assert (stuck.lost, stuck.verdict) == (0, Verdict.STUCK)


def test_a_second_page_is_a_duplicate():
    assert (
        judged(AT, effects_of([*intents(), PAGE]), [], done_before=1, stuck=None).verdict is Verdict.DUPLICATE
    )


@pytest.mark.parametrize(
    ("kill", "tools"),
    [
        (AT, ["page_on_call", "page_on_call"]),  # asked again
        (AT, ["open_ticket"]),  # of another call, which has a key
        (Kill(window=Window.W4, step=AT.step), ["page_on_call"]),  # it was recorded
        (Kill(window=Window.W3, step=STEP_OF["open_ticket"]), ["open_ticket"]),  # the provider honours keys
    ],
)
def test_a_needless_question_is_a_false_ask(kill, tools):
    asks = [Ask(tool=tool, reference=None, found=True) for tool in tools]
    assert (
        judged(kill, effects_of(list(intents())), asks, done_before=1, stuck=None).verdict
        is Verdict.FALSE_ASK
    )


def test_an_agent_that_forgets_is_caught():
    """The judge's broken twin is an agent: it writes down "done" and then does nothing."""
    assert judged(AT, [], [], done_before=0, stuck=None).lost == 10


# ------------------------------------------------------------------ the provider


def test_the_provider_honours_keys_for_some_tools_only_and_keeps_its_own_books():
    with serving() as provider:
        world = World(address=provider.address, cell_id="x")
        for tool in ("open_ticket", "page_on_call", "read_alert"):
            for _ in range(2):
                world.provider.perform(tool, {"target": "a", "detail": "b"}, key="k")
        counts = Counter(effect.tool for effect in provider.books("x").effects)
        assert counts == {"open_ticket": 1, "page_on_call": 2}
        assert provider.books("y").effects == []


def test_a_person_finds_what_happened_and_the_question_is_written_down():
    with serving() as provider:
        world = World(address=provider.address, cell_id="x")
        arguments = {"target": "a", "detail": "b"}
        assert world.ask_person("page_on_call", arguments=arguments) is None
        world.provider.perform("page_on_call", arguments)
        assert world.ask_person("page_on_call", arguments=arguments) is not None
        assert [ask.found for ask in provider.books("x").asks] == [False, True]


# ------------------------------------------------------------------ what is shown


def test_the_terminal_says_that_the_rate_depends_on_the_scenario(found):
    lines = list(report.lines(found))
    assert [line.split()[0] for line in lines[1:4]] == list(agents.AGENTS)
    assert any("18 of 34" in line and "the rate depends on the scenario" in line for line in lines)
    assert lines[-1].startswith("Holds: ")


def test_the_page_has_a_square_for_every_agent_and_call_and_a_square_opens_its_crashes(found, open_page):
    shown = open_page(report.page(found))
    assert shown.locator("button.square").count() == 3 * len(PLAN)
    shown.locator("button.square[data-verdict=DUPLICATE]").first.click()
    assert shown.locator("[data-run]").count() == len(Window)
    assert "the rate depends on the scenario" in shown.locator("body").inner_text()
    assert "{" not in shown.locator("body").inner_text(), "a figure was not filled in"
    assert shown.requests_made == [shown.url]


def test_on_a_phone_the_page_is_no_wider_than_the_screen(found, open_page):
    shown = open_page(report.page(found), width=360)
    shown.locator("button.square:enabled").first.click()
    assert shown.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command_kills_at_all_sixty_points_of_each_agent(tmp_path, capfd):
    status = main(["lab", "incident", "--json", "--out", str(tmp_path / "out")])
    printed = json.loads(capfd.readouterr().out)
    assert status == 0
    assert {each["name"]: each["crashes"] for each in printed["rows"]} == dict.fromkeys(agents.AGENTS, 60)
    semel = printed["rows"][-1]
    assert (semel["repeating"], semel["lost"], semel["stuck"], semel["false_asks"]) == (0, 0, 0, 0)
    assert json.loads((tmp_path / "out" / "incident.json").read_text()) == printed
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
