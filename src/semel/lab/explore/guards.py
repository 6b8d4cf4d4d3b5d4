"""Which guard is tried: Semel as it is, or one that was broken on purpose, by its name."""

from __future__ import annotations

from semel.lab.explore.plan import SOUND as SOUND_NAME
from semel.lab.mutants import BY_NAME, SOUND, Mutant


def guard_named(name: str) -> Mutant:
    """Raises KeyError for a name that no guard has."""
    return SOUND if name == SOUND_NAME else BY_NAME[name]
