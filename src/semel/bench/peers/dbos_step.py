"""A DBOS step. It is recorded once it has returned; before it runs, only its workflow is."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from importlib.metadata import version
from typing import Any

from protocol import CannotRun, effect, serve

SQLITE_NEEDED = (3, 42)


class DbosStep:
    def __init__(self, options: dict[str, Any]) -> None:
        url = options["url"] or f"sqlite:///{options['folder']}/dbos.sqlite"
        if url.startswith("sqlite") and sqlite3.sqlite_version_info < SQLITE_NEEDED:
            raise CannotRun(
                f"DBOS on SQLite needs SQLite {'.'.join(map(str, SQLITE_NEEDED))} or newer, and this interpreter "
                f"has {sqlite3.sqlite_version}"
            )
        from dbos import DBOS

        DBOS(
            config={
                "name": "semel-bench",
                "system_database_url": url,
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )

        @DBOS.step()
        def step(n: int) -> int:
            effect()
            return n

        @DBOS.step()
        async def awaited_step(n: int) -> int:
            effect()
            return n

        @DBOS.workflow()
        def one_by_one(calls: int) -> float:
            begun = time.perf_counter()
            for n in range(calls):
                step(n)
            return time.perf_counter() - begun

        @DBOS.workflow()
        async def together(calls: int, in_flight: int) -> float:
            begun = time.perf_counter()
            for start in range(0, calls, in_flight):
                await asyncio.gather(*[awaited_step(n) for n in range(start, min(start + in_flight, calls))])
            return time.perf_counter() - begun

        DBOS.launch()
        self._one_by_one, self._together = one_by_one, together
        self._in_flight = options["in_flight"]
        self.version = version("dbos")
        self.setting = _setting(url)

    def sequential(self, calls: int) -> float:
        return float(self._one_by_one(calls))

    def in_flight(self, calls: int) -> float:
        return float(asyncio.run(self._together(calls, self._in_flight)))


def _setting(url: str) -> str:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (level,) = connection.execute("PRAGMA synchronous").fetchone()
        return f"journal_mode={mode}, synchronous={level}"
    import psycopg

    with psycopg.connect(url) as server:
        found = [
            (name, server.execute(f"SHOW {name}").fetchone()) for name in ("fsync", "synchronous_commit")
        ]
    return ", ".join(f"{name}={row[0]}" for name, row in found if row)


serve(DbosStep)
