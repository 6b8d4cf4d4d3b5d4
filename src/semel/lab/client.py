"""How a level speaks to the world: over HTTP, without retries, so that every request is counted.

A `World` is only an address and a cell; it pickles, and survives into child processes. Each thread
keeps one connection alive. A request whose answer does not arrive raises what the socket raised
(`OSError`, `http.client.HTTPException`); it may have taken effect.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from semel.lab.model import ProviderKind
from semel.lab.wire import JSON, Arguments, Counters, Effect, Settings, Turn

TIMEOUT_SECONDS: Final = 10.0

OnWire: TypeAlias = Callable[[str, str], None]  # "sending" | "sent" | "received"; "POST /model"


def unobserved(place: str, path: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """One cell of the world: its model, its provider, its person, and (for the oracle) its ledger.

    `on_wire` is told of each request before it is sent, before its answer is awaited, and when that is read.
    """

    address: str  # host:port
    cell_id: str
    postgres_url: str | None = None  # where the levels keep what must survive; None: in files
    timeout_seconds: float = TIMEOUT_SECONDS
    on_wire: OnWire = unobserved

    @property
    def model(self) -> Model:
        return Model(self)

    @property
    def provider(self) -> Provider:
        return Provider(self)

    def prepare(self, settings: Settings) -> None:
        """Begin the cell anew: an empty ledger, a model that was never asked."""
        self.request("PUT", "", settings.to_json())

    def provider_kind(self) -> ProviderKind:
        """What the author of a tool reads in the provider's documentation."""
        return ProviderKind(self.request("GET", "/about")["provider"])

    def ask_person(
        self, tool: str, *, reference: str | None = None, arguments: Arguments | None = None
    ) -> Effect | None:
        """Ask whether this effect happened. The person looks into the provider's books: it is the truth.

        With a reference the person looks for that; without one, for an effect of the same intent.
        Every ask is recorded.
        """
        question = {"tool": tool, "reference": reference, "arguments": arguments}
        return _effect_in(self.request("POST", "/person", question))

    def ledger(self) -> tuple[Effect, ...]:
        """The effects in order. For the oracle; a guard that looks here is cheating."""
        return _effects_in(self.request("GET", "/ledger"))

    def counters(self) -> Counters:
        return Counters.from_json(self.request("GET", "/counters"))

    def release_held(self) -> None:
        """Let every held request take effect now."""
        self.request("POST", "/release", {})

    def catch_up(self) -> None:
        """Let the lookup show everything from now on, whatever its lag."""
        self.request("POST", "/catch-up", {})

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str
    ) -> dict[str, Any]:
        connection = _connection(self.address, self.timeout_seconds)
        payload = None if body is None else json.dumps(body).encode()
        try:
            self.on_wire("sending", f"{method} {path}")
            connection.request(method, f"/cells/{self.cell_id}{path}", payload, headers)
            self.on_wire("sent", f"{method} {path}")
            response = connection.getresponse()
            text = response.read()
            self.on_wire("received", f"{method} {path}")
        except BaseException:
            connection.close()  # the next request starts on a clean connection
            raise
        if response.status != http.HTTPStatus.OK:
            raise UnexpectedStatus(response.status, text.decode(errors="replace"))
        answer: dict[str, Any] = json.loads(text)
        return answer


@dataclass(frozen=True, slots=True)
class Model:
    world: World

    def next_turn(self, messages: Sequence[Mapping[str, Any]]) -> Turn:
        """The turn that follows these messages (see `scenario` for their form)."""
        return Turn.from_json(self.world.request("POST", "/model", {"messages": list(messages)}))


@dataclass(frozen=True, slots=True)
class Provider:
    world: World

    def perform(
        self,
        tool: str,
        arguments: Arguments,
        *,
        key: str | None = None,
        reference: str | None = None,
        lands_by: float | None = None,
    ) -> dict[str, JSON]:
        """Cause the effect; the answer names it. `reference` is stored with it, for `find`.

        `lands_by`: on the host's monotonic clock; a provider that keeps to it drops the request after that.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        if lands_by is not None:
            headers["Lands-By"] = repr(lands_by)
        body = {"arguments": arguments, "reference": reference}
        return self.world.request("POST", f"/provider/{tool}", body, **headers)

    def find(self, tool: str, reference: str) -> Effect | None:
        """What the provider says it did first under this reference; None: nothing visible (yet). See `find_all`."""
        return next(iter(self.find_all(tool, reference)), None)

    def find_all(self, tool: str, reference: str) -> tuple[Effect, ...]:
        """All that the provider says it did under this reference, in order; empty: nothing visible (yet).

        Raises `UnexpectedStatus` (405) from a provider that cannot be asked, `StillProcessing` from one that
        does not know yet.
        """
        query = urlencode({"reference": reference})
        answer = self.world.request("GET", f"/provider/{tool}?{query}")
        if answer.get("status") == "processing":
            raise StillProcessing(f"the provider still processes {tool} {reference}")
        return _effects_in(answer)


class StillProcessing(Exception):
    """The provider was asked too early: neither yes nor no."""


class UnexpectedStatus(Exception):
    """The world answered, but not with 200. A 5xx does not prove that nothing happened."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


def _effect_in(answer: Mapping[str, Any]) -> Effect | None:
    return None if answer["effect"] is None else Effect.from_json(answer["effect"])


def _effects_in(answer: Mapping[str, Any]) -> tuple[Effect, ...]:
    return tuple(map(Effect.from_json, answer["effects"]))


class _Connection(http.client.HTTPConnection):
    """Closes with the thread that holds it."""

    def __del__(self) -> None:
        self.close()

    def has_unread(self) -> bool:
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


_local = threading.local()


def _connection(address: str, timeout_seconds: float) -> _Connection:
    owner = (os.getpid(), address, timeout_seconds)  # a forked child must not speak on its parent's socket
    if getattr(_local, "owner", None) != owner:
        _local.owner = owner
        _local.connection = _Connection(address, timeout=timeout_seconds)
    connection: _Connection = _local.connection
    if connection.has_unread():
        connection.close()  # the end, or an answer to nothing we asked: the next one would be taken for ours
    return connection
