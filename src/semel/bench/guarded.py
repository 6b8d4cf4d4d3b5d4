"""Semel's own calls: a tool that does nothing, guarded."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import semel
from semel.bench.measure import timed
from semel.bench.sizes import IN_FLIGHT
from semel.engine.tool import Tool

_NUMBERS: Final = itertools.count(1)


def new_run_id() -> str:
    return f"bench {next(_NUMBERS)}"


class Guarded:
    """Each measurement is a run of its own, entered outside the time that is taken."""

    def __init__(self, guard: semel.Guard) -> None:
        self.guard = guard
        self.plain: Tool = guard.tool(effect=semel.Unsafe(), name="plain")(_nothing)
        self.awaited: Tool = guard.tool(effect=semel.Unsafe(), name="awaited")(_nothing_awaited)

    def sequential(self, calls: int) -> float:
        with self.guard.run(new_run_id()) as run:
            return timed(lambda: [run.call(self.plain, n=n) for n in range(calls)], calls)

    def in_flight_async(self, calls: int) -> float:
        return asyncio.run(self._in_flight_async(calls))

    async def _in_flight_async(self, calls: int) -> float:
        async with self.guard.run(new_run_id()) as run:

            async def worker() -> None:
                for n in range(calls // IN_FLIGHT):
                    await run.call(self.awaited, n=n)

            loop = asyncio.get_running_loop()
            begun = loop.time()
            await asyncio.gather(*[worker() for _ in range(IN_FLIGHT)])
            return (loop.time() - begun) / calls

    def in_flight_threads(self, calls: int) -> float:
        with self.guard.run(new_run_id()) as run, ThreadPoolExecutor(IN_FLIGHT) as pool:

            def worker(_: int) -> None:
                for n in range(calls // IN_FLIGHT):
                    run.call(self.plain, n=n)

            list(pool.map(lambda _: None, range(IN_FLIGHT)))  # the threads are started
            return timed(lambda: list(pool.map(worker, range(IN_FLIGHT))), calls)


def _nothing(n: int) -> int:
    return n


async def _nothing_awaited(n: int) -> int:
    return n


@contextmanager
def guarded(url: str, **options: Any) -> Iterator[Guarded]:
    with semel.open(url, **options) as guard:
        yield Guarded(guard)
