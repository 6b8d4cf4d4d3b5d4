"""`safeact`: the decorator with the business identity as key, which the tool hands on to the provider.

There is one setting. A key in doubt is resolved by hand; one that was resolved as "did not happen" is refused for
ever, and the documentation says to take a new key then.
"""

from __future__ import annotations

from typing import Any

from safeact import FailedCallError, InDoubtError, get_store, safe

from semel.lab.contestants.stage import ASKS_MAX, Stage, name_of_step, run_plan
from semel.lab.wire import JSON, ToolCall


def run(stage: Stage) -> None:
    path = str(stage.folder / "agent.db")
    store: Any = get_store(path)

    @safe(store=path)
    def perform(key: str, tool: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
        return stage.perform(tool, arguments, key=key, reference=key)

    def call_tool(call: ToolCall) -> dict[str, JSON]:
        attempt = 1
        for _ in range(ASKS_MAX):
            key = f"{name_of_step(call.name)}/{attempt}"
            try:
                return dict(perform(key, call.name, dict(call.arguments)))
            except FailedCallError as failed:
                if "did not happen" not in failed.original_error:
                    raise
                attempt += 1
            except InDoubtError as in_doubt:
                found = stage.ask_person(call.name, in_doubt.key)
                store.resolve(in_doubt.key, happened=found is not None, result=found)
        raise RuntimeError("still in doubt, whatever is resolved")

    run_plan(stage, call_tool)
