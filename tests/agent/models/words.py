"""What is said in the tests of the models: a task, a tool, calls, and turns as they come back out of the log."""

from __future__ import annotations

import json

from semel.agent import ToolSpec, Turn

ASKED = {"role": "user", "content": "Renew sub_42."}
CHARGE = ToolSpec(
    name="charge",
    description="Charges a card.",
    parameters={"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
)
THINKING = (
    {"type": "thinking", "thinking": "The card is on file…", "signature": "sig/1=="},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
)
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "card on file"}],
    "encrypted_content": "b3BhcXVl",
}


def call(call_id: str | None, to: str, name: str = "charge") -> tuple[str | None, str, str]:
    return call_id, name, json.dumps({"to": to})


def said(turn: Turn, **changes) -> dict:
    """The turn as a message of the transcript, as it comes back out of the log."""
    calls = [{"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in turn.calls]
    message = {"role": "assistant", "text": turn.text, "calls": calls, "provider_data": turn.provider_data}
    return json.loads(json.dumps(message)) | changes


def told(turn: Turn, *contents) -> list[dict]:
    return [
        {"role": "tool", "call_id": call.id, "content": content}
        for call, content in zip(turn.calls, contents, strict=True)
    ]


def listening(streamed) -> tuple[list[str], dict]:
    """What is heard of the text, and the option that listens to it."""
    heard: list[str] = []
    return heard, {"on_text": heard.append} if streamed else {}


def after(turn: Turn, *contents, **changes) -> list[dict]:
    """The transcript of one turn whose calls were answered."""
    return [ASKED, said(turn, **changes), *told(turn, *contents)]


def results_in(body: dict) -> list[dict]:
    """The tool results of a request, in the provider's form."""
    if "input" in body:
        return [item for item in body["input"] if item.get("type") == "function_call_output"]
    blocks = [block for m in body["messages"] if isinstance(m["content"], list) for block in m["content"]]
    in_blocks = [block for block in blocks if block.get("type") == "tool_result"]
    return in_blocks + [message for message in body["messages"] if message["role"] == "tool"]
