"""Every deviation of a world from a smooth run, by name: drawn from a seed, or given.

A choice is 0 (nothing special happens) unless it is drawn or given. It is named by who deviates, in what, and the
how-manieth time that is asked, so that taking one deviation away leaves the names of the others as they were.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeAlias

Label: TypeAlias = tuple[str, str, int]
Deviations: TypeAlias = Mapping[Label, int]


class Choices:
    """`made` holds what was chosen, zeros left out: handed to `given`, it makes the same world again."""

    def __init__(self, *, seed: int | None = None, given: Deviations | None = None) -> None:
        self.made: dict[Label, int] = {}
        self._draw = random.Random(seed).random
        self._given = given
        self._asked: dict[tuple[str, str], int] = {}

    def deviate(self, who: str, what: str, chance: float, ways: int) -> int:
        """0, or with this chance one of `ways` (1, 2, …), all alike."""
        number = self._asked.get((who, what), 0) + 1
        self._asked[who, what] = number
        if self._given is not None:
            chosen = self._given.get((who, what, number), 0)
        else:
            drawn = self._draw()
            if drawn >= chance:
                return 0
            chosen = 1 + int(drawn / chance * ways)
        if not 0 < chosen <= ways:
            return 0
        self.made[who, what, number] = chosen
        return chosen
