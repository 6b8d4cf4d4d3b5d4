"""Runs a bake-off: every contestant in every case that applies to it, judged by the provider's books.

One world serves all, each run in its own cell. Whatever goes wrong in a run makes it UNKNOWN, with the reason; it
never makes it OK. A contestant that can't be had here has a row that says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from semel.lab import world
from semel.lab.bakeoff.cases import cases_for
from semel.lab.bakeoff.entrants import ENTRANTS, SHORT
from semel.lab.bakeoff.judging import Seen, judged
from semel.lab.bakeoff.lives import Lives, borrowed_lab, nursery_for
from semel.lab.bakeoff.model import Bakeoff, Case, Entrant, Entry, Found, Service
from semel.lab.bakeoff.services import Address, NotAvailable, Services
from semel.lab.client import World
from semel.lab.contestants.stage import Order
from semel.lab.injector import GivenUp
from semel.lab.model import ProviderKind, Verdict
from semel.lab.nursery import Nursery
from semel.lab.wire import Effect, Settings
from semel.testing.environments import NotInstalled, cache_folder, python_with

Baseline: TypeAlias = "Sequence[Effect] | str"  # what happened, or why nothing can be measured against it
OnEntry: TypeAlias = Callable[[str], None]  # what is happening, for a person who waits


def ignore(what: str) -> None:
    """For callers that only want the result."""


def run(
    *,
    only: Sequence[str] = (),
    short: bool = False,
    seed: int = 0,
    environments: Path | None = None,
    on_entry: OnEntry = ignore,
    entrants: Sequence[Entrant] = ENTRANTS,
) -> Bakeoff:
    """Everybody, or who is named; the short form is who needs no installation, in fewer cases."""
    started = time.monotonic()
    home = environments or cache_folder("contestants")
    chosen = [entrant for entrant in entrants if _is_chosen(entrant, only, short)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semel-bakeoff-")))
        path = stack.enter_context(borrowed_lab(folder))
        kitchen = Kitchen(
            address=stack.enter_context(world.running()),
            folder=folder,
            path=path,
            home=home,
            services=Services(folder, path, stack),
            seed=seed,
            short=short,
            on_entry=on_entry,
        )
        entries = kitchen.entries(chosen)
    seconds = time.monotonic() - started
    return Bakeoff(seed=seed, entries=entries, short=short, seconds=seconds)


def _is_chosen(entrant: Entrant, only: Sequence[str], short: bool) -> bool:
    if only:
        return entrant.name in only
    return entrant.name in SHORT or not short


@dataclass(frozen=True, kw_only=True, slots=True)
class Troupe:
    """A contestant, and where its lives are born."""

    entrant: Entrant
    nursery: Nursery


@dataclass(frozen=True, kw_only=True, slots=True)
class Kitchen:
    """Where the runs of one bake-off take place."""

    address: str
    folder: Path
    path: Path
    home: Path
    services: Services
    seed: int
    short: bool
    on_entry: OnEntry
    given_up: threading.Event = field(default_factory=threading.Event)
    pythons: dict[str, Path | NotInstalled] = field(default_factory=dict)  # each environment is tried once

    def entries(self, entrants: Sequence[Entrant]) -> tuple[Entry, ...]:
        """In the order given. Whoever mostly waits for a server of its own runs beside the others."""
        beside = [entrant for entrant in entrants if entrant.service is Service.TEMPORAL]
        in_turn = [entrant for entrant in entrants if entrant not in beside]
        with ThreadPoolExecutor(max_workers=2) as lanes, self._giving_up_if_interrupted():
            done = lanes.map(lambda lane: [self._entry(entrant) for entrant in lane], (beside, in_turn))
            entries = {entry.entrant.name: entry for lane in done for entry in lane}
        return tuple(entries[entrant.name] for entrant in entrants)

    @contextmanager
    def _giving_up_if_interrupted(self) -> Iterator[None]:
        """The runs are made in threads, which would otherwise go on to the last one."""
        try:
            yield
        except BaseException:
            self.given_up.set()
            raise

    def _entry(self, entrant: Entrant) -> Entry:
        if self.given_up.is_set():
            raise GivenUp
        self.on_entry(entrant.title)
        try:
            python = self._python(entrant)
            service = self.services.of(entrant.service, python)
        except NotInstalled as problem:
            return Entry(entrant=entrant, why_not=f"not installed: {problem}")
        except NotAvailable as problem:
            return Entry(entrant=entrant, why_not=str(problem))
        cases = cases_for(entrant, seed=self.seed, short=self.short)
        kinds = sorted({case.provider for case in cases})
        with (
            nursery_for(entrant, python, self.path, self.folder) as nursery,
            ThreadPoolExecutor(entrant.at_once) as pool,
        ):
            troupe = Troupe(entrant=entrant, nursery=nursery)
            baselines = dict(
                zip(kinds, pool.map(partial(self._unharmed, troupe, service), kinds), strict=True)
            )
            runs = tuple(pool.map(partial(self._found, troupe, service, baselines), range(len(cases)), cases))
        return Entry(entrant=entrant, version=_version(python, entrant.package), runs=runs)

    def _python(self, entrant: Entrant) -> Path:
        if entrant.is_ours:
            return Path(sys.executable)
        name = entrant.environment
        python = self.pythons.get(name) or _made(entrant, self.home / name)
        self.pythons[name] = python
        if isinstance(python, NotInstalled):
            raise python
        return python

    def _unharmed(self, troupe: Troupe, service: Address, kind: ProviderKind) -> Baseline:
        """What happens without a crash; or why not even that does."""
        try:
            name = f"{troupe.entrant.name}-{kind}-unharmed"
            lives = self._lives(troupe, service, name, Settings(provider=kind, seed=self.seed))
            why_stuck = lives.resumed()
            return self._ledger(lives) if why_stuck is None else why_stuck
        except Exception:
            return traceback.format_exc()

    def _found(
        self,
        troupe: Troupe,
        service: Address,
        baselines: Mapping[ProviderKind, Baseline],
        number: int,
        case: Case,
    ) -> Found:
        if self.given_up.is_set():
            raise GivenUp
        try:
            baseline = baselines[case.provider]
            if isinstance(baseline, str):
                raise RuntimeError(f"even without a crash: {baseline}")
            return self._run(troupe, service, f"{troupe.entrant.name}-{number}", case, baseline)
        except Exception as broken:
            story = (str(broken), *traceback.format_exc().splitlines())
            return Found(case=case, verdict=Verdict.UNKNOWN, story=story)

    def _run(
        self, troupe: Troupe, service: Address, name: str, case: Case, baseline: Sequence[Effect]
    ) -> Found:
        lives = self._lives(troupe, service, name, case.settings)
        signals, why_stuck = _lived_through(case, lives)
        self._world(lives).release_held()
        asks = self._world(lives).counters().asks
        seen = Seen(signals=signals, why_stuck=why_stuck, ledger=self._ledger(lives), asks=asks)
        return judged(case, seen, baseline)

    def _lives(self, troupe: Troupe, service: Address, name: str, settings: Settings) -> Lives:
        folder = self.folder / name
        folder.mkdir()
        order = Order(
            address=self.address,
            cell_id=name,
            folder=str(folder),
            setting=troupe.entrant.setting,
            service=service(),
        )
        lives = Lives(entrant=troupe.entrant, nursery=troupe.nursery, order=order)
        self._world(lives).prepare(settings)
        return lives

    def _world(self, lives: Lives) -> World:
        return World(address=self.address, cell_id=lives.order.cell_id)

    def _ledger(self, lives: Lives) -> Sequence[Effect]:
        return lives.ledger() if lives.entrant.own_database else self._world(lives).ledger()


def _lived_through(case: Case, lives: Lives) -> tuple[list[int], str | None]:
    """The signals that ended the killed lives, and why the plan did not end, if it did not."""
    signals: list[int] = []
    if case.first.is_pause:
        with lives.paused(case.first):
            why_stuck = lives.resumed()
    else:
        signals.append(lives.killed(case.first))
        if case.second is not None:
            signals.append(lives.killed_if_it_gets_there(case.second))
        why_stuck = lives.resumed()
    return signals, why_stuck


def _made(entrant: Entrant, home: Path) -> Path | NotInstalled:
    try:
        return python_with(entrant.packages, home)
    except NotInstalled as problem:
        return problem


def _version(python: Path, package: str) -> str:
    code = "import json, sys, importlib.metadata as m; print(json.dumps(m.version(sys.argv[1])))"
    asked = subprocess.run([python, "-c", code, package], capture_output=True, text=True, check=True)
    return str(json.loads(asked.stdout))
