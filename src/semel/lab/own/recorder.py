"""The recording provider's inside: whatever is sent to it is a tool's effect. No network here.

Every request that is no GET is an effect at its path, unless it comes under an idempotency key that the
provider honours and has seen there before. A GET is a lookup: it lists the path's effects, narrowed by the
query (`?key=…` is the idempotency key, any other name a field of what was sent).

It also sees the gaps of a program that knows nothing of Semel: a request arrives (W2: not yet applied), is
applied (W3: the answer has not left), and was answered when the program does the next thing (W4).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from semel.lab.model import ProviderKind, Window

Strike: TypeAlias = Callable[[], None]
ASKS: Final = ("GET", "HEAD")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    key: str | None
    fields: Mapping[str, Any]

    @property
    def tool(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: HTTPStatus
    body: Mapping[str, Any]


class NoReply:
    """The connection closes, and nobody says why: the caller was just killed."""


class Silence:
    """The answer never comes: the connection is held until the caller hangs up."""


Answer: TypeAlias = Reply | NoReply | Silence


@dataclass(frozen=True, kw_only=True, slots=True)
class Armed:
    """A kill that waits for its gap: at the `passing`-th request that is no GET."""

    window: Window
    passing: int
    strike: Strike


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    request: Request
    answer: Reply


class Recorder:
    """One run's provider. Safe to call from many threads."""

    def __init__(self, kind: ProviderKind, *, is_silent: bool = False) -> None:
        self._kind = kind
        self._is_silent = is_silent
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._arrivals: list[tuple[str, float]] = []
        self._answered = 0
        self._lookups = 0
        self._by_key: dict[tuple[str, str], Reply] = {}
        self._armed: Armed | None = None

    def arm(self, armed: Armed) -> None:
        with self._lock:
            self._armed = armed

    def receive(self, request: Request) -> Answer:
        with self._lock:
            if self._strikes_after_an_answer():
                return NoReply()
            if request.method in ASKS:
                return self._look_up(request)
            self._arrivals.append((request.tool, time.monotonic()))
            if self._strikes(Window.W2):
                return NoReply()
            answer = self._apply(request)
            if self._strikes(Window.W3):
                return NoReply()
            self._answered += 1
            return Silence() if self._is_silent else answer

    def returned(self) -> None:
        """The program has come to its end: what was answered last was answered before this."""
        with self._lock:
            self._strikes_after_an_answer()

    def record(self) -> dict[str, Any]:
        with self._lock:
            return {
                "arrivals": [{"tool": tool, "at": at} for tool, at in self._arrivals],
                "lookups": self._lookups,
                "effects": [
                    {"tool": e.request.tool, "fields": dict(e.request.fields)} for e in self._entries
                ],
            }

    def _strikes(self, window: Window) -> bool:
        armed = self._armed
        if armed is None or (armed.window, armed.passing) != (window, len(self._arrivals)):
            return False
        return self._strike(armed)

    def _strikes_after_an_answer(self) -> bool:
        armed = self._armed
        if armed is None or armed.window is not Window.W4 or self._answered < armed.passing:
            return False
        return self._strike(armed)

    def _strike(self, armed: Armed) -> bool:
        self._armed = None
        armed.strike()
        return True

    def _apply(self, request: Request) -> Reply:
        place = (request.path, request.key or "")
        if self._honours(request.key) and place in self._by_key:
            return self._by_key[place]
        number = len(self._entries) + 1
        name = f"{request.path.strip('/').rpartition('/')[2] or 'effect'}_{number}"
        answer = Reply(status=HTTPStatus.OK, body={**request.fields, "id": name, "status": "done"})
        self._entries.append(_Entry(request=request, answer=answer))
        self._by_key[place] = answer
        return answer

    def _honours(self, key: str | None) -> bool:
        return key is not None and self._kind is ProviderKind.HONOURS_KEYS

    def _look_up(self, request: Request) -> Reply:
        self._lookups += 1
        if self._kind is ProviderKind.BLIND:
            return Reply(status=HTTPStatus.METHOD_NOT_ALLOWED, body={"error": "it cannot be asked"})
        found = [dict(e.answer.body) for e in self._entries if _is_asked_for(e.request, request)]
        return Reply(status=HTTPStatus.OK, body={"effects": found})


def _is_asked_for(entry: Request, asked: Request) -> bool:
    return entry.path == asked.path and all(
        (entry.key if name == "key" else str(entry.fields.get(name))) == value
        for name, value in asked.query.items()
    )
