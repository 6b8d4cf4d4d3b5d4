"""What a model says, once, and each provider's way of saying it: as a body, as a stream; and what each refuses."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import anthropic
import openai
import openai.types.responses
from model_server import Answer, unpaired
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from semel.agent.models.anthropic import AnthropicModel, AsyncAnthropicModel
from semel.agent.models.openai import (
    AsyncOpenAIModel,
    AsyncOpenAIResponsesModel,
    OpenAIModel,
    OpenAIResponsesModel,
)

Raw = tuple[str | None, str, str]  # a call's id, name, and arguments as text


@dataclass(frozen=True, kw_only=True)
class Say:
    """One turn. `end`: why it ended, in the provider's own word; left out, as it should be."""

    text: str = ""
    calls: Sequence[Raw] = ()
    reasoning: Sequence[Mapping[str, Any]] = ()  # the provider's own blocks or items, ahead of all else
    end: str | None = None
    tokens: tuple[int, int] = (11, 7)


def pieces(text: str) -> list[str]:
    """Text as it arrives: in two pieces, if there is enough of it."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def sse(event: Mapping[str, Any], *, named: bool) -> bytes:
    head = f"event: {event['type']}\n" if named else ""
    return f"{head}data: {json.dumps(event)}\n\n".encode()


@functools.cache
def shape(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def misshapen(kind: Any, values: Iterable[Any]) -> str | None:
    """What one of the SDK's own types says against one of these."""
    for value in values:
        try:
            shape(kind).dump_python(
                shape(kind).validate_python(value)
            )  # lists in it are only checked when read
        except (ValidationError, PydanticSerializationError) as problem:
            return f"{value!r} is not of the SDK's form: {problem}"
    return None


def parsed(event: bytes) -> dict[str, Any]:
    """The opposite of `sse`."""
    return json.loads(event.decode().partition("data: ")[2])


class Dialect:
    """`name` is what a test is told, `path` where the server listens, `package` the SDK."""

    name: str
    path: str
    package: str
    classes: ClassVar[Mapping[str, Any]]  # by colour
    clients: ClassVar[Mapping[str, Any]]
    transports: ClassVar[Mapping[str, Any]]
    base = ""
    required: ClassVar[Mapping[str, Any]] = {}
    cut_off: str  # the word for too many tokens

    def body(self, say: Say) -> dict[str, Any]:
        raise AssertionError(f"{self.name} was asked for an answer in one piece")

    def stream(self, say: Say) -> list[bytes]:
        raise NotImplementedError

    def problem(self, body: Mapping[str, Any]) -> str | None:
        """What the provider would not take: a form that is not the SDK's, calls and results that do not pair."""
        raise NotImplementedError

    def typed(self, say: Say) -> list[tuple[Any, dict[str, Any]]]:
        """Whatever it answers, each with the SDK's own type for it."""
        raise NotImplementedError

    def answer(self, say: Say) -> Any:
        """As a body or as a stream, as it is asked for."""
        return lambda streamed: Answer(events=self.stream(say)) if streamed else Answer(body=self.body(say))

    def client(self, colour: str, url: str) -> Any:
        """The SDK's own, less the certificates, which take longer to read than a test takes to run."""
        transport = self.transports[colour](verify=False, trust_env=False)
        return self.clients[colour](api_key="none", base_url=url + self.base, http_client=transport)


