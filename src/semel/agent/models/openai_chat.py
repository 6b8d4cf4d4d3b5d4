"""Chat Completions as plain values: what most servers that call themselves OpenAI-compatible speak.

They differ in small things, and a call must neither be lost nor be made up by them: see `ChatAssembly`. What a
message holds beyond text and calls (`reasoning_content`, thought signatures, a refusal) is kept and given back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semel.agent.models.failures import failed, not_whole
from semel.agent.models.transcript import (
    Asked,
    Call,
    Said,
    arguments_text,
    as_text,
    exchanges,
    read_arguments,
)
from semel.agent.turns import Message, ToolCall, ToolSpec, Turn, Usage

TAG: Final = "openai_chat"
ENDS: Final = frozenset({"stop", "tool_calls", "eos"})
CUT_OFF: Final = {
    "length": "it reached its limit of tokens; give the model more",
    "content_filter": "the provider's filters stopped it",
}
SAID_OTHERWISE: Final = ("role", "content", "tool_calls")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatWire:
    model: str
    max_tokens: int | None
    system: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    always_streams = False

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        said: dict[str, Any] = {"model": self.model, "messages": _messages(self.system, messages)}
        if self.max_tokens is not None:
            said["max_completion_tokens"] = self.max_tokens
        if tools:
            said["tools"] = [_offered(tool) for tool in tools]
        return said | dict(self.parameters)

    def streaming(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"stream_options": {"include_usage": True}} | request | {"stream": True}

    def assembly(self) -> ChatAssembly:
        return ChatAssembly()

    def turn(self, reply: Mapping[str, Any]) -> Turn:
        choice = (reply.get("choices") or [{}])[0]
        message: dict[str, Any] = choice.get("message") or {}
        calls = tuple(map(_call, message.get("tool_calls") or ()))
        _require_end(choice.get("finish_reason"), calls)
        kept = {name: value for name, value in message.items() if value is not None}
        return Turn(
            text=_text(message.get("content")) + (message.get("refusal") or ""),
            calls=calls,
            usage=_usage(reply.get("usage")),
            provider_data={TAG: kept},
        )


def _require_end(reason: str | None, calls: Sequence[ToolCall]) -> None:
    if not reason:
        raise not_whole("it does not say why it ended")
    if reason == "tool_calls" and not calls:
        raise not_whole("it says that it calls tools, and names none")
    if reason.lower() in ENDS:
        return
    why = CUT_OFF.get(reason, f"it ended with {reason!r}, which this adapter does not know")
    raise failed(f"The model was cut off: {why}", retryable=False)


def _text(content: str | list[Any] | None) -> str:
    """Some servers send parts instead of text."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""


def _call(raw: Mapping[str, Any]) -> ToolCall:
    function = raw.get("function") or {}
    return ToolCall(
        id=str(raw.get("id") or ""),
        name=str(function.get("name") or ""),
        arguments=read_arguments(function.get("arguments")),
    )


def _usage(counted: Mapping[str, Any] | None) -> Usage | None:
    if not counted:
        return None
    return Usage(
        input_tokens=counted.get("prompt_tokens") or 0, output_tokens=counted.get("completion_tokens") or 0
    )


# ------------------------------------------------------------------ the request


def _offered(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _messages(system: str | None, messages: Sequence[Message]) -> list[dict[str, Any]]:
    rendered: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    for exchange in exchanges(messages):
        if isinstance(exchange, Asked):
            rendered.append({"role": "user", "content": exchange.content})
            continue
        rendered.append(_said_again(exchange))
        rendered.extend(
            {"role": "tool", "tool_call_id": result.call_id, "content": as_text(result.content)}
            for result in exchange.results
        )
    return rendered


def _said_again(said: Said) -> dict[str, Any]:
    kept: dict[str, Any] = said.kept(TAG) or {"content": said.text}
    message = {name: value for name, value in kept.items() if name not in SAID_OTHERWISE}
    message |= {"role": "assistant", "content": kept.get("content", "")}
    if said.calls:
        raw = kept.get("tool_calls") or ()
        were = raw if len(raw) == len(said.calls) else [{}] * len(said.calls)
        message["content"] = message["content"] or None  # as the provider itself says it beside calls
        message["tool_calls"] = list(map(_call_again, said.calls, were))
    return message


def _call_again(call: Call, was: Mapping[str, Any]) -> dict[str, Any]:
    function = was.get("function") or {}
    arguments = arguments_text(call, function.get("arguments"))
    beside = {name: value for name, value in was.items() if value is not None}
    return beside | {
        "id": call.id,
        "type": "function",
        "function": {**function, "name": call.name, "arguments": arguments},
    }


# ------------------------------------------------------------------ the answer in pieces


class ChatAssembly:
    """Builds the answer from its chunks. Whole once a `finish_reason` was seen.

    Calls are told apart by their index, but some servers give none, or give 0 to all. A piece begins a new call
    if it has an id of its own that differs, or if it names a function and brings arguments when the call before
    it is complete. In doubt it belongs to the call before: that call becomes unreadable, and none is made up.
    """

    def __init__(self) -> None:
        self._reply: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._latest: dict[Any, dict[str, Any]] = {}  # by index
        self._finish_reason: str | None = None

    def add(self, event: Mapping[str, Any]) -> str:
        self._reply |= {
            name: value for name, value in event.items() if name != "choices" and value is not None
        }
        text = ""
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text += self._extend(delta)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return text

    def reply(self) -> dict[str, Any]:
        if self._finish_reason is None:
            raise not_whole("the stream ended before its finish_reason")
        message = self._message | ({"tool_calls": self._calls} if self._calls else {})
        return self._reply | {"choices": [{"finish_reason": self._finish_reason, "message": message}]}

    def _extend(self, delta: Mapping[str, Any]) -> str:
        for name, value in delta.items():
            if name not in ("role", "tool_calls"):
                self._message[name] = _joined(self._message.get(name), value)
        for piece in delta.get("tool_calls") or ():
            self._extend_call(piece)
        return _text(delta.get("content")) + (delta.get("refusal") or "")

    def _extend_call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        call = self._latest.get(piece.get("index"))
        if call is None or _begins_another(piece, function, call):
            call = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            self._latest[piece.get("index")] = call
            self._calls.append(call)
        call["id"] = call["id"] or piece.get("id") or ""
        _extend_function(call["function"], function)
        call |= {
            name: value
            for name, value in piece.items()
            if name not in ("index", "id", "type", "function") and value is not None
        }


def _begins_another(piece: Mapping[str, Any], function: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    call_id = piece.get("id")
    if call_id and call["id"] and call_id != call["id"]:
        return True
    return bool(function.get("name") and function.get("arguments")) and _is_complete(
        call["function"]["arguments"]
    )


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _extend_function(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    name = piece.get("name") or ""
    if name != whole["name"]:  # some servers repeat it with every piece
        whole["name"] += name
    whole["arguments"] += piece.get("arguments") or ""


def _joined(before: Any, value: Any) -> Any:
    """Text and lists grow; anything else is said anew."""
    if value is None:
        return before
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, list) and isinstance(value, list):
        return [*before, *value]
    return value
