"""`semel lab matrix`, and what it writes for other programs."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from semel.cli import lab
from semel.cli.main import main, parser
from semel.lab import controls, export, levels
from semel.lab.model import Cell, Control, Matrix, ModelKind, ProviderKind, Selection, Verdict, Window

FIELDS = [
    "level",
    "window",
    "step",
    "provider",
    "model",
    "killed_by_signal",
    "duplicates",
    "lost",
    "stuck",
    "asks",
    "false_asks",
    "recovery_seconds",
    "redundant_model_calls",
    "requests",
    "verdict",
    "skipped",
]
ONE, OTHER = Selection(levels=(0, 3), windows=(Window.W3,), steps=(1,)).cells()[:2]
MATRIX = Matrix(
    seed=7,
    cells=(
        Cell(
            at=ONE,
            killed_by_signal=9,
            duplicates=1,
            recovery_seconds=0.0312345,
            requests=4,
            verdict=Verdict.DUPLICATE,
            predicted=Verdict.DUPLICATE,
            trace="not for export",
        ),
        Cell(at=OTHER, skipped="no Temporal, here"),
    ),
    controls=(Control(name="claims after the effect", caught=True, verdict=Verdict.DUPLICATE),),
    seconds=1.23456,
)


def selection_of(*arguments):
    return lab.selection_of(parser().parse_args(["lab", "matrix", *arguments]))


def test_without_filters_everything_is_selected():
    assert selection_of() == Selection()


def test_filters_repeat_and_keep_the_order_of_the_grid():
    chosen = selection_of(
        *("--level", "4", "--level", "0", "--level", "4", "--window", "W3", "--step", "2"),
        *("--provider", "blind", "--provider", "honours-keys", "--model", "rewords"),
    )
    assert chosen == Selection(
        levels=(0, 4),
        windows=(Window.W3,),
        steps=(2,),
        providers=(ProviderKind.HONOURS_KEYS, ProviderKind.BLIND),
        models=(ModelKind.REWORDS,),
    )


@pytest.mark.parametrize(
    "bad",
    [["--level", "6"], ["--window", "W5"], ["--step", "0"], ["--provider", "x"], ["--seed", "x"], ["y"]],
)
def test_a_bad_option_is_a_usage_error_that_names_it(capsys, bad):
    with pytest.raises(SystemExit) as ended:
        main(["lab", "matrix", *bad])
    assert ended.value.code == 2
    assert bad[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "lab matrix",
        "lab explore",
        "lab simulate",
        "lab bakeoff",
        "lab incident",
        "lab amplification",
        "lab crash program:run",
        "bench",
    ],
)
def test_a_place_that_cannot_be_written_is_an_error_before_the_run_starts(capsys, tmp_path, command):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--out", str(tmp_path / "file" / "out")])
    assert ended.value.code == 2
    assert "cannot write to" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["matrix", "bakeoff --only naive"])
def test_without_rich_a_report_for_people_is_refused_before_the_run_starts(capsys, monkeypatch, command):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    for name in ("semel.lab.report_terminal", "semel.lab.bakeoff.terminal"):
        package, _, module = name.rpartition(".")
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(sys.modules[package], module, raising=False)
    assert main(["lab", *command.split()]) == 2
    assert "Nothing was run. pip install 'semel[lab]'" in capsys.readouterr().err


def test_help_has_an_example_and_the_exit_status(capsys):
    with pytest.raises(SystemExit):
        main(["lab", "matrix", "--help"])
    help_text = capsys.readouterr().out
    assert "semel lab matrix --level 0" in help_text
    assert "Exit status" in help_text


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"semel {version('semel')}\n"


def test_the_json_object_has_the_promised_fields_and_no_others():
    run = json.loads(export.to_json(MATRIX))
    assert list(run) == ["seed", "cells", "controls", "seconds"]
    assert [list(cell) for cell in run["cells"]] == [FIELDS, FIELDS]
    assert run["controls"] == [{"name": "claims after the effect", "caught": True, "verdict": "DUPLICATE"}]
    killed, skipped = run["cells"]
    assert (killed["window"], killed["verdict"], killed["recovery_seconds"]) == ("W3", "DUPLICATE", 0.0312)
    assert (skipped["verdict"], skipped["skipped"]) == (None, "no Temporal, here")


def test_the_csv_has_a_row_a_cell(tmp_path):
    file = tmp_path / "summary.csv"
    export.write_csv(MATRIX, file)
    with file.open(newline="") as lines:
        killed, skipped = csv.DictReader(lines)
    assert list(killed) == FIELDS
    assert (killed["level"], killed["verdict"], killed["duplicates"]) == ("0", "DUPLICATE", "1")
    assert (skipped["verdict"], skipped["skipped"]) == ("", "no Temporal, here")


# ------------------------------------------------------------------ the command as it is typed

CELLS = ["--level", "0", "--level", "5", "--window", "W3", "--step", "1", "--provider", "blind"]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """`semel lab matrix … --json --out DIR`, in a process of its own and a folder of its own."""
    folder = tmp_path_factory.mktemp("typed")
    semel = Path(sys.executable).with_name("semel")
    return folder, subprocess.run(
        [semel, "lab", "matrix", *CELLS, "--seed", "3", "--json", "--out", "out/of/here"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def without_repeated_keys(pairs):
    assert len(dict(pairs)) == len(pairs), "a key stands twice in one object"
    return dict(pairs)


def test_the_command_ends_with_0_and_prints_one_json_object_and_nothing_else(typed):
    _, ended = typed
    assert (ended.returncode, ended.stderr) == (0, "")
    found, end = json.JSONDecoder().raw_decode(ended.stdout)
    assert isinstance(found, dict)
    assert ended.stdout[end:] == "\n"


def test_the_json_object_has_exactly_the_keys_of_the_promise_at_every_depth(typed):
    run = json.loads(typed[1].stdout, object_pairs_hook=without_repeated_keys)
    assert list(run) == ["seed", "cells", "controls", "seconds"]
    assert [list(cell) for cell in run["cells"]] == [FIELDS] * 4
    assert [list(control) for control in run["controls"]] == [["name", "caught", "verdict"]] * 5
    assert run["seed"] == 3
    assert isinstance(run["seconds"], float)


def test_the_cells_tell_what_happened_to_them(typed):
    cells = json.loads(typed[1].stdout)["cells"]
    assert [(cell["level"], cell["model"]) for cell in cells] == [
        (0, "repeats"),
        (0, "rewords"),
        (5, "repeats"),
        (5, "rewords"),
    ]
    for cell in cells:
        assert (cell["window"], cell["step"], cell["provider"]) == ("W3", 1, "blind")
        assert cell["killed_by_signal"] == signal.SIGKILL
        assert isinstance(cell["recovery_seconds"], float)
        assert cell["skipped"] is None
    told = [
        (cell["verdict"], cell["duplicates"], cell["asks"], cell["redundant_model_calls"]) for cell in cells
    ]
    assert told == [("DUPLICATE", 1, 0, 1)] * 2 + [("OK", 0, 1, 0)] * 2
    assert {(cell["lost"], cell["stuck"], cell["false_asks"]) for cell in cells} == {(0, 0, 0)}


def test_every_guard_broken_on_purpose_is_caught_in_every_run_of_the_lab(typed):
    controls = json.loads(typed[1].stdout)["controls"]
    assert [control["caught"] for control in controls] == [True] * 5
    assert {control["verdict"] for control in controls} <= {"DUPLICATE", "LOST"}


def test_the_three_files_are_written_and_tell_the_same(typed):
    folder, ended = typed
    out = folder / "out" / "of" / "here"
    assert sorted(file.name for file in out.iterdir()) == ["matrix.json", "report.html", "summary.csv"]
    assert (out / "matrix.json").read_text() == ended.stdout
    with (out / "summary.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    cells = json.loads(ended.stdout)["cells"]
    assert [(row["level"], row["model"], row["verdict"], row["asks"]) for row in rows] == [
        (str(cell["level"]), cell["model"], cell["verdict"], str(cell["asks"])) for cell in cells
    ]
    assert "<html" in (out / "report.html").read_text()
    assert list(folder.iterdir()) == [folder / "out"], "something else was left behind"


# ------------------------------------------------------------------ the exit status

ONE_CELL = [*CELLS[:2], *CELLS[4:], "--model", "repeats", "--json"]


@pytest.fixture
def traps(monkeypatch):
    """Run with these traps alone."""

    def traps(*chosen):
        monkeypatch.setattr(controls, "TRAPS", chosen)

    return traps


def test_a_cell_that_is_as_predicted_ends_with_0_though_it_is_a_duplicate(traps, capsys):
    traps()
    assert main(["lab", "matrix", *ONE_CELL]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["verdict"] == "DUPLICATE"


@pytest.mark.parametrize(
    ("module", "verdict"),
    [
        ("semel.lab.levels.l4_atomic", "OK"),  # better than the ladder says: then the ladder is wrong
        ("level_that_raises", "UNKNOWN"),
    ],
)
def test_a_cell_that_is_not_as_predicted_ends_with_1(traps, capsys, monkeypatch, module, verdict):
    traps()
    monkeypatch.setitem(levels.MODULES, 0, module)
    assert main(["lab", "matrix", *ONE_CELL]) == 1
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["verdict"] == verdict


def test_a_control_that_is_not_caught_ends_with_1(traps, capsys):
    (trap,) = (trap for trap in controls.TRAPS if trap.name == "key without the step")
    traps(replace(trap, broken=trap.sound))
    assert main(["lab", "matrix", *ONE_CELL]) == 1
    (control,) = json.loads(capsys.readouterr().out)["controls"]
    assert control == {"name": "key without the step", "caught": False, "verdict": "OK"}


def test_a_cell_whose_part_is_missing_is_skipped_and_ends_with_0(traps, capsys, monkeypatch):
    traps()
    monkeypatch.setitem(levels.MODULES, 0, "not_installed")
    assert main(["lab", "matrix", *ONE_CELL]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["verdict"], cell["skipped"]) == (None, "No module named 'not_installed'")


def test_for_people_there_is_the_headline_and_no_json(traps, capsys):
    traps()
    assert main(["lab", "matrix", *ONE_CELL[:-1]]) == 0
    printed = capsys.readouterr().out
    assert "W3" in printed
    assert "{" not in printed
