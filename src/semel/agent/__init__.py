"""Agents whose runs resume: the same transcript, no second question to the model, no second effect.

agent = Agent(model, [charge, send_email], guard)
agent.run("Renew sub_42.", run_id="renewal:sub_42:2026-12")
"""

from semel.agent.agent import Agent
from semel.agent.budget import Budget
from semel.agent.course import Ended
from semel.agent.errors import (
    BudgetSpent,
    ModelFailed,
    ProgramChanged,
    RunCancelled,
    RunHeld,
    RunStopped,
    RunTakenOver,
)
from semel.agent.loop import run_agent
from semel.agent.models.recording import AsyncRecordingModel, RecordingModel, ReplayingModel
from semel.agent.models.scripted import AsyncScriptedModel, ScriptedModel
from semel.agent.specs import spec_of
from semel.agent.subagents import SubAgent
from semel.agent.turns import AsyncModel, Message, Model, OnText, ToolCall, ToolSpec, Turn, Usage

__all__ = [
    "Agent",
    "AsyncModel",
    "AsyncRecordingModel",
    "AsyncScriptedModel",
    "Budget",
    "BudgetSpent",
    "Ended",
    "Message",
    "Model",
    "ModelFailed",
    "OnText",
    "ProgramChanged",
    "RecordingModel",
    "ReplayingModel",
    "RunCancelled",
    "RunHeld",
    "RunStopped",
    "RunTakenOver",
    "ScriptedModel",
    "SubAgent",
    "ToolCall",
    "ToolSpec",
    "Turn",
    "Usage",
    "run_agent",
    "spec_of",
]
