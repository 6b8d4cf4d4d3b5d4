"""The renewal agent with an idempotency key on every request: the model's own call id, as many write it.

It is better than nothing (an HTTP client may retry now), and no help after a crash: the resumed run asks the model
again, the model makes new call ids, and the provider rightly sees new requests.
"""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

from naive_agent import TASK, think
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.function import FunctionModel


def post(path: str, fields: dict[str, Any], key: str | None) -> str:
    url, body = os.environ["BILLING_URL"] + path, json.dumps(fields).encode()
    request = urllib.request.Request(url, body, {"Idempotency-Key": str(key)})
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(json.load(response)["id"])


agent = Agent(FunctionModel(think))


@agent.tool
def charge(ctx: RunContext[object], customer: str, period: str, amount_cents: int) -> str:
    """Charge the customer for one period."""
    fields = {"customer": customer, "period": period, "amount_cents": amount_cents}
    return post("/charges", fields, ctx.tool_call_id)


@agent.tool
def send_email(ctx: RunContext[object], to: str, subject: str, body: str) -> str:
    """Send an e-mail to the customer."""
    return post("/mails", {"to": to, "subject": subject, "body": body}, ctx.tool_call_id)


def run() -> None:
    print(agent.run_sync(TASK).output)


if __name__ == "__main__":
    run()
