"""What happened twice, and what never: the effects of a run against those of a crash-free one, by name.

Pure. An effect's name is its tool and what identifies it in business terms: the fields that the user names,
else a ledger line's own `intent`, else everything that was sent, in canonical form. So a model that rewords
makes another effect of it unless the fields are named; and fields that are too few are no danger, because
names are counted, not merely compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from semel.lab.own.model import Effect, Finding

INTENT: Final = "intent"
WORDS_MAX: Final = 300  # of a name


class Judgement(NamedTuple):
    finding: Finding
    twice: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def judge(
    effects: Counter[str], baseline: Counter[str], *, has_finished: bool, waits_for_person: bool
) -> Judgement:
    """A run that has not finished has not claimed to be done: what it lacks is not lost."""
    twice = tuple((effects - baseline).elements())
    missing = tuple((baseline - effects).elements())
    never = missing if has_finished else ()
    unfinished = Finding.ASKED if waits_for_person else Finding.STUCK
    finding = max(
        Finding.DUPLICATE if twice else Finding.OK,
        Finding.LOST if never else Finding.OK,
        Finding.OK if has_finished else unfinished,
    )
    return Judgement(finding, twice, never)


def names_of(effects: Iterable[Effect], identity: Sequence[str]) -> Counter[str]:
    return Counter(name_of(effect, identity) for effect in effects)


def name_of(effect: Effect, identity: Sequence[str]) -> str:
    if identity:
        told: Any = {field: effect.fields[field] for field in identity if field in effect.fields}
    elif INTENT in effect.fields:
        told = effect.fields[INTENT]
    else:
        told = dict(effect.fields)
    return f"{effect.tool} {_canonical(told)}"


def shortened(name: str) -> str:
    return name if len(name) <= WORDS_MAX else name[: WORDS_MAX - 1] + "…"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
