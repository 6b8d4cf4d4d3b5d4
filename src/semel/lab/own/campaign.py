"""Two crash-free runs, then a killed process and fresh ones at every gap, and the judgement of each."""

from __future__ import annotations

import json
import os
import pickle
import secrets
import signal
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from semel.errors import PausedForPerson, UsageError
from semel.lab.model import Window
from semel.lab.nursery import Child, Nursery
from semel.lab.own import plan, provider
from semel.lab.own.judge import Judgement, judge, names_of
from semel.lab.own.life import ENDED, SAID, TRACE, Broke, Ended, Errand, Later, Paused, live
from semel.lab.own.model import Campaign, Crash, Effect, Finding, Gap, Program
from semel.lab.own.provider import Provider

AT_ONCE: Final = max(1, min(3, os.cpu_count() or 1))
BREAKS_MAX: Final = 3  # an operator who restarts a crashing process thrice has a stuck one
PROCESSES_MAX: Final = 50  # of one run: one that pauses or puts off so often does not come to its end
WORDS_OF_THE_END: Final = 2_000  # characters of what the last process said

Item = TypeVar("Item")
Made = TypeVar("Made")


def run(
    program: Program,
    *,
    windows: Sequence[Window] = tuple(Window),
    only: Sequence[str] = (),
    on_plan: Callable[[Sequence[Gap]], None] = lambda gaps: None,
    on_crash: Callable[[Crash], None] = lambda crash: None,
) -> Campaign:
    """Kill the program at every gap of these windows, or at the gaps named in `only`.

    Raises `UsageError` where there is nothing to try: it does not come to its end by itself, or nothing is seen.
    """
    _check(program)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="semel-crash-") as place, provider.running() as running:
        lab = _Lab(program, Path(place), running)
        first, second = lab.in_turns(lab.crash_free, ("without-1", "without-2"))
        baseline = plan.baseline_of(first, second, program.identity)
        gaps = _chosen(plan.gaps_of(first, second), windows, only)
        on_plan(gaps)

        def crash(gap: Gap) -> Crash:
            crashed = lab.crash(gap, baseline)
            on_crash(crashed)
            return crashed

        crashes = tuple(lab.in_turns(crash, gaps))
    return Campaign(
        program=program, effects=baseline, gaps=gaps, crashes=crashes, seconds=time.monotonic() - started
    )


def _check(program: Program) -> None:
    for target in filter(None, (program.target, program.resolver)):
        module, _, name = target.partition(":")
        if not module or not name:
            raise UsageError(
                f"{target!r} names no callable. Nothing was started. Give it as module:callable."
            )
    if program.effects is not None and Path(program.effects).is_absolute():
        raise UsageError(
            f"--effects {program.effects}: give it relative to the run's folder, which is new for each run and is "
            "the program's working directory. Nothing was started."
        )


def _chosen(gaps: Sequence[Gap], windows: Sequence[Window], only: Sequence[str]) -> tuple[Gap, ...]:
    unknown = set(only) - {gap.name for gap in gaps}
    if unknown:
        known = "\n  ".join(gap.name for gap in gaps)
        raise UsageError(f"There is no gap {', '.join(sorted(unknown))}. There are:\n  {known}")
    chosen = tuple(gap for gap in gaps if (gap.name in only if only else gap.window in windows))
    if not chosen:
        seen = ", ".join(sorted({gap.window for gap in gaps}))
        raise UsageError(f"No gap of {', '.join(windows)} can be seen in this program; only of {seen}.")
    return chosen


# ------------------------------------------------------------------ one run of the program


class GivenUp(Exception):
    """The lab was ended from outside; nothing is to be concluded."""


