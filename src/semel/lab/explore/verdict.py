"""Judges one run: by the provider's books against a crash-free run, by intent. What breaks here is UNKNOWN.

To the oracle's verdicts this adds one: DIVERGED, a second effect of which the guard itself has told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from semel.lab import oracle
from semel.lab.explore import faults
from semel.lab.explore.drive import Seen
from semel.lab.explore.plan import POWER_LOSSES, Deed
from semel.lab.model import Coordinates, ModelKind, ProviderKind, Verdict, Window
from semel.lab.scenario import intents_of
from semel.lab.wire import Effect, Settings

DIVERGED: Final = "DIVERGED"
FALSE_ALARM: Final = "FALSE_ALARM"  # a divergence was told of, and there is no second effect
GRAVITY: Final = ("OK", DIVERGED, FALSE_ALARM, *(verdict.name for verdict in Verdict if verdict))
MEANT: Final = intents_of(Settings(provider=ProviderKind.BLIND).plan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """`because` is the traceback of what could not go on, or of a judge that broke."""

    verdict: str
    duplicates: int = 0
    lost: int = 0
    asks: int = 0
    false_asks: int = 0
    divergences: int = 0
    because: str = ""


def judge(seen: Seen, baseline: Sequence[Effect]) -> Finding:
    """`baseline`: the ledger of a crash-free run in the same world."""
    found = oracle.judge(seen.ledger, baseline, meant=MEANT, at=_somewhere(seen), is_stuck=bool(seen.stuck))
    false_asks = _false_asks(seen)
    grave = max(found.verdict, Verdict.FALSE_ASK if false_asks else Verdict.OK)
    divergences = max(journal.divergences for journal in seen.journals)
    return Finding(
        verdict=_name(grave, found.duplicates, divergences),
        duplicates=found.duplicates,
        lost=found.lost,
        asks=len(seen.counters.asks),
        false_asks=false_asks,
        divergences=divergences,
        because=found.because or seen.stuck,
    )


def worst(verdicts: Sequence[str]) -> str:
    return max(verdicts, key=GRAVITY.index, default="")


def _name(grave: Verdict, duplicates: int, divergences: int) -> str:
    if grave is Verdict.DUPLICATE and divergences >= duplicates:
        return DIVERGED
    if grave is Verdict.OK and divergences:
        return FALSE_ALARM
    return grave.name


def _false_asks(seen: Seen) -> int:
    """Questions beyond what nobody but a person could know.

    Only a provider that neither takes the same key (any more) nor answers a lookup leaves such a doubt: one for
    each process that was struck while the tool's operation was open, and for each request that got no answer.
    """
    asked = Counter(ask.tool for ask in seen.counters.asks)
    if not (seen.plan.provider is ProviderKind.BLIND or faults.BY_NAME[seen.plan.fault].needs_person):
        return asked.total()
    doubts: Counter[str] = Counter()
    for journal in seen.journals:
        doubts.update(journal.unanswered)
    for act, journal in zip(seen.plan.acts, seen.journals, strict=False):
        if act.deed is not Deed.RIVAL:
            doubts.update(journal.claimed if act.deed in POWER_LOSSES else journal.in_doubt)
    if faults.BY_NAME[seen.plan.fault].has_hasty_person:
        doubts += doubts  # who looks too early is asked once more
    return (asked - doubts).total()


def is_bad(seen: Seen, finding: Finding) -> bool:
    """Whether this verdict speaks against the guard."""
    return finding.verdict not in faults.BY_NAME[seen.plan.fault].allowed


def _somewhere(seen: Seen) -> Coordinates:
    """The oracle counts false asks by window; they are counted here, and it is given none."""
    return Coordinates(
        level=5, window=Window.W3, step=1, provider=seen.plan.provider, model=ModelKind.REPEATS
    )
