"""The bake-off: real processes in environments of their own, killed where they are to be, judged alike."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from semel.cli.main import main
from semel.lab.bakeoff import course, export, lives, page, summary, terminal
from semel.lab.bakeoff.cases import FULL, NEEDS_A_PROVIDER, cases_for
from semel.lab.bakeoff.entrants import ENTRANTS, NAMES, SHORT
from semel.lab.bakeoff.model import Bakeoff, Column, Entrant, Entry, Found
from semel.lab.model import ProviderKind, Verdict

pytestmark = pytest.mark.timeout(600)  # dozens of real processes, on machines as busy as they come
TWINS = Path(__file__).parent / "contestants"


@pytest.fixture(scope="module")
def short() -> Bakeoff:
    return course.run(short=True)


def worst(bakeoff: Bakeoff, name: str, column: Column) -> Verdict:
    entry = bakeoff.entry(name)
    assert entry is not None
    return max(run.verdict for run in entry.of(column))


# ------------------------------------------------------------------ the short form: ours, and the controls


def test_every_first_process_was_killed_by_signal_9_or_stopped(short):
    for run in all_runs(short):
        first = run.signals[:1]
        assert first == (() if run.case.first.is_pause else (signal.SIGKILL,)), summary.title_of(run)


def test_semel_is_ok_in_every_run_and_the_bakeoff_holds(short):
    assert set(short.entry("semel").counts) == {Verdict.OK}
    assert list(summary.problems(short)) == []
    assert short.holds


def test_the_naive_control_is_caught_in_every_column(short):
    assert {worst(short, "naive", column) for column in Column} == {Verdict.DUPLICATE}


def test_a_plain_unknown_machine_is_caught_where_a_fence_and_quiescence_matter_and_only_there(short):
    caught = {column for column in Column if worst(short, "plain-unknown", column) is Verdict.DUPLICATE}
    assert caught == {Column.ZOMBIE, Column.LATE, Column.LAGGING}


@pytest.mark.slow
def test_two_bakeoffs_come_to_the_same_verdicts_by_the_same_way(short):
    assert course.run(short=True).entries == short.entries


def all_runs(bakeoff: Bakeoff) -> list[Found]:
    return [run for entry in bakeoff.entries for run in entry.runs]


# ------------------------------------------------------------------ twins that each count must catch


@pytest.fixture
def baked(monkeypatch):
    """A bake-off of one twin from `tests/lab/contestants`, in the cases of one column."""

    @contextmanager
    def with_twins(folder: Path) -> Iterator[Path]:
        with lives.borrowed_lab(folder) as lent:
            for twin in TWINS.glob("twin_*.py"):
                shutil.copy(twin, lent)
            yield lent

    def baked(name: str, column: Column) -> Entry:
        twin = Entrant(name=name, title=name, program=name, promise="", used="")
        monkeypatch.setattr(course, "borrowed_lab", with_twins)
        monkeypatch.setattr(course, "cases_for", lambda *_, **__: [c for c in FULL if c.column is column][:3])
        (entry,) = course.run(entrants=[twin]).entries
        return entry

    return baked


def test_refusing_everything_is_stuck_and_no_pass(baked):
    entry = baked("twin_refuses", Column.W3)
    assert set(entry.counts) == {Verdict.STUCK}
    assert "I refuse" in "\n".join(entry.runs[0].story)


def test_asking_a_person_what_the_provider_could_tell_is_a_false_ask(baked):
    entry = baked("twin_asks", Column.W2)
    assert set(entry.counts) == {Verdict.FALSE_ASK}
    assert all(run.asks > 0 for run in entry.runs)


def test_an_effect_that_never_happens_is_lost(baked):
    entry = baked("twin_forgets", Column.W2)
    assert set(entry.counts) == {Verdict.LOST}
    assert {run.lost for run in entry.runs} == {1}


def test_a_contestant_that_does_not_die_where_it_is_to_is_unknown_and_never_ok(baked):
    entry = baked("twin_avoids_the_gaps", Column.W2)
    assert set(entry.counts) == {Verdict.UNKNOWN}
    assert "W2 of step 1" in entry.runs[0].story[0]


def test_a_contestant_that_fails_without_a_crash_is_unknown_and_never_ok(baked):
    entry = baked("there_is_no_such_twin", Column.W1)
    assert set(entry.counts) == {Verdict.UNKNOWN}
    assert "even without a crash" in entry.runs[0].story[0]


def test_a_control_that_is_not_caught_or_a_finding_of_semel_means_it_does_not_hold(short):
    def with_verdict(name: str, verdict: Verdict) -> Bakeoff:
        entries = [
            replace(e, runs=tuple(replace(r, verdict=verdict) for r in e.runs))
            if e.entrant.name == name
            else e
            for e in short.entries
        ]
        return replace(short, entries=entries)

    for name, verdict in (
        ("naive", Verdict.OK),
        ("semel", Verdict.FALSE_ASK),
        ("plain-unknown", Verdict.UNKNOWN),
    ):
        broken = with_verdict(name, verdict)
        assert not broken.holds
        assert list(summary.problems(broken)) != []
        assert summary.conclusion(broken).startswith("Does not hold")


def test_an_interrupted_bakeoff_starts_nothing_more():
    announced = []

    def interrupt(what: str) -> None:
        announced.append(what)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        course.run(short=True, on_entry=interrupt)
    assert len(announced) == 1


# ------------------------------------------------------------------ who takes part, in what


def test_who_cannot_be_installed_has_a_row_that_says_so(tmp_path):
    absent = replace(ENTRANTS[1], packages=(f"{tmp_path}/there-is-no-such-package",))
    bakeoff = course.run(entrants=[absent], environments=tmp_path)
    (entry,) = bakeoff.entries
    assert entry.runs == ()
    assert entry.why_not.startswith("not installed: could not be installed: ")
    assert summary.square(entry, Column.W1) == (None, entry.why_not)
    assert not bakeoff.holds, "nothing was run"


@pytest.mark.slow
def test_a_package_from_pypi_runs_in_an_environment_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(course, "cases_for", lambda *_, **__: [c for c in FULL if c.column is Column.W3][:3])
    (entry,) = course.run(only=["safeact"], environments=tmp_path).entries
    if entry.why_not:
        pytest.skip(entry.why_not)
    assert entry.version == "0.0.2"
    assert {run.case.provider: run.verdict for run in entry.runs} == {
        ProviderKind.HONOURS_KEYS: Verdict.FALSE_ASK,  # it has no way but a person
        ProviderKind.HAS_LOOKUP: Verdict.FALSE_ASK,
        ProviderKind.BLIND: Verdict.OK,
    }
    python = tmp_path / "safeact" / "bin" / "python"
    alone = subprocess.run([python, "-c", "import semel"], capture_output=True, check=False, env={})
    assert alone.returncode == 1, "Semel is lent to a contestant, not installed"


def test_names_are_unique_and_every_package_is_pinned():
    assert len(set(NAMES)) == len(NAMES)
    for entrant in ENTRANTS:
        assert all("==" in package for package in entrant.packages)
        assert entrant.promise
        assert entrant.used


def test_the_short_form_needs_no_installation():
    assert set(SHORT) == {"naive", "plain-unknown", "semel"}


@pytest.mark.parametrize("is_short", [True, False])
def test_every_contestant_is_run_in_every_column_that_applies_to_it(is_short):
    for entrant in ENTRANTS:
        columns = {case.column for case in cases_for(entrant, seed=0, short=is_short)}
        assert set(Column) - columns == (set(NEEDS_A_PROVIDER) if entrant.own_database else set())


def test_the_lab_is_lent_alone(tmp_path):
    with lives.borrowed_lab(tmp_path) as lent:
        assert [path.name for path in lent.iterdir()] == ["semel"]
        found = subprocess.run(
            [sys.executable, "-c", "import semel.lab.contestants.stage as s; print(s.__file__)"],
            env={"PYTHONPATH": str(lent)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.startswith(str(lent))


# ------------------------------------------------------------------ what is shown


def test_the_page_has_a_square_for_every_contestant_and_column_and_a_square_opens_its_runs(short, open_page):
    shown = open_page(page.page(short))
    assert shown.locator("button.square").count() == 3 * len(Column)
    square = shown.locator("button.square[data-verdict=DUPLICATE]").first
    square.click()
    runs = shown.locator("[data-run]")
    assert runs.count() > 0
    runs.first.locator("summary").click()
    assert "killed by signal 9" in runs.first.locator("pre").inner_text()
    assert shown.requests_made == [shown.url]


def test_on_a_phone_the_page_is_no_wider_than_the_screen(short, open_page):
    shown = open_page(page.page(short), width=360)
    shown.locator("button.square").first.click()
    assert shown.evaluate("document.documentElement.scrollWidth") == 360


def test_the_page_tells_each_contestants_promise_and_why_one_was_not_run(short):
    absent = Entry(entrant=ENTRANTS[1], why_not="not installed: no network")
    content = page.content(replace(short, entries=[*short.entries, absent]))
    assert ENTRANTS[1].promise in content.about[ENTRANTS[1].title]
    assert {s.text for s in content.squares if s.row == ENTRANTS[1].title} == {absent.why_not}


def test_the_terminal_table_has_a_row_for_each_and_the_last_line_concludes(short, capsys):
    absent = Entry(entrant=ENTRANTS[1], why_not="not installed: no network")
    terminal.print_table(replace(short, entries=[*short.entries, absent]))
    lines = capsys.readouterr().out.splitlines()
    assert not any("\x1b" in line for line in lines)
    assert any(line.startswith("Semel, SQLite") and "OK 2/2" in line for line in lines)
    assert any(line.endswith("not installed: no network") for line in lines)
    assert lines[-1].startswith("Holds: 3 of 4 contestants were run; without a finding: Semel, SQLite.")


def test_json_has_every_contestant_with_its_promise_its_version_and_its_runs(short):
    found = json.loads(export.to_json(short))
    assert [each["name"] for each in found["contestants"]] == list(SHORT)
    semel = found["contestants"][-1]
    assert set(semel["verdicts"]) == {"OK"}
    assert set(semel) == {
        *("name", "title", "package", "version", "promise", "used", "not_run", "verdicts", "runs"),
    }
    assert {run["verdict"] for run in found["contestants"][0]["runs"]} == {"DUPLICATE"}


def test_the_command_prints_json_alone_and_writes_both_files(tmp_path, capfd):
    status = main(["lab", "bakeoff", "--short", "--only", "naive", "--json", "--out", str(tmp_path / "out")])
    printed = json.loads(capfd.readouterr().out)
    assert status == 0
    assert printed["contestants"][0]["name"] == "naive"
    assert json.loads((tmp_path / "out" / "bakeoff.json").read_text()) == printed
    assert "<html" in (tmp_path / "out" / "report.html").read_text()


def test_the_command_to_run_it_again_names_what_was_chosen(short):
    assert summary.command(short) == "semel lab bakeoff --short --seed 0"
    part = replace(short, entries=short.entries[:1], short=False)
    assert summary.command(part) == "semel lab bakeoff --only naive --seed 0"
