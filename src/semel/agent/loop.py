"""The agent in one function: sync, its calls one after the other.

transcript = run_agent(guard, model, {"charge": charge}, run_id="renewal:sub_42", opening="Renew sub_42.")
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.agent.agent import Agent
from semel.agent.life import Passing, pass_by
from semel.agent.turns import Message, Model
from semel.engine.guard import Guard
from semel.engine.tool import Tool


def run_agent(
    guard: Guard,
    model: Model,
    tools: Mapping[str, Tool],
    *,
    run_id: str,
    opening: str,
    checkpoint: Passing = pass_by,
) -> list[Message]:
    """Run to the end, or go on from where the log ends; the transcript.

    Raises what a call raises when its outcome has to be settled first (`PausedForPerson`, `OutcomeUnknown`,
    `ClaimHeld`, `NotSent`, `StoreError`); start it again afterwards. That a tool was `Rejected` goes to the model.
    `checkpoint`  passed before each call that is made, as ("calling", "turn/position").
    """

    def before_each_call(place: str, name: str) -> None:
        if place == "calling":
            checkpoint(place, name)

    agent = Agent(model, tools, guard, calls_at_once=1, on_not_done="stop", checkpoint=before_each_call)
    return agent.run(opening, run_id=run_id).transcript
