"""The Messages API as plain values: a transcript to a request, an answer to a turn.

A turn's blocks are kept as they came (`provider_data`) and given back so: thinking blocks are signed, and the
provider refuses them altered or out of order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semel.agent.models.failures import failed, not_whole
from semel.agent.models.transcript import (
    Asked,
    Said,
    as_text,
    did_not_go_well,
    exchanges,
    read_arguments,
)
from semel.agent.turns import Message, ToolCall, ToolSpec, Turn, Usage

TAG: Final = "anthropic_messages"
ACCEPTED_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")  # what the API takes for a tool_use id
ENDS: Final = frozenset({"end_turn", "tool_use", "stop_sequence"})
CUT_OFF: Final = {
    "max_tokens": "it reached max_tokens; give the model more",
    "model_context_window_exceeded": "the transcript and the answer are longer than the model's context",
    "pause_turn": "a tool of the provider's own takes longer than one answer, which this adapter does not wait for",
    "refusal": "the provider's filters stopped it",
}
ADDED_TO: Final = {"text_delta": "text", "thinking_delta": "thinking"}
COUNTED_AS_INPUT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesWire:
    model: str
    max_tokens: int
    system: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    always_streams = True  # the SDK refuses to wait for a long answer in one piece

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        said: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": _messages(messages),
        }
        if self.system is not None:
            said["system"] = self.system
        if tools:
            said["tools"] = [_offered(tool) for tool in tools]
        return said | dict(self.parameters)

    def streaming(self, request: dict[str, Any]) -> dict[str, Any]:
        return request | {"stream": True}

    def assembly(self) -> MessageAssembly:
        return MessageAssembly()

    def turn(self, reply: Mapping[str, Any]) -> Turn:
        reason = reply.get("stop_reason")
        _require_end(reason)
        blocks: list[dict[str, Any]] = reply.get("content") or []
        calls = tuple(map(_call, filter(_is_call, blocks)))
        if reason == "tool_use" and not calls:
            raise not_whole("it says that it calls tools, and names none")
        return Turn(
            text="".join(block.get("text") or "" for block in blocks if block.get("type") == "text"),
            calls=calls,
            usage=_usage(reply.get("usage")),
            provider_data={TAG: blocks},
        )


def _require_end(reason: str | None) -> None:
    if reason in ENDS:
        return
    if reason is None:
        raise not_whole("it does not say why it ended")
    why = CUT_OFF.get(reason, f"it ended with {reason!r}, which this adapter does not know")
    raise failed(f"The model was cut off: {why}", retryable=False)


def _is_call(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_use"


def _call(block: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        id=str(block.get("id") or ""), name=str(block.get("name") or ""), arguments=block["input"]
    )


def _usage(counted: Mapping[str, Any] | None) -> Usage | None:
    """Input that was read from the provider's cache, or put there, is input too."""
    if not counted:
        return None
    return Usage(
        input_tokens=sum(counted.get(name) or 0 for name in COUNTED_AS_INPUT),
        output_tokens=counted.get("output_tokens") or 0,
    )


# ------------------------------------------------------------------ the request


def _offered(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    rendered: list[dict[str, Any]] = []
    for exchange in exchanges(messages, accepted_id=ACCEPTED_ID):
        if isinstance(exchange, Asked):
            rendered.append({"role": "user", "content": exchange.content})
            continue
        if blocks := _blocks(exchange):  # the API takes no empty message
            rendered.append({"role": "assistant", "content": blocks})
        if exchange.results:
            rendered.append({"role": "user", "content": _results(exchange)})
    return rendered


def _blocks(said: Said) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] | None = said.kept(TAG)
    if blocks is None or len(list(filter(_is_call, blocks))) != len(said.calls):
        blocks = _said_again(said)
    ids = iter([call.id for call in said.calls])
    return [
        block | {"id": next(ids)} if _is_call(block) else block
        for block in blocks
        if block.get("type") != "text" or (block.get("text") or "").strip()  # nor an empty text
    ]


def _said_again(said: Said) -> list[dict[str, Any]]:
    """A turn of which only text and calls are known: another provider's, say."""
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in said.calls
    ]
    return [{"type": "text", "text": said.text}, *calls]


def _results(said: Said) -> list[dict[str, Any]]:
    """All in one message: the API wants every call of a turn answered by the message that follows it."""
    return [
        {
            "type": "tool_result",
            "tool_use_id": result.call_id,
            "content": as_text(result.content),
            "is_error": did_not_go_well(result.content),
        }
        for result in said.results
    ]


# ------------------------------------------------------------------ the answer in pieces


class MessageAssembly:
    """Builds the message that the events describe. Whole once `message_stop` was seen."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._is_whole = False

    def add(self, event: Mapping[str, Any]) -> str:
        match event.get("type"):
            case "message_start":
                self._message = dict(event["message"])
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                return self._extend(event["index"], event["delta"])
            case "message_delta":
                self._close(event)
            case "message_stop":
                self._is_whole = True
        return ""

    def reply(self) -> dict[str, Any]:
        if not self._is_whole:
            raise not_whole("the stream ended before its message_stop")
        return self._message | {"content": [self._block(index) for index in sorted(self._blocks)]}

    def _extend(self, index: int, delta: Mapping[str, Any]) -> str:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta" | "thinking_delta":
                name = ADDED_TO[delta["type"]]
                block[name] = (block.get(name) or "") + delta[name]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "input_json_delta":
                self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        return str(delta["text"]) if delta["type"] == "text_delta" else ""

    def _close(self, event: Mapping[str, Any]) -> None:
        """Counts are totals: the last one said stands."""
        said = {name: value for name, value in event["delta"].items() if value is not None}
        counted = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
        self._message |= said | {"usage": (self._message.get("usage") or {}) | counted}

    def _block(self, index: int) -> dict[str, Any]:
        block = self._blocks[index]
        if index in self._inputs or "input" in block:
            return block | {"input": read_arguments(self._inputs.get(index) or block.get("input"))}
        return block
