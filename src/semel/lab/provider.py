"""The provider's inside: its ledger, its memory of keys, its lookup, its faults. No network here.

The ledger is the truth of the lab: an effect is what stands in it, whatever any runtime wrote down.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

from semel.lab.model import ProviderKind
from semel.lab.scenario import intent_of
from semel.lab.wire import Arguments, Effect, Fault, Settings, Strike

Answer: TypeAlias = dict[str, Any]
Now: TypeAlias = Callable[[], float]  # monotonic seconds
CallLater: TypeAlias = Callable[[float, Callable[[], None]], None]  # seconds, what


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request for an effect, as it arrived."""

    tool: str
    arguments: Arguments
    key: str | None
    reference: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: HTTPStatus
    body: Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class NoReply:
    """The connection closes and nobody says why."""


@dataclass(slots=True)
class _Held:
    request: Request
    lookups_left: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    effect: Effect
    lookups_before: int
    committed_at: float  # monotonic seconds


def _call_later(seconds: float, what: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()


class Provider:
    """One cell's provider. Safe to call from many threads."""

    def __init__(
        self, settings: Settings, *, now: Now = time.monotonic, call_later: CallLater = _call_later
    ) -> None:
        self.requests = 0
        self.lookups = 0
        self._settings = settings
        self._now = now
        self._call_later = call_later
        self._ledger: list[_Entry] = []
        self._answers: dict[str, Answer] = {}
        self._held: list[_Held] = []
        self._struck: Counter[Fault] = Counter()
        self._lock = threading.RLock()

    def receive(self, request: Request) -> Reply | NoReply:
        """Take one request for an effect. Raises `BadArguments` before anything is changed."""
        intent_of(request.tool, request.arguments)
        with self._lock:
            self.requests += 1
            fault = self._fault_for(request)
            if fault is not None and fault.strike is Strike.HOLD:
                self._hold(request, fault)
                return NoReply()
            answer = self._apply(request)
        return _reply(answer, fault)

    def find(self, tool: str, reference: str) -> Effect | None:
        """Answer a lookup, as far as the index has caught up with the ledger."""
        with self._lock:
            self.requests += 1
            self.lookups += 1
            found = next((entry.effect for entry in self._visible(tool, reference)), None)
            self._count_down_held()
            return found

    @property
    def kind(self) -> ProviderKind:
        return self._settings.provider

    @property
    def can_be_asked(self) -> bool:
        return self._settings.provider is ProviderKind.HAS_LOOKUP

    def effects(self) -> tuple[Effect, ...]:
        with self._lock:
            return tuple(entry.effect for entry in self._ledger)

    def in_the_books(self, tool: str, reference: str | None, arguments: Arguments | None) -> Effect | None:
        """What a person finds who opens the ledger: by reference, else by intent."""
        intent = None if arguments is None else intent_of(tool, arguments)
        matches = (
            effect
            for effect in self.effects()
            if effect.tool == tool
            and (effect.reference == reference if reference is not None else effect.intent == intent)
        )
        return next(matches, None)

    def release_held(self) -> None:
        """Let every held request land now."""
        with self._lock:
            held, self._held = self._held, []
            for late in held:
                self._apply(late.request)

    def _fault_for(self, request: Request) -> Fault | None:
        for fault in self._settings.faults:
            if fault.tool in (None, request.tool) and self._struck[fault] < fault.times:
                self._struck[fault] += 1
                return fault
        return None

    def _apply(self, request: Request) -> Answer:
        if self._honours(request.key) and request.key in self._answers:
            return self._answers[request.key]
        effect = self._commit(request)
        answer = {"id": f"{effect.tool}_{effect.sequence}", "status": "done", "intent": effect.intent}
        if request.key is not None:
            self._answers[request.key] = answer
        return answer

    def _honours(self, key: str | None) -> bool:
        return key is not None and self._settings.provider is ProviderKind.HONOURS_KEYS

    def _commit(self, request: Request) -> Effect:
        effect = Effect(
            sequence=len(self._ledger) + 1,
            tool=request.tool,
            intent=intent_of(request.tool, request.arguments),
            arguments=request.arguments,
            key=request.key,
            reference=request.reference,
        )
        self._ledger.append(_Entry(effect=effect, lookups_before=self.lookups, committed_at=self._now()))
        return effect

    def _visible(self, tool: str, reference: str) -> list[_Entry]:
        return [
            entry
            for entry in self._ledger
            if (entry.effect.tool, entry.effect.reference) == (tool, reference)
            and self.lookups - entry.lookups_before > self._settings.lag_lookups
            and (self._now() - entry.committed_at) * 1000 >= self._settings.lag_ms
        ]

    def _hold(self, request: Request, fault: Fault) -> None:
        held = _Held(request, fault.held_lookups)
        self._held.append(held)
        if fault.held_ms is not None:
            self._call_later(fault.held_ms / 1000, lambda: self._land(held))

    def _count_down_held(self) -> None:
        for held in list(self._held):
            if held.lookups_left is not None:
                held.lookups_left -= 1
                if held.lookups_left <= 0:
                    self._land(held)

    def _land(self, held: _Held) -> None:
        with self._lock:
            if held in self._held:  # it may have been released meanwhile
                self._held.remove(held)
                self._apply(held.request)


def _reply(answer: Answer, fault: Fault | None) -> Reply | NoReply:
    """The effect is done; what of it reaches the caller?"""
    match None if fault is None else fault.strike:
        case Strike.DROP_ANSWER:
            return NoReply()
        case Strike.ERROR_ANSWER:
            return Reply(status=HTTPStatus.SERVICE_UNAVAILABLE, body={"error": "try again later"})
        case _:
            return Reply(status=HTTPStatus.OK, body=answer)
