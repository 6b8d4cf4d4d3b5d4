"""Models of the `openai` SDK (`pip install 'semel[openai]'`), and of any server that speaks its wire.

    model = OpenAIModel("gpt-5-mini", system="You renew subscriptions.")                       # Chat Completions
    model = OpenAIModel("qwen3", client=openai.OpenAI(base_url="http://…/v1", api_key="none"))    # another server
    model = OpenAIResponsesModel("gpt-5-mini", system="You renew subscriptions.")              # Responses

One call is one request: the SDK's own retries are off. With `on_text` the answer is streamed; a turn is returned
once its end was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from semel.agent.models.asking import ask, ask_async, client_without_retries, require_usable
from semel.agent.models.openai_chat import ChatWire
from semel.agent.models.openai_responses import ResponsesWire
from semel.agent.turns import Message, OnText, ToolSpec, Turn

if TYPE_CHECKING:
    import openai

NOTHING: Final[Mapping[str, Any]] = {}
RESERVED_IN_CHAT: Final = ("model", "messages", "tools", "stream", "n")
RESERVED_IN_RESPONSES: Final = ("model", "input", "instructions", "tools", "stream", "background")


class OpenAIModel:
    """Chat Completions. `parameters`: what else `client.chat.completions.create` takes; they win over the rest.

    `max_tokens` is sent as `max_completion_tokens`; a server that only knows the older name is given
    `parameters={"max_tokens": …}` instead.
    Raises `ModelFailed` where no whole turn came, `UsageError` where the program is at fault.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        system: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        client: openai.OpenAI | None = None,
    ) -> None:
        self._wire = ChatWire(model=model, max_tokens=max_tokens, system=system, parameters=dict(parameters))
        self._create = client_without_retries(client, "openai", "OpenAI").chat.completions.create
        require_usable(parameters, self._create, RESERVED_IN_CHAT)

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return ask(self._create, self._wire, messages, tools, on_text)


class AsyncOpenAIModel:
    """As `OpenAIModel`, for `openai.AsyncOpenAI`."""

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        system: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self._wire = ChatWire(model=model, max_tokens=max_tokens, system=system, parameters=dict(parameters))
        self._create = client_without_retries(client, "openai", "AsyncOpenAI").chat.completions.create
        require_usable(parameters, self._create, RESERVED_IN_CHAT)

    async def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return await ask_async(self._create, self._wire, messages, tools, on_text)


class OpenAIResponsesModel:
    """The Responses API. `parameters`: what else `client.responses.create` takes; they win over the rest.

    Raises `ModelFailed` where no whole turn came, `UsageError` where the program is at fault.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        system: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        client: openai.OpenAI | None = None,
    ) -> None:
        self._wire = ResponsesWire(
            model=model, max_tokens=max_tokens, system=system, parameters=dict(parameters)
        )
        self._create = client_without_retries(client, "openai", "OpenAI").responses.create
        require_usable(parameters, self._create, RESERVED_IN_RESPONSES)

    def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return ask(self._create, self._wire, messages, tools, on_text)


class AsyncOpenAIResponsesModel:
    """As `OpenAIResponsesModel`, for `openai.AsyncOpenAI`."""

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        system: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self._wire = ResponsesWire(
            model=model, max_tokens=max_tokens, system=system, parameters=dict(parameters)
        )
        self._create = client_without_retries(client, "openai", "AsyncOpenAI").responses.create
        require_usable(parameters, self._create, RESERVED_IN_RESPONSES)

    async def next_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_text: OnText | None = None
    ) -> Turn:
        return await ask_async(self._create, self._wire, messages, tools, on_text)
