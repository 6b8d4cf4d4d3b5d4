"""What a run of the simulator says: to people in a terminal, and as a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from semel.lab.heat_map import Page, Run, Square, render
from semel.lab.model import Verdict
from semel.lab.mutants import BY_NAME, SOUND
from semel.lab.simulate.campaign import SEEDS_FURTHER, Control, Simulation
from semel.lab.simulate.choices import Choices
from semel.lab.simulate.search import Failure, case_of, play, story
from semel.lab.simulate.setting import Kind, draw_setting

LEAD: Final = (
    "Whole worlds, drawn from seeds: a provider, a network, a store, a person, and processes that crash, pause and "
    "come back late, all under a virtual clock. The guard in them is the engine's own code."
)
NOTES: Final = (
    "A control is Semel with one part replaced. It counts as caught only in a world in which Semel itself passes. "
    "Each is shown in such a world of each kind of provider that was met, shrunk to the deviations that it takes.",
    "In some worlds one declaration (request_deadline, lookup_lag, key_ttl) is broken on purpose. There a second "
    "effect cannot be helped; but a guard that heard of both must have reported the divergence. Where the provider "
    "forgets a key before its time, two answers under that key cannot be told apart, and nothing is reported.",
)


def lines_of(found: Simulation) -> Iterator[str]:
    """For a terminal."""
    for failure in found.shown:
        yield from ("", title_of(failure), *story(failure.case))
    if found.shown:
        yield from (
            "",
            f"{found.violations} of {found.seeds} seeds failed; {len(found.shown)} of them are above.",
        )
    width = max((len(control.name) for control in found.controls), default=0)
    yield ""
    for control in found.controls:
        yield f"  {control.name:<{width}}  {_how(control)}"
    yield from ("", conclusion(found))


def conclusion(found: Simulation) -> str:
    caught = sum(control.caught for control in found.controls)
    return (
        f"{'Holds' if found.holds else 'Does not hold'}: {found.violations or 'nothing'} found for {SOUND.name} in "
        f"{found.seeds} seeds; {caught} of {len(found.controls)} broken guards caught."
    )


def title_of(failure: Failure) -> str:
    count = len(failure.case.deviations)
    return f"seed {failure.seed}, shrunk to {count} deviation{'' if count == 1 else 's'}"


def write(found: Simulation, folder: Path) -> None:
    """`report.html`, and a file for each violation that is shown."""
    (folder / "report.html").write_text(page(found), encoding="utf-8")
    for failure in found.shown:
        text = "\n".join((title_of(failure), *story(failure.case), ""))
        (folder / f"violation-{failure.seed}.txt").write_text(text, encoding="utf-8")


def page(found: Simulation) -> str:
    rows = (SOUND.name, *(control.name for control in found.controls))
    squares = [*_of_semel(found), *itertools.chain.from_iterable(map(_of_control, found.controls))]
    return render(
        Page(
            title="Semel: the simulator",
            lead=LEAD,
            conclusion=conclusion(found),
            holds=found.holds,
            rows=rows,
            columns=tuple(Kind),
            squares=squares,
            about={control.name: BY_NAME[control.name].broken for control in found.controls},
            figures=(
                ("seeds", f"{found.seeds}"),
                ("seconds", f"{found.seconds:.0f}"),
                ("broken guards", f"{len(found.controls)}"),
            ),
            notes=NOTES,
            command=f"semel lab simulate --seed {found.first_seed} --seeds {found.seeds}",
        )
    )


def _how(control: Control) -> str:
    if not control.caught:
        return "SURVIVED"
    first = min(control.failures, key=lambda failure: failure.seed)
    return f"caught: {first.finding.verdict.name:<9}  {title_of(first)}"


def _of_semel(found: Simulation) -> Iterator[Square]:
    """The shown violations of each kind of provider; where there are none, a world as it should be."""
    for kind in Kind:
        runs = [_run(failure) for failure in found.shown if failure.case.kind is kind]
        worst = max((f.finding.verdict for f in found.shown if f.case.kind is kind), default=Verdict.OK)
        sample = None if runs else _sample(found, kind)
        yield Square(
            row=SOUND.name,
            column=kind,
            verdict=worst.name,
            text="nothing found" if worst is Verdict.OK else f"{len(runs)} shown",
            runs=tuple(runs) if sample is None else (sample,),
        )


def _of_control(control: Control) -> Iterator[Square]:
    of_kind = {failure.case.kind: failure for failure in control.failures}
    for kind in Kind:
        failure = of_kind.get(kind)
        if failure is not None:
            text = failure.finding.verdict.name
            yield Square(row=control.name, column=kind, verdict="CAUGHT", text=text, runs=(_run(failure),))
        elif control.caught:
            yield Square(row=control.name, column=kind, verdict="", text="not met")
        else:
            yield Square(row=control.name, column=kind, verdict="SURVIVED", text="not caught")


def _run(failure: Failure) -> Run:
    return Run(title=title_of(failure), verdict=failure.finding.verdict.name, lines=story(failure.case))


def _sample(found: Simulation, kind: Kind) -> Run | None:
    seeds = range(found.first_seed, found.first_seed + min(found.seeds, SEEDS_FURTHER))
    seed = next((seed for seed in seeds if draw_setting(Choices(seed=seed)).kind is kind), None)
    if seed is None:
        return None
    case = case_of(SOUND.name, seed)
    return Run(title=f"seed {seed}, as it was drawn", verdict=play(case).verdict.name, lines=story(case))
