"""The nouns: intent, operation, move, state, event, effect kinds, evidence, a person's answer.

All are frozen records. Times end in `_at` and are aware UTC; spans are `timedelta`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from semel.errors import UsageError

REQUEST_DEADLINE: Final = timedelta(seconds=60)
LOOKUP_LAG: Final = timedelta(seconds=30)


class State(StrEnum):
    """What is known of an operation."""

    PENDING = "PENDING"  # not sent
    INVOKED = "INVOKED"  # claimed; may be in flight
    COMMITTED = "COMMITTED"  # happened, result recorded
    UNKNOWN = "UNKNOWN"  # may have happened
    FAILED = "FAILED"  # certainly did not happen, and will not


class Event(StrEnum):
    """What happened to an operation, in the past tense."""

    CLAIMED = "claimed"
    RESENT = "resent"  # claimed again under the same key, which the provider honours
    RENEWED = "renewed"
    COMMITTED = "committed"
    REJECTED = "rejected"
    NOT_SENT = "not_sent"
    LEFT_IN_DOUBT = "left_in_doubt"
    LEASE_EXPIRED = "lease_expired"
    OWNER_DIED = "owner_died"
    FOUND = "found"
    FOUND_ABSENT = "found_absent"
    REPORTED_LATE = "reported_late"  # a fenced-out worker came back with its result
    CONFIRMED = "confirmed"  # a person: it happened
    CLEARED = "cleared"  # a person: it did not, run it
    CLEARED_TOO_EARLY = (
        "cleared_too_early"  # what they saw proves nothing: an earlier request could still land
    )
    ABANDONED = "abandoned"  # a person: it did not, give up
    REAPED = "reaped"
    DIVERGED = "diverged"  # noted in the history; changes no state


# ------------------------------------------------------------------ the record


@dataclass(
    frozen=True, kw_only=True
)  # without slots: `lifecycle` makes an operation of its fields as they are
class Intent:
    """The decision to cause one effect once. Named by its coordinates, never by its arguments."""

    key: str
    namespace: str
    run_id: str
    step: str
    call_id: str
    tool: str
    effect: str
    fingerprint: str
    arguments: str  # encoded by `semel.values`
    once_key: str | None = None


@dataclass(frozen=True, kw_only=True)  # without slots, likewise
class Operation:
    """The durable record of an intent.

    `fence` grows by one with each claim; as each claim starts one attempt, it is also the attempt's number.
    `first_sent_at` is when the key may first have reached the provider: its age counts from here.
    `send_deadline_at` is the last instant at which any attempt so far could still send; None once it is known
    that nothing sent so far can land any more.
    `earlier_in_doubt`: this attempt resends; what it learns of itself proves nothing about the earlier ones.
    """

    key: str
    namespace: str
    run_id: str
    step: str
    call_id: str
    tool: str
    effect: str
    fingerprint: str
    arguments: str
    once_key: str | None
    state: State
    fence: int
    owner: str | None
    lease_expires_at: datetime | None
    first_sent_at: datetime | None
    send_deadline_at: datetime | None
    earlier_in_doubt: bool
    result: str | None
    error: str | None
    created_at: datetime
    updated_at: datetime
    reaped_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One legal change, made by `semel.lifecycle` alone. It says what it saw.

    `seen_lease_at` is set where the move must also find the lease as it saw it: whoever declares
    an owner gone must not overlook that it has just renewed.
    """

    event: Event
    before: Operation
    after: Operation
    seen_lease_at: datetime | None = None
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One line of an operation's history: every move but the plain claim, renewal and completion."""

    key: str
    event: Event
    from_state: State
    to_state: State
    fence: int
    at: datetime
    by: str | None
    why: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """One line of a run's log. `payload` is encoded by `semel.values`."""

    namespace: str
    run_id: str
    position: int
    kind: str
    payload: str
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What an Atomic tool enqueued: written with its effect and its record, delivered later by a relay.

    `key`      names the message for whoever receives it, the same at every delivery. 64 hex characters.
    `number`   1, 2, … within the operation whose key is `operation`.
    `payload`  encoded by `semel.values`.
    `fence`    grows with each claim by a relay, so it is also the number of deliveries begun.
    `due_at`   before this instant no relay tries it again; `failures` and `error` say why.
    """

    key: str
    namespace: str
    topic: str
    operation: str
    number: int
    payload: str
    fence: int = 0
    owner: str | None = None
    lease_expires_at: datetime | None = None
    failures: int = 0
    error: str | None = None
    enqueued_at: datetime
    due_at: datetime
    delivered_at: datetime | None = None


# ------------------------------------------------------------------ evidence


@dataclass(frozen=True, slots=True)
class Found:
    """The provider shows the effect. `key` is the reference on the provider's own row, if it carries one:
    it is compared, so that somebody else's row settles nothing.

    `times`  how many effects the provider shows under this reference. Each beyond the first is one too many: the
             operation is settled all the same, and `guard.divergences()` tells of it.
    """

    result: Any = None
    key: str | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if type(self.times) is not int or self.times < 1:
            raise UsageError(
                f"Found(times={self.times!r}) must be a whole number, 1 or more: how many effects the provider "
                "shows. For none return Absent()."
            )


@dataclass(frozen=True, slots=True)
class Absent:
    """The provider does not show the effect. Whether that proves anything is for `decide` to say."""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The provider's answer settles nothing: in progress, unreachable, rows that may not be ours.

    `retry_after`  when asking again may help; None where only a person can help.
    """

    why: str
    retry_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.retry_after is not None and not isinstance(self.retry_after, timedelta):
            raise UsageError(f"Inconclusive(retry_after={self.retry_after!r}) must be a timedelta or None.")


