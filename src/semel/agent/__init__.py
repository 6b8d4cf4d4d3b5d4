"""Runs that resume: the run log and the smallest agent loop on top of it."""

from semel.agent.loop import Model, ToolCall, Turn, run_agent

__all__ = ["Model", "ToolCall", "Turn", "run_agent"]
