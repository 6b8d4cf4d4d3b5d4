"""A model that says what a script tells it to: for examples, tests and rehearsals. No network, no tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from semel.agent.turns import Message, OnText, ToolSpec, Turn

PIECES: Final = re.compile(r"\S*\s*")  # together they are the whole text

Line = Turn | Callable[[Sequence[Message]], Turn]
"""A turn, or a function of the messages up to there."""


class ScriptedModel:
    """Says the turn that follows, by how many turns the messages hold; so a resumed run gets the same ones.

    Behind the script's end it says "done". With `on_text` each turn's text arrives word by word.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = tuple(lines)

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        number = turns_in(messages)
        line = self._lines[number] if number < len(self._lines) else Turn(text="done")
        turn = line if isinstance(line, Turn) else line(messages)
        if on_text is not None:
            for piece in PIECES.findall(turn.text):
                on_text(piece)
        return turn


class AsyncScriptedModel:
    """The same, awaited."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._script = ScriptedModel(lines)

    async def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return self._script.next_turn(messages, tools, on_text=on_text)


def turns_in(messages: Sequence[Message]) -> int:
    """How many turns of a model these messages hold."""
    return [message["role"] for message in messages].count("assistant")
