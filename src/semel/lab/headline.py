"""What a run of the lab adds up to: pure, and the same words for both reports.

A cell that was skipped is never counted as good. It has no verdict, so it takes no part in the fold;
where nothing ran, the headline has no verdict either, only the reasons.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from semel.lab.model import (
    LEVELS,
    STEPS,
    Cell,
    Coordinates,
    Matrix,
    ModelKind,
    ProviderKind,
    StoreKind,
    Verdict,
    Window,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The cells of one level and window, folded into one: the worst of them decides."""

    level: int
    window: Window
    worst: Verdict | None  # None: nothing ran
    count: int  # cells with that worst verdict
    ran: int
    asked: int  # cells in which a person was asked and that was right
    skipped: tuple[str, ...]  # the reasons, each once


def headlines(matrix: Matrix) -> tuple[Headline, ...]:
    """All 24, level by level, whether or not the run covered them."""
    return tuple(
        fold(level, window, cells_behind(matrix, level, window)) for level in LEVELS for window in Window
    )


def cells_behind(matrix: Matrix, level: int, window: Window) -> list[Cell]:
    return [cell for cell in matrix.cells if cell.at.level == level and cell.at.window is window]


def fold(level: int, window: Window, cells: Iterable[Cell]) -> Headline:
    cells = list(cells)
    verdicts = [cell.verdict for cell in cells if cell.verdict is not None]
    worst = max(verdicts, default=None)
    return Headline(
        level=level,
        window=window,
        worst=worst,
        count=sum(verdict is worst for verdict in verdicts),
        ran=len(verdicts),
        asked=sum(asked_rightly(cell) for cell in cells),
        skipped=tuple(dict.fromkeys(cell.skipped for cell in cells if cell.skipped is not None)),
    )


def asked_rightly(cell: Cell) -> bool:
    return cell.verdict is Verdict.OK and cell.asks > 0


def differing(matrix: Matrix) -> list[Cell]:
    """The cells that are not as the ladder predicts."""
    return [cell for cell in matrix.cells if not cell.is_as_predicted]


def processes_killed(matrix: Matrix) -> int:
    """Counted by exit status: what did not die by signal 9 does not count."""
    return sum(cell.killed_by_signal == signal.SIGKILL for cell in matrix.cells)


def conclusion(matrix: Matrix) -> str:
    """One sentence: does the run show what the ladder says?"""
    sentence = "; ".join([_about_cells(matrix), _about_controls(matrix)])
    if all(cell.skipped is not None for cell in matrix.cells):
        return f"Nothing to judge: {sentence}."
    return f"Holds: {sentence}." if matrix.holds else f"Does not hold: {sentence}."


def _about_cells(matrix: Matrix) -> str:
    ran = [cell for cell in matrix.cells if cell.skipped is None]
    skipped = len(matrix.cells) - len(ran)
    wrong = len(differing(matrix))
    if not ran:
        sentence = "no cell was run"
    elif wrong:
        sentence = f"{wrong} of {len(ran)} cells {'is' if wrong == 1 else 'are'} not as the ladder predicts"
    else:
        sentence = f"all {len(ran)} cells are as the ladder predicts"
    return f"{sentence} ({skipped} skipped)" if skipped else sentence


def _about_controls(matrix: Matrix) -> str:
    if not matrix.controls:
        return "no negative control was run"
    caught = sum(control.caught for control in matrix.controls)
    return f"{caught} of {len(matrix.controls)} negative controls caught"


def command(matrix: Matrix) -> str:
    """The command that runs the same cells again. A filter appears only where it filters."""
    at = [cell.at for cell in matrix.cells]
    filters = [
        *_filter("level", [c.level for c in at], LEVELS),
        *_filter("window", [c.window for c in at], Window),
        *_filter("step", [c.step for c in at], STEPS),
        *_filter("provider", [c.provider for c in at], ProviderKind),
        *_filter("model", [c.model for c in at], ModelKind),
    ]
    store = [] if matrix.store is StoreKind.SQLITE else ["--store", matrix.store]
    return shlex.join(["semel", "lab", "matrix", *filters, *store, "--seed", str(matrix.seed)])


def _filter(option: str, used: Iterable[object], possible: Iterable[object]) -> list[str]:
    seen = set(used)
    wanted = [value for value in possible if value in seen]
    if len(wanted) == len(list(possible)):
        return []
    return [word for value in wanted for word in (f"--{option}", str(value))]


def name_of(at: Coordinates) -> str:
    return f"L{at.level} {at.window} step {at.step} {at.provider} {at.model}"
