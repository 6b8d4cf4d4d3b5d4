"""What the ladder says will happen: a title, a sentence and a prediction for every cell.

The prediction is written from what each level is, not from what a run of the lab has shown. The lab then
compares the two, and any difference, in either direction, fails the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.lab.model import Coordinates, ModelKind, ProviderKind, Verdict, Window
from semel.lab.scenario import PLANS

TITLES: Final[Mapping[int, str]] = {
    0: "Naive resume",
    1: "Hash of the arguments as key",
    2: "Stable key from durable state",
    3: "Durable execution (Temporal)",
    4: "Effect and record in one transaction",
    5: "UNKNOWN and reconciliation (Semel)",
}
MEANINGS: Final[Mapping[int, str]] = {
    0: "Resuming starts the plan again, so everything that had happened before the crash happens twice.",
    1: "The key survives only as long as the model writes the same arguments; reworded, it is a new request.",
    2: "One intent has one key, however it is worded; it helps exactly as far as the provider honours keys.",
    3: "What was recorded is never run again; an activity that died before its result was recorded is.",
    4: "The effect and its record appear together or not at all: the dangerous gap does not exist, "
    "as long as the effect lives in that database.",
    5: "After a crash in doubt the guard does not guess: it sends the same key again, or asks the provider, "
    "and asks a person only where neither can tell.",
}
TOOLS: Final[Mapping[int, str]] = {number: step.tool for number, step in enumerate(PLANS["renewal"], 1)}


def predict(at: Coordinates) -> Verdict:
    """The verdict this cell must get."""
    return Verdict.DUPLICATE if _repeats_an_effect(at) else Verdict.OK


def _repeats_an_effect(at: Coordinates) -> bool:
    honours_keys = at.provider is ProviderKind.HONOURS_KEYS
    match at.level:
        case 0:
            return _something_had_happened(at)
        case 1:
            key_recurs = at.model is ModelKind.REPEATS
            return _something_had_happened(at) and not (honours_keys and key_recurs)
        case 2 | 3:
            return at.window is Window.W3 and not honours_keys
        case 4 | 5:
            return False
        case _:
            raise ValueError(f"the ladder has no level {at.level}")


def _something_had_happened(at: Coordinates) -> bool:
    """Starting again repeats the steps before this one, and this one if its effect was done."""
    return at.step > 1 or at.window in (Window.W3, Window.W4)
