"""The renewal agent of `naive_agent.py`, guarded: killed anywhere and started again, it does everything once.

What is different: the tools are the guard's, the run has the name of its business event, and the model's replies
are kept, so that a resumed run asks for the same calls under the same ids, in the same words.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.parse
import urllib.request
from datetime import timedelta
from typing import Any

from naive_agent import TASK, think
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

import semel

guard = semel.open("sqlite:///agent.db")


# ------------------------------------------------------------------ the tools


def send(request: urllib.request.Request) -> dict[str, Any]:
    with semel.http.one_request(), urllib.request.urlopen(request, timeout=1) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def post(path: str, fields: dict[str, Any], call: semel.Call) -> str:
    """Send one request under the intent's key; the provider's own id of what it did."""
    url, body = os.environ["BILLING_URL"] + path, json.dumps(fields).encode()
    return str(send(urllib.request.Request(url, body, {"Idempotency-Key": call.key}))["id"])


def find_mail(call: semel.Call) -> semel.Evidence:
    """Ask the mail provider, which ignores keys but can search for them."""
    query = urllib.parse.urlencode({"key": call.key})
    found = send(urllib.request.Request(f"{os.environ['BILLING_URL']}/mails?{query}"))["effects"]
    return semel.Found(found[0]["id"]) if found else semel.Absent()


@guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)), once_per=("customer", "period"))
def charge(customer: str, period: str, amount_cents: int, *, call: semel.Call) -> str:
    return post("/charges", {"customer": customer, "period": period, "amount_cents": amount_cents}, call)


@guard.tool(
    effect=semel.Unsafe(lookup=find_mail, lookup_lag=timedelta(0), request_deadline=timedelta(seconds=1))
)
def send_email(to: str, subject: str, body: str, *, call: semel.Call) -> str:
    return post("/mails", {"to": to, "subject": subject, "body": body}, call)


# ------------------------------------------------------------------ the model's replies


class Journal(WrapperModel):
    """Keeps each reply before any tool of it runs, and gives it back to a resumed run.

    A reply is a guarded call like any other: to ask a model again is harmless, so it is idempotent.
    """

    def __init__(self, model: FunctionModel, run: semel.AsyncRun) -> None:
        super().__init__(model)
        self._run = run
        self._question: Any = None

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(days=365)))
        async def ask_model() -> str:
            reply = await model.request(*self._question)
            return ModelMessagesTypeAdapter.dump_json([reply]).decode()

        self._ask = ask_model

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self._question = (messages, model_settings, model_request_parameters)
        turn = sum(isinstance(message, ModelResponse) for message in messages) + 1
        kept = await self._run.call_at(self._ask, {}, step=f"turn {turn}", call_id="the model")
        (reply,) = ModelMessagesTypeAdapter.validate_json(kept)
        assert isinstance(reply, ModelResponse)
        return reply


# ------------------------------------------------------------------ the agent

agent = Agent(deps_type=semel.AsyncRun)


@agent.tool(name="charge")
async def _charge(ctx: RunContext[semel.AsyncRun], customer: str, period: str, amount_cents: int) -> str:
    """Charge the customer for one period."""
    return await guarded(ctx, charge, customer=customer, period=period, amount_cents=amount_cents)


@agent.tool(name="send_email")
async def _send_email(ctx: RunContext[semel.AsyncRun], to: str, subject: str, body: str) -> str:
    """Send an e-mail to the customer."""
    return await guarded(ctx, send_email, to=to, subject=subject, body=body)


async def guarded(ctx: RunContext[semel.AsyncRun], tool: semel.Tool, **arguments: Any) -> str:
    """At the model's own coordinates, which the journal makes durable."""
    assert ctx.tool_call_id is not None
    return str(await ctx.deps.call_at(tool, arguments, step=f"turn {ctx.run_step}", call_id=ctx.tool_call_id))


async def renew(event: str) -> str:
    async with guard.run(event) as run:
        result = await agent.run(TASK, deps=run, model=Journal(FunctionModel(think), run))
        return result.output


def run() -> None:
    print(asyncio.run(renew("renewal:cus_42:2026-12")))


if __name__ == "__main__":
    run()
