"""What every contestant is given: the same model, the same tools, the same gaps to die in.

A life ends with status 0 when the plan has ended, and with 1 and a traceback when the contestant can't go on. Where
its `Order` says so, it ends earlier: the process kills itself, or stops itself, in the gap it was told.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Final

from semel.lab.client import World
from semel.lab.model import ProviderKind
from semel.lab.scenario import PLANS, RUN_ID, Message, answered, opening, said, turn_asked_for
from semel.lab.wire import JSON, Arguments, Effect, ToolCall, Turn

STEP_OF: Final = {step.tool: number for number, step in enumerate(PLANS["renewal"], start=1)}
PAUSED: Final = "paused"  # the file that names the process which has stopped itself
LEDGER: Final = "ledger.json"
ASKS_MAX: Final = 5  # about one call: who has not understood the answer by then never will


class Place(StrEnum):
    """A gap in which a life can end; the same line of this file for every contestant."""

    W1 = "W1"  # the model's turn has arrived; no tool's wrapper has been called
    W2 = "W2"  # inside the tool, before its request leaves
    IN_FLIGHT = "in flight"  # the request has left, and no answer will come
    W3 = "W3"  # inside the tool, after the provider's answer
    W4 = "W4"  # the step's result is recorded: the model is about to be asked for the next turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """Where a life ends. `is_pause`: it only stops there (SIGSTOP), and may be continued."""

    place: Place
    step: int
    is_pause: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One life. `service` is the address of the server it needs, if any; `setting` is the contestant's own word."""

    address: str
    cell_id: str
    folder: str
    setting: str = ""
    service: str = ""
    death: Death | None = None
    wants_ledger: bool = False


def _nothing(place: Place, step: int) -> None:
    """Nobody watches."""


@dataclass(kw_only=True, slots=True)
class Stage:
    """One life of a contestant. `watch` is called at every gap that is passed, before anything happens there."""

    order: Order
    watch: Callable[[Place, int], None] = _nothing
    awakened: Callable[[], None] = field(default=lambda: None)  # after a pause

    @property
    def folder(self) -> Path:
        return Path(self.order.folder)

    @property
    def world(self) -> World:
        return World(address=self.order.address, cell_id=self.order.cell_id)

    def next_turn(self, messages: Sequence[Message]) -> Turn:
        """Ask the model."""
        number = turn_asked_for(messages)
        self.gap(Place.W4, number - 1)
        turn = self.world.model.next_turn(messages)
        self.gap(Place.W1, number)
        return turn

    def perform(
        self,
        tool: str,
        arguments: Arguments,
        *,
        key: str | None = None,
        reference: str | None = None,
        before_sending: Callable[[], None] = lambda: None,
    ) -> dict[str, JSON]:
        """The body of every tool. `before_sending` is for a package that offers a last look before the request."""
        step = STEP_OF[tool]
        self.gap(Place.W2, step)
        before_sending()
        try:
            answer = self.world.provider.perform(tool, arguments, key=key, reference=reference)
        except (OSError, http.client.HTTPException):
            self.gap(Place.IN_FLIGHT, step)
            raise
        self.gap(Place.W3, step)
        return answer

    def find(self, tool: str, reference: str) -> dict[str, JSON] | None:
        """Ask the provider's lookup; the answer that was given for this reference, or None if none is seen."""
        return _answer_of(self.world.provider.find(tool, reference))

    def ask_person(self, tool: str, reference: str) -> dict[str, JSON] | None:
        """A person looks into the provider's books. They take their time: what was on its way has landed."""
        self.world.release_held()
        return _answer_of(self.world.ask_person(tool, reference=reference))

    def provider_kind(self) -> ProviderKind:
        """What the author of a tool reads in the provider's documentation."""
        return self.world.provider_kind()

    def gap(self, place: Place, step: int) -> None:
        self.watch(place, step)
        death = self.order.death
        if death is None or (place, step) != (death.place, death.step):
            return
        if not death.is_pause:
            os.kill(os.getpid(), signal.SIGKILL)
        note = self.folder / PAUSED
        if not note.exists():  # once
            note.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
            self.awakened()


def _answer_of(effect: Effect | None) -> dict[str, JSON] | None:
    """The provider's answer, as its own books still tell it."""
    if effect is None:
        return None
    return {"id": f"{effect.tool}_{effect.sequence}", "status": "done", "intent": effect.intent}


def name_of_step(tool: str) -> str:
    """The business identity of a step: each tool is meant once in this renewal, however it is worded."""
    return f"{RUN_ID}/{tool}"


def run_plan(stage: Stage, call_tool: Callable[[ToolCall], Mapping[str, JSON]]) -> None:
    """The agent of a package that brings none: it starts the conversation anew in every life."""
    messages = opening()
    while (turn := stage.next_turn(messages)).calls:  # ends with the script
        messages.append(said(turn))
        for call in turn.calls:
            messages.append(answered(call, call_tool(call)))


def live(program: str, order: Order) -> None:
    """One life: a fork of a process that has the program imported and has done nothing else.

    What a package says goes to the log beside the folder. Raises when the contestant can't go on.
    """
    os.chdir(order.folder)
    log = os.open(log_of(order), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    module = import_module(program)
    stage = Stage(order=order)
    if order.wants_ledger:
        effects = [effect.to_json() for effect in module.ledger(stage)]
        (stage.folder / LEDGER).write_text(json.dumps(effects), encoding="utf-8")
    else:
        module.run(stage)


def log_of(order: Order) -> Path:
    return Path(order.folder).with_suffix(".log")
