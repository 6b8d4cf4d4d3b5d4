"""The words of the lab for your own agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Final

from semel.lab.model import ProviderKind, Window

SECONDS_MAX: Final = 60.0  # for one process: past it, it waits for what never comes
PATIENCE_SECONDS: Final = (
    120.0  # for a program that says itself when it can go on: the cautious default needs 90
)


class SeenBy(StrEnum):
    """Who sees that a gap is passed."""

    GUARD = "guard"  # the guard's own checkpoints; W1 to W4
    PROVIDER = (
        "provider"  # the recording provider; W2 to W4: nothing is visible from outside before a request
    )
    LEDGER = "ledger"  # the growth of the tools' own file; W2 to W4


class Finding(IntEnum):
    """By gravity, so that many fold with `max`."""

    OK = 0
    ASKED = 1  # it stopped for a person, and no resolver was given
    STUCK = 2  # no way forward without a developer
    LOST = 3  # it came to its end, and something never happened
    DUPLICATE = 4
    UNKNOWN = 5  # the gap was not reached, or the judge broke: no experiment, so no pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Where the process is killed: the `nth` time that this tool passes this window.

    `passing`  the same, counted over all tools, as whoever sees it counts.
    `key`      the operation's, where the guard gave the same one in two crash-free runs: then it is waited for.
    """

    tool: str
    nth: int
    window: Window
    seen_by: SeenBy
    passing: int
    key: str | None = None

    @property
    def name(self) -> str:
        return f"{self.tool}#{self.nth}@{self.window}/{self.seen_by}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One effect, as the provider or the tools' own ledger has it. `fields` is what was sent, or the line."""

    tool: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What is tried, and how.

    `target`       module:callable
    `home`         where its modules are found, besides `sys.path`
    `environment`  what it finds in its environment; `{provider}`, `{folder}`, `{cell}`, `{home}` are filled in
    `provider`     what the recording provider can do
    `effects`      a file in the run's folder to which the tools write a JSON line an effect
    `identity`     the fields that name an effect, besides its tool; empty: all of them
    `resolver`     module:callable, called with the `PausedForPerson` in a fresh process: plays the person
    `preload`      modules imported once, before the first process, to make the others start faster
    """

    target: str
    home: Path
    environment: Mapping[str, str]
    provider: ProviderKind = ProviderKind.HONOURS_KEYS
    effects: str | None = None
    identity: tuple[str, ...] = ()
    resolver: str | None = None
    preload: tuple[str, ...] = ()
    seconds_max: float = SECONDS_MAX
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """One process killed at a gap, fresh ones after it, and what came of it.

    `twice` and `never` name each effect beyond, and each short of, the crash-free run.
    `because` is the end of what the last process said, where it did not come to its end.
    """

    gap: Gap
    finding: Finding
    killed_by_signal: int | None
    twice: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    asks: int = 0
    processes: int = 0
    seconds: float = 0.0
    because: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """A whole run of the lab over one program. `effects` are those of the crash-free run, by name."""

    program: Program
    effects: Counter[str]
    gaps: tuple[Gap, ...]
    crashes: tuple[Crash, ...]
    seconds: float

    @property
    def finding(self) -> Finding:
        return max((crash.finding for crash in self.crashes), default=Finding.UNKNOWN)

    @property
    def holds(self) -> bool:
        """Nothing happened twice, nothing never, nothing got stuck; a person may have been asked."""
        return self.finding <= Finding.ASKED
