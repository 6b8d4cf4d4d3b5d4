"""The words of the lab: where a process is killed, who is killed, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import product
from typing import Final

LEVELS: Final = (0, 1, 2, 3, 4, 5)
STEPS: Final = (1, 2, 3)


class Window(StrEnum):
    """A gap in the life of one tool call, in which the process is killed."""

    W1 = "W1"  # the model has picked a tool; the runtime has not written the intent down
    W2 = "W2"  # the intent is recorded; the tool has not changed the world
    W3 = "W3"  # the world has changed; nobody here knows
    W4 = "W4"  # the completion is recorded; the model has not been told


class ProviderKind(StrEnum):
    HONOURS_KEYS = "honours-keys"  # a second request under one key returns the first one's answer
    HAS_LOOKUP = "has-lookup"  # ignores keys, but can be asked what it did
    BLIND = "blind"  # ignores keys and cannot be asked


class ModelKind(StrEnum):
    REPEATS = "repeats"  # asked again, it writes the same arguments
    REWORDS = "rewords"  # asked again, it writes other key order, and dollars for cents


class StoreKind(StrEnum):
    """Where the levels keep what must survive a crash."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Verdict(IntEnum):
    """Ordered by gravity, so that a list of findings folds with `max`."""

    OK = 0
    FALSE_ASK = 1  # a person was asked although the machine could have known
    STUCK = 2  # no way forward without a developer
    LOST = 3
    DUPLICATE = 4
    UNKNOWN = 5  # the oracle itself broke; never to be read as OK


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Coordinates:
    """One cell of the grid."""

    level: int
    window: Window
    step: int
    provider: ProviderKind
    model: ModelKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which part of the grid to run; all of it unless narrowed."""

    levels: tuple[int, ...] = LEVELS
    windows: tuple[Window, ...] = tuple(Window)
    steps: tuple[int, ...] = STEPS
    providers: tuple[ProviderKind, ...] = tuple(ProviderKind)
    models: tuple[ModelKind, ...] = tuple(ModelKind)

    def cells(self) -> tuple[Coordinates, ...]:
        axes = product(self.levels, self.windows, self.steps, self.providers, self.models)
        return tuple(
            Coordinates(level=level, window=window, step=step, provider=provider, model=model)
            for level, window, step, provider, model in axes
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """What happened in one cell: one real process killed, one fresh process resumed.

    `recovery_seconds` runs from the start of the resuming process to the end of the plan.
    `requests` counts every request the provider received, lookups included.
    `skipped` says why the cell was not run; then every number is 0 or None and `verdict` is None.
    `trace` is the traceback of what could not go on, or of a judge that broke.
    """

    at: Coordinates
    killed_by_signal: int | None = None
    duplicates: int = 0
    lost: int = 0
    stuck: int = 0
    asks: int = 0
    false_asks: int = 0
    recovery_seconds: float | None = None
    redundant_model_calls: int = 0
    requests: int = 0
    verdict: Verdict | None = None
    predicted: Verdict | None = None
    skipped: str | None = None
    trace: str | None = None

    @property
    def is_as_predicted(self) -> bool:
        return self.skipped is not None or self.verdict is self.predicted


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """A guard broken on purpose, and whether the oracle caught it."""

    name: str
    caught: bool
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """One run of the lab."""

    seed: int
    cells: tuple[Cell, ...]
    controls: tuple[Control, ...]
    seconds: float
    store: StoreKind = StoreKind.SQLITE

    @property
    def holds(self) -> bool:
        """Every cell is as the ladder predicts and every control was caught."""
        return all(cell.is_as_predicted for cell in self.cells) and all(c.caught for c in self.controls)
