"""Runs the grid: every selected cell is a real kill and a fresh process, judged against a crash-free run.

One world serves all cells, each in its own namespace. The levels take turns, each with a few cells at a
time; a level that brings a service of its own (a server it mostly waits for) runs beside the others.
Whatever goes wrong in a cell makes that cell UNKNOWN, with the traceback; it never makes it OK.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from semel.lab import durable, injector, levels, world
from semel.lab.client import World
from semel.lab.injector import Finished, GivenUp, Kill, Stuck
from semel.lab.ladder import predict
from semel.lab.levels import Level, Missing
from semel.lab.model import (
    Cell,
    Control,
    Coordinates,
    Matrix,
    ModelKind,
    ProviderKind,
    Selection,
    StoreKind,
    Verdict,
)
from semel.lab.oracle import judge
from semel.lab.scenario import intents_of
from semel.lab.trial import Observation, Trial, crash_free, crashed
from semel.lab.wire import Settings

PLAN: Final = "renewal"

OnCell: TypeAlias = Callable[[Cell], None]
Controls: TypeAlias = Callable[[str, int, str | None], Sequence[Control]]  # world's address, seed, database
Kind: TypeAlias = tuple[ProviderKind, ModelKind]


def ignore(cell: Cell) -> None:
    """For callers that only want the result."""


def all_controls(address: str, seed: int, postgres_url: str | None) -> Sequence[Control]:
    from semel.lab import controls  # here, so that a part of the grid can be run without them

    return controls.run_controls(address, seed, postgres_url)


def run(
    selection: Selection,
    *,
    seed: int = 0,
    store: StoreKind = StoreKind.SQLITE,
    on_cell: OnCell = ignore,
    controls: Controls = all_controls,
    modules: Mapping[int, str] = levels.MODULES,
) -> Matrix:
    """Run the selected cells, then the guards broken on purpose. `modules` are the levels' files.

    `on_cell` is called after each cell, from several threads but never at once.
    """
    started = time.monotonic()
    injector.warm([*(modules[number] for number in selection.levels), *durable.MODULES[store]])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semel-lab-")))
        postgres_url = stack.enter_context(durable.server_for(store))
        address = stack.enter_context(world.running())
        grid = Grid(
            address=address,
            postgres_url=postgres_url,
            seed=seed,
            folder=folder,
            on_cell=_one_at_a_time(on_cell),
        )
        cells = grid.run(selection, {number: levels.load(number, modules) for number in selection.levels})
        found = tuple(controls(address, seed, postgres_url))
    seconds = time.monotonic() - started
    return Matrix(seed=seed, cells=cells, controls=found, seconds=seconds, store=store)


def _one_at_a_time(on_cell: OnCell) -> OnCell:
    lock = threading.Lock()

    def call(cell: Cell) -> None:
        with lock:
            on_cell(cell)

    return call


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Where the cells of one run of the lab take place."""

    address: str
    postgres_url: str | None
    seed: int
    folder: Path
    on_cell: OnCell
    given_up: threading.Event = field(default_factory=threading.Event)

    def run(self, selection: Selection, of_level: Mapping[int, Level | Missing]) -> tuple[Cell, ...]:
        """All cells, in the order of the selection."""
        beside = [level for level in of_level.values() if level.runs_beside]
        in_turn = [level for level in of_level.values() if not level.runs_beside]
        with ThreadPoolExecutor(max_workers=2) as lanes, self._giving_up_if_interrupted():
            done = lanes.map(lambda lane: self._run_lane(lane, selection.cells()), (beside, in_turn))
            cells = {cell.at: cell for lane in done for cell in lane}
        return tuple(cells[at] for at in selection.cells())

    @contextmanager
    def _giving_up_if_interrupted(self) -> Iterator[None]:
        """The cells run in threads, which would otherwise go on to the last one."""
        try:
            yield
        except BaseException:
            self.given_up.set()
            injector.end_all()
            raise

    def _run_lane(self, lane: Sequence[Level | Missing], cells: Sequence[Coordinates]) -> list[Cell]:
        return [cell for level in lane for cell in self._run_level(level, _of(level, cells))]

    def _run_level(self, level: Level | Missing, cells: Sequence[Coordinates]) -> list[Cell]:
        match level:
            case Missing(why=why):
                return [self._told(Cell(at=at, skipped=why)) for at in cells]
            case Level():
                with level.started(self.folder) as trial, ThreadPoolExecutor(level.cells_at_once) as pool:
                    return self._run_cells(level, trial, cells, pool)

    def _run_cells(
        self, level: Level, trial: Trial, cells: Sequence[Coordinates], pool: ThreadPoolExecutor
    ) -> list[Cell]:
        kinds = sorted({(at.provider, at.model) for at in cells})
        unharmed = pool.map(lambda kind: self._baseline(level, trial, kind), kinds)
        baselines = dict(zip(kinds, unharmed, strict=True))

        def run_cell(at: Coordinates) -> Cell:
            return self._told(self._cell(trial, at, baselines[at.provider, at.model]))

        return list(pool.map(run_cell, cells))

    def _baseline(self, level: Level, trial: Trial, kind: Kind) -> Observation | Broken:
        world = self._world(f"L{level.number}-crash-free-{'-'.join(kind)}")
        try:
            return crash_free(trial, world, self._settings(kind), self._folder(world))
        except GivenUp:
            raise
        except Exception:
            return Broken(traceback.format_exc())
        finally:
            self._clear(world)

    def _cell(self, trial: Trial, at: Coordinates, baseline: Observation | Broken) -> Cell:
        world = self._world(f"L{at.level}-{at.window}-step{at.step}-{at.provider}-{at.model}")
        settings, kill = self._settings((at.provider, at.model)), Kill(window=at.window, step=at.step)
        if self.given_up.is_set():
            raise GivenUp
        try:
            seen = crashed(trial, world, settings, self._folder(world), kill)
            return judged(at, seen, _unbroken(baseline))
        except GivenUp:
            raise
        except Exception:
            return broken(at, traceback.format_exc())
        finally:
            self._clear(world)

    def _told(self, cell: Cell) -> Cell:
        self.on_cell(cell)
        return cell

    def _settings(self, kind: Kind) -> Settings:
        provider, model = kind
        return Settings(provider=provider, model=model, seed=self.seed, plan=PLAN)

    def _world(self, cell_id: str) -> World:
        return World(address=self.address, cell_id=cell_id, postgres_url=self.postgres_url)

    def _folder(self, world: World) -> Path:
        return self.folder / world.cell_id / "durable"

    def _clear(self, world: World) -> None:
        shutil.rmtree(self.folder / world.cell_id, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Broken:
    """A crash-free run that could not be run; nothing can be measured against it."""

    trace: str


def judged(at: Coordinates, seen: Observation, baseline: Observation) -> Cell:
    """The cell, as the oracle finds it."""
    finding = judge(
        seen.ledger,
        baseline.ledger,
        meant=intents_of(PLAN),
        at=at,
        asks=seen.counters.asks,
        is_stuck=isinstance(seen.outcome, Stuck),
    )
    return Cell(
        at=at,
        killed_by_signal=seen.killed_by_signal,
        duplicates=finding.duplicates,
        lost=finding.lost,
        stuck=int(isinstance(seen.outcome, Stuck)),
        asks=finding.asks,
        false_asks=finding.false_asks,
        recovery_seconds=seen.outcome.seconds if isinstance(seen.outcome, Finished) else None,
        redundant_model_calls=seen.counters.model_calls_total - baseline.counters.model_calls_total,
        requests=seen.counters.requests,
        verdict=finding.verdict,
        predicted=predict(at),
        trace=finding.because or (seen.outcome.because if isinstance(seen.outcome, Stuck) else None),
    )


def broken(at: Coordinates, trace: str) -> Cell:
    """A cell of which nothing can be said, which is worse than anything that can."""
    return Cell(at=at, verdict=Verdict.UNKNOWN, predicted=predict(at), trace=trace)


def _unbroken(baseline: Observation | Broken) -> Observation:
    match baseline:
        case Broken(trace):
            raise RuntimeError(f"the crash-free run failed: {trace}")
        case Observation(outcome=Stuck(because=because)):
            raise RuntimeError(f"the crash-free run did not end: {because}")
        case Observation():
            return baseline


def _of(level: Level | Missing, cells: Sequence[Coordinates]) -> list[Coordinates]:
    return [at for at in cells if at.level == level.number]
