"""The model's turns, kept: each is stored as a unit before any of its calls runs, and replayed on resume.

Shared by the levels whose identity rests on it (L2, L4). With a stored turn the model is not asked a
second time, so call ids and wording survive a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from semel.lab.durable import Database
from semel.lab.wire import Turn

SCHEMA = "CREATE TABLE IF NOT EXISTS turns (number INTEGER PRIMARY KEY, turn TEXT NOT NULL)"


class TurnLog:
    def __init__(self, database: Database) -> None:
        self._database = database
        database.execute(SCHEMA)

    def turn(self, number: int, ask: Callable[[], Turn]) -> Turn:
        """The stored turn; or the model's, once it is stored."""
        row = self._database.execute("SELECT turn FROM turns WHERE number = ?", [number]).fetchone()
        if row is not None:
            return Turn.from_json(json.loads(row[0]))
        turn = ask()
        self._database.execute("INSERT INTO turns VALUES (?, ?)", [number, json.dumps(turn.to_json())])
        return turn
