"""DBOS on PostgreSQL: the plan is a workflow, each model call and each tool call a step.

A step's result is recorded when it has returned; a workflow that was interrupted is recovered when its executor is
launched again. The tool hands the provider the workflow's id and the step's number as idempotency key.
"""

from __future__ import annotations

from typing import Any

from dbos import DBOS, SetWorkflowID

from semel.lab.contestants.stage import Stage
from semel.lab.scenario import RUN_ID, answered, opening, said
from semel.lab.wire import Turn

CONFIG: Any = {"name": "semel-bakeoff", "log_level": "CRITICAL", "run_admin_server": False}


def run(stage: Stage) -> None:
    DBOS(config={**CONFIG, "system_database_url": stage.order.service})

    @DBOS.step()
    def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return stage.next_turn(messages).to_json()

    @DBOS.step()
    def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        key = f"{DBOS.workflow_id}/{DBOS.step_id}"
        return stage.perform(name, arguments, key=key, reference=key)

    @DBOS.workflow()
    def renewal() -> None:
        messages = opening()
        while (turn := Turn.from_json(ask_model(messages))).calls:  # ends with the script
            messages.append(said(turn))
            for call in turn.calls:
                messages.append(answered(call, call_tool(call.name, dict(call.arguments))))

    carry_out(renewal)


def carry_out(workflow: Any) -> None:
    """Started under the id of the business event: the same workflow in every life."""
    DBOS.launch()
    with SetWorkflowID(RUN_ID):
        handle = DBOS.start_workflow(workflow)
    handle.get_result()
