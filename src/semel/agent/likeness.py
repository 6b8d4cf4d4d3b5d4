"""Whether a call could be an earlier one in other words. Careful: what is not clearly different is not.

A model that was told of a time-out asks again, in other letters, another order or another unit. Two calls of one
tool are

    SAME       with equal arguments, once case, spacing and punctuation are set aside and digits are read as numbers
    DIFFERENT  if both give one argument as a single word, a number, a truth value or a time, and those differ;
               numbers whose ratio is a power of ten do not (25000 cents, 250 dollars), nor within half a percent
               where one of them is no whole number (rounding)
    NEAR       otherwise: longer text may be the same thing reworded, an argument that only one gives another unit
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

PUNCTUATION: Final = re.compile(r"[^\w\s.@+-]|[.\-+](?!\w)|_")
NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?")
DIGITS_MAX: Final = 300  # more is no number that anyone means
ROUNDING: Final = 0.005


class Likeness(Enum):
    SAME = auto()
    NEAR = auto()
    DIFFERENT = auto()


def likeness(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Likeness:
    one, other = _folded(dict(earlier)), _folded(dict(later))
    if one == other:
        return Likeness.SAME
    both = one.keys() & other.keys()
    if any(_clearly_differ(one[name], other[name]) for name in both):
        return Likeness.DIFFERENT
    return Likeness.NEAR


def _folded(value: Any) -> Any:
    if isinstance(value, str):
        return _folded_text(value)
    if isinstance(value, Mapping):
        return {str(name): _folded(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_folded(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_folded(item) for item in value), key=repr)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    return value


def _folded_text(text: str) -> Any:
    words = " ".join(PUNCTUATION.sub(" ", text.casefold()).split())
    if len(words) > DIGITS_MAX or not NUMBER.fullmatch(words):
        return words
    whole, _, fraction = words.partition(".")
    return float(words) if fraction.strip("0") else int(whole)  # of a long number no digit counts for nothing


def _number(value: int | float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _clearly_differ(one: Any, other: Any) -> bool:
    if one == other:
        return False
    if _is_number(one) and _is_number(other):
        return not _may_be_another_unit(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return any(_clearly_differ(one[name], other[name]) for name in one.keys() & other.keys())
    return type(one) is type(other) and _is_one_word(one)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_one_word(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value) and " " not in value
    return not isinstance(value, list | dict)


def _may_be_another_unit(one: float, other: float) -> bool:
    if one == 0 or other == 0 or (one < 0) != (other < 0) or not (_is_finite(one) and _is_finite(other)):
        return False
    power = math.log10(abs(one)) - math.log10(abs(other))
    if isinstance(one, int) and isinstance(other, int):
        small, large = sorted((abs(one), abs(other)))
        return bool(small * 10 ** abs(round(power)) == large)
    return abs(power - round(power)) <= math.log10(1 + ROUNDING)


def _is_finite(number: float) -> bool:
    return isinstance(number, int) or math.isfinite(number)
