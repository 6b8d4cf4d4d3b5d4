"""What a bake-off adds up to, in the same words for the terminal, the page and other programs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from semel.lab.bakeoff.entrants import NAMES, SHORT
from semel.lab.bakeoff.model import CONTROLS, Bakeoff, Column, Entry, Found, fold
from semel.lab.model import Verdict

DOES_NOT_APPLY: Final = "does not apply: no provider"
COLUMNS: Final = {
    Column.W1: "Killed when the model's turn has arrived and no tool has been called; at the first and second "
    "step.",
    Column.W2: "Killed inside the tool, before its request leaves.",
    Column.W3: "Killed inside the tool, after the provider has answered.",
    Column.W4: "Killed when the step is recorded, as the next turn is asked for.",
    Column.ZOMBIE: "Stopped inside the tool before its request leaves (SIGSTOP), past any lease; another process "
    "recovers and runs to the end; then the first goes on (SIGCONT).",
    Column.LATE: "Killed with its request on the way. It lands when the recovering process has looked once, or "
    "when a person looks, or when all is over.",
    Column.LAGGING: "Killed at W3; the provider's lookup misses the effect the first time it is asked.",
    Column.REWORDING: "Killed; the model, if it is asked for a turn again, words it differently.",
    Column.TWICE: "Killed, and killed again while recovering.",
}
NOTES: Final = (
    "Each contestant is given the same model, the same tools and the same gaps, and is used as its own "
    "documentation says. Where it names a way out for a person, the lab's person takes it: they look into the "
    "provider's books, later than whatever was on its way, and answer truly.",
    "The zombie is stopped before its request leaves, and before a last look that a package may offer its tools "
    "there (Semel's call.ensure_held). A process that is stopped between that look and the request is beyond any "
    "guard: only the provider can refuse it.",
    "DUPLICATE: an effect happened twice. LOST: the plan ended and an effect is missing. STUCK: three fresh "
    "processes could not go on. FALSE_ASK: a person was asked although the provider honours keys or could be "
    "asked, or asked again what had been answered. Asking is right only about the interrupted step of a "
    "provider that can do neither.",
    "A square shows the worst verdict of its runs and how many have it. Providers: one that honours keys, one that "
    "ignores them but can be asked, one that does neither.",
    "A verdict is about a package in a setting in this scenario, at the version named. It is no verdict on "
    "what the package does not promise.",
)


def promised(entry: Entry) -> str:
    """What the package says of itself, in our words."""
    if entry.entrant.name in CONTROLS:
        return entry.entrant.promise
    return f"Its promise, in our words: {entry.entrant.promise}"


def used(entry: Entry) -> str:
    """How it was used, with the version."""
    version = f" ({entry.entrant.package} {entry.version})" if entry.version else ""
    return f"{entry.entrant.title}{version}: {entry.entrant.used}"


def square(entry: Entry, column: Column) -> tuple[Verdict | None, str]:
    """The worst verdict and how many have it; None where nothing was run, with the reason."""
    if entry.why_not:
        return None, entry.why_not
    runs = entry.of(column)
    if not runs:
        return None, DOES_NOT_APPLY if entry.entrant.own_database else "not run"
    worst, count = fold(runs)
    asked = sum(run.verdict is Verdict.OK and run.asks > 0 for run in runs)
    return worst, f"{count} of {len(runs)}" + (f", {asked} asked" if asked else "")


def totals(entry: Entry) -> str:
    """`44 runs: 40 OK, 4 DUPLICATE`."""
    if entry.why_not:
        return entry.why_not
    counts = ", ".join(
        f"{entry.counts[verdict]} {verdict.name}" for verdict in Verdict if entry.counts[verdict]
    )
    return f"{len(entry.runs)} runs: {counts}"


def conclusion(bakeoff: Bakeoff) -> str:
    ran = [entry for entry in bakeoff.entries if entry.runs]
    sound = [entry.entrant.title for entry in ran if set(entry.counts) == {Verdict.OK}]
    without = f"without a finding: {', '.join(sound)}" if sound else "none without a finding"
    return f"{_word(bakeoff)}: {len(ran)} of {len(bakeoff.entries)} contestants were run; {without}."


def problems(bakeoff: Bakeoff) -> Iterator[str]:
    """Why it does not hold."""
    for entry in bakeoff.entries:
        name = entry.entrant.name
        if name == "semel" and set(entry.counts) != {Verdict.OK}:
            yield f"Semel is not OK everywhere: {totals(entry)}"
        if name in CONTROLS and max(entry.counts, default=Verdict.OK) is not Verdict.DUPLICATE:
            yield f"{entry.entrant.title} was not caught: {totals(entry)}"
        for run in entry.runs:
            if run.verdict is Verdict.UNKNOWN:
                yield f"{entry.entrant.title}, {title_of(run)}: {run.story[0]}"


def title_of(run: Found) -> str:
    return f"{run.case.column}: {run.case.name}, {run.case.provider}"


def command(bakeoff: Bakeoff) -> str:
    """The command that runs the same contestants again."""
    names = tuple(entry.entrant.name for entry in bakeoff.entries)
    chosen = [] if names == NAMES else [word for name in names for word in ("--only", name)]
    words = ["--short"] if bakeoff.short and names == SHORT else chosen + ["--short"] * bakeoff.short
    return shlex.join(["semel", "lab", "bakeoff", *words, "--seed", str(bakeoff.seed)])


def _word(bakeoff: Bakeoff) -> str:
    return "Holds" if bakeoff.holds else "Does not hold"
