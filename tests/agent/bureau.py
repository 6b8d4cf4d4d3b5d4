"""A guard in a folder, a scripted model that counts its questions, and an agent run in either colour."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from workbench import NO_TIME, Ledger

import semel
from semel.agent import Agent, Ended, Message, OnText, ScriptedModel, ToolCall, ToolSpec, Turn
from semel.agent.models.scripted import Line

RUN_ID = "renewal:sub_42"
OPENING = "Renew sub_42."
COLOURS = ("sync", "async")


def pick(name: str, call_id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def say(*calls: ToolCall, text: str = "") -> Turn:
    return Turn(text=text, calls=calls)


class Counted:
    """A model that keeps what it was shown."""

    def __init__(self, script: Sequence[Line]) -> None:
        self.script = ScriptedModel(script)
        self.shown: list[list[Message]] = []
        self.specs: Sequence[ToolSpec] = ()

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        self.shown.append(list(messages))
        self.specs = tools
        return self.script.next_turn(messages, tools, on_text=on_text)


class Awaited:
    """The same model, to be awaited."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def next_turn(self, messages: Any, tools: Any, *, on_text: Any = None) -> Turn:
        await asyncio.sleep(0)
        return self._model.next_turn(messages, tools, on_text=on_text)


class Bureau:
    """`send` writes to the ledger and can be looked up; `post` cannot; `charge` honours keys. `fail` is called
    before each entry and may raise; `lose` after it."""

    def __init__(self, folder: Path, colour: str = "sync", **options: Any) -> None:
        self.ledger = Ledger(folder)
        self.colour = colour
        self.guard = semel.open(f"sqlite:///{folder}/agent.db", **options)
        self.fail: Callable[[semel.Call], None] = lambda call: None
        self.lose: Callable[[semel.Call], None] = lambda call: None
        self.is_down = False  # what `send` is looked up at
        self.tools: dict[str, semel.Tool] = {}
        can_be_asked = semel.Unsafe(lookup=self._find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
        self.register("send", can_be_asked, self._enter)
        self.register("post", semel.Unsafe(request_deadline=NO_TIME), self._enter)
        self.register("charge", semel.Idempotent(key_ttl=timedelta(days=1)), self._enter)

    def register(self, name: str, effect: Any, fn: Callable[..., Any], **options: Any) -> None:
        self.tools[name] = self.guard.tool(effect=effect, name=name, **options)(fn)

    def _enter(self, to: str, amount: float | None = None, text: str = "", *, call: semel.Call) -> str:
        self.fail(call)
        self.ledger.enter(call.tool, call.key, to=to, amount=amount)
        self.lose(call)
        return f"{call.tool} {to}"

    def _find(self, call: semel.Call) -> semel.Evidence:
        if self.is_down:
            return semel.Inconclusive("the books are closed", retry_after=timedelta(hours=1))
        was_sent = call.key in set(self.ledger.keys())
        return semel.Found(f"{call.tool} {call.arguments['to']}") if was_sent else semel.Absent()

    def agent(self, model: Any, **options: Any) -> Agent:
        tools = options.pop("tools", self.tools)
        return Agent(model if self.colour == "sync" else Awaited(model), tools, self.guard, **options)

    def run(self, agent: Agent, opening: str = OPENING, *, run_id: str = RUN_ID, **options: Any) -> Ended:
        if self.colour == "sync":
            return agent.run(opening, run_id=run_id, **options)
        return asyncio.run(agent.run_async(opening, run_id=run_id, **options))

    def sent(self, tool: str | None = None) -> list[str]:
        return [line["to"] for line in self.ledger.lines(tool)]

    def log(self, run_id: str = RUN_ID) -> list[str]:
        return [event.kind for event in self.guard.store.read_log("", run_id)]


def answers(ended: Ended | Sequence[Message]) -> list[Any]:
    messages = ended.transcript if isinstance(ended, Ended) else ended
    return [message["content"] for message in messages if message["role"] == "tool"]


class Meeting:
    """Two calls that each wait for the other: only possible if they run at the same time."""

    def __init__(self, parties: int = 2) -> None:
        self._barrier = threading.Barrier(parties)

    def __call__(self, *_: Any) -> None:
        self._barrier.wait(20)
