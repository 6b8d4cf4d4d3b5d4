"""The words of a bake-off: who takes part, what is done to them, what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from semel.lab.model import ModelKind, ProviderKind, Verdict
from semel.lab.wire import Settings

if TYPE_CHECKING:  # the command line needs the names, and not what a life needs
    from semel.lab.contestants.stage import Death

CONTROLS: Final = ("naive", "plain-unknown")  # guards that are wrong on purpose


class Service(StrEnum):
    """A server that a contestant needs."""

    NONE = ""
    POSTGRES = "postgres"
    TEMPORAL = "temporal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrant:
    """A row: one package in one of its settings.

    `program`        the module that is run for each of its lives.
    `packages`       as pip takes them, at the versions the program was written for; none: what the lab runs on.
    `package`        whose version is told.
    `promise`        what the package says of itself, in our words.
    `used`           how it is used here.
    `lease_seconds`  after a death it is started again when this has passed: every claim of the dead has lapsed.
    `own_database`   its effects are in its own database, so that there is no provider.
    """

    name: str
    title: str
    program: str
    promise: str
    used: str
    setting: str = ""
    packages: tuple[str, ...] = ()
    package: str = "semel"
    environment: str = ""
    service: Service = Service.NONE
    lease_seconds: float = 0.0
    own_database: bool = False
    at_once: int = 3
    life_seconds_max: float = 30.0

    @property
    def is_ours(self) -> bool:
        return not self.packages


class Column(StrEnum):
    W1 = "killed at W1"
    W2 = "killed at W2"
    W3 = "killed at W3"
    W4 = "killed at W4"
    ZOMBIE = "zombie"
    LATE = "late request"
    LAGGING = "lagging lookup"
    REWORDING = "rewording model"
    TWICE = "killed twice"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run: where the first process ends, and the second, and what the world is like."""

    column: Column
    settings: Settings
    first: Death
    second: Death | None = None

    @property
    def provider(self) -> ProviderKind:
        return self.settings.provider

    @property
    def model(self) -> ModelKind:
        return self.settings.model

    @property
    def name(self) -> str:
        places = [f"{death.place} step {death.step}" for death in (self.first, self.second) if death]
        return ", then ".join(places)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What came of one run. `signals`: by which each life ended, 0 for one that ended by itself."""

    case: Case
    verdict: Verdict
    signals: tuple[int, ...] = ()
    duplicates: int = 0
    lost: int = 0
    stuck: int = 0
    asks: int = 0
    false_asks: int = 0
    story: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A row as it was run; or, with `why_not`, why it was not."""

    entrant: Entrant
    version: str = ""
    why_not: str = ""
    runs: tuple[Found, ...] = ()

    def of(self, column: Column) -> tuple[Found, ...]:
        return tuple(run for run in self.runs if run.case.column is column)

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(run.verdict for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bakeoff:
    seed: int
    entries: Sequence[Entry]
    short: bool = False
    seconds: float = field(compare=False, default=0.0)

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.entrant.name == name), None)

    @property
    def holds(self) -> bool:
        """Semel is OK in every run, and the guards that are wrong on purpose are caught; as far as they took part.

        What other packages get is their result, not a condition.
        """
        semel = self.entry("semel")
        controls = [entry for entry in self.entries if entry.entrant.name in CONTROLS]
        caught = all(max(entry.counts, default=Verdict.OK) is Verdict.DUPLICATE for entry in controls)
        is_sound = semel is None or (bool(semel.runs) and set(semel.counts) == {Verdict.OK})
        nothing_broke = all(Verdict.UNKNOWN not in entry.counts for entry in self.entries)
        return caught and is_sound and nothing_broke and any(entry.runs for entry in self.entries)


def fold(runs: Sequence[Found]) -> tuple[Verdict, int]:
    """The worst verdict, and how many have it."""
    worst = max(run.verdict for run in runs)
    return worst, sum(run.verdict is worst for run in runs)
