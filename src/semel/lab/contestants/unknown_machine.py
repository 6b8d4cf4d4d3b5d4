"""A plain UNKNOWN state machine, as usually written: a second control, for what the naive one can't show.

Turns are persisted, the intent is written down before the request, a crash leaves UNKNOWN, and UNKNOWN is
resolved by the same key, by a lookup, or by a person. Left out is what makes it sound: no fence and no lease (a
live owner is overtaken), no quiescence (an "absent" is believed however early), and unconditional writes.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import count

from semel.lab.contestants.stage import Stage
from semel.lab.model import ProviderKind
from semel.lab.scenario import answered, opening, said
from semel.lab.wire import JSON, ToolCall, Turn

SCHEMA = """
CREATE TABLE IF NOT EXISTS turns (number INTEGER PRIMARY KEY, turn TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS operations (key TEXT PRIMARY KEY, state TEXT NOT NULL, answer TEXT) STRICT;
"""


def run(stage: Stage) -> None:
    with closing(sqlite3.connect(stage.folder / "machine.db", isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        machine = Machine(stage, connection)
        messages = opening()
        for number in count(1):  # ends with the script
            turn = machine.turn(number, messages)
            if not turn.calls:
                return
            messages.append(said(turn))
            messages.extend(answered(call, machine.call(call)) for call in turn.calls)


class Machine:
    """In autocommit mode: every statement is durable when it returns."""

    def __init__(self, stage: Stage, connection: sqlite3.Connection) -> None:
        self._stage = stage
        self._connection = connection
        self._provider = stage.provider_kind()

    def turn(self, number: int, messages: list[dict[str, JSON]]) -> Turn:
        row = self._connection.execute("SELECT turn FROM turns WHERE number = ?", [number]).fetchone()
        if row is not None:
            return Turn.from_json(json.loads(row[0]))
        turn = self._stage.next_turn(messages)
        self._connection.execute("INSERT INTO turns VALUES (?, ?)", [number, json.dumps(turn.to_json())])
        return turn

    def call(self, call: ToolCall) -> dict[str, JSON]:
        row = self._connection.execute(
            "SELECT state, answer FROM operations WHERE key = ?", [call.id]
        ).fetchone()
        if row is None:
            return self._invoke(call)
        state, answer = row
        return dict(json.loads(answer)) if state == "COMMITTED" else self._resolve(call)

    def _resolve(self, call: ToolCall) -> dict[str, JSON]:
        """Whoever finds an operation without an end takes its owner for dead."""
        match self._provider:
            case ProviderKind.HONOURS_KEYS:
                return self._invoke(call)
            case ProviderKind.HAS_LOOKUP:
                found = self._stage.find(call.name, call.id)
            case ProviderKind.BLIND:
                found = self._stage.ask_person(call.name, call.id)
        return self._invoke(call) if found is None else self._commit(call, found)

    def _invoke(self, call: ToolCall) -> dict[str, JSON]:
        self._connection.execute("INSERT OR REPLACE INTO operations VALUES (?, 'INVOKED', NULL)", [call.id])
        return self._commit(
            call, self._stage.perform(call.name, call.arguments, key=call.id, reference=call.id)
        )

    def _commit(self, call: ToolCall, answer: dict[str, JSON]) -> dict[str, JSON]:
        row = [call.id, json.dumps(answer)]
        self._connection.execute("INSERT OR REPLACE INTO operations VALUES (?, 'COMMITTED', ?)", row)
        return answer
