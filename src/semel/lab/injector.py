"""Kills real processes at a chosen gap, and starts fresh ones that resume.

A level calls `checkpoint(window, step)` at each gap of a tool call. In a `Kill`, the matching call sends
SIGKILL to its own process: no handler runs, nothing is flushed, and the exit status proves it. Nothing
else of the level knows that it is being tested.

A child is a fork of a warmed process (see `nursery`), so that a cell costs forks and not the start of an
interpreter.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from semel.lab.client import World
from semel.lab.model import Window
from semel.lab.nursery import Child, Life, Nursery

RESUMES_MAX: Final = 3  # an operator who restarts a crashing process thrice has a stuck one
FAILED: Final = 1  # exit status of a child whose traceback is in its file
SECONDS_MAX: Final = 30.0  # far above any recovery seen: past it, a child waits for what never comes

Checkpoint: TypeAlias = Callable[[Window, int], None]
Run: TypeAlias = Callable[[World, Path, Checkpoint], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """The checkpoint at which the process ends its own life."""

    window: Window
    step: int

    def __call__(self, window: Window, step: int) -> None:
        if (window, step) == (self.window, self.step):
            os.kill(os.getpid(), signal.SIGKILL)


def no_kill(window: Window, step: int) -> None:
    """The checkpoint of a crash-free run."""


class WindowNeverReached(Exception):
    """The child did not die by SIGKILL: whatever it did, it proves nothing about a crash."""


class GivenUp(Exception):
    """The run of the lab was ended from outside; nothing is to be concluded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """The plan was run to its end, so long after the process was started."""

    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stuck:
    """There is no way forward without a developer."""

    because: str


Outcome: TypeAlias = Finished | Stuck


def kill(run: Run, world: World, folder: Path, at: Kill, *, seconds_max: float = SECONDS_MAX) -> int:
    """Run in a child until it dies at the given gap; return the signal that ended it."""
    exitcode = _live(run, world, folder, at, seconds_max)
    if exitcode != -signal.SIGKILL:
        raise WindowNeverReached(f"{at} ended with {exitcode}: {_last_words(folder)}")
    return -exitcode


def finish(run: Run, world: World, folder: Path, *, seconds_max: float = SECONDS_MAX) -> Outcome:
    """Run in one fresh child to the end of the plan, from whatever lies in the folder."""
    started = time.monotonic()
    exitcode = _live(run, world, folder, no_kill, seconds_max)
    if exitcode == 0:
        return Finished(seconds=time.monotonic() - started)
    return Stuck(because=_reason(exitcode, folder, seconds_max))


def resume(run: Run, world: World, folder: Path, *, seconds_max: float = SECONDS_MAX) -> Outcome:
    """As `finish`, but a child that fails is started again, a few times: as an operator would."""
    started = time.monotonic()
    for _ in range(RESUMES_MAX):
        match outcome := finish(run, world, folder, seconds_max=seconds_max):
            case Finished():
                return Finished(seconds=time.monotonic() - started)
    return outcome


def begin(life: Life) -> Child:
    """Start a child that is none of a level's lives; it ends with the lab, like all others."""
    child = _nursery.bear(life)
    with _lock:
        _alive.add(child)
    return child


def ended(child: Child, *, seconds_max: float = SECONDS_MAX) -> int | None:
    """Wait for its end, or bring it about; its exit status. None: it took too long."""
    exitcode = child.exitcode(seconds_max)
    with _lock:
        if child not in _alive:
            raise GivenUp
        _alive.remove(child)
    return exitcode


def end_all() -> None:
    """Kill every child that lives now; whoever waits for one gets `GivenUp`."""
    with _lock:
        ended = list(_alive)
        _alive.clear()
    for child in ended:
        child.end()


def warm(modules: Iterable[str]) -> None:
    """Have these imported before the first child is started."""
    _nursery.warm(modules)


_nursery = Nursery()
_alive: set[Child] = set()
_lock = threading.Lock()


def _live(run: Run, world: World, folder: Path, checkpoint: Checkpoint, seconds_max: float) -> int | None:
    return ended(begin(partial(_life, run, world, folder, checkpoint)), seconds_max=seconds_max)


def _life(run: Run, world: World, folder: Path, checkpoint: Checkpoint) -> None:
    """What happens in the child."""
    try:
        run(world, folder, checkpoint)
    except BaseException:
        _last_words_file(folder).write_text(traceback.format_exc())
        os._exit(FAILED)


def _reason(exitcode: int | None, folder: Path, seconds_max: float) -> str:
    match exitcode:
        case None:
            return f"the process had not ended after {seconds_max} seconds"
        case _ if exitcode == FAILED:
            return _last_words(folder)
        case _:
            return f"the process ended with {exitcode}"


def _last_words(folder: Path) -> str:
    file = _last_words_file(folder)
    return file.read_text() if file.exists() else "no traceback"


def _last_words_file(folder: Path) -> Path:
    return folder.with_name(folder.name + ".traceback")  # beside the folder: what is in it is the level's
