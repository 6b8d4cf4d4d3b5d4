"""Any campaign of the lab as one page: a heat map whose squares open the runs behind them.

A square shows a verdict and a few words; its colour is the verdict's. Words that are not of the oracle's
scale (`DIVERGED`, `ASKED`) get the colour of the nearest one in `COLOURS`; a word unknown there has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from semel.lab.model import Verdict
from semel.lab.page import page

COLOURS: Final[Mapping[str, str]] = {
    **{verdict.name: verdict.name for verdict in Verdict},
    "ASKED": Verdict.OK.name,
    "CAUGHT": Verdict.OK.name,
    "DIVERGED": Verdict.FALSE_ASK.name,
    "SURVIVED": Verdict.DUPLICATE.name,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run behind a square: what it was, what was found, and what happened, line by line."""

    title: str
    verdict: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Square:
    """`verdict` is the worst of its runs; empty where nothing was run, and then `text` says why."""

    row: str
    column: str
    verdict: str
    text: str
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """`conclusion` is the one sentence to read; `holds` says whether it is good news.

    `about` explains rows or columns, by name. `notes` stand below the map, each a paragraph.
    """

    title: str
    lead: str
    conclusion: str
    holds: bool
    rows: Sequence[str]
    columns: Sequence[str]
    squares: Sequence[Square]
    about: Mapping[str, str] | None = None
    figures: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    command: str = ""


def render(content: Page) -> str:
    """The whole page, one file. Raises ValueError for a square that has no place in the map."""
    places = {(square.row, square.column) for square in content.squares}
    if len(places) != len(content.squares):
        raise ValueError("two squares have the same place in the map")
    for row, column in places:
        if row not in content.rows or column not in content.columns:
            raise ValueError(f"no such place in the map: row {row!r}, column {column!r}")
    return page("heat_map.html", asdict(content) | {"colours": dict(COLOURS)})
