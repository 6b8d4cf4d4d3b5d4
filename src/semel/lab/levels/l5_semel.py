"""L5, UNKNOWN and reconciliation: Semel itself, with the effect kind that fits the provider.

What it does: the turn is persisted, then each call is claimed durably before it is sent. On any doubt the
operation is UNKNOWN, and stays so until it is known: the provider dedupes on the stable key (`Idempotent`),
or is asked (`Unsafe` with a lookup, believed only once no earlier request can still land), or a person looks.
What it seals: W3 also at providers that ignore keys.
What breaks it: nothing that was declared truly. Where the provider has neither key nor lookup, a person must
answer, and no software can spare them that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import semel
from semel.agent import Message, OnText, ToolCall, ToolSpec, Turn, run_agent
from semel.lab import durable
from semel.lab.client import World
from semel.lab.injector import Checkpoint
from semel.lab.model import ProviderKind, Window
from semel.lab.scenario import OPENING, RUN_ID
from semel.lab.wire import Effect

ASKS_MAX: Final = 10  # a plan of three calls, each asked about once at most
REQUEST_DEADLINE: Final = timedelta(milliseconds=100)  # over loopback a request lands at once or never

WINDOWS: Final = {"claimed": Window.W2, "effect_done": Window.W3, "completed": Window.W4}


def run(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    gaps = Gaps(checkpoint)
    with durable.open_guard(world, folder, checkpoint=gaps.in_guard) as guard:
        tools = guarded_tools(guard, world, effect_for(world))
        for _ in range(ASKS_MAX):
            try:
                run_agent(
                    guard, Script(world), tools, run_id=RUN_ID, opening=OPENING, checkpoint=gaps.in_loop
                )
                return
            except semel.PausedForPerson as pause:
                ask_person(guard, world, pause)
    raise RuntimeError(f"a person was asked {ASKS_MAX} times and the plan still does not end")


def effect_for(world: World) -> semel.Idempotent | semel.Unsafe:
    """What the provider's documentation allows us to declare."""

    def find(call: semel.Call) -> semel.Evidence:
        effect = world.provider.find(call.tool, call.key)
        return semel.Absent() if effect is None else semel.Found(answer_of(effect), key=effect.reference)

    match world.provider_kind():
        case ProviderKind.HONOURS_KEYS:
            return semel.Idempotent(key_ttl=timedelta(hours=24))
        case ProviderKind.HAS_LOOKUP:
            return semel.Unsafe(lookup=find, lookup_lag=timedelta(0), request_deadline=REQUEST_DEADLINE)
        case ProviderKind.BLIND:
            return semel.Unsafe(request_deadline=REQUEST_DEADLINE)


def guarded_tools(
    guard: semel.Guard, world: World, effect: semel.Idempotent | semel.Unsafe
) -> dict[str, semel.Tool]:
    def perform(call: semel.Call) -> dict[str, Any]:
        worded = {name: value for name, value in call.arguments.items() if value is not None}
        return world.provider.perform(call.tool, worded, key=call.key, reference=call.key)

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


def answer_of(effect: Effect) -> dict[str, Any]:
    """The provider's answer, as its own books still tell it."""
    return {"id": f"{effect.tool}_{effect.sequence}", "status": "done", "intent": effect.intent}


def ask_person(guard: semel.Guard, world: World, pause: semel.PausedForPerson) -> None:
    """The lab plays the person, who looks into the provider's own books and answers truly.

    No sooner than the last request can have landed: what is on its way is in no books, and an answer given
    earlier would have to be asked for again.
    """
    threading.Event().wait(REQUEST_DEADLINE.total_seconds())
    operation = guard.read(pause.key)
    assert operation is not None, "a pause names a recorded operation"
    effect = world.ask_person(operation.tool, reference=pause.key)
    answer = semel.RunIt() if effect is None else semel.ItHappened(answer_of(effect))
    guard.resolve(
        pause.key,
        answer,
        by="the lab's person",
        why="looked into the books",
        fingerprint=pause.fingerprint,
        attempt=pause.attempt,
    )


@dataclass(frozen=True, slots=True)
class Script:
    """The scripted model, in the runtime's terms."""

    world: World

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        turn = self.world.model.next_turn(messages)
        return Turn(
            text=turn.text,
            calls=tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in turn.calls),
        )


class Gaps:
    """Tells the lab's checkpoint which step and window the runtime is at."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._step = 0

    def in_loop(self, place: str, name: str) -> None:
        self._step = int(name.partition("/")[0])  # one call a turn
        self._checkpoint(Window.W1, self._step)

    def in_guard(self, place: str, key: str) -> None:
        if place in WINDOWS:
            self._checkpoint(WINDOWS[place], self._step)