class _Children:
    """The processes that live now, so that all of them end with the lab."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._alive: set[Child] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def live(self, life: Callable[[], None], seconds_max: float) -> int | None:
        """Its exit status; None if it took too long and was ended."""
        with self._lock:
            self._go_on()
            child = self._nursery.bear(life)
            self._alive.add(child)
        exitcode = child.exitcode(seconds_max)
        with self._lock:
            self._alive.discard(child)
            self._go_on()
        return exitcode

    def wait(self, seconds: float) -> None:
        self._ending.wait(seconds)
        self._go_on()

    def end(self) -> None:
        with self._lock:
            self._ending.set()
            for child in self._alive:
                child.end()

    def _go_on(self) -> None:
        if self._ending.is_set():
            raise GivenUp


class _Life(NamedTuple):
    """How one process ended. `exitcode` None: it took too long."""

    exitcode: int | None
    ended: Ended
    said: str


class _End(NamedTuple):
    """How a run ended, after as many processes as it took. `because` is None if it came to its end."""

    because: str | None
    waits_for_person: bool
    asks: int
    processes: int


@dataclass(slots=True)
class _Run:
    """A run of the program: its folder, its name at the provider, and the processes it takes."""

    program: Program
    place: Path
    cell: str
    provider: Provider
    children: _Children

    def begin(self) -> None:
        self.folder.mkdir(parents=True)
        self.provider.begin(self.cell, self.program.provider)

    @property
    def folder(self) -> Path:
        return self.place / self.cell / "run"

    @property
    def ledger(self) -> Path | None:
        return None if self.program.effects is None else self.folder / self.program.effects

    def live(
        self,
        number: int,
        *,
        gap: Gap | None = None,
        pause: PausedForPerson | None = None,
        is_traced: bool = False,
    ) -> _Life:
        notes = self.place / self.cell / f"process-{number}"
        notes.mkdir()
        target = self.program.target if pause is None else self.program.resolver
        assert target is not None, "a pause is only taken further where there is a resolver"
        errand = Errand(
            target=target,
            cell=self.cell,
            folder=self.folder,
            home=self.program.home,
            notes=notes,
            environment=self._environment(),
            provider=self.provider,
            effects=self.ledger,
            gap=gap,
            pause=pause,
            is_traced=is_traced,
        )
        exitcode = self.children.live(partial(live, errand), self.program.seconds_max)
        return _Life(exitcode, _ended(notes), _said(notes))

    def to_the_end(self, *, processes: int = 0, is_traced: bool = False) -> _End:
        """Start it again until it comes to its end, as an operator would; a person is played by the resolver."""
        breaks = asks = 0
        patience = self.program.patience_seconds
        for number in range(processes + 1, PROCESSES_MAX):
            life = self.live(number, is_traced=is_traced)
            if life.exitcode == 0:
                return _End(None, False, asks, number)
            match life.ended:
                case Paused() if self.program.resolver is None:
                    return _End(f"it asked a person: {life.ended.pause}", True, asks + 1, number)
                case Paused(pause):
                    asks += 1
                    answered = self.live(PROCESSES_MAX + number, pause=pause)
                    if answered.exitcode != 0:
                        return _End(f"the resolver did not answer: {answered.said}", False, asks, number)
                case Later(seconds) if seconds <= patience:
                    patience -= seconds
                    self.children.wait(seconds)  # the program's own word: before that it cannot know more
                case Later(seconds):
                    return _End(_out_of_patience(seconds, self.program), False, asks, number)
                case _:
                    breaks += 1
                    if breaks == BREAKS_MAX:
                        return _End(_why(life, self.program), False, asks, number)
        return _End(f"{PROCESSES_MAX} processes did not bring it to its end", False, asks, PROCESSES_MAX)

    def effects(self) -> list[Effect]:
        seen = [Effect(tool=e["tool"], fields=e["fields"]) for e in self._record()["effects"]]
        return [*seen, *self.lines()]

    def lines(self) -> list[Effect]:
        if self.ledger is None or not self.ledger.exists():
            return []
        return [
            _effect_of(line) for line in self.ledger.read_text(encoding="utf-8").splitlines() if line.strip()
        ]

    def seen(self) -> plan.Seen:
        traces = sorted((self.place / self.cell).glob(f"process-*/{TRACE}"))
        passed = [plan.passed_from(line) for file in traces for line in file.read_text().splitlines()]
        return plan.Seen(
            passed=sorted(passed, key=lambda p: p.at),
            arrivals=[plan.Arrival(a["tool"], a["at"]) for a in self._record()["arrivals"]],
            effects=self.effects(),
            lines=self.lines(),
        )

    def _record(self) -> Mapping[str, Any]:
        return self.provider.record(self.cell)

    def _environment(self) -> dict[str, str]:
        known = {
            "provider": self.provider.url(self.cell),
            "folder": str(self.folder),
            "cell": self.cell,
            "home": str(self.program.home),
        }
        own = {f"SEMEL_LAB_{name.upper()}": value for name, value in known.items()}
        return {**own, **{name: _filled_in(text, known) for name, text in self.program.environment.items()}}


class _Lab:
    """What all runs of one campaign share."""

    def __init__(self, program: Program, place: Path, running: Provider) -> None:
        self._program = program
        self._place = place
        self._provider = running
        self._numbers = count(1)
        self._token = secrets.token_hex(4)  # two campaigns may share a database
        self._children = _Children(_nursery_with(program.preload))

    def in_turns(self, what: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        """A few at once. Whatever ends this ends every child first, so that nobody is waited for."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="semel-crash") as pool:
            try:
                return list(pool.map(what, items))
            except BaseException:
                self._children.end()
                raise

    def crash_free(self, cell: str) -> plan.Seen:
        run = self._begin(cell)
        end = run.to_the_end(is_traced=True)
        if end.because is not None:
            raise UsageError(
                f"{self._program.target} did not come to its end without any crash: {end.because}"
            )
        return run.seen()

    def crash(self, gap: Gap, baseline: Counter[str]) -> Crash:
        """Never raises for what the program does: a judge that breaks says UNKNOWN."""
        started = time.monotonic()
        run = self._begin(f"crash-{next(self._numbers)}")
        killed = run.live(1, gap=gap)
        if killed.exitcode != -signal.SIGKILL:
            return _not_reached(gap, killed, time.monotonic() - started)
        end = run.to_the_end(processes=1)
        judgement, because = _judged(run, baseline, end)
        return Crash(
            gap=gap,
            finding=judgement.finding,
            killed_by_signal=-killed.exitcode,
            twice=judgement.twice,
            never=judgement.never,
            asks=end.asks,
            processes=end.processes,
            seconds=time.monotonic() - started,
            because=because,
        )

    def _begin(self, cell: str) -> _Run:
        name = f"{self._token}-{cell}"
        run = _Run(self._program, self._place, name, self._provider, self._children)
        run.begin()
        return run


