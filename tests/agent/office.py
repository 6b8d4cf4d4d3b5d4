"""One process's agent in a folder: a guard, tools that write to a ledger, a model that is counted from outside.

The model is a script, but as real ones do it words its call ids anew each time it is asked: a turn that was
asked for twice shows in the transcript, and as one more line in a file that no guard writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from workbench import NO_TIME, Ledger

import semel
from semel.agent import Message, OnText, ToolCall, ToolSpec, Turn, run_agent
from semel.agent.loop import Passing, pass_by
from semel.ports import Checkpoint, no_checkpoint

RUN_ID: Final = "renewal:sub_42:2026-12"
OPENING: Final = "Renew sub_42."

Script = Sequence[Sequence[ToolCall]]
Hook = Callable[[str], None]  # the place of a call, as "run/step/call id"


def pick(name: str, *, call_id: Any = "fresh", **arguments: Any) -> ToolCall:
    """A call that the model picks. Its id is made when it is said, unless the test gives one."""
    return ToolCall(id=call_id, name=name, arguments=arguments)


PLAN: Final[Script] = (
    (pick("charge", to="ann"), pick("mail", to="ann")),
    (pick("look", at="ann"),),
    (pick("grant", to="ann"),),
)


class Model:
    """Says the turns of a script, whoever asks; then that it is done."""

    def __init__(self, script: Script, asked: Ledger, before_it_says: Callable[[int], None]) -> None:
        self._script = script
        self._asked = asked
        self._before_it_says = before_it_says

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        turn = 1 + [message["role"] for message in messages].count("assistant")
        self._asked.enter("model", turn=turn, shown=json.loads(json.dumps(messages, default=repr)))
        times = [number for number, line in enumerate(self._asked.lines()) if line["pid"] == os.getpid()][-1]
        self._before_it_says(turn)
        if turn > len(self._script):
            return Turn(text="done")
        return Turn(text=f"turn {turn}", calls=tuple(worded(call, times) for call in self._script[turn - 1]))


def worded(call: ToolCall, times: int) -> ToolCall:
    """With the id that it gets when the model has been asked so many times before, by anyone."""
    if call.id != "fresh":
        return call
    return pick(call.name, call_id=f"call_{times}_{call.name}", **call.arguments)


class Office:
    """`charge` honours keys, `mail` can be looked up at once, `letter` cannot, `grant` is atomic, `look` is safe.

    `decline` is always refused by its provider. `visit` is told the place of each call before it takes effect.
    """

    def __init__(
        self,
        folder: Path,
        script: Script = PLAN,
        *,
        in_guard: Checkpoint = no_checkpoint,
        in_loop: Passing = pass_by,
        before_model_says: Callable[[int], None] = lambda turn: None,
        visit: Hook = lambda place: None,
        **options: Any,
    ) -> None:
        self.ledger = Ledger(folder)
        (folder / "model").mkdir(exist_ok=True)
        self.asked = Ledger(folder / "model")
        self.model = Model(script, self.asked, before_model_says)
        self.guard = semel.open(f"sqlite:///{folder}/agent.db", **({"checkpoint": in_guard} | options))
        self._in_loop = in_loop
        self._visit = visit
        self.tools: dict[str, semel.Tool] = {}
        self._register("charge", semel.Idempotent(key_ttl=timedelta(days=1)), self._do)
        self._register("mail", self._honest(), self._do)
        self._register("letter", semel.Unsafe(request_deadline=NO_TIME), self._do)
        self._register("decline", semel.Unsafe(), self._decline)
        self._register("grant", semel.Atomic(), grant)
        self._register("look", semel.Safe(), self._look)

    def run(self, run_id: str = RUN_ID, *, opening: str = OPENING, **changes: Any) -> list[Message]:
        given = {"checkpoint": self._in_loop} | changes
        tools = given.pop("tools", self.tools)
        return run_agent(self.guard, self.model, tools, run_id=run_id, opening=opening, **given)

    def register(self, name: str, effect: Any, fn: Callable[..., Any]) -> None:
        """One more tool."""
        self._register(name, effect, fn)

    # -------------------------------------------------------------- what happened

    def effects(self, tool: str) -> int:
        """How often it really happened."""
        if tool == "grant":
            with self.guard.store.transaction() as transaction:
                transaction.handle.execute("CREATE TABLE IF NOT EXISTS grants (customer TEXT)")
                (count,) = transaction.handle.execute("SELECT count(*) FROM grants").fetchone()
                return int(count)
        keys = self.ledger.keys(tool)
        return len(set(keys)) if tool == "charge" else len(keys)

    def turns_asked_for(self) -> list[int]:
        return [line["turn"] for line in self.asked.lines()]

    def log(self) -> list[str]:
        return [event.kind for event in self.guard.store.read_log("", RUN_ID)]

    def operations(self) -> list[semel.Operation]:
        return self.guard.store.read_run("", RUN_ID)

    # -------------------------------------------------------------- the tools

    def _register(self, name: str, effect: Any, fn: Callable[..., Any]) -> None:
        self.tools[name] = self.guard.tool(effect=effect, name=name)(fn)

    def _honest(self) -> semel.Unsafe:
        return semel.Unsafe(lookup=self._find, lookup_lag=NO_TIME, request_deadline=NO_TIME)

    def _do(self, to: str = "ann", *, call: semel.Call) -> dict[str, Any]:
        self._visit(f"{call.run_id}/{call.position}/{call.call_id}")
        self.ledger.enter(call.tool, call.key, to=to)
        return receipt(call.tool, to)

    def _find(self, call: semel.Call) -> semel.Evidence:
        found = [line for line in self.ledger.lines(call.tool) if line["key"] == call.key]
        return semel.Found(receipt(call.tool, found[0]["to"]), key=call.key) if found else semel.Absent()

    def _decline(self, *, call: semel.Call) -> None:
        self.ledger.enter("decline", call.key)
        raise semel.Rejected("the card was declined")

    def _look(self, at: str = "ann", *, call: semel.Call) -> dict[str, Any]:
        self.ledger.enter("look", call.key)
        self._visit(f"{call.run_id}/{call.position}/{call.call_id}")
        return {"at": at, "seen_so_far": len(self.ledger.lines("look"))}


def receipt(tool: str, to: str) -> dict[str, Any]:
    """The same whether the tool says it or the provider's books."""
    return {"tool": tool, "to": to}


def grant(to: str = "ann", *, tx: Any) -> dict[str, Any]:
    tx.execute("CREATE TABLE IF NOT EXISTS grants (customer TEXT)")
    tx.execute("INSERT INTO grants VALUES (?)", (to,))
    return receipt("grant", to)


def contents(transcript: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What the tools answered."""
    return [message["content"] for message in transcript if message["role"] == "tool"]
