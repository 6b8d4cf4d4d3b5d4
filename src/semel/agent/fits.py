"""Whether the program still fits what is recorded of a call; if not, the first difference, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel import values
from semel.agent.subagents import SubAgent
from semel.engine.tool import Tool
from semel.keys import fingerprint
from semel.model import Operation, Safe


def difference(
    operation: Operation,
    tool: Tool | SubAgent | None,
    name: str,
    arguments: Mapping[str, Any],
    problem: str | None,
) -> str | None:
    """`name`, `arguments`: as the model gave them, defaults filled in; `problem`: why the call cannot be made."""
    was = f"{operation.tool} was called, which has an effect"
    if tool is None:
        return f"{was}, and there is no tool named {name!r} now"
    if isinstance(tool, SubAgent):
        return f"{was}, and {name} is a sub-agent now"
    if isinstance(tool.effect, Safe):
        return f"{was}, and {name} only reads now"
    if tool.name != operation.tool:
        return f"{was}, and {name} is {tool.name} now"
    if tool.effect.name != operation.effect:
        return f"{tool.name} was {operation.effect} then, and is {tool.effect.name} now"
    if problem is not None:
        return f"{was}, and cannot be called so now ({problem})"
    if fingerprint(tool.name, dict(arguments)) != operation.fingerprint:
        return _first_of_arguments(tool.name, values.decode(operation.arguments), arguments)
    return None


def _first_of_arguments(tool: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    for name in [*then, *(name for name in now if name not in then)]:
        if name not in now:
            return f"{tool} was called with {name}={then[name]!r}, and takes no {name} now"
        if name not in then:
            return f"{tool} was called without {name}, and is called with {name}={now[name]!r} now"
        if values.canonical(then[name]) != values.canonical(now[name]):
            return (
                f"{tool} was called with {name}={then[name]!r}, and is called with {name}={now[name]!r} now"
            )
    return f"{tool} is called in another way now"