def _judged(run: _Run, baseline: Counter[str], end: _End) -> tuple[Judgement, str | None]:
    try:
        effects = names_of(run.effects(), run.program.identity)
        has_finished = end.because is None
        judgement = judge(effects, baseline, has_finished=has_finished, waits_for_person=end.waits_for_person)
    except Exception:
        return Judgement(Finding.UNKNOWN), traceback.format_exc()
    return judgement, end.because


def _not_reached(gap: Gap, life: _Life, seconds: float) -> Crash:
    how = "came to its end" if life.exitcode == 0 else f"ended with {life.exitcode}"
    return Crash(
        gap=gap,
        finding=Finding.UNKNOWN,
        killed_by_signal=None,
        processes=1,
        seconds=seconds,
        because=f"the process {how} and never came to this gap: it takes another way each time\n{life.said}",
    )


# ------------------------------------------------------------------ small


_nurseries: dict[tuple[str, ...], Nursery] = {}
_nurseries_lock = threading.Lock()


def _nursery_with(modules: tuple[str, ...]) -> Nursery:
    """One for each set of modules, for the life of the lab. The program itself is never imported there."""
    with _nurseries_lock:
        if modules not in _nurseries:
            _nurseries[modules] = Nursery()
            _nurseries[modules].warm(("semel.lab.own.life", *modules))
        return _nurseries[modules]


def _ended(notes: Path) -> Ended:
    file = notes / ENDED
    if not file.exists():
        return Broke()
    ended: Ended = pickle.loads(file.read_bytes())
    return ended


def _said(notes: Path) -> str:
    file = notes / SAID
    return file.read_text(errors="replace")[-WORDS_OF_THE_END:] if file.exists() else ""


def _why(life: _Life, program: Program) -> str:
    if life.exitcode is None:
        return f"the process had not ended after {program.seconds_max:g} seconds\n{life.said}"
    return f"the process ended with {life.exitcode}\n{life.said}"


def _out_of_patience(seconds: float, program: Program) -> str:
    return (
        f"it can go on in {seconds:.1f} seconds, and the lab waits {program.patience_seconds:g} in all: raise "
        "--patience, or declare the request_deadline and lookup_lag that your provider really has"
    )


def _effect_of(line: str) -> Effect:
    """A line that is no JSON object, or was cut off by the kill, is an effect all the same."""
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return Effect(tool="the ledger", fields={"line": line})
    return Effect(
        tool=str(told.get("tool", "the ledger")), fields={k: v for k, v in told.items() if k != "tool"}
    )


def _filled_in(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"{{{name}}}", value)
    return text