Evidence: TypeAlias = Found | Absent | Inconclusive


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Evidence, with the instant at which the provider was asked and the fence it speaks about."""

    evidence: Evidence
    asked_at: datetime
    fence: int


Lookup: TypeAlias = Callable[[Any], Any]  # Call -> Evidence, or an awaitable of it


# ------------------------------------------------------------------ effect kinds


@dataclass(frozen=True, kw_only=True, slots=True)
class Safe:
    """Reads only. Nothing is recorded; a repeated call runs again."""

    name: ClassVar[str] = "safe"


@dataclass(frozen=True, kw_only=True, slots=True)
class Atomic:
    """The effect lives in the guard's own database: effect and completion are one transaction."""

    name: ClassVar[str] = "atomic"


@dataclass(frozen=True, kw_only=True, slots=True)
class Idempotent:
    """The provider dedupes on our key and remembers it for `key_ttl`.

    `request_deadline`  how long after sending a request may still take effect; a resend is refused once
                        it could arrive after the provider has forgotten the key.
    `lookup`            asked once a resend is refused; without it a person is.
    """

    key_ttl: timedelta
    request_deadline: timedelta = REQUEST_DEADLINE
    lookup: Lookup | None = None
    lookup_lag: timedelta = LOOKUP_LAG
    name: ClassVar[str] = "idempotent"

    def __post_init__(self) -> None:
        _require_spans(self, "key_ttl", "request_deadline", "lookup_lag")
        _require_lookup(self)
        if self.key_ttl <= self.request_deadline:
            raise UsageError(
                f"Idempotent(key_ttl={self.key_ttl}) is not longer than request_deadline="
                f"{self.request_deadline}: a resend could always arrive after the provider has forgotten "
                "the key. Nothing was registered. State a true key_ttl, a shorter request_deadline, "
                "or use Unsafe(lookup=...)."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsafe:
    """The provider does not dedupe.

    `lookup`            Call -> Found | Absent | Inconclusive, sync or async; without it a person is asked.
    `lookup_lag`        how long after an effect the lookup may still miss it.
    `request_deadline`  how long after sending a request may still take effect.
    The defaults are cautious; state your provider's own figures.
    """

    lookup: Lookup | None = None
    lookup_lag: timedelta = LOOKUP_LAG
    request_deadline: timedelta = REQUEST_DEADLINE
    name: ClassVar[str] = "unsafe"

    def __post_init__(self) -> None:
        _require_spans(self, "lookup_lag", "request_deadline")
        _require_lookup(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The tool's body has no effect of its own: each is made in a `call.step(...)`, an operation by itself.

    So the body may be entered again after any crash: finished steps give back what they recorded, and a step in
    doubt goes the way of its own kind; the body does not get past it. The tool is as safe as its steps. What the
    body does outside them is done again: keep every effect in a step.

    `each`  the kind of a step that names none of its own.
    """

    each: Idempotent | Atomic | Unsafe | None = None
    name: ClassVar[str] = "steps"

    def __post_init__(self) -> None:
        if self.each is not None and not isinstance(self.each, Idempotent | Atomic | Unsafe):
            raise UsageError(
                f"Steps(each={self.each!r}) must be Idempotent(...), Atomic() or Unsafe(...). Nothing was "
                "registered."
            )


Effect: TypeAlias = Safe | Idempotent | Atomic | Unsafe | Steps


def _require_spans(effect: Any, *names: str) -> None:
    for name in names:
        span = getattr(effect, name)
        if not isinstance(span, timedelta):
            raise UsageError(
                f"{type(effect).__name__}({name}={span!r}) must be a datetime.timedelta. "
                "Nothing was registered."
            )
        if span < timedelta(0):
            raise UsageError(
                f"{type(effect).__name__}({name}={span}) must not be negative. Nothing was registered."
            )


def _require_lookup(effect: Any) -> None:
    if effect.lookup is not None and not callable(effect.lookup):
        raise UsageError(
            f"{type(effect).__name__}(lookup={effect.lookup!r}) must be a function of the call. "
            "Nothing was registered."
        )


# ------------------------------------------------------------------ a person's answer to UNKNOWN


@dataclass(frozen=True, slots=True)
class ItHappened:
    """It happened, with this result: the operation becomes COMMITTED."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class RunIt:
    """It did not happen; run it: the operation becomes PENDING and the next call of the intent runs it.

    Said while an earlier request could still land (within the tool's `request_deadline`), it proves nothing: the
    next call waits that long and asks again.
    """


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It did not happen and shall not: the operation becomes FAILED. Refused while a request may still land."""


Resolution: TypeAlias = ItHappened | RunIt | GiveUp


# ------------------------------------------------------------------ writes, as the store sees them


class Insert(NamedTuple):
    """The claim of a new intent: insert the record as INVOKED, or find what is there."""

    operation: Operation


class Note(NamedTuple):
    """A line for the history that changes no state."""

    entry: HistoryEntry


class Append(NamedTuple):
    """A run's next events, all or none; not applied where the first position is already taken."""

    events: tuple[RunEvent, ...]


Write: TypeAlias = Insert | Move | Note | Append
