"""A run of the simulator: the sound guard over all seeds, each broken one until it is caught."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from semel.lab.mutants import BY_NAME, SOUND
from semel.lab.simulate.search import Failure, failures, shrink
from semel.lab.simulate.setting import Kind

CHUNK: Final = 500  # seeds a task: half a second
PROCESSES_MAX: Final = 2
SHOWN_MAX: Final = 5  # violations that are shrunk and told; the others are counted
SEEDS_FURTHER: Final = 3_000  # how far a control that is caught is looked for with other providers, too
FEW: Final = 6  # deviations that are few enough for a story

Progress: TypeAlias = Callable[[int, int], None]
Task: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Control:
    """A broken guard, and the first world, of each kind of provider, in which it was caught."""

    name: str
    failures: tuple[Failure, ...]

    @property
    def caught(self) -> bool:
        return bool(self.failures)


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """`violations` counts all; `shown` are the first of them, shrunk."""

    first_seed: int
    seeds: int
    violations: int
    shown: tuple[Failure, ...]
    controls: tuple[Control, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        return not self.violations and all(control.caught for control in self.controls)

    def to_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "violations": self.violations,
            "controls": [{"name": control.name, "caught": control.caught} for control in self.controls],
        }


def simulate(
    seeds: int,
    *,
    first_seed: int = 0,
    names: Sequence[str] = tuple(BY_NAME),
    kinds: int = 1,
    on_progress: Progress = lambda done, of: None,
) -> Simulation:
    """`names` of the controls to run; `kinds` of providers with which each is to be caught, where it can be."""
    started = time.monotonic()
    end = first_seed + seeds
    tasks: list[Task] = [(_control, (name, first_seed, seeds, kinds)) for name in names]
    tasks += [(_chunk, (at, min(CHUNK, end - at))) for at in range(first_seed, end, CHUNK)]
    violations: list[Failure] = []
    controls: dict[str, Control] = {}
    for done, found in enumerate(_spread(tasks), 1):
        if isinstance(found, Control):
            controls[found.name] = found
        else:
            violations += found
        on_progress(done, len(tasks))
    return Simulation(
        first_seed=first_seed,
        seeds=seeds,
        violations=len(violations),
        shown=tuple(map(shrink, sorted(violations, key=lambda v: v.seed)[:SHOWN_MAX])),
        controls=tuple(controls[name] for name in names),
        seconds=time.monotonic() - started,
    )


def _spread(tasks: Sequence[Task]) -> Iterator[Any]:
    """Over the processors; each as it is done."""
    count = min(PROCESSES_MAX, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(count, _leave_interrupts_to_the_parent) as pool:
        yield from pool.imap_unordered(_do, tasks)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _do(task: Task) -> Any:
    function, arguments = task
    return function(*arguments)


def _chunk(first_seed: int, seeds: int) -> list[Failure]:
    return list(failures(SOUND.name, range(first_seed, first_seed + seeds)))


def _control(name: str, first_seed: int, seeds: int, kinds: int) -> Control:
    """Sought until it is caught; then a little further, for a shorter story and for the other providers."""
    end = first_seed + seeds
    first = next(failures(name, range(first_seed, end)), None)
    if first is None:
        return Control(name, ())
    found = {first.case.kind: shrink(first)}
    further = range(first.seed + 1, min(first.seed + 1 + (SEEDS_FURTHER if kinds > 1 else 0), end))
    for failure in failures(name, further):
        kind, before = failure.case.kind, found.get(failure.case.kind)
        if before is None or len(before.case.deviations) > FEW:
            found[kind] = min(filter(None, (before, shrink(failure))), key=lambda f: len(f.case.deviations))
        if len(found) == kinds and all(len(f.case.deviations) <= FEW for f in found.values()):
            break
    return Control(name, tuple(found[kind] for kind in Kind if kind in found))
