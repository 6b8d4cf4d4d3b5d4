"""What one run is worth, and its story, from what the world saw. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from semel.lab.bakeoff.model import Case, Found
from semel.lab.contestants.stage import Place
from semel.lab.model import Coordinates, Window
from semel.lab.oracle import judge
from semel.lab.scenario import intents_of
from semel.lab.wire import Ask, Effect

PLAN: Final = "renewal"
ANY_LEVEL: Final = 5  # a finding depends on window, step and provider only
LEFT_BEHIND: Final = {Place.IN_FLIGHT: Window.W2}  # the same evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """`signals`: by which each life ended that was to be killed; 0 for one that ended by itself before.

    `why_stuck`: None if the plan came to its end.
    """

    signals: Sequence[int]
    why_stuck: str | None
    ledger: Sequence[Effect]
    asks: Sequence[Ask]


def judged(case: Case, seen: Seen, baseline: Sequence[Effect]) -> Found:
    finding = judge(
        seen.ledger,
        baseline,
        meant=intents_of(PLAN),
        at=_coordinates(case),
        asks=_one_for_each_doubt(case, seen),
        is_stuck=seen.why_stuck is not None,
    )
    return Found(
        case=case,
        verdict=finding.verdict,
        signals=tuple(seen.signals),
        duplicates=finding.duplicates,
        lost=finding.lost,
        stuck=int(seen.why_stuck is not None),
        asks=len(seen.asks),
        false_asks=finding.false_asks,
        story=(*_story(case, seen), *(finding.because or "").splitlines()),
    )


def _coordinates(case: Case) -> Coordinates:
    place = case.first.place
    return Coordinates(
        level=ANY_LEVEL,
        window=LEFT_BEHIND[place] if place in LEFT_BEHIND else Window(place.value),
        step=case.first.step,
        provider=case.provider,
        model=case.model,
    )


def _one_for_each_doubt(case: Case, seen: Seen) -> list[Ask]:
    """Without the question that a second death inside the same step makes necessary: that is a doubt of its own."""
    asks, second = list(seen.asks), case.second
    if second is None or not seen.signals[1] or second.place not in (Place.W2, Place.W3):
        return asks
    repeated = [ask for place, ask in enumerate(asks) if _question(ask) in map(_question, asks[:place])]
    if repeated:
        asks.remove(repeated[0])
    return asks


def _question(ask: Ask) -> tuple[str, str | None]:
    return ask.tool, ask.reference


def _story(case: Case, seen: Seen) -> list[str]:
    """What happened, in order, in words that are the same in every bake-off."""
    effects = Counter(effect.tool for effect in seen.ledger)
    return [
        f"first process: {_first_end(case, seen)}",
        *([f"second process: {_second_end(case, seen)}"] if case.second is not None else []),
        "then: the plan ended" if seen.why_stuck is None else f"then: stuck: {seen.why_stuck}",
        *(f"asked a person about {ask.tool}: {'found' if ask.found else 'not found'}" for ask in seen.asks),
        "effects: " + (", ".join(f"{tool} {n}" for tool, n in effects.items()) or "none"),
    ]


def _first_end(case: Case, seen: Seen) -> str:
    place = f"{case.first.place} of step {case.first.step}"
    if case.first.is_pause:
        return f"stopped at {place}, continued when the others had ended"
    return f"killed by signal {seen.signals[0]} at {place}"


def _second_end(case: Case, seen: Seen) -> str:
    assert case.second is not None
    place = f"{case.second.place} of step {case.second.step}"
    return f"killed by signal {seen.signals[1]} at {place}" if seen.signals[1] else f"ended before {place}"
