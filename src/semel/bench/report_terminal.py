"""The bench in a terminal: plain text, so that it needs nothing and reads the same in a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from semel.bench.model import Report, Row, Target

TITLES: Final = {
    "calls": "(a) a guarded call that does nothing",
    "replay": "(b) replay of a committed call",
    "growth": "(c) a claim, with a little and very much in the table",
    "resume": "(d) resuming a run",
    "peers": "(e) the same step on what a user would pick instead",
}
NAME_WIDTH: Final = 48
STORE_WIDTH: Final = 9
TARGET_WIDTH: Final = 98
MAIN: Final = ("microseconds_a_call", "calls_a_second")
UNTOLD: Final = frozenset({*MAIN, "fastest_microseconds", "slowest_microseconds"})


def lines(report: Report) -> Iterator[str]:
    """Everything, with the targets last."""
    for section, rows in groupby(report.rows, key=lambda row: row.section):
        yield ""
        yield f"{TITLES[section]:<{NAME_WIDTH + STORE_WIDTH + 1}}{'µs a call':>11}{'calls/s':>10}"
        for row in rows:
            yield from _row(row)
    yield ""
    yield from _targets(report.targets)
    yield _machine(report.machine)


def _row(row: Row) -> Iterator[str]:
    head = f"  {row.name:<{NAME_WIDTH}.{NAME_WIDTH}} {row.store:<{STORE_WIDTH}}"
    if row.why_not is not None:
        yield f"{head} not measured: {row.why_not}"
        return
    microseconds, rate = (row.figures[name] for name in MAIN)
    more = ", ".join(
        f"{_words(name)} {value:,g}" for name, value in row.figures.items() if name not in UNTOLD
    )
    yield f"{head[: NAME_WIDTH + STORE_WIDTH + 2]}{microseconds:>10,.1f}{rate:>10,.0f}  {more}".rstrip()
    if row.section == "peers" and row.note:
        yield f"      {row.note}"


def _targets(targets: Sequence[Target]) -> Iterator[str]:
    if not targets:
        return
    yield f"{'targets':<{TARGET_WIDTH + 2}}{'measured':>10}{'limit':>8}"
    for target in targets:
        measured = "—" if target.measured is None else f"{target.measured:,g}"
        verdict = "holds" if target.holds else "MISSED"
        yield f"  {target.target:<{TARGET_WIDTH}}{measured:>10}{target.limit:>8g}  {verdict}"
    held = sum(target.holds for target in targets)
    yield f"{held} of {len(targets)} targets hold"


def _machine(machine: Mapping[str, object]) -> str:
    return "measured on " + ", ".join(f"{_words(name)} {value}" for name, value in machine.items())


def _words(name: str) -> str:
    return name.replace("_", " ").replace("microseconds", "µs")
