"""Asking a model once: one request, one whole turn or an error. The sync and the async way, whatever the wire."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from importlib import import_module
from typing import Any, Final, Protocol

from semel.agent.models.failures import failed, read_as_answer, sending, told_as_failures
from semel.agent.models.transcript import with_whole_text
from semel.agent.turns import Message, OnText, ToolSpec, Turn
from semel.errors import UsageError


class Assembly(Protocol):
    """A streamed answer, piece by piece."""

    def add(self, event: Mapping[str, Any]) -> str:
        """Take one event, and return the piece of text that it brought."""

    def reply(self) -> dict[str, Any]:
        """The answer as it would have come in one piece. Raises `ModelFailed` if its end was not seen."""


class Wire(Protocol):
    """A provider's form of requests and answers: plain values, no SDK."""

    @property
    def always_streams(self) -> bool: ...

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """What the SDK's `create` is given."""

    def streaming(self, request: dict[str, Any]) -> dict[str, Any]:
        """The same request, for an answer that comes in pieces."""

    def assembly(self) -> Assembly: ...

    def turn(self, reply: Mapping[str, Any]) -> Turn:
        """Raises `ModelFailed` if the model was cut off."""


def ask(
    create: Callable[..., Any],
    wire: Wire,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    on_text: OnText | None,
) -> Turn:
    request = wire.request(messages, tools)
    if on_text is None and not wire.always_streams:
        with sending():
            reply = create(**request)
        return _turn(wire, _plain(reply))
    assembly = wire.assembly()
    with sending():
        stream = create(**wire.streaming(request))
    with stream, closing(_events(stream)) as events:
        for event in events:
            _take(assembly, event, on_text)
    return _turn(wire, assembly.reply())


async def ask_async(
    create: Callable[..., Any],
    wire: Wire,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    on_text: OnText | None,
) -> Turn:
    request = wire.request(messages, tools)
    if on_text is None and not wire.always_streams:
        with sending():
            reply = await create(**request)
        return _turn(wire, _plain(reply))
    assembly = wire.assembly()
    with sending():
        stream = await create(**wire.streaming(request))
    async with stream, aclosing(_events_async(stream)) as events:
        async for event in events:
            _take(assembly, event, on_text)
    return _turn(wire, assembly.reply())


def _events(stream: Any) -> Generator[dict[str, Any], None, None]:
    """What the listener raises while it is told of an event does not pass through here, and stays what it is."""
    with told_as_failures():
        for event in stream:
            yield _plain(event)


async def _events_async(stream: Any) -> AsyncGenerator[dict[str, Any], None]:
    with told_as_failures():
        async for event in stream:
            yield _plain(event)


def _take(assembly: Assembly, event: dict[str, Any], on_text: OnText | None) -> None:
    with read_as_answer():
        piece = assembly.add(event)
    if piece and on_text is not None:
        on_text(piece)


def _turn(wire: Wire, reply: dict[str, Any]) -> Turn:
    with read_as_answer():
        return wire.turn(with_whole_text(reply))


def _plain(answer: Any) -> dict[str, Any]:
    """As it came over the wire: unknown fields kept, absent ones absent."""
    if not hasattr(answer, "to_dict"):
        raise failed(
            f"What answered is no model: it sent {str(answer)[:100]!r}",
            retryable=False,
            remedy="Look at the client's base URL.",
        )
    plain: dict[str, Any] = answer.to_dict(mode="json", warnings=False)
    return plain


# ------------------------------------------------------------------ the SDK's client

_COLOURS: Final = {True: "AsyncAPIClient", False: "SyncAPIClient"}


def client_without_retries(given: Any, package: str, kind: str) -> Any:
    """The client given, or a new one, with the SDK's own retries off: they would multiply with the agent's.

    `kind`: the SDK's class, whose colour the given client must have (it may be another class, for another cloud).
    Raises `UsageError`.
    """
    sdk = _imported(package)
    if given is None:
        return _made(getattr(sdk, kind))
    bases = [base.__name__ for base in type(given).__mro__]
    if _COLOURS[kind.startswith("Async")] not in bases:
        raise UsageError(
            f"client={type(given).__name__} is not {package}.{kind} or a client like it. Nothing was sent."
        )
    return given.with_options(max_retries=0)


def _made(kind: Callable[..., Any]) -> Any:
    try:
        return kind(max_retries=0)
    except Exception as problem:
        raise UsageError(
            f"No client could be made from the environment ({problem}). Nothing was sent."
        ) from problem


def _imported(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as problem:
        raise UsageError(
            f"This model needs the {package} SDK, which cannot be imported ({problem}). Nothing was sent. "
            f"Run: pip install 'semel[{package}]'"
        ) from problem


def require_usable(
    parameters: Mapping[str, Any], create: Callable[..., Any], reserved: Sequence[str]
) -> None:
    """Raise `UsageError` for an extra parameter that the SDK does not take, or that the model says itself."""
    taken = inspect.signature(create).parameters
    for name in parameters:
        if name in reserved:
            raise _unusable(name, "the model says this itself; leave it out")
        if name not in taken:
            raise _unusable(
                name, "the SDK takes no such parameter; what it does not know goes into extra_body"
            )


def _unusable(name: str, why: str) -> UsageError:
    return UsageError(f"parameters={{{name!r}: …}}: {why}. Nothing was sent.")
