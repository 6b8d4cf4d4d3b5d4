"""`semel lab`: the crash lab."""

from __future__ import annotations

import argparse
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from semel.cli import amplification, bakeoff, crash, explore, incident, simulate
from semel.lab.model import LEVELS, STEPS, Matrix, ModelKind, ProviderKind, Selection, StoreKind, Window

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Value = TypeVar("Value")

MATRIX_HELP: Final = """\
Kill real processes at every gap of a tool call, resume them, and judge what the provider saw:
guard level × window × step × provider × model.

Every filter may be given several times; without one, everything is run.
Exit status: 0 if every cell is as the ladder predicts and every guard broken on purpose is caught, else 1.
"""
STORE_HELP: Final = (
    "where the levels keep what must survive: sqlite (default), or postgres on the server that "
    "SEMEL_POSTGRES_URL names, else on one of its own"
)
MATRIX_EXAMPLE: Final = """\
example: what a naive resume does with a provider that honours keys, and what a stable key changes
  semel lab matrix --level 0 --level 2 --provider honours-keys --out lab-out
"""


def add_to(commands: Commands) -> None:
    lab = commands.add_parser("lab", help="the crash lab", description="The crash lab.")
    experiments = lab.add_subparsers(title="experiments", metavar="EXPERIMENT", required=True)
    _add_matrix_to(experiments)
    explore.add_to(experiments, _folder_to_write)
    simulate.add_to(experiments, _folder_to_write)
    bakeoff.add_to(experiments, _folder_to_write)
    incident.add_to(experiments, _folder_to_write)
    amplification.add_to(experiments, _folder_to_write)
    crash.add_to(experiments, _folder_to_write)


def _add_matrix_to(experiments: Commands) -> None:
    parser = experiments.add_parser(
        "matrix",
        help="six guard levels, killed at every gap",
        description=MATRIX_HELP,
        epilog=MATRIX_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--level", action="append", type=int, choices=LEVELS, help="rung of the guard ladder")
    add("--window", action="append", choices=_names(Window), help="the gap in which the process is killed")
    add("--step", action="append", type=int, choices=STEPS, help="at which tool call of the plan")
    add("--provider", action="append", choices=_names(ProviderKind), help="what the provider can do")
    add("--model", action="append", choices=_names(ModelKind), help="what the model does when asked again")
    add("--store", choices=_names(StoreKind), default=StoreKind.SQLITE.value, help=STORE_HELP)
    add("--seed", type=int, default=0, metavar="N", help="names the call ids; the same seed, the same run")
    add("--out", type=_folder_to_write, metavar="DIR", help="write report.html, summary.csv, matrix.json")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=matrix)


def matrix(arguments: argparse.Namespace) -> int:
    """Run the grid; 0 if it is as predicted."""
    show = _run_for_programs if arguments.json else _run_for_people
    found = show(selection_of(arguments), arguments.seed, StoreKind(arguments.store))
    if arguments.out is not None:
        _write(found, arguments.out)
    return 0 if found.holds else 1


def selection_of(arguments: argparse.Namespace) -> Selection:
    return Selection(
        levels=_chosen(arguments.level, LEVELS),
        windows=_chosen(arguments.window, tuple(Window)),
        steps=_chosen(arguments.step, STEPS),
        providers=_chosen(arguments.provider, tuple(ProviderKind)),
        models=_chosen(arguments.model, tuple(ModelKind)),
    )


def _run_for_programs(selection: Selection, seed: int, store: StoreKind) -> Matrix:
    from semel.lab import export, matrix

    found = matrix.run(selection, seed=seed, store=store)
    print(export.to_json(found))
    return found


def _run_for_people(selection: Selection, seed: int, store: StoreKind) -> Matrix:
    from semel.lab import matrix
    from semel.lab.report_terminal import Progress, print_headline

    with Progress(len(selection.cells())) as progress:
        found = matrix.run(selection, seed=seed, store=store, on_cell=progress.advance)
    print_headline(found)
    return found


def _write(found: Matrix, folder: Path) -> None:
    from semel.lab import export, report_html

    export.write_csv(found, folder / "summary.csv")
    export.write_json(found, folder / "matrix.json")
    (folder / "report.html").write_text(report_html.render(found), encoding="utf-8")


def _folder_to_write(text: str) -> Path:
    """Made, and tried, before the first process is killed: not after minutes of work."""
    folder = Path(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as wrong:
        raise argparse.ArgumentTypeError(f"cannot write to {text}: {wrong.strerror}") from wrong


def _chosen(given: list[Value] | None, all_of: tuple[Value, ...]) -> tuple[Value, ...]:
    """In the order of the grid, each once."""
    return all_of if given is None else tuple(value for value in all_of if value in given)


def _names(kind: type[StrEnum]) -> list[str]:
    return [member.value for member in kind]
