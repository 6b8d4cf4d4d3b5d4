"""L2, stable key: the key names where the call stands in the run, never what the model wrote.

What it does: the model's turn is persisted as a unit before any of its calls runs, so that a resumed run
sees the same calls under the same ids. The key is made from run id, step and call id, and goes to the
provider with every attempt. Completed calls are recorded and replayed. The fingerprint of the arguments is
kept beside the key, to refuse a key that comes back for something else.
What it seals: reworded retries, field order, and W4.
What breaks it: W3 at a provider that ignores keys. The evidence left behind is the same as after W2, and
this level then always sends again. (So does a key older than the provider's memory.)
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from itertools import count
from pathlib import Path

from semel.lab import durable
from semel.lab.client import World
from semel.lab.durable import Database
from semel.lab.injector import Checkpoint
from semel.lab.levels.turn_log import TurnLog
from semel.lab.model import Window
from semel.lab.scenario import RUN_ID, answered, opening, said
from semel.lab.wire import JSON, ToolCall

SCHEMA = """
CREATE TABLE IF NOT EXISTS intents (
    key         TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    answer      TEXT           -- NULL: not completed, as far as anyone here knows
)
"""


def run(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    with closing(durable.connect(world, folder)) as database:
        turns, intents = TurnLog(database), Intents(database)
        messages, steps = opening(), count(1)
        for number in count(1):  # ends with the script
            turn = turns.turn(number, lambda: world.model.next_turn(messages))
            if not turn.calls:
                return
            messages.append(said(turn))
            for call in turn.calls:
                answer = once(world, intents, call, next(steps), checkpoint)
                messages.append(answered(call, answer))


def once(
    world: World, intents: Intents, call: ToolCall, step: int, checkpoint: Checkpoint
) -> dict[str, JSON]:
    key = key_of(RUN_ID, step, call.id)
    checkpoint(Window.W1, step)
    recorded = intents.write_down(key, fingerprint_of(call))
    checkpoint(Window.W2, step)
    if recorded is not None:
        return recorded
    answer = world.provider.perform(call.name, call.arguments, key=key)
    checkpoint(Window.W3, step)
    intents.complete(key, answer)
    checkpoint(Window.W4, step)
    return answer


def key_of(run_id: str, step: int, call_id: str) -> str:
    coordinates = json.dumps([run_id, step, call_id])  # as JSON: no two triples write the same
    return hashlib.sha256(coordinates.encode()).hexdigest()


def fingerprint_of(call: ToolCall) -> str:
    canonical = json.dumps([call.name, dict(call.arguments)], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


class KeyReused(Exception):
    """One key, other arguments: two intents have been given one name."""


class Intents:
    """The durable state: every statement is so when it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.execute(SCHEMA)

    def write_down(self, key: str, fingerprint: str) -> dict[str, JSON] | None:
        """Record the intent, or find it. Returns the answer if it was completed before."""
        self._database.execute(
            "INSERT INTO intents (key, fingerprint) VALUES (?, ?) ON CONFLICT DO NOTHING", [key, fingerprint]
        )
        found, answer = self._database.execute(
            "SELECT fingerprint, answer FROM intents WHERE key = ?", [key]
        ).fetchone()
        if found != fingerprint:
            raise KeyReused(f"{key} was recorded for other arguments")
        return None if answer is None else dict(json.loads(answer))

    def complete(self, key: str, answer: dict[str, JSON]) -> None:
        self._database.execute("UPDATE intents SET answer = ? WHERE key = ?", [json.dumps(answer), key])
