"""The agent's plan: an incident, from the page to the closed ticket, one tool call a turn.

Five calls only read. Of the ten that change the world, three may be repeated by their nature, three have a provider
that honours keys, one has its effect in the agent's own database, and three have a provider that can do nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from semel.lab.wire import Arguments, ToolCall, Turn

RUN_ID: Final = "incident:checkout:2026-12-01"
OPENING: Final = "Checkout answers with errors since 09:40. Find out why, stop it, tell everybody, clean up."


class Nature(StrEnum):
    READS = "reads"
    REPEATABLE = "repeatable"  # a second time changes nothing: it sets a state
    KEYED = "keyed"  # the provider honours an idempotency key
    ATOMIC = "atomic"  # the effect is a row in the agent's own database
    BLIND = "blind"  # the provider honours no key and can't be asked


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    tool: str
    nature: Nature
    target: str
    detail: str = ""

    @property
    def arguments(self) -> Arguments:
        return {"target": self.target, "detail": self.detail}

    @property
    def changes_the_world(self) -> bool:
        return self.nature is not Nature.READS


def _step(tool: str, nature: Nature, target: str, detail: str = "") -> Step:
    return Step(tool=tool, nature=nature, target=target, detail=detail)


PLAN: Final = (
    _step("read_alert", Nature.READS, "checkout"),
    _step("page_on_call", Nature.BLIND, "payments", "checkout is failing"),
    _step("open_ticket", Nature.KEYED, "checkout", "errors since 09:40"),
    _step("read_metrics", Nature.READS, "checkout"),
    _step("read_logs", Nature.READS, "checkout"),
    _step("note_timeline", Nature.ATOMIC, "checkout", "errors began with release 812"),
    _step("post_status", Nature.BLIND, "status page", "checkout is degraded"),
    _step("disable_flag", Nature.REPEATABLE, "new-basket", "off"),
    _step("scale_out", Nature.REPEATABLE, "checkout", "12 replicas"),
    _step("roll_back", Nature.KEYED, "checkout", "release 811"),
    _step("read_health", Nature.READS, "checkout"),
    _step("credit_customers", Nature.KEYED, "41 failed orders", "5 EUR each"),
    _step("email_customers", Nature.BLIND, "41 failed orders", "we are sorry"),
    _step("read_ticket", Nature.READS, "checkout"),
    _step("set_ticket_state", Nature.REPEATABLE, "checkout", "resolved"),
)
STEP_OF: Final = {step.tool: number for number, step in enumerate(PLAN, start=1)}


def of_tool(tool: str) -> Step:
    return PLAN[STEP_OF[tool] - 1]


def intent(tool: str, arguments: Arguments) -> str:
    return f"{tool} {arguments['target']} {arguments.get('detail') or ''}".strip()


def intents() -> Iterator[str]:
    """What is meant to happen, once each."""
    return (intent(step.tool, step.arguments) for step in PLAN if step.changes_the_world)


def turn(number: int) -> Turn:
    """The scripted model. Its call ids are new whenever it is asked, as with real ones."""
    if number > len(PLAN):
        return Turn(text="The incident is over.")
    step = PLAN[number - 1]
    call = ToolCall(id=f"call_{uuid.uuid4().hex}", name=step.tool, arguments=step.arguments)
    return Turn(text=f"Next: {step.tool}.", calls=(call,))
