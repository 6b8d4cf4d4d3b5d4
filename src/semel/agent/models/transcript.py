"""A transcript as providers want it: every call and its result under one id that no other call has.

Servers leave ids out, repeat them, or give the function's name. The log keeps what they said; what goes back to
a server has to pair calls with results, so an id that is missing, was used before, or is spelled in a way the
provider refuses gives way to one made from the call's place. The first user of an id keeps it: what was sent once
is sent the same way ever after, whatever follows, so that a provider's prompt cache still knows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from semel import values
from semel.agent.turns import Message
from semel.errors import Unencodable, UsageError

UNREADABLE_ARGUMENTS: Final = "unreadable arguments"
"""The one argument of a call whose arguments were no JSON object; its value is the text as it came.

No parameter can have this name, so no tool takes it: the loop tells the model that the call cannot be made.
"""

ANY_ID: Final = re.compile(r".+", re.DOTALL)
ROOM_ABOVE: Final = (
    16  # levels that a turn and a provider's own blocks put above a call's arguments, and more
)
DID_NOT_GO_WELL: Final = ("did_not_happen", "unknown")


class Asked(NamedTuple):
    """What the user said: text, or blocks in the provider's own form."""

    content: Any


class Call(NamedTuple):
    id: str
    name: str
    arguments: Mapping[str, Any]


class Result(NamedTuple):
    call_id: str
    content: Any


class Said(NamedTuple):
    """A turn of the model with the results of its calls, in their order."""

    text: str
    calls: tuple[Call, ...]
    results: tuple[Result, ...]
    provider_data: Any

    def kept(self, tag: str) -> Any | None:
        """What the adapter of this tag kept of the turn; None for another adapter's turn."""
        return self.provider_data.get(tag) if isinstance(self.provider_data, Mapping) else None


Exchange: TypeAlias = Asked | Said


def exchanges(messages: Sequence[Message], *, accepted_id: re.Pattern[str] = ANY_ID) -> list[Exchange]:
    """The transcript by exchanges. Raises `UsageError` where calls and results do not pair."""
    return list(_exchanges(messages, _Ids(accepted_id)))


def _exchanges(messages: Sequence[Message], ids: _Ids) -> Iterator[Exchange]:
    position = 0
    while position < len(messages):
        message = messages[position]
        if message["role"] == "user":
            yield Asked(with_whole_text(message["content"]))
            position += 1
        elif message["role"] == "assistant":
            said = _said(message, messages[position + 1 :], position, ids)
            yield said
            position += 1 + len(said.results)
        else:
            raise _unpaired(position, f"has the role {message['role']!r} and follows no call of its own")


def _said(message: Message, following: Sequence[Message], position: int, ids: _Ids) -> Said:
    raw = message.get("calls") or ()
    answers = following[: len(raw)]
    if len(answers) < len(raw) or any(answer["role"] != "tool" for answer in answers):
        raise _unpaired(position, f"makes {len(raw)} calls, and not as many results follow it")
    calls = tuple(
        Call(ids.take(call["id"], f"call_{position}_{place}"), call["name"], call["arguments"])
        for place, call in enumerate(raw)
    )
    results = tuple(Result(call.id, answer["content"]) for call, answer in zip(calls, answers, strict=True))
    return Said(message["text"], calls, results, message.get("provider_data"))


def _unpaired(position: int, what: str) -> UsageError:
    return UsageError(
        f"The transcript's message {position} {what}. Nothing was sent. A model is given user and assistant "
        "messages, each assistant message followed by one tool message a call, in the order of the calls."
    )


class _Ids:
    """First come, first served."""

    def __init__(self, accepted: re.Pattern[str]) -> None:
        self._accepted = accepted
        self._taken: set[str] = set()

    def take(self, wanted: str, from_place: str) -> str:
        chosen = wanted if self._accepted.fullmatch(wanted) and wanted not in self._taken else from_place
        while chosen in self._taken:  # a model that imitates our ids; each round is one id longer
            chosen += "_"
        self._taken.add(chosen)
        return chosen


# ------------------------------------------------------------------ what tools answered


def as_text(content: Any) -> str:
    """A tool's answer as text: strings as they are, anything else as JSON."""
    return whole_text(content if isinstance(content, str) else _as_json(content))


def _as_json(content: Any) -> str:
    try:
        return json.dumps(content, ensure_ascii=False)
    except TypeError:  # dates, decimals, sets: in the record's own words
        return values.encode(content)


def did_not_go_well(content: Any) -> bool:
    """Whether this is the loop's word that a call did not happen, or that nobody knows."""
    return isinstance(content, Mapping) and content.get("outcome") in DID_NOT_GO_WELL


def whole_text(text: str) -> str:
    """Text that every transport can carry: halves of a character that came in two pieces are joined again."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def with_whole_text(plain: Any) -> Any:
    """The same for all text in a JSON-like value."""
    if isinstance(plain, str):
        return whole_text(plain)
    if isinstance(plain, list):
        return [with_whole_text(item) for item in plain]
    if isinstance(plain, dict):
        return {name: with_whole_text(value) for name, value in plain.items()}
    return plain


# ------------------------------------------------------------------ what the model wants tools to be given


def read_arguments(raw: Any) -> dict[str, Any]:
    """A call's arguments; if they are no JSON object that can be recorded and sent back, as `UNREADABLE_ARGUMENTS`.

    Nothing at all (no text, `null`) is no arguments: so calls without any arrive from many servers.
    """
    try:
        arguments = json.loads(raw or "{}") if isinstance(raw, str | None) else raw
        if arguments is None:
            return {}
        if isinstance(arguments, dict) and _can_be_kept(arguments):
            return arguments
    except (ValueError, RecursionError):
        pass
    return {UNREADABLE_ARGUMENTS: whole_text(raw if isinstance(raw, str) else _shown(raw))}


def _can_be_kept(arguments: dict[str, Any]) -> bool:
    """By the log, and by JSON: NaN, halves of a character and bottomless nesting are not."""
    json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    nested: Any = arguments
    for _ in range(ROOM_ABOVE):
        nested = [nested]
    try:
        values.encode(nested)
    except Unencodable:
        return False
    return True


def arguments_text(call: Call, raw: Any = None) -> str:
    """For providers that want text: the model's own, if it was readable, so that it reads what it wrote."""
    if isinstance(raw, str) and raw.strip() and UNREADABLE_ARGUMENTS not in call.arguments:
        return raw
    return json.dumps(call.arguments, ensure_ascii=False)


def _shown(raw: Any) -> str:
    try:
        return json.dumps(raw)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(raw).__name__} that JSON cannot say"
