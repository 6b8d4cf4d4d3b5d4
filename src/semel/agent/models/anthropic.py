"""Models of the `anthropic` SDK (`pip install 'semel[anthropic]'`), over its Messages API.

    model = AnthropicModel("claude-sonnet-4-5", max_tokens=4096, system="You renew subscriptions.")

One call is one request: the SDK's own retries are off. Answers are always streamed, told or not, since the SDK
refuses to wait for a long one in one piece; a turn is returned once its end was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from semel.agent.models.anthropic_messages import MessagesWire
from semel.agent.models.asking import ask, ask_async, client_without_retries, require_usable
from semel.agent.turns import Message, OnText, ToolSpec, Turn

if TYPE_CHECKING:
    import anthropic

NOTHING: Final[Mapping[str, Any]] = {}
RESERVED: Final = ("model", "max_tokens", "messages", "system", "tools", "stream")


class AnthropicModel:
    """`parameters`: what else `client.messages.create` takes (`thinking`, `temperature`, `extra_headers`, …).

    `client`: one of the SDK's clients, for whatever cloud; left out, one is made from the environment.
    Raises `ModelFailed` where no whole turn came, `UsageError` where the program is at fault.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int,
        system: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        client: anthropic.Anthropic | None = None,
    ) -> None:
        self._wire = MessagesWire(
            model=model, max_tokens=max_tokens, system=system, parameters=dict(parameters)
        )
        self._create = client_without_retries(client, "anthropic", "Anthropic").messages.create
        require_usable(parameters, self._create, RESERVED)

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return ask(self._create, self._wire, messages, tools, on_text)


class AsyncAnthropicModel:
    """As `AnthropicModel`, for `anthropic.AsyncAnthropic`."""

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int,
        system: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        client: anthropic.AsyncAnthropic | None = None,
    ) -> None:
        self._wire = MessagesWire(
            model=model, max_tokens=max_tokens, system=system, parameters=dict(parameters)
        )
        self._create = client_without_retries(client, "anthropic", "AsyncAnthropic").messages.create
        require_usable(parameters, self._create, RESERVED)

    async def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return await ask_async(self._create, self._wire, messages, tools, on_text)
