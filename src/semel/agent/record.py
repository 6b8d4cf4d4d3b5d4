"""A turn as the log keeps it, and as the transcript tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.agent.turns import Message, ToolCall, Turn, Usage


class RecordedTurn(NamedTuple):
    """`seconds`: the run's time at work up to this turn; `tries`: how often the model was asked for it."""

    turn: Turn
    seconds: float = 0.0
    tries: int = 1


def plain(recorded: RecordedTurn) -> dict[str, Any]:
    """As the log keeps it. What a turn does not have is left out."""
    turn, seconds, tries = recorded
    kept = spoken(turn)
    if turn.usage is not None:
        kept["usage"] = [turn.usage.input_tokens, turn.usage.output_tokens]
    kept["seconds"] = round(seconds, 6)
    if tries > 1:
        kept["tries"] = tries
    return kept


def recorded_turn(kept: Mapping[str, Any]) -> RecordedTurn:
    usage = kept.get("usage")
    turn = Turn(
        text=kept["text"],
        calls=tuple(ToolCall(**call) for call in kept["calls"]),
        usage=None if usage is None else Usage(input_tokens=usage[0], output_tokens=usage[1]),
        provider_data=kept.get("provider_data"),
    )
    return RecordedTurn(turn, kept.get("seconds", 0.0), kept.get("tries", 1))


def said(turn: Turn) -> Message:
    return {"role": "assistant", **spoken(turn)}


def spoken(turn: Turn) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in turn.calls]
    words: dict[str, Any] = {"text": turn.text, "calls": calls}
    if turn.provider_data is not None:
        words["provider_data"] = turn.provider_data
    return words
