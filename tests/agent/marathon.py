"""A run of twenty turns with parallel calls of every kind, whose process dies at the checkpoints it is told to.

Each checkpoint has a name: "asking@3" (the loop, turn 3), "calling@3/1" (its second call), "claimed@3/1" (the
guard, the same call). A life is told at which it has to die; it writes down the
name, and dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from workbench import NO_TIME, PATIENCE_SECONDS, Ledger

import semel
from semel import keys
from semel.agent import Agent, Ended, Message, OnText, ToolCall, ToolSpec, Turn
from semel.decide import decide as decide_soundly

TURNS: Final = 20
RUN_ID: Final = "marathon"
OPENING: Final = "Renew everybody."
KINDS: Final = (("charge", "mail"), ("mail", "look", "charge"), ("grant", "charge"), ("mail", "mail"))
EFFECTS: Final = ("charge", "mail", "grant")


def calls_of(turn: int) -> tuple[ToolCall, ...]:
    """Equal calls are meant; ids begin anew in every turn, as several servers have it."""
    names = KINDS[turn % len(KINDS)]
    return tuple(
        ToolCall(id=f"call_{place}", name=name, arguments={"to": f"customer {turn}"})
        for place, name in enumerate(names)
    )


WANTED: Final = Counter(call.name for turn in range(1, TURNS + 1) for call in calls_of(turn))


class Model:
    """Says the plan, and writes down each time that it is asked."""

    def __init__(self, asked: Ledger) -> None:
        self._asked = asked

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        turn = 1 + [message["role"] for message in messages].count("assistant")
        self._asked.enter("model", turn=turn)
        if turn > TURNS:
            return Turn(text="done")
        return Turn(text=f"turn {turn}", calls=calls_of(turn))


Dies = Callable[[str], bool]


def never(name: str) -> bool:
    return False


class Marathon:
    """One process's part of the run. `url` leads to the store, `folder` to the world."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        dies: Dies = never,
        decide: Any = decide_soundly,
        colour: str = "sync",
    ) -> None:
        self._colour = colour
        for name in ("world", "model", "deaths"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(folder / "world")
        self.asked = Ledger(folder / "model")
        self.deaths = Ledger(folder / "deaths")
        self.passed: list[str] = []
        self._dies = dies
        self._names = {
            keys.idempotency_key("", RUN_ID, str(turn), f"id:call_{place}"): f"{turn}/{place}"
            for turn in range(1, TURNS + 1)
            for place in range(len(calls_of(turn)))
        }
        self.guard = semel.open(
            url, checkpoint=self._in_guard, decide=decide, wait=timedelta(seconds=PATIENCE_SECONDS)
        )
        self.agent = Agent(Model(self.asked), self._tools(url), self.guard, checkpoint=self._pass)

    def run(self) -> Ended:
        if self._colour == "async":
            return asyncio.run(self.agent.run_async(OPENING, run_id=RUN_ID))
        return self.agent.run(OPENING, run_id=RUN_ID)

    # -------------------------------------------------------------- dying

    def _in_guard(self, place: str, key: str) -> None:
        if key in self._names:
            self._pass(place, self._names[key])

    def _pass(self, place: str, where: str) -> None:
        name = f"{place}@{where}"
        self.passed.append(name)
        if self._dies(name):
            self.deaths.enter(name)
            os.kill(os.getpid(), signal.SIGKILL)

    def killed_at(self) -> list[str]:
        return [line["tool"] for line in self.deaths.lines()]

    # -------------------------------------------------------------- the tools

    def _tools(self, url: str) -> list[semel.Tool]:
        mark = "%s" if url.startswith("postgresql") else "?"

        def charge(to: str, *, call: semel.Call) -> dict[str, Any]:
            self.ledger.enter("charge", call.key)
            return {"charged": to}

        def mail(to: str, *, call: semel.Call) -> dict[str, Any]:
            self.ledger.enter("mail", call.key)
            return {"mailed": to}

        def look(to: str) -> dict[str, Any]:
            return {"seen": to}

        def grant(to: str, *, tx: Any) -> dict[str, Any]:
            tx.execute(f"INSERT INTO grants VALUES ({mark})", (to,))
            return {"granted": to}

        def find(call: semel.Call) -> semel.Evidence:
            was_sent = call.key in self.ledger.keys("mail")
            return semel.Found({"mailed": call.arguments["to"]}) if was_sent else semel.Absent()

        with self.guard.store.transaction() as transaction:
            transaction.handle.execute("CREATE TABLE IF NOT EXISTS grants (customer TEXT)")
        can_be_asked = semel.Unsafe(lookup=find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
        return [
            self.guard.tool(effect=semel.Idempotent(key_ttl=timedelta(days=1)))(charge),
            self.guard.tool(effect=can_be_asked)(mail),
            self.guard.tool(effect=semel.Safe())(look),
            self.guard.tool(effect=semel.Atomic())(grant),
        ]

    # -------------------------------------------------------------- what came of it

    def effects(self) -> Counter[str]:
        """By the world's own books. The provider of `charge` honours keys."""
        with self.guard.store.transaction() as transaction:
            (granted,) = transaction.handle.execute("SELECT count(*) FROM grants").fetchone()
        charged = len(set(self.ledger.keys("charge")))
        return Counter(charge=charged, mail=len(self.ledger.keys("mail")), grant=granted)

    def check(self, ended: Ended, undisturbed: Ended) -> None:
        """As if nothing had happened: same transcript, each effect once, no recorded turn asked for again."""
        assert ended.transcript == undisturbed.transcript
        assert self.effects() == Counter({name: WANTED[name] for name in EFFECTS})
        asked = Counter(line["turn"] for line in self.asked.lines())
        lost = Counter(name.partition("@")[2] for name in self.killed_at() if name.startswith("asked@"))
        assert asked == Counter({turn: 1 + lost[str(turn)] for turn in range(1, TURNS + 2)})
        states = {operation.state for operation in self.guard.store.read_run("", RUN_ID)}
        assert states == {semel.State.COMMITTED}
        assert self.guard.in_doubt() == []


# ------------------------------------------------------------------ lives, run in children


def die_at(url: str, folder: Path, name: str, **options: Any) -> None:
    Marathon(url, folder, dies=lambda here: here == name, **options).run()


def die_at_the_first_new_one(url: str, folder: Path, among: Collection[str] | None = None) -> None:
    """The first checkpoint at which no life has died yet. If there is none, this life goes to the end."""
    deaths = Ledger(folder / "deaths")
    seen = {line["tool"] for line in deaths.lines()}
    Marathon(url, folder, dies=lambda here: here not in seen and (among is None or here in among)).run()
