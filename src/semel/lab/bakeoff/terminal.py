"""A bake-off in a terminal: one table, a line for each row that has none, and whether it holds.

Colour is decoration: every square says its verdict in words.
"""

from __future__ import annotations

from typing import Final

from semel.errors import UsageError

try:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as missing:
    raise UsageError(
        "The lab's terminal report needs rich. Nothing was run. pip install 'semel[lab]', or give --json."
    ) from missing

from semel.lab.bakeoff import summary
from semel.lab.bakeoff.model import Bakeoff, Column, Entry
from semel.lab.model import Verdict
from semel.lab.report_terminal import STYLES

SHORT_NAMES: Final = {
    Verdict.OK: "OK",
    Verdict.FALSE_ASK: "F-ASK",
    Verdict.STUCK: "STUCK",
    Verdict.LOST: "LOST",
    Verdict.DUPLICATE: "DUP",
    Verdict.UNKNOWN: "UNKNOWN",
}
WIDTH_IN_A_PIPE: Final = 150  # nobody's window: wide enough that no row is folded
TITLE_WIDTH_MIN: Final = 16
HEADINGS: Final = {
    Column.W1: "W1",
    Column.W2: "W2",
    Column.W3: "W3",
    Column.W4: "W4",
    Column.ZOMBIE: "zombie",
    Column.LATE: "late",
    Column.LAGGING: "lagging",
    Column.REWORDING: "rewords",
    Column.TWICE: "twice",
}


def print_table(bakeoff: Bakeoff) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_IN_A_PIPE)
    console.print(_table(bakeoff))
    console.print(
        "F-ASK is FALSE_ASK, DUP is DUPLICATE; n/m: so many of the runs in a square have its verdict."
    )
    for entry in bakeoff.entries:
        console.print(Text(f"{entry.entrant.title}: {summary.totals(entry)}"), soft_wrap=True)
    console.print()
    for problem in summary.problems(bakeoff):
        console.print(Text(problem, style="red"), soft_wrap=True)
    style = "bold green" if bakeoff.holds else "bold red"
    console.print(Text(summary.conclusion(bakeoff), style=style), soft_wrap=True)


def _table(bakeoff: Bakeoff) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", min_width=TITLE_WIDTH_MIN)  # wraps where the terminal is narrow
    table.add_column("version", no_wrap=True)
    for column in Column:
        table.add_column(HEADINGS[column], no_wrap=True)
    for entry in bakeoff.entries:
        table.add_row(
            Text(entry.entrant.title), entry.version or "–", *(_square(entry, column) for column in Column)
        )
    return table


def _square(entry: Entry, column: Column) -> Text:
    verdict, text = summary.square(entry, column)
    if verdict is None:
        return Text("n/a" if text == summary.DOES_NOT_APPLY else "–", style="dim")
    return Text(f"{SHORT_NAMES[verdict]} {_fraction(text)}", style=STYLES[verdict])


def _fraction(text: str) -> str:
    return text.partition(",")[0].replace(" of ", "/")
