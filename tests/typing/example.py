"""A program as the README has it, for the type checker (see tests/test_public_names.py). Never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, assert_type

import semel
from semel.agent import (
    Agent,
    Budget,
    Ended,
    Message,
    OnText,
    ScriptedModel,
    ToolCall,
    ToolSpec,
    Turn,
    run_agent,
)

guard = semel.open("sqlite:///agent.db", namespace="billing", lease=timedelta(seconds=30))
assert_type(guard, semel.Guard)


def find_mail(call: semel.Call) -> semel.Evidence:
    reference = call.key_for(max_length=32)
    if not reference:
        return semel.Inconclusive("in progress", retry_after=timedelta(seconds=1))
    return semel.Found({"id": "msg_1"}, key=call.key) if call.attempt > 1 else semel.Absent()


@guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)), once_per=("customer", "amount_cents"))
async def charge(customer: str, amount_cents: int, *, call: semel.Call) -> dict[str, Any]:
    return {"key": call.key, "uuid": str(call.uuid), "until": call.deadline_at}


@guard.tool(effect=semel.Atomic())
def grant_entitlement(customer: str, plan: str, *, tx: Any) -> None:
    tx.execute("INSERT INTO grants VALUES (?, ?)", (customer, plan))


@guard.tool(effect=semel.Unsafe(lookup=find_mail, lookup_lag=timedelta(seconds=30)), name="mail", attempts=2)
def send_email(to: str, *, call: semel.Call) -> str:
    if not to:
        raise semel.Rejected("nobody to send it to")
    call.ensure_held()
    with semel.http.one_request():
        semel.http.check(200, semel.http.STRIPE, text="")
    return semel.current_call().key


@guard.tool(effect=semel.Safe())
def look_up(customer: str) -> Mapping[str, Any]:
    return {"customer": customer}


assert_type(send_email, semel.Tool)


def use_it() -> None:
    with guard, guard.run("renewal:sub_42:2026-12") as run:
        assert_type(run, semel.Run)
        run.call(send_email, "ada@example.com")
        run.call_at(look_up, {"customer": "cus_42"}, step="1", call_id="call_1")
        grant_entitlement("cus_42", plan="pro")


async def use_it_async() -> dict[str, Any]:
    async with guard.run("renewal:sub_42:2026-12") as run:
        assert_type(run, semel.AsyncRun)
        await run.call(send_email, to="ada@example.com")
        result: dict[str, Any] = await run.call(charge, customer="cus_42", amount_cents=25_000)
        return result


def answer_for_a_person() -> semel.Operation | None:
    try:
        use_it()
    except semel.PausedForPerson as pause:
        answers = (semel.ItHappened({"id": "ch_1"}), semel.RunIt(), semel.GiveUp())
        return guard.resolve(pause.key, answers[0], by="ann", why="saw it", fingerprint=pause.fingerprint)
    except semel.OutcomeUnknown as unknown:
        assert_type(unknown.retry_after, timedelta | None)
        return guard.read(unknown.key or "")
    except semel.SemelError as error:
        return guard.read(error.key or "") if error.outcome == "happened" else None
    return None


def sweep() -> None:
    assert_type(guard.recover(), list[semel.Operation])
    assert_type(guard.reconcile(), semel.Reconciled)
    assert_type(guard.audit(), semel.Audited)
    assert_type(guard.reap(older_than=timedelta(days=90)), int)
    assert_type([entry.event for entry in guard.history("k")], list[semel.Event])
    assert_type([operation.state for operation in guard.in_doubt()], list[semel.State])


class Model:
    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return Turn(text="done", calls=(ToolCall(id="1", name="mail", arguments={"to": "ada"}),))


async def run_an_agent() -> str:
    budget = Budget(turns=20, tokens=100_000, time=timedelta(minutes=5))
    clerk = Agent(ScriptedModel([Turn(text="written")]), [send_email], guard).as_tool(
        "clerk", "Writes letters."
    )
    agent = Agent(Model(), [charge, clerk], guard, budget=budget, on_unknown={"charge": "tell"})
    assert_type(agent.run("Renew sub_42.", run_id="renewal:sub_42"), Ended)
    agent.fork("renewal:sub_42", "renewal:sub_42:again", upto=1)
    ended = await agent.run_async("Renew sub_42.", run_id="renewal:sub_42:again", on_text=print)
    return ended.text


def run_the_agent() -> list[dict[str, Any]]:
    return run_agent(guard, Model(), {"mail": send_email}, run_id="renewal:sub_42", opening="Renew sub_42.")
