"""So many places, given out in the order of asking, to threads and to tasks alike.

What is queued for a store must have an end: past it a thread blocks and a task awaits, each before its write is
queued. Whoever gives up waiting, or is cancelled, leaves its place to the next.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class Room:
    def __init__(self, places: int) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiters: deque[_Thread | _Task] = deque()

    @property
    def waiting(self) -> int:
        """Threads and tasks that wait for a place."""
        return len(self._waiters)

    def take_now(self) -> bool:
        """A place, if one is free and nobody was earlier."""
        with self._lock:
            if self._free and not self._waiters:
                self._free -= 1
                return True
            return False

    def take(self, *, wait_seconds: float) -> bool:
        """Blocks. False if there was none in time."""
        with self._lock:
            if self._free and not self._waiters:
                self._free -= 1
                return True
            waiter = _Thread()
            self._waiters.append(waiter)
        try:
            if waiter.wait(wait_seconds):
                return True
        except BaseException:
            self._leave(waiter)
            raise
        return self._came_after_all(waiter)

    async def take_async(self, *, wait_seconds: float) -> bool:
        """Awaits, and can be cancelled. False if there was none in time."""
        import asyncio  # slow to import, only for async callers

        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free and not self._waiters:
                self._free -= 1
                return True
            waiter = _Task(loop)
            self._waiters.append(waiter)
        try:
            await asyncio.wait({waiter.place}, timeout=wait_seconds)
        except BaseException:
            self._leave(waiter)
            raise
        return self._came_after_all(waiter)

    def give_back(self, places: int) -> None:
        """Whoever waits longest gets them first."""
        with self._lock:
            if not self._waiters:
                self._free += places
                return
        for _ in range(places):
            self._give_back_one()

    def _give_back_one(self) -> None:
        while True:  # ends: each round takes a waiter away
            with self._lock:
                if not self._waiters:
                    self._free += 1
                    return
                waiter = self._waiters.popleft()
                waiter.is_given = True
            if waiter.wake():
                return

    def _came_after_all(self, waiter: _Thread | _Task) -> bool:
        """Whether a place was given between the end of the wait and now; if not, none will be."""
        with self._lock:
            if not waiter.is_given:
                self._waiters.remove(waiter)
            return waiter.is_given

    def _leave(self, waiter: _Thread | _Task) -> None:
        if self._came_after_all(waiter):
            self._give_back_one()


class _Thread:
    __slots__ = ("_gate", "is_given")

    def __init__(self) -> None:
        self.is_given = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self, seconds: float) -> bool:
        return self._gate.acquire(timeout=seconds)

    def wake(self) -> bool:
        self._gate.release()
        return True


class _Task:
    __slots__ = ("_loop", "is_given", "place")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_given = False
        self.place = loop.create_future()
        self._loop = loop

    def wake(self) -> bool:
        """False if its loop was closed meanwhile."""
        try:
            self._loop.call_soon_threadsafe(self._come_in)
        except RuntimeError:
            return False
        return True

    def _come_in(self) -> None:
        if not self.place.done():
            self.place.set_result(None)
