"""The lab in a terminal: a bar while it works, then the headline grid and whether it holds.

Colour is decoration: every cell says its verdict in words, and nothing is lost without colour
(`NO_COLOR`, a pipe, a log file).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from semel.errors import UsageError

try:
    from rich.console import Console
    from rich.padding import Padding
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as missing:
    raise UsageError(
        "The lab's terminal report needs rich. Nothing was run. pip install 'semel[lab]', or give --json."
    ) from missing

from semel.lab import ladder
from semel.lab.headline import Headline, conclusion, differing, headlines, name_of, processes_killed
from semel.lab.model import LEVELS, Cell, Control, Matrix, Verdict, Window

STYLES: Final = {
    Verdict.OK: "black on green",
    Verdict.FALSE_ASK: "black on yellow",
    Verdict.STUCK: "black on bright_yellow",
    Verdict.LOST: "white on magenta",
    Verdict.DUPLICATE: "bold white on red",
    Verdict.UNKNOWN: "white on bright_black",
}
CELL_WIDTH: Final = 15  # "DUPLICATE 18/18"; four of them and a title fit into 80 columns
TITLE_WIDTH: Final = 15
DIFFERING_MAX: Final = 24  # a screenful; matrix.json has them all
LINES: Final = 10  # without a terminal: about a line every ten per cent


class Progress:
    """On stderr: a bar in a terminal, a line now and then elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description:<40}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, cell: Cell) -> None:
        self._done += 1
        self._bar.update(self._task, advance=1, description=name_of(cell.at))
        if not self._console.is_terminal and self._passed_a_tenth():
            self._console.print(f"{self._done} of {self._total} cells", highlight=False)

    def _passed_a_tenth(self) -> bool:
        return self._done * LINES // self._total > (self._done - 1) * LINES // self._total


def print_headline(matrix: Matrix) -> None:
    """The 24 headline cells, the controls, the asks, and last of all whether everything holds."""
    console = Console(highlight=False)
    console.print(_grid(matrix))
    for reason in _skip_reasons(matrix):
        console.print(Text(reason, style="dim"))
    console.print()
    if matrix.controls:
        console.print(_controls(matrix.controls))
        console.print()
    console.print(Text(_killed(matrix)))
    console.print(Text(_asks(matrix.cells)))
    console.print()
    for line in _differences(matrix):
        console.print(Text(line, style="red"))
    console.print(
        Text(conclusion(matrix), style="bold green" if matrix.holds else "bold red"), soft_wrap=True
    )


def _grid(matrix: Matrix) -> Table:
    table = Table(box=None, padding=(0, 1, 1, 0), pad_edge=False, header_style="bold")
    table.add_column("", min_width=TITLE_WIDTH)  # wraps where the terminal is narrow
    for window in Window:
        table.add_column(window, width=CELL_WIDTH, no_wrap=True)
    lines = headlines(matrix)
    for level in LEVELS:
        row = [_headline(line) for line in lines if line.level == level]
        table.add_row(f"L{level} {ladder.TITLES[level]}", *row)
    return table


def _headline(headline: Headline) -> Padding | Text:
    if headline.worst is None:
        return Text("skipped" if headline.skipped else "not run", style="dim")
    text = f"{headline.worst.name} {headline.count}/{headline.ran}"
    if headline.asked:
        text += f"\nasked {headline.asked}"
    if headline.skipped:
        text += "\nsome skipped"
    return Padding(Text(text), (0, 0), style=STYLES[headline.worst])


def _skip_reasons(matrix: Matrix) -> list[str]:
    """Each reason once, with the levels it keeps from running."""
    levels: dict[str, set[int]] = {}
    for cell in matrix.cells:
        if cell.skipped is not None:
            levels.setdefault(cell.skipped, set()).add(cell.at.level)
    return [
        f"{' '.join(f'L{level}' for level in sorted(of))} skipped: {reason}" for reason, of in levels.items()
    ]


def _controls(controls: Iterable[Control]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("guards broken on purpose", "verdict", ""):
        table.add_column(name)
    for control in controls:
        table.add_row(Text(control.name), control.verdict.name, _caught(control))
    return table


def _caught(control: Control) -> Text:
    return Text("caught", style="green") if control.caught else Text("NOT CAUGHT", style="bold red")


def _killed(matrix: Matrix) -> str:
    killed, seconds = processes_killed(matrix), matrix.seconds
    return f"{killed} real processes killed in {seconds:.1f} s, {matrix.store}, seed {matrix.seed}."


def _asks(cells: Iterable[Cell]) -> str:
    cells = list(cells)
    asks = sum(cell.asks for cell in cells)
    needless = sum(cell.false_asks for cell in cells)
    return f"A person was asked {asks} times, {needless} of them although the machine could have known."


def _differences(matrix: Matrix) -> list[str]:
    cells = differing(matrix)
    lines = [f"{name_of(c.at)}: expected {_word(c.predicted)}, got {_word(c.verdict)}" for c in cells]
    if len(lines) <= DIFFERING_MAX:
        return lines
    return [*lines[:DIFFERING_MAX], f"and {len(lines) - DIFFERING_MAX} more"]


def _word(verdict: Verdict | None) -> str:
    return "nothing" if verdict is None else verdict.name
