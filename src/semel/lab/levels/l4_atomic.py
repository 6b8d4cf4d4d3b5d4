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
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from semel.lab.client import World
from semel.lab.injector import Checkpoint
from semel.lab.levels.turn_log import TurnLog
from semel.lab.model import Window
from semel.lab.scenario import answered, intent_of, normalised, opening, said
from semel.lab.wire import JSON, Effect, ToolCall

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges      (customer TEXT, amount_cents INTEGER, period TEXT) STRICT;
CREATE TABLE IF NOT EXISTS outbox       ("to" TEXT, subject TEXT, body TEXT) STRICT;
CREATE TABLE IF NOT EXISTS entitlements (customer TEXT, plan TEXT, period TEXT) STRICT;
CREATE TABLE IF NOT EXISTS completions  (step INTEGER PRIMARY KEY, answer TEXT NOT NULL) STRICT;
"""
TOOLS = {
    "charge": "INSERT INTO charges VALUES (:customer, :amount_cents, :period)",
    "send_email": "INSERT INTO outbox VALUES (:to, :subject, :body)",
    "grant_entitlement": "INSERT INTO entitlements VALUES (:customer, :plan, :period)",
}
TABLES = {"charge": "charges", "send_email": "outbox", "grant_entitlement": "entitlements"}


def run(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    with closing(_connect(folder)) as connection:
        turns = TurnLog(connection)
        messages, steps = opening(), count(1)
        for number in count(1):  # ends with the script
            turn = turns.turn(number, lambda: world.model.next_turn(messages))
            if not turn.calls:
                return
            messages.append(said(turn))
            for call in turn.calls:
                answer = once(connection, call, next(steps), checkpoint)
                messages.append(answered(call, answer))


def once(
    connection: sqlite3.Connection, call: ToolCall, step: int, checkpoint: Checkpoint
) -> dict[str, JSON]:
    checkpoint(Window.W1, step)
    if (recorded := completion(connection, step)) is not None:
        return recorded
    checkpoint(Window.W2, step)  # the intent is the persisted turn
    connection.execute("BEGIN IMMEDIATE")
    answer = perform(connection, call)
    checkpoint(Window.W3, step)  # done, in a transaction that is still open
    connection.execute("INSERT INTO completions VALUES (?, ?)", [step, json.dumps(answer)])
    connection.execute("COMMIT")
    checkpoint(Window.W4, step)
    return answer


def perform(connection: sqlite3.Connection, call: ToolCall) -> dict[str, JSON]:
    row = connection.execute(TOOLS[call.name], normalised(call.name, call.arguments))
    return {"id": row.lastrowid, "status": "done"}


def completion(connection: sqlite3.Connection, step: int) -> dict[str, JSON] | None:
    row = connection.execute("SELECT answer FROM completions WHERE step = ?", [step]).fetchone()
    return None if row is None else dict(json.loads(row[0]))


def ledger(world: World, folder: Path) -> Sequence[Effect]:
    """What is in the tables. The effects live here, so the provider's books hold nothing."""
    with closing(_connect(folder)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [
            (tool, dict(row))
            for tool, table in TABLES.items()
            for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
        ]
    return [
        Effect(sequence=sequence, tool=tool, intent=intent_of(tool, row), arguments=row)
        for sequence, (tool, row) in enumerate(rows, start=1)
    ]


def _connect(folder: Path) -> sqlite3.Connection:
    """In autocommit mode: what is not between BEGIN and COMMIT is durable when it returns."""
    connection = sqlite3.connect(folder / "business.db", isolation_level=None)
    connection.executescript(SCHEMA)
    return connection
