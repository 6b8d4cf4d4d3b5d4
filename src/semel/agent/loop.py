"""The agent in one function: sync, its calls one after the other, and nothing claimed but the calls.

    transcript = run_agent(guard, model, {"charge": charge}, run_id="renewal:sub_42", opening="Renew sub_42.")

Of two processes on one run id both may ask the model; the log keeps one turn, and both end in its transcript. That
is the least that makes a run resume; the lab takes it, so that what it finds is the guard's doing and no claim's.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.agent import sync
from semel.agent.agent import Agent
from semel.agent.course import Ended
from semel.agent.life import Passing, pass_by
from semel.agent.stop import Stop
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
    agent.ensure_sync()
    ended: Ended = sync.drive(agent.course(opening, run_id, stop=Stop(run_id), claims_run=False))
    return ended.transcript
