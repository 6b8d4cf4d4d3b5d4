"""L4, atomic: the effect and the record of its completion are one transaction of one database.

What it does: all three tools change tables of our own database (a charge in our own billing, a mail in our
own outbox, an entitlement), and the completion is written in the same transaction. The turn is persisted
before, as in L2. The provider of the lab is never contacted; the oracle reads this database.
What it seals: W3 ceases to exist. A crash after the effect and before COMMIT takes both away; after COMMIT
both are there, and the completion proves that nothing is to be done.
What breaks it: nothing, as long as the effect lives in that database. A call to someone else's API does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from semel.lab import durable
from semel.lab.client import World
from semel.lab.durable import Database
from semel.lab.injector import Checkpoint
from semel.lab.levels.turn_log import TurnLog
from semel.lab.model import Window
from semel.lab.scenario import answered, intent_of, normalised, opening, said
from semel.lab.wire import JSON, Effect, ToolCall

TABLES = {
    "charge": ("charges", ("customer", "amount_cents", "period")),
    "send_email": ("outbox", ("to", "subject", "body")),
    "grant_entitlement": ("entitlements", ("customer", "plan", "period")),
}
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS charges (customer TEXT, amount_cents INTEGER, period TEXT)",
    'CREATE TABLE IF NOT EXISTS outbox ("to" TEXT, subject TEXT, body TEXT)',
    "CREATE TABLE IF NOT EXISTS entitlements (customer TEXT, plan TEXT, period TEXT)",
    "CREATE TABLE IF NOT EXISTS completions (step INTEGER PRIMARY KEY, answer TEXT NOT NULL)",
)


def run(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    with closing(_connect(world, folder)) as database:
        turns = TurnLog(database)
        messages, steps = opening(), count(1)
        for number in count(1):  # ends with the script
            turn = turns.turn(number, lambda: world.model.next_turn(messages))
            if not turn.calls:
                return
            messages.append(said(turn))
            for call in turn.calls:
                answer = once(database, call, next(steps), checkpoint)
                messages.append(answered(call, answer))


def once(database: Database, call: ToolCall, step: int, checkpoint: Checkpoint) -> dict[str, JSON]:
    checkpoint(Window.W1, step)
    if (recorded := completion(database, step)) is not None:
        return recorded
    checkpoint(Window.W2, step)  # the intent is the persisted turn
    database.execute("BEGIN")
    answer = perform(database, call, step)
    checkpoint(Window.W3, step)  # done, in a transaction that is still open
    database.execute("INSERT INTO completions VALUES (?, ?)", [step, json.dumps(answer)])
    database.execute("COMMIT")
    checkpoint(Window.W4, step)
    return answer


def perform(database: Database, call: ToolCall, step: int) -> dict[str, JSON]:
    table, columns = TABLES[call.name]
    given = normalised(call.name, call.arguments)
    database.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", [given[name] for name in columns])
    return {"id": f"{table}-{step}", "status": "done"}


def completion(database: Database, step: int) -> dict[str, JSON] | None:
    row = database.execute("SELECT answer FROM completions WHERE step = ?", [step]).fetchone()
    return None if row is None else dict(json.loads(row[0]))


def ledger(world: World, folder: Path) -> Sequence[Effect]:
    """What is in the tables. The effects live here, so the provider's books hold nothing."""
    with closing(_connect(world, folder)) as database:
        rows = [
            (tool, row)
            for tool, (table, _) in TABLES.items()
            for row in database.rows(f"SELECT * FROM {table}")
        ]
    return [
        Effect(sequence=sequence, tool=tool, intent=intent_of(tool, row), arguments=row)
        for sequence, (tool, row) in enumerate(rows, start=1)
    ]


def _connect(world: World, folder: Path) -> Database:
    database = durable.connect(world, folder)
    for statement in SCHEMA:
        database.execute(statement)
    return database
