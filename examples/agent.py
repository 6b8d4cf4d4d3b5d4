"""Run it, kill it at the prompt (kill -9), run it again. Offline: the model is a script."""

import os
from datetime import timedelta
from pathlib import Path

import semel
from semel.agent import Agent, ScriptedModel, ToolCall, Turn

books = Path("books.txt")  # stands for a provider that ignores keys, but can be asked
guard = semel.open("sqlite:///agent.db")


def find(call: semel.Call) -> semel.Evidence:
    is_there = books.exists() and call.key in books.read_text()
    return semel.Found("done") if is_there else semel.Absent()


@guard.tool(effect=semel.Unsafe(lookup=find, lookup_lag=timedelta(0), request_deadline=timedelta(seconds=1)))
def charge(customer: str, amount_cents: int, *, call: semel.Call) -> str:
    """Take money from a customer."""
    with books.open("a") as page:
        page.write(f"{call.key} {customer} {amount_cents}\n")  # the money is gone
    input(f"Charged {customer}, and not yet recorded. Kill me now (kill -9 {os.getpid()}), or press Enter:\n")
    return "done"


calls = [
    ToolCall(id=c, name="charge", arguments={"customer": c, "amount_cents": 900}) for c in ("ann", "bob")
]
model = ScriptedModel([Turn(text="Charging both.", calls=tuple(calls)), Turn(text="Both are charged.")])
print(Agent(model, [charge], guard).run("Renew ann and bob.", run_id="renewal:2026-12").text)
