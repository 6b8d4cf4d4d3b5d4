"""The experiment for people and for programs. The names of the JSON fields are a promise: add, do not rename."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from semel.lab.heat_map import Page, Run, Square, render
from semel.lab.incident.experiment import PUBLISHED, Experiment, Point, Row
from semel.lab.incident.plan import PLAN, Step
from semel.lab.model import Verdict

HEADINGS: Final = (
    "agent",
    "crashes",
    "exposed",
    "repeating",
    "extra",
    "harmless",
    "lost",
    "stuck",
    "asks",
    "false asks",
)
LEGEND: Final = (
    "exposed: when the process died, an action had happened already. repeating: of those, crashes after which an "
    "action happened again that matters. extra: actions beyond the plan's; harmless: the part of them that "
    "only set a state again."
)
ABOUT: Final = {
    "naive": "After a crash the plan starts again.",
    "checkpoint": "Turns and finished results are kept; between a call and its result there is an unguarded gap.",
    "Semel": "Each tool is declared by its nature; a person is asked only about an interrupted call of a provider "
    "that honours no key and can't be asked.",
}


def lines(found: Experiment) -> Iterator[str]:
    rows = [HEADINGS, *map(_cells, found.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
    yield ""
    yield LEGEND
    yield PUBLISHED
    yield conclusion(found)


def conclusion(found: Experiment) -> str:
    word = "Holds" if found.holds else "Does not hold"
    worst = "; ".join(f"{row.name}: {row.worst.name}" for row in found.rows)
    return f"{word}: the worst of each: {worst}."


def to_json(found: Experiment) -> str:
    return json.dumps(
        {
            "holds": found.holds,
            "published": PUBLISHED,
            "rows": [_row(row) for row in found.rows],
        },
        indent=2,
    )


def page(found: Experiment) -> str:
    calls = {number: f"{number} {step.tool}" for number, step in enumerate(PLAN, start=1)}
    squares = [
        _square(calls[number], row.name, [point for point in row.points if point.step == number])
        for number in calls
        for row in found.rows
    ]
    return render(
        Page(
            title="One incident, sixty crashes",
            lead="Fifteen tool calls, each killed in each of its four windows, under three agents.",
            conclusion=conclusion(found),
            holds=found.holds,
            rows=tuple(calls.values()),
            columns=tuple(row.name for row in found.rows),
            squares=squares,
            about={row.name: f"{ABOUT[row.name]} {_summed(row)}" for row in found.rows}
            | {calls[number]: _told(step) for number, step in enumerate(PLAN, start=1)},
            figures=(("crashes", str(sum(len(row.points) for row in found.rows))),),
            notes=(LEGEND, PUBLISHED),
            command="semel lab incident",
        )
    )


def _cells(row: Row) -> tuple[str, ...]:
    counts = (
        len(row.points),
        row.exposed,
        row.repeated,
        row.total("extra"),
        row.total("harmless"),
        row.total("lost"),
        row.stuck,
        row.total("asks"),
        row.total("false_asks"),
    )
    return (row.name, *map(str, counts))


def _summed(row: Row) -> str:
    return (
        f"{row.repeated} of {row.exposed} exposed crashes repeated an action that matters; "
        f"{row.total('extra')} extra actions, {row.total('harmless')} of them harmless; "
        f"{row.total('lost')} lost, {row.stuck} stuck; a person was asked {row.total('asks')} times, "
        f"{row.total('false_asks')} of them needlessly."
    )


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "crashes": len(row.points),
        "exposed": row.exposed,
        "repeating": row.repeated,
        "extra_actions": row.total("extra"),
        "harmless": row.total("harmless"),
        "lost": row.total("lost"),
        "stuck": row.stuck,
        "asks": row.total("asks"),
        "false_asks": row.total("false_asks"),
        "verdict": row.worst.name,
        "points": [_point(point) for point in row.points],
    }


def _point(point: Point) -> dict[str, Any]:
    step = PLAN[point.step - 1]
    return {
        "step": point.step,
        "tool": step.tool,
        "nature": step.nature,
        "window": point.window,
        "done_before": point.done_before,
        "extra_actions": point.extra,
        "harmless": point.harmless,
        "lost": point.lost,
        "stuck": point.stuck is not None,
        "asks": point.asks,
        "false_asks": point.false_asks,
        "verdict": point.verdict.name,
    }


def _square(row: str, column: str, points: list[Point]) -> Square:
    worst = max((point.verdict for point in points), default=None)
    count = sum(point.verdict is worst for point in points)
    asked = sum(point.verdict is Verdict.OK and point.asks > 0 for point in points)
    return Square(
        row=row,
        column=column,
        verdict="" if worst is None else worst.name,
        text=(f"{count} of {len(points)}" + (f", {asked} asked" if asked else "")) if points else "not run",
        runs=tuple(_run(point) for point in points),
    )


def _run(point: Point) -> Run:
    told = [
        f"actions that had happened before: {point.done_before}",
        f"extra actions: {point.extra}, of them harmless: {point.harmless}",
        f"lost: {point.lost}",
        f"asked: {point.asks}, needlessly: {point.false_asks}",
    ]
    return Run(
        title=f"killed at {point.window}",
        verdict=point.verdict.name,
        lines=(*told, *(point.stuck or "").splitlines()),
    )


def _told(step: Step) -> str:
    return f"{step.target}{': ' + step.detail if step.detail else ''} ({step.nature})"
