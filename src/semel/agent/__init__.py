"""Runs that resume: the run log and the smallest agent loop on top of it."""

from semel.agent.loop import run_agent
from semel.agent.turns import AsyncModel, Message, Model, OnText, ToolCall, ToolSpec, Turn, Usage

__all__ = ["AsyncModel", "Message", "Model", "OnText", "ToolCall", "ToolSpec", "Turn", "Usage", "run_agent"]
