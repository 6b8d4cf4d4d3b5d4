"""A model that writes down what another one says, and one that says it again without a network.

The file holds a line of JSON for each turn: the messages that the model was shown, the tools it was offered, and
the turn. A replay goes by how many turns the messages hold, and refuses messages that are not those of the
recording: what the model would have said to others, nobody knows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semel import values
from semel.agent.errors import ProgramChanged
from semel.agent.models.scripted import PIECES, turns_in
from semel.agent.record import RecordedTurn, plain, recorded_turn
from semel.agent.turns import AsyncModel, Message, Model, OnText, ToolSpec, Turn
from semel.errors import UsageError


class RecordingModel:
    """Asks `model`, and appends what it said to the file. A turn that did not arrive whole is not written down."""

    def __init__(self, model: Model, path: Path | str) -> None:
        self._model = model
        self._tape = _Tape(Path(path))

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        turn = self._model.next_turn(messages, tools, on_text=on_text)
        self._tape.write(messages, tools, turn)
        return turn


class AsyncRecordingModel:
    """The same for a model that is awaited."""

    def __init__(self, model: AsyncModel, path: Path | str) -> None:
        self._model = model
        self._tape = _Tape(Path(path))

    async def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        turn = await self._model.next_turn(messages, tools, on_text=on_text)
        self._tape.write(messages, tools, turn)
        return turn


class ReplayingModel:
    """Says what the file says. Where a turn was asked for twice, the last time counts: that is the recorded one.

    Raises `ProgramChanged`, with the first difference, if it is shown other messages than were recorded, and
    `UsageError` behind the recording's end.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._takes: dict[int, list[Mapping[str, Any]]] = {}
        for line in self._path.read_text(encoding="utf-8").splitlines():
            take = values.decode(line)
            self._takes.setdefault(turns_in(take["messages"]), []).append(take)

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        number = turns_in(messages)
        takes = self._takes.get(number)
        if not takes:
            raise UsageError(f"{self._path} has no turn {number + 1}. Nothing was asked. Record it first.")
        shown = values.decode(values.encode(list(messages)))
        take = next((take for take in reversed(takes) if take["messages"] == shown), None)
        if take is None:
            raise self._other_messages(number, takes[-1]["messages"], shown)
        turn = recorded_turn(take["turn"]).turn
        if on_text is not None:
            for piece in PIECES.findall(turn.text):
                on_text(piece)
        return turn

    def _other_messages(self, number: int, recorded: Any, shown: Any) -> ProgramChanged:
        path, was, now = first_difference(recorded, shown, "messages")
        difference = f"{path} was {was}, and is {now} now"
        error = ProgramChanged(
            f"{self._path}: turn {number + 1} was recorded for other messages: {difference}. Nothing was asked. "
            "Record it anew, or run the program that was recorded."
        )
        error.difference = difference
        return error


class _Tape:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, messages: Sequence[Message], tools: Sequence[ToolSpec], turn: Turn) -> None:
        """A whole line, in one write: several processes may record into one file."""
        offered = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in tools
        ]
        kept = {"messages": list(messages), "tools": offered, "turn": plain(RecordedTurn(turn))}
        line = values.encode(kept) + "\n"
        with self._lock:
            file = os.open(self._path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)


def first_difference(was: Any, now: Any, path: str) -> tuple[str, str, str]:
    """Where two JSON-like values first differ, and what stands there in each."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name in [*was, *(name for name in now if name not in was)]:
            if name not in was or name not in now:
                return f"{path}.{name}", _shown(was, name), _shown(now, name)
            if was[name] != now[name]:
                return first_difference(was[name], now[name], f"{path}.{name}")
    if isinstance(was, list) and isinstance(now, list):
        for place in range(max(len(was), len(now))):
            if place >= len(was) or place >= len(now):
                return f"{path}[{place}]", _shown(was, place), _shown(now, place)
            if was[place] != now[place]:
                return first_difference(was[place], now[place], f"{path}[{place}]")
    return path, repr(was), repr(now)


def _shown(where: Any, place: Any) -> str:
    is_there = place in where if isinstance(where, Mapping) else place < len(where)
    return repr(where[place]) if is_there else "missing"
