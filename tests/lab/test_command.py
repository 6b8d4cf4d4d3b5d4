"""`semel lab matrix`, and what it writes for other programs."""

from __future__ import annotations

import csv
import json
import signal
from importlib.metadata import version

import pytest

from semel.cli import lab
from semel.cli.main import main, parser
from semel.lab import export
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


def test_a_folder_that_cannot_be_written_is_an_error_before_the_run_starts(capsys, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["lab", "matrix", "--out", str(tmp_path / "file" / "out")])
    assert ended.value.code == 2
    assert "cannot write to" in capsys.readouterr().err


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


def test_a_cell_run_for_real_prints_json_and_nothing_else_and_writes_three_files(capsys, tmp_path):
    pytest.importorskip("semel.lab.controls")
    cell = ["--level", "0", "--window", "W3", "--step", "1", "--provider", "blind", "--model", "repeats"]
    status = main(["lab", "matrix", *cell, "--seed", "3", "--json", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    run = json.loads(printed)
    assert status == 0
    assert run["cells"][0]["killed_by_signal"] == signal.SIGKILL
    assert run["cells"][0]["verdict"] == "DUPLICATE"
    assert all(control["caught"] for control in run["controls"])
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "matrix.json",
        "report.html",
        "summary.csv",
    ]
    assert (tmp_path / "out" / "matrix.json").read_text() == printed
