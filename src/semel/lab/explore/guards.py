"""Which guard is tried: Semel as it is, or one that was broken on purpose, by its name."""

from __future__ import annotations

from typing import Final

from semel.lab.explore.plan import SOUND as SOUND_NAME
from semel.lab.mutants import MUTANTS, NOT_SIMULATED, SOUND, Mutant

GUARDS: Final = {mutant.name: mutant for mutant in (*MUTANTS, *NOT_SIMULATED)} | {SOUND_NAME: SOUND}


def guard_named(name: str) -> Mutant:
    """Raises KeyError for a name that no guard has."""
    return GUARDS[name]
