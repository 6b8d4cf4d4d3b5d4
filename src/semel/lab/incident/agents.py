"""Three agents for one plan: naive, with checkpoints, with Semel. Each is run like a level of the ladder."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import semel
from semel.agent import Message, OnText, ToolCall, ToolSpec, Turn, run_agent
from semel.lab import wire
from semel.lab.client import World
from semel.lab.durable import connect
from semel.lab.incident.plan import OPENING, PLAN, RUN_ID, STEP_OF, Nature, Step, intent, of_tool, turn
from semel.lab.injector import Checkpoint, Run
from semel.lab.levels.l5_semel import Gaps
from semel.lab.levels.turn_log import TurnLog
from semel.lab.model import Window
from semel.lab.wire import JSON, Arguments, Effect

TIMELINE: Final = "CREATE TABLE IF NOT EXISTS timeline (target TEXT, detail TEXT)"
NOTE: Final = "INSERT INTO timeline VALUES (?, ?)"
RESULTS: Final = "CREATE TABLE IF NOT EXISTS results (step INTEGER PRIMARY KEY, answer TEXT NOT NULL)"
REQUEST_DEADLINE: Final = timedelta(milliseconds=100)  # over loopback a request lands at once or never
ASKS_MAX: Final = 10  # one call is interrupted, and each is asked about once


def naive(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    """After a crash the plan starts again."""
    for step in count(1):  # ends with the script
        for call in turn(step).calls:
            checkpoint(Window.W1, step)
            checkpoint(Window.W2, step)  # the same gap: no intent is written down
            _perform(world, folder, call.name, call.arguments)
            checkpoint(Window.W3, step)
            checkpoint(Window.W4, step)  # the same gap: no completion is recorded
        if step > len(PLAN):
            return


def checkpointed(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    """Turns and finished results are kept; between a call and its result there is an unguarded gap."""
    with closing(connect(world, folder)) as database:
        turns = TurnLog(database)
        database.execute(RESULTS)
        for step in range(1, len(PLAN) + 1):
            for call in turns.turn(step, lambda step=step: turn(step)).calls:  # type: ignore[misc]
                checkpoint(Window.W1, step)
                row = database.execute("SELECT answer FROM results WHERE step = ?", [step]).fetchone()
                checkpoint(Window.W2, step)
                if row is None:
                    answer = _perform(world, folder, call.name, call.arguments)
                    checkpoint(Window.W3, step)
                    database.execute("INSERT INTO results VALUES (?, ?)", [step, json.dumps(answer)])
                checkpoint(Window.W4, step)


def guarded(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    """Semel, with the effect kind that each tool's nature asks for.

    A tool that only reads passes through no gap of the guard: its own are the edges of its body.
    """
    gaps = Gaps(checkpoint)
    with semel.open(f"sqlite:///{_own_database(folder)}", checkpoint=gaps.in_guard) as guard:
        _timeline(folder).close()  # an atomic tool finds its table there
        tools = {step.tool: _tool(guard, world, step, checkpoint) for step in PLAN}
        for _ in range(ASKS_MAX):
            try:
                run_agent(
                    guard, Script(checkpoint), tools, run_id=RUN_ID, opening=OPENING, checkpoint=gaps.in_loop
                )
                return
            except semel.PausedForPerson as pause:
                _ask_person(guard, world, pause)
    raise RuntimeError(f"a person was asked {ASKS_MAX} times and the plan still does not end")


AGENTS: Final[Mapping[str, Run]] = {"naive": naive, "checkpoint": checkpointed, "Semel": guarded}


def own_effects(folder: Path) -> list[Effect]:
    """Those of the atomic tool, which the provider does not see."""
    with closing(_timeline(folder)) as database:
        rows = database.execute("SELECT target, detail FROM timeline").fetchall()
    return [
        Effect(sequence=number, tool="note_timeline", intent=intent("note_timeline", note), arguments=note)
        for number, (target, detail) in enumerate(rows, start=1)
        for note in [{"target": target, "detail": detail}]
    ]


def _perform(
    world: World, folder: Path, tool: str, arguments: Arguments, key: str | None = None
) -> dict[str, JSON]:
    if of_tool(tool).nature is not Nature.ATOMIC:
        return world.provider.perform(tool, arguments, key=key)
    with closing(_timeline(folder)) as database:
        database.execute(NOTE, [arguments["target"], arguments["detail"]])
    return {"status": "noted"}


def _tool(guard: semel.Guard, world: World, step: Step, checkpoint: Checkpoint) -> semel.Tool:
    def read(target: str, detail: str = "") -> dict[str, JSON]:
        checkpoint(Window.W2, STEP_OF[step.tool])
        answer = world.provider.perform(step.tool, {"target": target, "detail": detail})
        checkpoint(Window.W3, STEP_OF[step.tool])
        return answer

    def ask(target: str, detail: str = "", *, call: semel.Call) -> dict[str, JSON]:
        return world.provider.perform(step.tool, {"target": target, "detail": detail}, key=call.key)

    def note(target: str, detail: str = "", *, tx: Any) -> dict[str, JSON]:
        tx.execute(NOTE, (target, detail))
        return {"status": "noted"}

    bodies: dict[Nature, Callable[..., dict[str, JSON]]] = {Nature.READS: read, Nature.ATOMIC: note}
    return guard.tool(effect=_effect_of(step.nature), name=step.tool)(bodies.get(step.nature, ask))


def _effect_of(nature: Nature) -> semel.Safe | semel.Idempotent | semel.Atomic | semel.Unsafe:
    match nature:
        case Nature.READS:
            return semel.Safe()
        case Nature.REPEATABLE:  # it may be sent again whenever: no provider need remember anything
            return semel.Idempotent(key_ttl=timedelta(days=365))
        case Nature.KEYED:
            return semel.Idempotent(key_ttl=timedelta(hours=24))
        case Nature.ATOMIC:
            return semel.Atomic()
        case Nature.BLIND:
            return semel.Unsafe(request_deadline=REQUEST_DEADLINE)


def _ask_person(guard: semel.Guard, world: World, pause: semel.PausedForPerson) -> None:
    """No sooner than the last request can have landed: what is on its way is in no books, and "run it" said
    earlier would have to be asked for again."""
    threading.Event().wait(REQUEST_DEADLINE.total_seconds())
    operation = guard.read(pause.key)
    assert operation is not None, "a pause names a recorded operation"
    effect = world.ask_person(operation.tool, arguments=of_tool(operation.tool).arguments)
    guard.resolve(
        pause.key,
        semel.RunIt() if effect is None else semel.ItHappened({"status": "done"}),
        by="the lab's person",
        why="looked into the books",
        fingerprint=pause.fingerprint,
        attempt=pause.attempt,
    )


@dataclass(frozen=True, slots=True)
class Script:
    """The scripted model, in the runtime's terms."""

    checkpoint: Checkpoint

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        number = 1 + sum(message["role"] == "assistant" for message in messages)
        self.checkpoint(Window.W4, number - 1)  # where a tool that only read has been answered
        asked: wire.Turn = turn(number)
        calls = tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in asked.calls)
        return Turn(text=asked.text, calls=calls)


def _own_database(folder: Path) -> Path:
    return folder / "own.db"


def _timeline(folder: Path) -> sqlite3.Connection:
    """In autocommit mode."""
    connection = sqlite3.connect(_own_database(folder), isolation_level=None)
    connection.execute(TIMELINE)
    return connection
