"""What is done to every contestant: a part of the grid of `semel lab matrix`, and the faults it has no room for.

Everything is decided beforehand, by events and not by the clock, so that two bake-offs come to the same verdicts: a
late request lands when the recovering process has looked once (or when a person does, or when all is over), a
lagging lookup misses the first time it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from semel.lab.bakeoff.model import Case, Column, Entrant
from semel.lab.contestants.stage import Death, Place
from semel.lab.model import ModelKind, ProviderKind
from semel.lab.wire import Fault, Settings, Strike

WINDOWS: Final = {
    Column.W1: Place.W1,
    Column.W2: Place.W2,
    Column.W3: Place.W3,
    Column.W4: Place.W4,
}
STEPS: Final = (1, 2)  # the first of the plan, and a later one
LATE: Final = (Fault(strike=Strike.HOLD, tool="charge", held_lookups=1),)
KNOWN_EITHER_WAY: Final = (Column.W1, Column.W4)  # nothing is in doubt: one kind of provider will do
NEEDS_A_PROVIDER: Final = (Column.LATE, Column.LAGGING)


def cases_for(entrant: Entrant, *, seed: int, short: bool) -> tuple[Case, ...]:
    """All that apply. Where the effects are in its own database, there is one kind of provider: none."""
    cases = [replace(case, settings=replace(case.settings, seed=seed)) for case in (SHORT if short else FULL)]
    if not entrant.own_database:
        return tuple(cases)
    return tuple(
        case
        for case in cases
        if case.column not in NEEDS_A_PROVIDER and case.provider is ProviderKind.HAS_LOOKUP
    )


def _all() -> Iterator[Case]:
    for (column, place), step, kind in product(WINDOWS.items(), STEPS, ProviderKind):
        if column not in KNOWN_EITHER_WAY or kind is ProviderKind.HAS_LOOKUP:
            yield Case(column=column, settings=Settings(provider=kind), first=Death(place=place, step=step))
    for kind in ProviderKind:
        yield from _without_a_second_look(kind)
        yield from _reworded(kind)
        yield from _killed_twice(kind)
    lagging = Settings(provider=ProviderKind.HAS_LOOKUP, lag_lookups=1)
    for step in STEPS:
        yield Case(column=Column.LAGGING, settings=lagging, first=Death(place=Place.W3, step=step))


def _without_a_second_look(kind: ProviderKind) -> Iterator[Case]:
    yield Case(
        column=Column.ZOMBIE,
        settings=Settings(provider=kind),
        first=Death(place=Place.W2, step=1, is_pause=True),
    )
    yield Case(
        column=Column.LATE,
        settings=Settings(provider=kind, faults=LATE),
        first=Death(place=Place.IN_FLIGHT, step=1),
    )


def _reworded(kind: ProviderKind) -> Iterator[Case]:
    settings = Settings(provider=kind, model=ModelKind.REWORDS)
    yield Case(column=Column.REWORDING, settings=settings, first=Death(place=Place.W3, step=1))
    yield Case(column=Column.REWORDING, settings=settings, first=Death(place=Place.W4, step=2))


def _killed_twice(kind: ProviderKind) -> Iterator[Case]:
    settings = Settings(provider=kind)
    for first, second in ((Place.W2, Place.W3), (Place.W3, Place.W4)):
        yield Case(
            column=Column.TWICE,
            settings=settings,
            first=Death(place=first, step=1),
            second=Death(place=second, step=1),
        )


FULL: Final = tuple(_all())
LATER_ONLY: Final = (Column.W1, Column.W2, Column.W4)
SHORT: Final = tuple(
    case
    for case in FULL
    if case.provider is ProviderKind.HAS_LOOKUP or case.column is Column.ZOMBIE
    if case.column not in LATER_ONLY or case.first.step == 2
)
