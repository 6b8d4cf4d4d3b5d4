"""`ledger-once`: the agent's tools wrapped by its guard.

`default`    `wrap_tools` as the documentation recommends it: a call is named by its arguments, and a blocked one
             answers "blocked". The agent is started again at once.
`strictest`  an explicit key, the recorded answer given to blocked calls, and the time after which a running record
             counts as crashed shortened to a second (its field of `Policy`; no method sets it), which the agent is
             started after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger import Guard, Policy

from semel.lab.contestants.stage import Stage, name_of_step, run_plan
from semel.lab.scenario import RUN_ID
from semel.lab.wire import JSON, ToolCall

CRASHED_AFTER_SECONDS = 1


def run(stage: Stage) -> None:
    guard: Any = Guard().persist(str(stage.folder / "ledger.db")).workflow(RUN_ID).quiet()
    is_strict = stage.order.setting == "strictest"
    tools = guard.wrap_tools(
        {name: tool_for(stage, name) for name in ("charge", "send_email", "grant_entitlement")},
        blocked_return={"status": "blocked"},
    )
    if is_strict:
        guard._engine.default = Policy(max=1, replay=True, timeout=CRASHED_AFTER_SECONDS)

    def call_tool(call: ToolCall) -> dict[str, JSON]:
        named = {"key": name_of_step(call.name)} if is_strict else {}
        return dict(tools[call.name](**call.arguments, **named) or {"status": "blocked"})

    run_plan(stage, call_tool)


def tool_for(stage: Stage, name: str) -> Callable[..., dict[str, JSON]]:
    def tool(**arguments: JSON) -> dict[str, JSON]:
        return stage.perform(name, arguments)

    tool.__name__ = name  # the package names a call by it
    return tool
