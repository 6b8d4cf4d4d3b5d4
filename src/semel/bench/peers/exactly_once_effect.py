"""`exactly-once`: an effect with a key, on its SQLite store."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from exactly_once import Store, once
from protocol import effect, serve, timed


class ExactlyOnce:
    def __init__(self, options: dict[str, Any]) -> None:
        store: Any = Store.sqlite(f"{options['folder']}/effects.db")

        @once(store, key=lambda n: f"nothing:{n}")
        def nothing(n: int) -> int:
            effect()
            return n

        self._nothing = nothing
        self._numbers = itertools.count(1)
        self._pool = ThreadPoolExecutor(options["in_flight"])
        self.version = version("exactly-once")
        (mode,) = store._conn.execute("PRAGMA journal_mode").fetchone()
        (level,) = store._conn.execute("PRAGMA synchronous").fetchone()
        self.setting = f"journal_mode={mode}, synchronous={level}"

    def sequential(self, calls: int) -> float:
        return timed(lambda: [self._nothing(next(self._numbers)) for _ in range(calls)])

    def in_flight(self, calls: int) -> float:
        return timed(lambda: list(self._pool.map(lambda _: self._nothing(next(self._numbers)), range(calls))))


serve(ExactlyOnce)
