"""Two crash-free runs, then a killed process and fresh ones at every gap, and the judgement of each."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from semel.errors import UsageError
from semel.lab.model import Window
from semel.lab.nursery import Nursery
from semel.lab.own import plan, provider
from semel.lab.own.judge import Judgement, judge, names_of
from semel.lab.own.model import Campaign, Crash, Finding, Gap, Program
from semel.lab.own.provider import Provider
from semel.lab.own.run import Children, End, Life, Run

AT_ONCE: Final = max(1, min(3, os.cpu_count() or 1))

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


class _Lab:
    """What all runs of one campaign share."""

    def __init__(self, program: Program, place: Path, running: Provider) -> None:
        self._program = program
        self._place = place
        self._provider = running
        self._numbers = count(1)
        self._token = secrets.token_hex(4)  # two campaigns may share a database
        self._children = Children(_nursery_with(program.preload))

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

    def _begin(self, cell: str) -> Run:
        name = f"{self._token}-{cell}"
        run = Run(self._program, self._place, name, self._provider, self._children)
        run.begin()
        return run


def _judged(run: Run, baseline: Counter[str], end: End) -> tuple[Judgement, str | None]:
    try:
        effects = names_of(run.effects(), run.program.identity)
        has_finished = end.because is None
        judgement = judge(effects, baseline, has_finished=has_finished, waits_for_person=end.waits_for_person)
    except Exception:
        return Judgement(Finding.UNKNOWN), traceback.format_exc()
    return judgement, end.because


def _not_reached(gap: Gap, life: Life, seconds: float) -> Crash:
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