class Messages(Dialect):
    name, path, package = "anthropic-messages", "/v1/messages", "anthropic"
    classes: ClassVar = {"sync": AnthropicModel, "async": AsyncAnthropicModel}
    clients: ClassVar = {"sync": anthropic.Anthropic, "async": anthropic.AsyncAnthropic}
    transports: ClassVar = {"sync": anthropic.DefaultHttpxClient, "async": anthropic.DefaultAsyncHttpxClient}
    required: ClassVar = {"max_tokens": 1000}
    cut_off = "max_tokens"

    def stream(self, say: Say) -> list[bytes]:
        events: list[dict[str, Any]] = [{"type": "message_start", "message": self._shell(say)}]
        for index, (block, deltas) in enumerate(self._blocks(say)):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events += [{"type": "content_block_stop", "index": index}, {"type": "ping"}]
        events.append(
            {
                "type": "message_delta",
                "delta": {"stop_reason": self._end(say), "stop_sequence": None},
                "usage": {"output_tokens": say.tokens[1]},
            }
        )
        return [sse(event, named=True) for event in [*events, {"type": "message_stop"}]]

    def _shell(self, say: Say) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": say.tokens[0] - 2,
                "cache_read_input_tokens": 2,
                "cache_creation_input_tokens": None,
                "output_tokens": 1,
            },
        }

    def _end(self, say: Say) -> str:
        return say.end or ("tool_use" if say.calls else "end_turn")

    def _blocks(self, say: Say) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        blocks = [self._reasoned(dict(block)) for block in say.reasoning]
        if say.text:
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(say.text)]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call_id, name, arguments in say.calls:
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments)]
            blocks.append((block, deltas))
        return blocks

    def _reasoned(self, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        if block["type"] != "thinking":
            return block, []
        deltas: list[dict[str, Any]] = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])
        ]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return block | {"thinking": "", "signature": ""}, deltas

    def typed(self, say: Say) -> list[tuple[Any, dict[str, Any]]]:
        events = [
            event for event in map(parsed, self.stream(say)) if event["type"] != "ping"
        ]  # the SDK drops it
        return [(anthropic.types.RawMessageStreamEvent, event) for event in events]

    def problem(self, body: Mapping[str, Any]) -> str | None:
        calls: list[str] = []
        results: list[str] = []
        blocks: list[dict[str, Any]] = []
        for message in body["messages"]:
            if not message["content"]:
                return "a message is empty"
            for block in message["content"] if isinstance(message["content"], list) else ():
                blocks.append(block)
                if block["type"] == "text" and not block["text"]:
                    return "a text is empty"
                if block["type"] == "tool_use":
                    calls.append(block["id"])
                    if not isinstance(block["input"], dict):
                        return "an input is no object"
                if block["type"] == "tool_result":
                    results.append(block["tool_use_id"])
        return (
            misshapen(anthropic.types.ContentBlockParam, blocks)
            or misshapen(anthropic.types.ToolParam, body.get("tools", ()))
            or unpaired(calls, results)
        )


