"""The Responses API as plain values.

A turn's output items are kept as they came (`provider_data`) and given back so, reasoning items among them. The
provider knows those by id as long as it stores responses, which is its default; where it must not
(`parameters={"store": False, "include": ["reasoning.encrypted_content"]}`), they carry their content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semel.agent.models.failures import PERMANENT, ModelFailed, failed, not_whole
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

TAG: Final = "openai_responses"
CUT_OFF: Final = {
    "max_output_tokens": "it reached its limit of tokens; give the model more",
    "content_filter": "the provider's filters stopped it",
}
LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
TEXT_EVENTS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
TEXT_PARTS: Final = {"output_text": "text", "refusal": "refusal"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponsesWire:
    model: str
    max_tokens: int | None
    system: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    always_streams = False

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        said: dict[str, Any] = {"model": self.model, "input": _input(messages)}
        if self.system is not None:
            said["instructions"] = self.system
        if self.max_tokens is not None:
            said["max_output_tokens"] = self.max_tokens
        if tools:
            said["tools"] = [_offered(tool) for tool in tools]
        return said | dict(self.parameters)

    def streaming(self, request: dict[str, Any]) -> dict[str, Any]:
        return request | {"stream": True}

    def assembly(self) -> ResponseAssembly:
        return ResponseAssembly()

    def turn(self, reply: Mapping[str, Any]) -> Turn:
        _require_end(reply)
        items: list[dict[str, Any]] = reply.get("output") or []
        return Turn(
            text="".join(_text(item) for item in items if item.get("type") == "message"),
            calls=tuple(map(_call, filter(_is_call, items))),
            usage=_usage(reply.get("usage")),
            provider_data={TAG: items},
        )


def _require_end(reply: Mapping[str, Any]) -> None:
    status = reply.get("status")
    if status == "completed":
        return
    if status == "failed":
        raise _failure(reply.get("error") or {})
    if status != "incomplete":
        raise not_whole(f"its status is {status!r}")
    reason = (reply.get("incomplete_details") or {}).get("reason")
    why = CUT_OFF.get(str(reason), f"it ended with {reason!r}, which this adapter does not know")
    raise failed(f"The model was cut off: {why}", retryable=False)


def _failure(error: Mapping[str, Any]) -> ModelFailed:
    said = f"The model's provider failed: {error.get('code')}: {error.get('message')}"
    return failed(said, retryable=error.get("code") not in PERMANENT)


def _text(item: Mapping[str, Any]) -> str:
    parts = item.get("content") or ()
    return "".join(part.get(TEXT_PARTS.get(part.get("type"), "")) or "" for part in parts)


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call"


def _call(item: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        id=str(item.get("call_id") or ""),
        name=str(item.get("name") or ""),
        arguments=read_arguments(item.get("arguments")),
    )


def _usage(counted: Mapping[str, Any] | None) -> Usage | None:
    if not counted:
        return None
    return Usage(
        input_tokens=counted.get("input_tokens") or 0, output_tokens=counted.get("output_tokens") or 0
    )


# ------------------------------------------------------------------ the request


def _offered(tool: ToolSpec) -> dict[str, Any]:
    """Not `strict`: the provider then wants schemas of a narrower kind than a tool's parameters give."""
    said = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "strict": False} | said


def _input(messages: Sequence[Message]) -> list[dict[str, Any]]:
    rendered: list[dict[str, Any]] = []
    for exchange in exchanges(messages):
        if isinstance(exchange, Asked):
            rendered.append({"role": "user", "content": exchange.content})
            continue
        rendered.extend(_items(exchange))
        rendered.extend(
            {
                "type": "function_call_output",
                "call_id": result.call_id,
                "output": as_text(result.content),
            }
            for result in exchange.results
        )
    return rendered


def _items(said: Said) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] | None = said.kept(TAG)
    if items is None or len(list(filter(_is_call, items))) != len(said.calls):
        items = _said_again(said)
    calls = iter(said.calls)
    return [_call_again(next(calls), item) if _is_call(item) else item for item in items]


def _call_again(call: Call, item: dict[str, Any]) -> dict[str, Any]:
    return item | {"call_id": call.id, "arguments": arguments_text(call, item.get("arguments"))}


def _said_again(said: Said) -> list[dict[str, Any]]:
    """A turn of which only text and calls are known: another provider's, say."""
    text = [{"role": "assistant", "content": said.text}] if said.text else []
    return text + [{"type": "function_call", "name": call.name} for call in said.calls]


# ------------------------------------------------------------------ the answer in pieces


class ResponseAssembly:
    """The last event carries the whole response; until it was seen, there is none.

    Some servers leave its output empty, having told the items one by one.
    """

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None
        self._items: list[Any] = []

    def add(self, event: Mapping[str, Any]) -> str:
        kind = event.get("type")
        if kind in TEXT_EVENTS:
            return str(event.get("delta") or "")
        if kind == "error":
            raise _failure(event)
        if kind == "response.output_item.done":
            self._items.append(event["item"])
        if kind in LAST_EVENTS:
            self._response = dict(event["response"])
        return ""

    def reply(self) -> dict[str, Any]:
        if self._response is None:
            raise not_whole("the stream ended before its response.completed")
        return self._response | {"output": self._response.get("output") or self._items}
