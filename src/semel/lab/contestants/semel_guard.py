"""Semel on SQLite, with its own small agent loop and the effect kind that the provider's documentation allows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import semel
from semel.agent import Message, OnText, ToolCall, ToolSpec, Turn, run_agent
from semel.lab.contestants.stage import ASKS_MAX, Stage
from semel.lab.model import ProviderKind
from semel.lab.scenario import OPENING, RUN_ID

LEASE: Final = timedelta(seconds=1)
LOOKUP_LAG: Final = timedelta(milliseconds=500)
REQUEST_DEADLINE: Final = timedelta(milliseconds=500)


def run(stage: Stage) -> None:
    with semel.open(f"sqlite:///{stage.folder}/semel.db", lease=LEASE) as guard:
        tools = guarded_tools(guard, stage)
        for _ in range(ASKS_MAX):
            try:
                run_agent(guard, Script(stage), tools, run_id=RUN_ID, opening=OPENING)
                return
            except semel.PausedForPerson as pause:
                answer(guard, stage, pause)
    raise RuntimeError(f"a person was asked {ASKS_MAX} times and the plan still does not end")


def effect_for(stage: Stage) -> semel.Idempotent | semel.Unsafe:
    def find(call: semel.Call) -> semel.Evidence:
        found = stage.find(call.tool, call.key)
        return semel.Absent() if found is None else semel.Found(found)

    match stage.provider_kind():
        case ProviderKind.HONOURS_KEYS:
            return semel.Idempotent(key_ttl=timedelta(hours=24))
        case ProviderKind.HAS_LOOKUP:
            return semel.Unsafe(lookup=find, lookup_lag=LOOKUP_LAG, request_deadline=REQUEST_DEADLINE)
        case ProviderKind.BLIND:
            return semel.Unsafe(request_deadline=REQUEST_DEADLINE)


def guarded_tools(guard: semel.Guard, stage: Stage) -> dict[str, semel.Tool]:
    def perform(call: semel.Call) -> dict[str, Any]:
        worded = {name: value for name, value in call.arguments.items() if value is not None}
        return stage.perform(
            call.tool, worded, key=call.key, reference=call.key, before_sending=call.ensure_held
        )

    effect = effect_for(stage)

    @guard.tool(effect=effect)
    def charge(
        customer: str,
        period: str,
        amount_cents: int | None = None,
        amount_usd: int | None = None,
        *,
        call: semel.Call,
    ) -> dict[str, Any]:
        return perform(call)

    @guard.tool(effect=effect)
    def send_email(to: str, subject: str, body: str, *, call: semel.Call) -> dict[str, Any]:
        return perform(call)

    @guard.tool(effect=effect)
    def grant_entitlement(
        customer: str, period: str, plan: str | None = None, tier: str | None = None, *, call: semel.Call
    ) -> dict[str, Any]:
        return perform(call)

    return {tool.name: tool for tool in (charge, send_email, grant_entitlement)}


def answer(guard: semel.Guard, stage: Stage, pause: semel.PausedForPerson) -> None:
    """No sooner than the last request can have landed: what is on its way is in no books, and "run it" said
    earlier would have to be asked for again."""
    threading.Event().wait(REQUEST_DEADLINE.total_seconds())
    operation = guard.read(pause.key)
    assert operation is not None, "a pause names a recorded operation"
    found = stage.ask_person(operation.tool, pause.key)
    guard.resolve(
        pause.key,
        semel.RunIt() if found is None else semel.ItHappened(found),
        by="the lab's person",
        why="looked into the books",
        fingerprint=pause.fingerprint,
        attempt=pause.attempt,
    )


@dataclass(frozen=True, slots=True)
class Script:
    """The scripted model, in the runtime's terms."""

    stage: Stage

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        turn = self.stage.next_turn(messages)
        calls = tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in turn.calls)
        return Turn(text=turn.text, calls=calls)
