"""The provider's inside: its ledger, its memory of keys, its lookup, its faults. No network here.

The ledger is the truth of the lab: an effect is what stands in it, whatever any runtime wrote down.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from semel.lab.model import ProviderKind
from semel.lab.scenario import intent_of
from semel.lab.wire import Arguments, Effect, Fault, Part, Settings, Strike

Answer: TypeAlias = dict[str, Any]
Now: TypeAlias = Callable[[], float]  # monotonic seconds
CallLater: TypeAlias = Callable[[float, Callable[[], None]], None]  # seconds, what

HELD_OPEN_SECONDS_MAX: Final = 60.0  # whoever waits for the answer has given up long before


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request for an effect, as it arrived. `lands_by`: on the host's monotonic clock."""

    tool: str
    arguments: Arguments
    key: str | None
    reference: str | None
    lands_by: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What is answered: so late, and so many times over."""

    status: HTTPStatus
    body: Answer
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_ms: int = 0
    copies: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class NoReply:
    """The connection closes and nobody says why."""


@dataclass(slots=True)
class _Held:
    request: Request
    lookups_left: int | None
    is_known: bool  # the provider has it and works on it; else it is still on its way
    landed: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answered:
    answer: Answer
    at: float  # monotonic seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    effect: Effect
    lookups_before: int
    committed_at: float  # monotonic seconds


def _call_later(seconds: float, what: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()


class Strikes:
    """Which requests are struck, and which faults are spent. Safe to call from many threads."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._struck: Counter[Fault] = Counter()
        self._lock = threading.Lock()

    def next(self, part: Part, tool: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.part is part and fault.tool in (None, tool) and self._struck[fault] < fault.times:
                    self._struck[fault] += 1
                    return fault
        return None


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
        self._answers: dict[str, _Answered] = {}
        self._held: list[_Held] = []
        self._lags = True
        self._strikes = Strikes(settings.faults)
        self._lock = threading.RLock()

    def receive(self, request: Request) -> Reply | NoReply:
        """Take one request for an effect. Raises `BadArguments` before anything is changed."""
        intent_of(request.tool, request.arguments)
        with self._lock:
            self.requests += 1
            fault = self._strikes.next(Part.EFFECT, request.tool)
            match None if fault is None else fault.strike:
                case Strike.TOO_MANY:
                    return _refused(HTTPStatus.TOO_MANY_REQUESTS, "not now", {"Retry-After": "1"})
                case Strike.HOLD | Strike.HOLD_OPEN | Strike.IN_PROGRESS:
                    assert fault is not None
                    held = self._hold(request, fault)
                case Strike.REPEAT_REQUEST:
                    self._apply(request)
                    return self._apply(request)
                case _:
                    return struck(self._apply(request), fault)
        return _reply_to_held(held, fault.strike)

    def find(self, tool: str, reference: str) -> tuple[Effect, ...]:
        """What the index shows, in order, as far as it has caught up with the ledger."""
        with self._lock:
            self.requests += 1
            self.lookups += 1
            found = tuple(entry.effect for entry in self._visible(tool, reference))
            self._count_down_held()
            return found

    def next_strike(self, part: Part, tool: str) -> Fault | None:
        """For the parts that are not the provider's own: a lookup's answer, a model's turn."""
        return self._strikes.next(part, tool)

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
            for late in list(self._held):
                self._land(late)

    def catch_up(self) -> None:
        """Let the index show all of the ledger from now on."""
        with self._lock:
            self._lags = False

    def _apply(self, request: Request) -> Reply:
        if self._is_too_late(request):
            return _refused(HTTPStatus.REQUEST_TIMEOUT, "it arrived after it should have landed")
        if self._is_in_progress(request.key):
            return _refused(HTTPStatus.CONFLICT, "the first request under this key is in progress")
        if (remembered := self._remembered(request.key)) is not None:
            return Reply(status=HTTPStatus.OK, body=remembered)
        effect = self._commit(request)
        answer = {"id": f"{effect.tool}_{effect.sequence}", "status": "done", "intent": effect.intent}
        if request.key is not None:
            self._answers[request.key] = _Answered(answer=answer, at=self._now())
        return Reply(status=HTTPStatus.OK, body=answer)

    def _is_too_late(self, request: Request) -> bool:
        """Looked at under the lock in which it is applied: a lookup asked after `lands_by` has the last word."""
        return self._settings.drops_late and request.lands_by is not None and self._now() >= request.lands_by

    def _is_in_progress(self, key: str | None) -> bool:
        return self._honours(key) and any(held.is_known and held.request.key == key for held in self._held)

    def _remembered(self, key: str | None) -> Answer | None:
        if key is None or not self._honours(key) or key not in self._answers:
            return None
        answered, forgets_after = self._answers[key], self._settings.forgets_keys_after_ms
        if forgets_after is not None and (self._now() - answered.at) * 1000 >= forgets_after:
            return None
        return answered.answer

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
            if (entry.effect.tool, entry.effect.reference) == (tool, reference) and self._shows(entry)
        ]

    def _shows(self, entry: _Entry) -> bool:
        return not self._lags or (
            self.lookups - entry.lookups_before > self._settings.lag_lookups
            and (self._now() - entry.committed_at) * 1000 >= self._settings.lag_ms
        )

    def _hold(self, request: Request, fault: Fault) -> _Held:
        held = _Held(request, fault.held_lookups, is_known=fault.strike is Strike.IN_PROGRESS)
        self._held.append(held)
        if fault.held_ms is not None:
            self._call_later(fault.held_ms / 1000, lambda: self._land(held))
        return held

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
                held.reply = self._apply(held.request)
                held.landed.set()


def _reply_to_held(held: _Held, strike: Strike) -> Reply | NoReply:
    """Not under the provider's lock: it may take until the request is released."""
    if strike is Strike.IN_PROGRESS:
        return _refused(HTTPStatus.CONFLICT, "in progress")
    if strike is Strike.HOLD_OPEN and held.landed.wait(HELD_OPEN_SECONDS_MAX) and held.reply is not None:
        return held.reply
    return NoReply()


def _refused(status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status=status, body={"error": why}, headers=headers or {})


def struck(reply: Reply, fault: Fault | None) -> Reply | NoReply:
    """It is done; what of it reaches the caller?"""
    match None if fault is None else fault.strike:
        case Strike.DROP_ANSWER:
            return NoReply()
        case Strike.ERROR_ANSWER:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "try again later")
        case Strike.DELAY_ANSWER:
            assert fault is not None
            return replace(reply, delay_ms=fault.delay_ms)
        case Strike.REPEAT_ANSWER:
            return replace(reply, copies=2)
        case Strike.PROCESSING:
            return Reply(status=HTTPStatus.OK, body={"effects": [], "status": "processing"})
        case _:
            return reply
