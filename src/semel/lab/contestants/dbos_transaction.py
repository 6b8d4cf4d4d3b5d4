"""DBOS on PostgreSQL: as `dbos_step`, but each tool's effect is a row in the same database, written in a
transaction of the datasource, which records the step's result with it.

It shows what is to be had where the effect lives in one's own database. There is no provider then: no keys, no
lookup, no late request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import sqlalchemy
from dbos import DBOS, SQLAlchemyDatasource

from semel.lab.contestants.dbos_step import CONFIG, carry_out
from semel.lab.contestants.stage import STEP_OF, Place, Stage
from semel.lab.scenario import answered, intent_of, opening, said
from semel.lab.wire import Effect, Turn

SCHEMA = "CREATE TABLE IF NOT EXISTS effects (number SERIAL PRIMARY KEY, tool TEXT, arguments TEXT)"
INSERT = sqlalchemy.text("INSERT INTO effects (tool, arguments) VALUES (:tool, :arguments) RETURNING number")


def run(stage: Stage) -> None:
    DBOS(config={**CONFIG, "system_database_url": stage.order.service})
    source: Any = SQLAlchemyDatasource.create(stage.order.service)
    with source.engine.begin() as connection:
        connection.execute(sqlalchemy.text(SCHEMA))

    @DBOS.step()
    def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return stage.next_turn(messages).to_json()

    def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        stage.gap(Place.W2, STEP_OF[name])
        row = source.sql_session().execute(INSERT, {"tool": name, "arguments": json.dumps(arguments)})
        answer = {"id": row.scalar_one(), "status": "done"}
        stage.gap(Place.W3, STEP_OF[name])
        return answer

    @DBOS.workflow()
    def renewal() -> None:
        messages = opening()
        while (turn := Turn.from_json(ask_model(messages))).calls:  # ends with the script
            messages.append(said(turn))
            for call in turn.calls:
                step = partial(call_tool, call.name, dict(call.arguments))
                messages.append(answered(call, source.run_tx_step({"name": call.name}, step)))

    carry_out(renewal)


def ledger(stage: Stage) -> Sequence[Effect]:
    """What is in the table."""
    engine = sqlalchemy.create_engine(stage.order.service.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT * FROM effects ORDER BY number")).all()
    return [
        Effect(
            sequence=number, tool=tool, intent=intent_of(tool, json.loads(text)), arguments=json.loads(text)
        )
        for number, tool, text in rows
    ]
