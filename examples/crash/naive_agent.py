"""A renewal agent as one writes it first: it works, until its process dies.

Run it with BILLING_URL set to whatever takes POST /charges and POST /mails.
"""

from __future__ import annotations

import json
import os
import random
import urllib.request
import uuid
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

TASK = "Renew the subscription of cus_42 for December 2026, and tell them."


def post(path: str, fields: dict[str, Any]) -> str:
    """Send one request; the provider's own id of what it did."""
    request = urllib.request.Request(os.environ["BILLING_URL"] + path, json.dumps(fields).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(json.load(response)["id"])


def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands for a model: asked again it makes new call ids and finds other words, as models do."""
    done = [part.tool_name for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]
    if "charge" not in done:
        return says("charge", {"customer": "cus_42", "period": "2026-12", "amount_cents": 25_000})
    if "send_email" not in done:
        greeting = random.choice(["Hello", "Dear customer", "Good morning"])
        body = f"{greeting}, your subscription is renewed ({random.random()})."
        return says("send_email", {"to": "cus_42@example.com", "subject": "Renewed", "body": body})
    return ModelResponse(parts=[TextPart("Renewed, and told them.")])


def says(tool: str, arguments: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(tool, arguments, tool_call_id=f"call_{uuid.uuid4().hex}")])


agent = Agent(FunctionModel(think))


@agent.tool_plain
def charge(customer: str, period: str, amount_cents: int) -> str:
    """Charge the customer for one period."""
    return post("/charges", {"customer": customer, "period": period, "amount_cents": amount_cents})


@agent.tool_plain
def send_email(to: str, subject: str, body: str) -> str:
    """Send an e-mail to the customer."""
    return post("/mails", {"to": to, "subject": subject, "body": body})


def run() -> None:
    print(agent.run_sync(TASK).output)


if __name__ == "__main__":
    run()
