"""What is done to one run, from its beginning to its end. Plain data: it is what is written down and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from semel.lab.model import ProviderKind

SOUND: Final = "semel"  # the guard as it is; any other name is one that was broken on purpose
KILLS: Final = "kill"  # the fault of a plan whose only disturbances are kills


class Deed(StrEnum):
    """What ends, or interrupts, a process at a place."""

    KILL = "kill"  # SIGKILL
    RIVAL = "rival"  # nothing ends: from there on, another process runs beside it
    STOP = "stop"  # SIGSTOP; it goes on once another process has run to the end
    POWER_LOSS = "power-loss"  # SIGKILL, and every byte that was not flushed is gone
    TORN_WRITES = "torn-writes"  # SIGKILL, and of every sector that was not flushed chance decides


POWER_LOSSES: Final = (Deed.POWER_LOSS, Deed.TORN_WRITES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """One process is struck when it passes a place of this name for the `nth` time.

    `at` is the place's ordinal in the course that it was chosen from. It is not what is counted: how often a lookup
    is repeated depends on the time of day, and would shift all that comes after.
    """

    deed: Deed
    at: int
    place: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.deed} at place {self.at}, {self.place!r}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Each act strikes one process; after the last of them a process runs to the end undisturbed.

    `fault`   what else is wrong in the world, by its name in the catalogue; `struck` says whose request it
              strikes (a tool, or `turn 2` of the model).
    `guard`   which guard is tried.
    """

    provider: ProviderKind
    fault: str = KILLS
    struck: str = ""
    acts: tuple[Act, ...] = ()
    store: str = "sqlite"
    guard: str = SOUND
    seed: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Plan:
        acts = tuple(Act(**{**act, "deed": Deed(act["deed"])}) for act in raw["acts"])
        return cls(**{**raw, "provider": ProviderKind(raw["provider"]), "acts": acts})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def name(self) -> str:
        parts = [self.guard if self.guard != SOUND else "", self.provider, self.fault, self.struck]
        return ", ".join([*filter(None, parts), *map(str, self.acts)])
