"""One experiment: begin a cell of the world, kill a process in it, start a fresh one, see what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from semel.lab import injector
from semel.lab.client import World
from semel.lab.injector import Kill, Outcome, Run
from semel.lab.wire import Counters, Effect, Settings

Ledger: TypeAlias = Callable[[World, Path], Sequence[Effect]]


def providers_books(world: World, folder: Path) -> Sequence[Effect]:
    """Where the effects are, for every level but those that keep them in their own database."""
    return world.ledger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What is tried: a level (or a control), and where its effects are to be found."""

    run: Run
    ledger: Ledger = providers_books
    seconds_max: float = injector.SECONDS_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What the world saw. `killed_by_signal` is None in a crash-free run."""

    killed_by_signal: int | None
    outcome: Outcome
    ledger: Sequence[Effect]
    counters: Counters


def crash_free(trial: Trial, world: World, settings: Settings, folder: Path) -> Observation:
    """The baseline: one process, from start to end."""
    _begin(world, settings, folder)
    outcome = injector.finish(trial.run, world, folder, seconds_max=trial.seconds_max)
    return _observe(trial, world, folder, None, outcome)


def crashed(trial: Trial, world: World, settings: Settings, folder: Path, at: Kill) -> Observation:
    """One process killed at the given gap, then fresh ones until the plan ends (or does not)."""
    _begin(world, settings, folder)
    killed_by = injector.kill(trial.run, world, folder, at, seconds_max=trial.seconds_max)
    outcome = injector.resume(trial.run, world, folder, seconds_max=trial.seconds_max)
    return _observe(trial, world, folder, killed_by, outcome)


def _begin(world: World, settings: Settings, folder: Path) -> None:
    world.prepare(settings)
    folder.mkdir(parents=True)  # fresh: it must not exist


def _observe(
    trial: Trial, world: World, folder: Path, killed_by: int | None, outcome: Outcome
) -> Observation:
    return Observation(
        killed_by_signal=killed_by,
        outcome=outcome,
        ledger=trial.ledger(world, folder),
        counters=world.counters(),
    )
