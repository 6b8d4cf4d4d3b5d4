"""What sees, inside the program's own process, that a gap is passed. The program does not know of it.

The guard's checkpoints are passed on by `semel.connect.watch_guards`. The tools' own ledger is watched with
what Python offers: an audit hook sees it opened for writing, a profile function looks at its size after every
call, so that the very call that made it grow is the last one that a killed process made. (A program that sets a
profile function of its own, or writes its ledger from another process, is seen late or not at all.)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from semel.lab.model import Window
from semel.lab.own.model import Gap, SeenBy
from semel.ports import Checkpoint, Store

WINDOWS: Final = {
    "claiming": Window.W1,
    "claimed": Window.W2,
    "effect_done": Window.W3,
    "completed": Window.W4,
}


class Passing(NamedTuple):
    """A gap was passed. `passing` counts it, among those of its window and of whoever saw it.

    `key`   the operation's, if a guard saw it.
    `tool`  asks the store for the tool's name, for who wants it: None where it is not known there.
    """

    seen_by: SeenBy
    window: Window
    passing: int
    key: str | None
    tool: Callable[[], str | None]


Observer: TypeAlias = Callable[[Passing], None]


class Tracer:
    """The observer of a crash-free run: a line each."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, passing: Passing) -> None:
        line = json.dumps({**passing._asdict(), "tool": passing.tool(), "at": time.monotonic()})
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")


class Killer:
    """The observer of a run that is to be killed."""

    def __init__(self, gap: Gap) -> None:
        self._gap = gap

    def __call__(self, passing: Passing) -> None:
        gap = self._gap
        if (passing.seen_by, passing.window) != (gap.seen_by, gap.window):
            return
        if passing.key == gap.key if gap.key is not None else passing.passing == gap.passing:
            os.kill(os.getpid(), signal.SIGKILL)


class GuardWatch:
    """For every guard of the process. Each operation counts once in each window, however often it is tried."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._lock = threading.Lock()
        self._seen: set[tuple[Window, str]] = set()
        self._counts: Counter[Window] = Counter()

    def __call__(self, store: Store) -> Checkpoint:
        def checkpoint(place: str, key: str) -> None:
            window = WINDOWS.get(place)
            if window is not None:
                self._pass(store, window, key)

        return checkpoint

    def _pass(self, store: Store, window: Window, key: str) -> None:
        with self._lock:
            if (window, key) in self._seen:
                return
            self._seen.add((window, key))
            self._counts[window] += 1
            tool = partial(_tool_of, store, window, key)
            self._observe(Passing(SeenBy.GUARD, window, self._counts[window], key, tool))


def _tool_of(store: Store, window: Window, key: str) -> str | None:
    """Before W2 there is no record; at W4 there is one for every kind of effect."""
    if window not in (Window.W2, Window.W4):
        return None
    with suppress(Exception):  # a store that has just gone is the program's affair
        operation = store.read(key)
        return None if operation is None else operation.tool
    return None


class LedgerWatch:
    """For the file in which the tools write down what they did."""

    def __init__(self, file: Path, observe: Observer) -> None:
        self._file = str(file)
        self._observe = observe
        self._size = _size_of(self._file)
        self._opened = 0
        self._grown = 0
        self._is_told = True  # that the last growth was followed by something
        self._lock = threading.RLock()

    def install(self) -> None:
        sys.addaudithook(self._on_audit)
        threading.setprofile(self._on_call)
        sys.setprofile(self._on_call)

    def returned(self) -> None:
        """The program has come to its end."""
        sys.setprofile(None)
        self._look()
        self._tell_after()

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open":
            return
        path, _, flags = arguments
        if not isinstance(path, str | bytes) or not flags & (os.O_WRONLY | os.O_RDWR):
            return
        if os.path.abspath(os.fsdecode(path)) != self._file:
            return
        with self._lock:
            self._tell_after()
            self._opened += 1
            self._pass(Window.W2, self._opened)

    def _on_call(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("c_return", "return"):
            self._look()

    def _look(self) -> None:
        size = _size_of(self._file)
        if size <= self._size:
            return
        with self._lock:
            if size <= self._size:
                return
            self._tell_after()
            self._size = size
            self._grown += 1
            self._is_told = False
            self._pass(Window.W3, self._grown)

    def _tell_after(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._pass(Window.W4, self._grown)

    def _pass(self, window: Window, passing: int) -> None:
        self._observe(Passing(SeenBy.LEDGER, window, passing, None, lambda: None))


def _size_of(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0
