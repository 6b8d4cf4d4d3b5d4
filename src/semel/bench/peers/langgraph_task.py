"""A LangGraph @task in an @entrypoint with the SQLite checkpointer at durability="sync"."""

from __future__ import annotations

import itertools
import sqlite3
import time
from importlib.metadata import version
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from protocol import effect, serve


@task
def nothing(n: int) -> int:
    effect()
    return n


class LangGraphTask:
    def __init__(self, options: dict[str, Any]) -> None:
        connection = sqlite3.connect(f"{options['folder']}/checkpoints.db", check_same_thread=False)
        saver = SqliteSaver(connection)

        @entrypoint(checkpointer=saver)
        def program(order: dict[str, int]) -> float:
            begun = time.perf_counter()
            for start in range(0, order["calls"], order["at_once"]):
                futures = [nothing(n) for n in range(start, min(start + order["at_once"], order["calls"]))]
                for future in futures:
                    future.result()
            return time.perf_counter() - begun

        self._program = program
        self._in_flight = options["in_flight"]
        self._threads = itertools.count(1)
        self.version = version("langgraph")
        self._run(1, 1)
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        (level,) = connection.execute("PRAGMA synchronous").fetchone()
        self.setting = f"journal_mode={mode}, synchronous={level}"

    def sequential(self, calls: int) -> float:
        return self._run(calls, 1)

    def in_flight(self, calls: int) -> float:
        return self._run(calls, self._in_flight)

    def _run(self, calls: int, at_once: int) -> float:
        """Until the program has ended, since a task's result is written behind it."""
        config: Any = {"configurable": {"thread_id": str(next(self._threads))}}
        begun = time.perf_counter()
        self._program.invoke({"calls": calls, "at_once": at_once}, config, durability="sync")
        return time.perf_counter() - begun


serve(LangGraphTask)
