"""An agent as a tool of another.

Its run is named by the place of the call in the parent's run, so that it is the same run whenever the parent comes
there again: interrupted, it is resumed with the parent; ended, its last words are in the parent's log, and neither
its model nor its tools are asked again. It is no effect of its own: its tools are guarded within its own run, which
is not undone with the parent's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.agent.turns import ToolSpec
from semel.errors import UsageError

if TYPE_CHECKING:
    from semel.agent.agent import Agent


@dataclass(frozen=True, slots=True)
class SubAgent:
    """Made by `agent.as_tool(name, description)`. The model gives it one argument, `task`: text."""

    name: str
    description: str
    agent: Agent

    def spec(self, name: str) -> ToolSpec:
        parameters = {
            "type": "object",
            "properties": {"task": {"type": "string", "description": "What is to be done, in full."}},
            "required": ["task"],
            "additionalProperties": False,
        }
        return ToolSpec(name=name, description=self.description, parameters=parameters)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """As `Tool.bind`."""
        task = kwargs.get("task")
        if args or kwargs.keys() != {"task"} or not isinstance(task, str):
            raise UsageError(f"{self.name}(task) takes one argument, text. Nothing was sent.")
        return {"task": task}
