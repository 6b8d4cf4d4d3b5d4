"""What a bench run finds: rows, and whether the targets hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SECTIONS: Final = ("calls", "replay", "growth", "resume", "peers")
STORES: Final = ("sqlite", "postgres")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing measured, or why it was not.

    `figures`  by name, the unit last (`microseconds_a_call`, `calls_a_second`, `p99_microseconds`, `queries`).
    `rounds`   the samples behind the main figure, in the order of the interleaved rounds: seconds a call.
    `note`     what a reader has to know of it: a setting, a version, what is being compared.
    `why_not`  set where it could not be measured, and then there are no figures.
    """

    section: str
    name: str
    store: str
    figures: Mapping[str, float] = field(default_factory=dict)
    rounds: Sequence[float] = ()
    note: str = ""
    why_not: str | None = None

    @property
    def is_measured(self) -> bool:
        return self.why_not is None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"section": self.section, "name": self.name, "store": self.store}
        if self.why_not is not None:
            return found | {"why_not": self.why_not, "note": self.note}
        rounds = [round(seconds * 1e6, 2) for seconds in self.rounds]
        return found | dict(self.figures) | {"rounds_microseconds": rounds, "note": self.note}


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A bound that the project has set itself. `measured` is None where it could not be measured."""

    target: str
    measured: float | None
    limit: float
    is_at_least: bool = False

    @property
    def holds(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.is_at_least else self.measured <= self.limit

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "measured": self.measured,
            "limit": self.limit,
            "holds": self.holds,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    targets: Sequence[Target]
    rows: Sequence[Row]
    machine: Mapping[str, Any]

    def to_json(self) -> str:
        found = {
            "targets": [target.as_json() for target in self.targets],
            "rows": [row.as_json() for row in self.rows],
            "machine": dict(self.machine),
        }
        return json.dumps(found, indent=2, ensure_ascii=False)
