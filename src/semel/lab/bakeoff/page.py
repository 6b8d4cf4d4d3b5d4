"""A bake-off as one page, on the lab's heat map."""

from __future__ import annotations

from semel.lab.bakeoff import summary
from semel.lab.bakeoff.model import Bakeoff, Column, Entry, Found
from semel.lab.heat_map import Page, Run, Square, render

LEAD = (
    "The same agent, the same tools and the same crashes, under other people's guards: what each one repeats, "
    "loses, gets stuck with, or asks a person for nothing."
)


def page(bakeoff: Bakeoff) -> str:
    return render(content(bakeoff))


def content(bakeoff: Bakeoff) -> Page:
    return Page(
        title="Bake-off",
        lead=LEAD,
        conclusion=summary.conclusion(bakeoff),
        holds=bakeoff.holds,
        rows=tuple(title(entry) for entry in bakeoff.entries),
        columns=tuple(Column),
        squares=tuple(_square(entry, column) for entry in bakeoff.entries for column in Column),
        about={title(entry): summary.promised(entry) for entry in bakeoff.entries}
        | {column.value: text for column, text in summary.COLUMNS.items()},
        figures=(
            ("contestants run", str(sum(bool(entry.runs) for entry in bakeoff.entries))),
            ("runs", str(sum(len(entry.runs) for entry in bakeoff.entries))),
            ("seconds", f"{bakeoff.seconds:.0f}"),
            ("seed", str(bakeoff.seed)),
        ),
        notes=(*summary.problems(bakeoff), *summary.NOTES, *map(summary.used, bakeoff.entries)),
        command=summary.command(bakeoff),
    )


def title(entry: Entry) -> str:
    return f"{entry.entrant.title} · {entry.version}" if entry.version else entry.entrant.title


def _square(entry: Entry, column: Column) -> Square:
    verdict, text = summary.square(entry, column)
    return Square(
        row=title(entry),
        column=column,
        verdict="" if verdict is None else verdict.name,
        text=text,
        runs=tuple(map(_run, entry.of(column))),
    )


def _run(found: Found) -> Run:
    asked = " · asked" if found.asks else ""
    return Run(
        title=f"{found.case.name} · {found.case.provider}{asked}",
        verdict=found.verdict.name,
        lines=found.story,
    )
