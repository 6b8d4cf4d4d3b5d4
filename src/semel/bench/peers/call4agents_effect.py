"""`call4agents`: an effect in a run, on its SQLite ledger."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import call4agents as c4a
from protocol import effect, serve, timed


@c4a.effect
def nothing(n: int) -> int:
    effect()
    return n


class Call4Agents:
    def __init__(self, options: dict[str, Any]) -> None:
        c4a.init(f"{options['folder']}/ledger.sqlite")
        self._numbers = itertools.count(1)
        self._pool = ThreadPoolExecutor(options["in_flight"])
        self.version = version("call4agents")
        connection = c4a.current_ledger()._conn()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        (level,) = connection.execute("PRAGMA synchronous").fetchone()
        self.setting = f"journal_mode={mode}, synchronous={level}"

    def sequential(self, calls: int) -> float:
        with c4a.run("bench"):
            return timed(lambda: [nothing(next(self._numbers)) for _ in range(calls)])

    def in_flight(self, calls: int) -> float:
        return timed(lambda: list(self._pool.map(self._one, range(calls))))

    def _one(self, _: int) -> None:
        with c4a.run("bench"):  # a thread does not inherit it
            nothing(next(self._numbers))


serve(Call4Agents)
