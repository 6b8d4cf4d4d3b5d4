"""Each marked line is wrong, and the type checker must say so there and nowhere else. Never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import semel
from semel.agent import Agent, Budget, ScriptedModel, run_agent

guard = semel.open("sqlite:///agent.db", lease=30)  # wrong: a span is a timedelta


@guard.tool(effect=semel.Unsafe())
def charge(customer: str, *, call: semel.Call) -> str:
    call.key_for()  # wrong: how long may it be?
    return call.id  # wrong: no such field


def not_registered(customer: str) -> str:
    return customer


@guard.tool(effect="unsafe")  # wrong: an effect is a value of its own
def send(to: str) -> None: ...


@guard.tool()  # wrong: what kind of effect?
def fax(to: str) -> None: ...


semel.Idempotent()  # wrong: the provider forgets the key some day
semel.Idempotent(key_ttl=86_400)  # wrong: seconds, hours?
semel.Unsafe(print)  # wrong: by name only
semel.Unsafe(lookup_lag=30)  # wrong: a span is a timedelta
semel.Inconclusive("later", retry_after=5)  # wrong: a span is a timedelta
semel.Found(key=42)  # wrong: a reference is text
semel.Found(times="2")  # wrong: how many is a number


def use_it() -> None:
    with guard.run(42) as run:  # wrong: a run is named by text
        run.call(not_registered, "cus_42")  # wrong: nothing is known of its effect
        run.call_at(charge, {"customer": "cus_42"}, step=1, call_id="1")  # wrong: a step is text
        run.call_at(charge, {"customer": "cus_42"})  # wrong: where does it stand?
    guard.resolve("k", True, by="ann", why="saw it")  # wrong: no answer
    guard.resolve("k", semel.RunIt())  # wrong: who says so, and why?
    guard.reap()  # wrong: older than what?
    guard.reap(older_than=90)  # wrong: days, seconds?


async def use_it_async() -> None:
    with guard.run("run") as run:
        await run.call_async(charge)  # wrong: no such verb


def speak(tools: dict[str, Any]) -> None:
    run_agent(guard, charge, tools, run_id="run", opening="Renew.")  # wrong: a tool is no model
    Agent(charge, [charge], guard)  # wrong: a tool is no model
    Agent(ScriptedModel([]), [not_registered], guard)  # wrong: nothing is known of its effect
    Agent(ScriptedModel([]), [charge], guard, on_unknown="ignore")  # wrong: pause, or tell
    Agent(ScriptedModel([]), [charge], guard, budget=Budget(time=30))  # wrong: a span is a timedelta
    Agent(ScriptedModel([]), [charge], guard).run("Renew.")  # wrong: a run is named
    raise semel.PausedForPerson(timedelta(0))  # wrong: a message is text
