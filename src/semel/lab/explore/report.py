"""What a campaign shows: one JSON object for programs, a few lines for people, one page for browsers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from semel.lab import heat_map
from semel.lab.explore import faults
from semel.lab.explore.campaign import Explored, Ran
from semel.lab.explore.controls import NOT_HERE, Caught
from semel.lab.explore.plan import KILLS
from semel.lab.explore.record import steps_of
from semel.lab.explore.verdict import worst
from semel.lab.model import ProviderKind

RUNS_SHOWN_MAX: Final = 40  # behind one square: those to look at first, then the others in their order
ONE, TWO = "kill", "two kills"


def to_json(found: Explored) -> str:
    """The names are a promise.

    `verdicts` are those of the kills, single and in pairs; `faults` those of every other run; `runs` is the sum.
    `runs_per_second` is that of the kills, recovery included.
    """
    run: dict[str, Any] = {
        "runs": len(found.runs),
        "possible": found.possible,
        "runs_per_second": round(found.kills_a_second, 1),
        "verdicts": dict(found.verdicts),
        "faults": {name: dict(counts) for name, counts in found.faults.items()},
    }
    return json.dumps(run, indent=2)


def bound(found: Explored) -> str:
    """How much of what there is was run."""
    unmade = f" ({found.never_there} came to their place no more)" if found.never_there else ""
    return (
        f"{len(found.runs)} runs of {found.possible} possible{unmade}, on {found.store}, seed {found.seed}: "
        f"{found.seconds:.0f} s, {found.kills_a_second:.1f} kill-and-recover runs a second."
    )


def conclusion(found: Explored, controls: Sequence[Caught]) -> str:
    """One sentence: is the guard sound, and would it have shown if not?"""
    survived = [control.name for control in controls if not control.is_caught]
    runs = (
        f"{len(found.bad)} of {len(found.runs)} runs speak against the guard"
        if found.bad
        else "no run speaks against the guard"
    )
    caught = (
        f"{len(controls) - len(survived)} of {len(controls)} broken guards caught"
        if controls
        else "no broken guard was tried"
    )
    if survived:
        caught += f" ({', '.join(survived)} survived)"
    return f"{'Does not hold' if found.bad or survived else 'Holds'}: {runs}; {caught}."


def holds(found: Explored, controls: Sequence[Caught]) -> bool:
    return not found.bad and all(control.is_caught for control in controls)


def lines(found: Explored, controls: Sequence[Caught]) -> list[str]:
    """For a terminal: a line a fault, then the broken guards, the bound, and the conclusion."""
    width = max(len(name) for name in faults.BY_NAME) + 2
    tally = {KILLS: found.verdicts, **found.faults}
    shown = [f"{name:<{width}}{_counted(counts)}" for name, counts in tally.items()]
    shown += [
        f"{'broken guard: ' + control.name:<{width}}"
        + (f"caught, {control.by.finding.verdict}: {control.by.plan.name}" if control.by else "SURVIVED")
        for control in controls
    ]
    return [*shown, "", bound(found), conclusion(found, controls)]


def _counted(counts: Any) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


# ------------------------------------------------------------------ the page


def page(found: Explored, controls: Sequence[Caught], *, command: str) -> str:
    """One file: the heat map of faults and providers, each square with the runs behind it."""
    rows = [ONE, TWO, *found.faults]
    squares = [
        square for row in rows for provider in ProviderKind if (square := _square(found.runs, row, provider))
    ]
    squares += map(_control, controls)
    rows += map(_row_of_control, controls)
    content = heat_map.Page(
        title="Semel, explored",
        lead="Every place of a run, struck by whatever can go wrong there, in real processes; the provider's own "
        "books decide what happened.",
        conclusion=conclusion(found, controls),
        holds=holds(found, controls),
        rows=rows,
        columns=[str(provider) for provider in ProviderKind],
        squares=squares,
        about={ONE: faults.BY_NAME[KILLS].meaning, TWO: "A second SIGKILL, at every place of the recovery."}
        | {fault.name: fault.meaning for fault in faults.FAULTS if fault.name in found.faults}
        | {_row_of_control(control): control.broken for control in controls},
        figures=[
            ("runs", str(len(found.runs))),
            ("possible", str(found.possible)),
            ("kill-and-recover runs a second", f"{found.kills_a_second:.1f}"),
            ("broken guards caught", f"{sum(c.is_caught for c in controls)} of {len(controls)}"),
        ],
        notes=[bound(found), *_notes(found, controls)],
        command=command,
    )
    return heat_map.render(content)


def _notes(found: Explored, controls: Sequence[Caught]) -> list[str]:
    unseen = [name for name in found.faults if faults.BY_NAME[name].beyond_sight]
    notes = []
    if unseen:
        notes.append(
            "Where a declaration was broken, the first sender is dead and there is no lookup "
            f"({'; '.join(unseen)}), nobody can see the second effect: these duplicates are silent, and only the "
            "provider's books show them."
        )
    if controls:
        notes.append(
            "Broken guards that this plan cannot show, and `semel lab simulate` does: "
            + "; ".join(f"{name} ({why})" for name, why in NOT_HERE.items())
            + "."
        )
    return notes


def _square(runs: Sequence[Ran], row: str, provider: ProviderKind) -> heat_map.Square | None:
    here = [ran for ran in runs if ran.plan.provider is provider and _row_of(ran) == row]
    if not here:
        return None
    here.sort(key=lambda ran: (not ran.is_bad, ran.finding.verdict == "OK"))
    counts = Counter(ran.finding.verdict for ran in here)
    return heat_map.Square(
        row=row,
        column=str(provider),
        verdict=worst(list(counts)),
        text=_counted(counts),
        runs=tuple(map(_run, here[:RUNS_SHOWN_MAX])),
    )


def _control(control: Caught) -> heat_map.Square:
    """In the column of the provider with which it was caught."""
    row = _row_of_control(control)
    if control.by is None:
        text = f"passed all {control.walked} traps"
        return heat_map.Square(row=row, column=str(ProviderKind.HONOURS_KEYS), verdict="SURVIVED", text=text)
    return heat_map.Square(
        row=row,
        column=str(control.by.plan.provider),
        verdict="CAUGHT",
        text=f"{control.by.finding.verdict}, {control.by.plan.fault}",
        runs=(_run(control.by),),
    )


def _row_of_control(control: Caught) -> str:
    return f"broken guard: {control.name}"


def _row_of(ran: Ran) -> str:
    if ran.plan.fault != KILLS:
        return ran.plan.fault
    return ONE if len(ran.plan.acts) == 1 else TWO


def _run(ran: Ran) -> heat_map.Run:
    return heat_map.Run(
        title=", ".join(map(str, ran.plan.acts)) or ran.plan.struck or ran.plan.fault,
        verdict=ran.finding.verdict,
        lines=tuple(steps_of(ran)) + tuple(ran.finding.because.splitlines()[-3:]),
    )
