"""`semel lab explore` and `semel lab replay`: what they print, write, and end with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from semel.cli import explore
from semel.cli.main import main
from semel.lab.explore import campaign, controls, record, report
from semel.lab.explore.campaign import Explored, Ran
from semel.lab.explore.controls import Caught
from semel.lab.explore.plan import Act, Deed, Plan
from semel.lab.explore.verdict import Finding
from semel.lab.model import ProviderKind, StoreKind

HONOURS, HAS_LOOKUP, BLIND = ProviderKind
KILL = Act(deed=Deed.KILL, at=17, place="provider charge: received")


def ran(verdict: str = "OK", *, is_bad: bool = False, because: str = "", **plan: object) -> Ran:
    return Ran(
        plan=Plan(**{"provider": HAS_LOOKUP, "acts": (KILL,), **plan}),
        finding=Finding(verdict=verdict, because=because),
        is_bad=is_bad,
        ledger=("charge cus_42",),
    )


def explored(*runs: Ran) -> Explored:
    return Explored(
        runs=runs,
        possible=10_395,
        never_there=0,
        kills_a_second=41.26,
        seconds=19.6,
        seed=7,
        store=StoreKind.SQLITE,
    )


CAUGHT = Caught(
    name="runs again in doubt", broken="It runs again.", by=ran("DUPLICATE", is_bad=True), walked=1
)
SURVIVED = Caught(name="sleeps", broken="It sleeps.", by=None, walked=3)
RUNS = (ran(), ran(acts=(KILL, KILL)), ran(fault="429", struck="charge"), ran("DIVERGED", fault="zombie"))


# ------------------------------------------------------------------ for programs


def test_the_object_for_programs_has_exactly_these_keys():
    told = json.loads(report.to_json(explored(*RUNS)))
    assert told == {
        "runs": 4,
        "possible": 10_395,
        "runs_per_second": 41.3,
        "verdicts": {"OK": 2},
        "faults": {"zombie": {"DIVERGED": 1}, "429": {"OK": 1}},
    }


def test_the_bound_is_one_line():
    assert report.bound(explored(*RUNS)) == (
        "4 runs of 10395 possible, on sqlite, seed 7: 20 s, 41.3 kill-and-recover runs a second."
    )


@pytest.mark.parametrize(
    ("runs", "tried", "holds", "words"),
    [
        (RUNS, (CAUGHT,), True, "Holds: no run speaks against the guard; 1 of 1 broken guards caught."),
        (RUNS, (CAUGHT, SURVIVED), False, "1 of 2 broken guards caught (sleeps survived)"),
        ((ran("LOST", is_bad=True),), (CAUGHT,), False, "1 of 1 runs speak against the guard"),
    ],
)
def test_a_bad_run_or_a_surviving_control_fails_the_campaign(runs, tried, holds, words):
    found = explored(*runs)
    assert report.holds(found, tried) is holds
    assert words in report.conclusion(found, tried)


# ------------------------------------------------------------------ the command, with real kills


@pytest.fixture
def brief(monkeypatch):
    """A campaign of seconds: a few singles, a pair or two, one of each of two faults, one control."""

    def few(deed, places):
        return [
            act
            for act in campaign_acts(deed, places)
            if act.place in ("claimed charge", "effect_done charge")
        ]

    campaign_acts = campaign.acts_at
    monkeypatch.setattr(campaign, "acts_at", few)
    monkeypatch.setattr(
        campaign, "FAULTS", [f for f in campaign.FAULTS if f.name in ("kill", "zombie", "429")]
    )
    monkeypatch.setattr(campaign, "SHORT", campaign.Size(pairs=2, of_a_fault=2))
    names = ["runs again in doubt"]
    monkeypatch.setattr(controls, "NOT_HERE", {m.name: "" for m in controls.BROKEN if m.name not in names})


def test_a_short_campaign_prints_one_object_and_writes_its_page(brief, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["lab", "explore", "--short", "--json", "--provider", "has-lookup", "--out", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert told["verdicts"] == {"OK": 2 + 2}
    assert told["faults"] == {"zombie": {"OK": 2}, "429": {"OK": 3 + 2}}
    assert told["runs"] == 4 + 2 + 5
    assert told["possible"] > told["runs"]
    assert "1 of 1 broken guards caught" in printed.err
    assert sorted(file.name for file in out.iterdir()) == ["explore.json", "report.html"]
    assert json.loads((out / "explore.json").read_text()) == told


def test_a_survivor_ends_with_1(brief, monkeypatch, capsys):
    monkeypatch.setattr(controls.Walker, "catches_sound", lambda walker, trap: True)
    monkeypatch.setattr(controls, "TRAPS", controls.TRAPS[:1])
    assert main(["lab", "explore", "--short", "--provider", "has-lookup"]) == 1
    assert "SURVIVED" in capsys.readouterr().out


def test_a_bad_run_is_printed_step_by_step_and_written_as_a_file_to_replay(tmp_path, monkeypatch, capsys):
    bad = ran("LOST", is_bad=True, seed=7)
    monkeypatch.setattr(explore, "_run", lambda arguments: (explored(*RUNS, bad), (CAUGHT,)))
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "explore", "--short", "--json"]) == 1
    told = capsys.readouterr().err
    (file,) = (tmp_path / "semel-runs").iterdir()
    assert f"semel lab replay semel-runs/{file.name}" in told
    assert "process 1: at place 17, 'provider charge: received': SIGKILL" in told
    assert (json.loads(file.read_text())["verdict"], json.loads(file.read_text())["seed"]) == ("LOST", 7)


# ------------------------------------------------------------------ replay


def replayed(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "semel.cli.main", "lab", "replay", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def recorded(folder: Path, verdict: str) -> Path:
    found = Ran(
        plan=Plan(provider=HAS_LOOKUP, guard="runs again in doubt", acts=(KILL,), seed=3),
        finding=Finding(verdict=verdict, duplicates=1),
        is_bad=True,
    )
    return record.write(found, folder, 1)


def test_a_broken_guards_run_is_replayed_to_the_same_verdict(tmp_path):
    file = recorded(tmp_path, "DUPLICATE")
    assert json.loads(file.read_text())["seed"] == 3
    ended = replayed(file)
    assert ended.returncode == 0, ended.stderr
    assert "process 1: at place 17, 'provider charge: received': SIGKILL" in ended.stdout
    assert "recorded: DUPLICATE; now: DUPLICATE" in ended.stdout


def test_a_replay_that_ends_otherwise_says_so_and_ends_with_1(tmp_path):
    ended = replayed(recorded(tmp_path, "LOST"))
    assert ended.returncode == 1
    assert "recorded: LOST; now: DUPLICATE" in ended.stdout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"format": "another"}',
        "[1]",
        json.dumps({"format": record.FORMAT, "plan": {"fault": "kill"}}),
        json.dumps({"format": record.FORMAT, "plan": {"fault": "kill", "provider": "x", "acts": []}}),
    ],
)
def test_a_file_that_is_no_recorded_run_is_refused(tmp_path, text, capsys):
    file = tmp_path / "file.json"
    file.write_text(text)
    assert main(["lab", "replay", str(file)]) == 2
    said = capsys.readouterr().err
    assert "Nothing was run" in said
    assert "Error(" not in said


def test_a_plan_survives_being_written_down():
    plan = Plan(
        provider=BLIND, fault="zombie", acts=(KILL, Act(deed=Deed.STOP, at=2, place="x", nth=3)), seed=9
    )
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


# ------------------------------------------------------------------ the page


def test_the_page_has_the_heat_map_and_a_square_opens_its_runs(open_page):
    text = report.page(explored(*RUNS), (CAUGHT, SURVIVED), command="semel lab explore --short")
    page = open_page(text)
    told = page.locator("button.square:enabled b").all_inner_texts()
    assert told == ["OK", "OK", "DIVERGED", "OK", "CAUGHT"]
    assert "SURVIVED" in page.locator("body").inner_text()
    page.locator("button.square:enabled").first.click()
    assert page.locator("[data-run]").count() == 1
    page.locator("[data-run] summary").click()
    assert "SIGKILL" in page.locator("[data-run] pre").inner_text()
    assert all(address.startswith(("file:", "data:")) for address in page.requests_made)


def test_the_page_fits_a_phone(open_page):
    page = open_page(report.page(explored(*RUNS), (CAUGHT,), command="semel lab explore"), width=390)
    page.locator("button.square:enabled").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
