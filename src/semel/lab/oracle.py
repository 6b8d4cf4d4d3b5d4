"""The judge: compares what happened with a crash-free run, by intent, and never trusts a runtime's word.

Pure: it is given the two ledgers (the provider's, or the database's where the effects live there), the
questions that were put to a person, and whether the plan came to its end. If judging itself breaks, the
verdict is UNKNOWN, which is worse than any other: silence is not a pass.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from semel.lab.ladder import TOOLS
from semel.lab.model import Coordinates, ProviderKind, Verdict, Window
from semel.lab.wire import Ask, Effect


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """`because` is the traceback of an oracle that broke."""

    verdict: Verdict
    duplicates: int = 0
    lost: int = 0
    asks: int = 0
    false_asks: int = 0
    because: str | None = None


def judge(
    ledger: Sequence[Effect],
    baseline: Sequence[Effect],
    *,
    meant: Sequence[str],
    at: Coordinates,
    asks: Sequence[Ask] = (),
    is_stuck: bool = False,
) -> Finding:
    """Find what a crash at `at` did, given what happened and what happens without a crash.

    `meant` are the intents of the plan: a baseline that does not hold them is no measure of anything.
    """
    try:
        return _judge(ledger, baseline, meant, at, asks, is_stuck)
    except Exception:
        return Finding(verdict=Verdict.UNKNOWN, because=traceback.format_exc())


def surplus(ledger: Sequence[Effect], baseline: Sequence[Effect]) -> int:
    """How many effects there are beyond one for each in the baseline."""
    return (Counter(e.intent for e in ledger) - Counter(e.intent for e in baseline)).total()


def is_false(ask: Ask, at: Coordinates) -> bool:
    """Could the machine have known? Then the person was asked for nothing.

    In doubt is only the killed step, only at W2 and W3 (they leave the same evidence behind), and only
    with a provider that neither takes the same key again nor answers a lookup.
    """
    in_doubt = at.window in (Window.W2, Window.W3) and ask.tool == TOOLS[at.step]
    return at.provider is not ProviderKind.BLIND or not in_doubt


def _judge(
    ledger: Sequence[Effect],
    baseline: Sequence[Effect],
    meant: Sequence[str],
    at: Coordinates,
    asks: Sequence[Ask],
    is_stuck: bool,
) -> Finding:
    if Counter(effect.intent for effect in baseline) != Counter(meant):
        raise ValueError(f"the crash-free run did not carry out the plan {meant}: {list(baseline)}")
    duplicates = surplus(ledger, baseline)
    lost = 0 if is_stuck else surplus(baseline, ledger)  # a stuck plan has not claimed to be done
    false_asks = _count_false(asks, at)
    grave = [
        Verdict.DUPLICATE if duplicates else Verdict.OK,
        Verdict.LOST if lost else Verdict.OK,
        Verdict.STUCK if is_stuck else Verdict.OK,
        Verdict.FALSE_ASK if false_asks else Verdict.OK,
    ]
    return Finding(
        verdict=max(grave), duplicates=duplicates, lost=lost, asks=len(asks), false_asks=false_asks
    )


def _count_false(asks: Sequence[Ask], at: Coordinates) -> int:
    """A question asked again, once it was answered, is a false one too."""
    justified = {(ask.tool, ask.reference) for ask in asks if not is_false(ask, at)}
    return len(asks) - len(justified)
