"""Guards broken on purpose: Semel with one part replaced, each a hole that a campaign has to find.

A mutant is applied by composition alone: to the real guard (`open`, `tool`, `place`) and to the simulator, which
puts the same parts into the same seams. `SOUND` is the guard with no part replaced.

To add one: write the broken part in the room of its seam, and add a line to `MUTANTS`; to `NOT_SIMULATED`, if only
real processes can show it.
"""

from semel.lab.mutants.mutant import SOUND, Mutant
from semel.lab.mutants.table import BY_NAME, MUTANTS, NOT_SIMULATED

__all__ = ["BY_NAME", "MUTANTS", "NOT_SIMULATED", "SOUND", "Mutant"]
