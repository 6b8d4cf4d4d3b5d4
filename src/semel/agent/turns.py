"""What is said between the loop and a model: messages, the tools on offer, and the model's turn.

A transcript is a list of plain, JSON-like messages:

    {"role": "user", "content": "Renew sub_42."}
    {"role": "assistant", "text": "Charging.", "calls": [{"id": "c1", "name": "charge", "arguments": {…}}]}
    {"role": "tool", "call_id": "c1", "content": …}      one for each call, in the order of the calls
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Message: TypeAlias = dict[str, Any]
OnText: TypeAlias = Callable[[str], None]  # a piece of the turn's text, as it arrives


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """One tool picked by the model, as the model named it: the id may be empty, or repeated."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a turn cost, in tokens, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One answer of the model. No calls: the run has ended.

    `provider_data` is whatever the provider wants to be given back as it was (signed reasoning, for example):
    JSON-like, persisted with the turn, and handed to the same adapter in the assistant's message.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    provider_data: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Model(Protocol):
    """Whatever can say the next turn: an adapter of a provider, a script, a recording."""

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        """The whole turn that follows these messages. With `on_text` its text is told as it arrives.

        Raises if the turn did not arrive whole: a part of a turn is never returned.
        """


class AsyncModel(Protocol):
    """The same, awaited."""

    async def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        """As `Model.next_turn`."""
