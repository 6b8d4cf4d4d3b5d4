"""The guard ladder: one readable file a level. To add one: write the file, add its line to `MODULES`.

A level module must define

    def run(world: World, folder: Path, checkpoint: Checkpoint) -> None

which runs the plan to its end from whatever durable state lies in `folder`. Starting and resuming are the
same function, always called in a fresh process. It calls `checkpoint(window, step)` at the four gaps of
every tool call, steps counted from 1 (from any thread: a kill ends the whole process).

`run` is sent to the child by name, so it stands at the top of its module. When it returns, the process
ends with status 0; when it raises, the process is started anew in the same folder a few times, and then
counts as stuck, as does one that takes longer than the limit.

A level may also define, where its life cycle asks for it:

    def unavailable_because() -> str | None
        Why it cannot run here, in a sentence that names what to install. Its cells are then skipped.
        A third-party module that cannot be imported at the top of the level's file counts as well; the
        message of that ModuleNotFoundError is then the reason.

    @contextmanager
    def service(folder: Path) -> Iterator[str]
        Something shared by all cells of the level in one run of the lab (a server). It lives in the
        lab's own process; what it yields (an address; anything that pickles) is then given to every
        child, as `run(world, folder, checkpoint, service=…)`.

    def ledger(world: World, folder: Path) -> Sequence[Effect]
        Where the effects are, if not in the provider's own books. Called in the lab's process, after
        the plan has ended.

    CELLS_AT_ONCE: int       how many cells to run at the same time (else 3)
    SECONDS_MAX: float       the time limit for one child (else `injector.SECONDS_MAX`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

from semel.lab import injector
from semel.lab.injector import Run
from semel.lab.trial import Ledger, Trial, providers_books

MODULES: Final[Mapping[int, str]] = {
    0: "semel.lab.levels.l0_naive",
    1: "semel.lab.levels.l1_argument_hash",
    2: "semel.lab.levels.l2_stable_key",
    3: "semel.lab.levels.l3_temporal",
    4: "semel.lab.levels.l4_atomic",
    5: "semel.lab.levels.l5_semel",
}
CELLS_AT_ONCE: Final = 3  # two cores, and a cell waits for its disk now and then

Service: TypeAlias = Callable[[Path], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A level that can run here. `service` is None for a level that needs none."""

    number: int
    run: Callable[..., None]
    ledger: Ledger
    service: Service | None
    cells_at_once: int
    seconds_max: float

    @property
    def runs_beside(self) -> bool:
        """A level with a service of its own mostly waits for it, so it runs beside the others."""
        return self.service is not None

    @contextmanager
    def started(self, folder: Path) -> Iterator[Trial]:
        """What to try in every cell, for as long as the level's service (if any) is up."""
        if self.service is None:
            yield self._trial(self.run)
        else:
            with self.service(folder) as service:
                yield self._trial(partial(self.run, service=service))

    def _trial(self, run: Run) -> Trial:
        return Trial(run=run, ledger=self.ledger, seconds_max=self.seconds_max)


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A level that cannot run here, and why."""

    number: int
    why: str

    @property
    def runs_beside(self) -> bool:
        return False


def load(number: int, modules: Mapping[int, str] = MODULES) -> Level | Missing:
    try:
        module = import_module(modules[number])
    except ModuleNotFoundError as missing:
        if _is_our_own_fault(missing, modules[number]):
            raise
        return Missing(number=number, why=str(missing))
    if why := getattr(module, "unavailable_because", _nothing_is_missing)():
        return Missing(number=number, why=why)
    return _level(number, module)


def _level(number: int, module: ModuleType) -> Level:
    return Level(
        number=number,
        run=module.run,
        ledger=getattr(module, "ledger", providers_books),
        service=getattr(module, "service", None),
        cells_at_once=getattr(module, "CELLS_AT_ONCE", CELLS_AT_ONCE),
        seconds_max=getattr(module, "SECONDS_MAX", injector.SECONDS_MAX),
    )


def _is_our_own_fault(missing: ModuleNotFoundError, level: str) -> bool:
    """A broken import within Semel must not pass for a part that is not installed."""
    return missing.name is None or (missing.name.startswith("semel.") and missing.name != level)


def _nothing_is_missing() -> None:
    return None