class Chat(Dialect):
    name, path, package = "openai-chat", "/v1/chat/completions", "openai"
    classes: ClassVar = {"sync": OpenAIModel, "async": AsyncOpenAIModel}
    clients: ClassVar = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}
    transports: ClassVar = {"sync": openai.DefaultHttpxClient, "async": openai.DefaultAsyncHttpxClient}
    base = "/v1"
    cut_off = "length"

    def body(self, say: Say) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None, "refusal": None}
        for extra in say.reasoning:
            message |= extra
        if say.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in say.calls
            ]
        choice = {"index": 0, "finish_reason": self._end(say), "message": message, "logprobs": None}
        return self._shell("chat.completion") | {"choices": [choice], "usage": self._usage(say)}

    def stream(self, say: Say) -> list[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for extra in say.reasoning:
            deltas += [{name: piece} for name, value in extra.items() for piece in pieces(value)]
        deltas += [{"content": piece} for piece in pieces(say.text)]
        for index, (call_id, name, arguments) in enumerate(say.calls):
            begun = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            deltas.append({"tool_calls": [{"index": index, **begun}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in pieces(arguments)
            ]
        chunks = [self.chunk(delta) for delta in deltas]
        chunks.append(self.chunk({}, end=self._end(say)))
        usage = self._shell("chat.completion.chunk") | {"choices": [], "usage": self._usage(say)}
        return [*chunks, sse(usage, named=False), b"data: [DONE]\n\n"]

    def chunk(self, delta: Mapping[str, Any], *, end: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": end, "logprobs": None}
        return sse(self._shell("chat.completion.chunk") | {"choices": [choice], "usage": None}, named=False)

    def _shell(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": "scripted"}

    def _usage(self, say: Say) -> dict[str, int]:
        came, went = say.tokens
        return {"prompt_tokens": came, "completion_tokens": went, "total_tokens": came + went}

    def _end(self, say: Say) -> str:
        return say.end or ("tool_calls" if say.calls else "stop")

    def typed(self, say: Say) -> list[tuple[Any, dict[str, Any]]]:
        *chunks, _ = self.stream(say)
        streamed = [(openai.types.chat.ChatCompletionChunk, parsed(chunk)) for chunk in chunks]
        return [(openai.types.chat.ChatCompletion, self.body(say)), *streamed]

    def problem(self, body: Mapping[str, Any]) -> str | None:
        calls: list[str] = []
        results: list[str] = []
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                calls.append(call["id"])
                if not is_object(call["function"]["arguments"]):
                    return "arguments are no JSON object"
            if message["role"] == "tool":
                results.append(message["tool_call_id"])
        return (
            misshapen(openai.types.chat.ChatCompletionMessageParam, body["messages"])
            or misshapen(openai.types.chat.ChatCompletionFunctionToolParam, body.get("tools", ()))
            or unpaired(calls, results)
        )


class Responses(Dialect):
    name, path, package = "openai-responses", "/v1/responses", "openai"
    classes: ClassVar = {"sync": OpenAIResponsesModel, "async": AsyncOpenAIResponsesModel}
    clients: ClassVar = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}
    transports: ClassVar = {"sync": openai.DefaultHttpxClient, "async": openai.DefaultAsyncHttpxClient}
    base = "/v1"
    cut_off = "max_output_tokens"

    def body(self, say: Say) -> dict[str, Any]:
        part = {"type": "output_text", "text": say.text, "annotations": [], "logprobs": []}
        text = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [part]}
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{place}",
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
            for place, (call_id, name, arguments) in enumerate(say.calls)
        ]
        came, went = say.tokens
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000.0,
            "model": "scripted",
            "status": "incomplete" if say.end else "completed",
            "incomplete_details": {"reason": say.end} if say.end else None,
            "error": None,
            "output": [*say.reasoning, *([text] if say.text else []), *calls],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": came,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": went,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": came + went,
            },
        }

    def stream(self, say: Say) -> list[bytes]:
        whole = self.body(say)
        begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        place = {"item_id": "m_1", "output_index": 0, "content_index": 0, "logprobs": []}
        events += [
            {"type": "response.output_text.delta", "delta": piece, **place} for piece in pieces(say.text)
        ]
        events += [
            {"type": "response.output_item.done", "output_index": index, "item": item}
            for index, item in enumerate(whole["output"])
        ]
        events.append({"type": f"response.{whole['status']}", "response": whole})
        numbers = itertools.count()
        return [sse(event | {"sequence_number": next(numbers)}, named=True) for event in events]

    def typed(self, say: Say) -> list[tuple[Any, dict[str, Any]]]:
        events = map(parsed, self.stream(say))
        streamed = [(openai.types.responses.ResponseStreamEvent, event) for event in events]
        return [(openai.types.responses.Response, self.body(say)), *streamed]

    def problem(self, body: Mapping[str, Any]) -> str | None:
        calls: list[str] = []
        results: list[str] = []
        for item in body["input"]:
            if item.get("type") == "function_call":
                calls.append(item["call_id"])
                if not is_object(item["arguments"]):
                    return "arguments are no JSON object"
            if item.get("type") == "function_call_output":
                results.append(item["call_id"])
        return (
            misshapen(openai.types.responses.ResponseInputItemParam, body["input"])
            or misshapen(openai.types.responses.FunctionToolParam, body.get("tools", ()))
            or unpaired(calls, results)
        )


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


DIALECTS: tuple[Dialect, ...] = (Messages(), Chat(), Responses())


class Face:
    """A model of either colour, asked in the sync way."""

    def __init__(self, model: Any, client: Any, runner: asyncio.Runner | None) -> None:
        self.model = model
        self.client = client
        self._runner = runner

    def next_turn(self, messages: Any, tools: Any = (), *, on_text: Any = None) -> Any:
        ask = functools.partial(self.model.next_turn, messages, tools, on_text=on_text)
        return ask() if self._runner is None else self._runner.run(ask())

    def close(self) -> None:
        if self._runner is None:
            self.client.close()
        else:
            self._runner.run(self.client.close())
