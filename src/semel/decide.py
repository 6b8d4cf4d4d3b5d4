"""What to do next, from the record alone. Pure: no clock, no store, no provider.

The engine is a loop: read the record, decide, do one thing, repeat. Nothing an attempt needs lives anywhere
but in the record, so recovery is the same loop run again, and a crash window is the gap between two turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

from semel.model import (
    Absent,
    Answer,
    Effect,
    Event,
    Found,
    Idempotent,
    Inconclusive,
    Operation,
    State,
    Unsafe,
)

PACE: Final = timedelta(
    milliseconds=100
)  # the least pause between two lookups: nobody's provider is a busy loop


@dataclass(frozen=True, slots=True)
class Claim:
    """Take the exclusive right to invoke, durably."""


@dataclass(frozen=True, slots=True)
class Invoke:
    """We hold the claim: cause the effect."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A live owner is at work, or time has to pass before evidence counts. Read again by `until`."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class LeaveInDoubt:
    """The owner is gone: move to UNKNOWN."""

    event: Event


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask the provider."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The evidence proves one or the other: Found → COMMITTED, Absent → PENDING."""

    evidence: Found | Absent


@dataclass(frozen=True, slots=True)
class Ask:
    """Only a person can know."""

    why: str


@dataclass(frozen=True, slots=True)
class Replay:
    """Give back the recorded result; no effect."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Never under this key: `reason` is the state FAILED, `reaped`, or `key_reused`."""

    reason: str


Action: TypeAlias = Claim | Invoke | Wait | LeaveInDoubt | Lookup | Settle | Ask | Replay | Refuse


def decide(
    operation: Operation | None,
    effect: Effect,
    answer: Answer | None,
    now: datetime,
    *,
    fingerprint: str,
    held_fence: int | None = None,
    owner_is_gone: bool = False,
) -> Action:
    """The next action for one intent.

    `answer`         the provider's last answer; counts only for the fence it was asked about.
    `fingerprint`    of the arguments the caller has in hand.
    `held_fence`     the fence this caller claimed under, if it did.
    `owner_is_gone`  the claim's owner is certainly dead (never: merely silent).
    """
    if operation is None:
        return Claim()
    if operation.fingerprint != fingerprint:
        return Refuse("key_reused")
    if operation.reaped_at is not None:
        return Refuse("reaped")
    match operation.state:
        case State.PENDING:
            return Claim()
        case State.INVOKED:
            return _decide_invoked(operation, now, held_fence, owner_is_gone)
        case State.UNKNOWN:
            return _decide_unknown(operation, effect, answer, now)
        case State.COMMITTED:
            return Replay()
        case State.FAILED:
            return Refuse("failed")
        case _:
            assert_never(operation.state)


def _decide_invoked(
    operation: Operation, now: datetime, held_fence: int | None, owner_is_gone: bool
) -> Action:
    if operation.fence == held_fence:
        return Invoke()
    if owner_is_gone:
        return LeaveInDoubt(Event.OWNER_DIED)
    if operation.lease_expires_at is None or operation.lease_expires_at <= now:
        return LeaveInDoubt(Event.LEASE_EXPIRED)
    return Wait(until=operation.lease_expires_at, why="a live owner is at work on it")


def _decide_unknown(operation: Operation, effect: Effect, answer: Answer | None, now: datetime) -> Action:
    if isinstance(effect, Idempotent) and now < resend_until(operation, effect, now):
        return Claim()
    if not isinstance(effect, Idempotent | Unsafe) or effect.lookup is None:
        return Ask(_why_ask(effect))
    if answer is None or answer.fence != operation.fence:
        return Lookup()
    match answer.evidence:
        case Found():
            return Settle(answer.evidence)
        case Absent():
            return _decide_absent(quiet_at(operation, effect), answer, now)
        case Inconclusive(why=why, retry_after=None):
            return Ask(why)
        case Inconclusive():
            return _decide_inconclusive(answer.evidence, answer.asked_at, now)
        case _:
            assert_never(answer.evidence)


def _decide_inconclusive(evidence: Inconclusive, asked_at: datetime, now: datetime) -> Action:
    again_at = asked_at + max(evidence.retry_after or PACE, PACE)
    return Lookup() if again_at <= now else Wait(again_at, evidence.why)


def _decide_absent(quiet: datetime, answer: Answer, now: datetime) -> Action:
    """ "Absent" proves something only if no earlier request could still land when the provider was asked."""
    if answer.asked_at >= quiet:
        return Settle(Absent())
    if now >= quiet:
        return Lookup()
    return Wait(quiet, "an earlier request may still land, or not show yet")


def quiet_at(operation: Operation, effect: Idempotent | Unsafe) -> datetime:
    """From this instant on, what no lookup shows did not happen."""
    sends_until = operation.send_deadline_at or operation.updated_at
    return sends_until + effect.request_deadline + effect.lookup_lag


def resend_until(operation: Operation, effect: Idempotent, now: datetime) -> datetime:
    """Up to this instant a resend arrives while the provider still remembers the key.

    A key from the future has no known age (a clock was set back): treated as forgotten.
    """
    if operation.first_sent_at is None:
        return datetime.max.replace(tzinfo=now.tzinfo)
    if operation.first_sent_at > now:
        return now
    return operation.first_sent_at + effect.key_ttl - effect.request_deadline


def _why_ask(effect: Effect) -> str:
    if isinstance(effect, Idempotent):
        return "the provider may have forgotten the key, and no lookup is declared"
    if isinstance(effect, Unsafe):
        return "the provider honours no key, and no lookup is declared"
    return f"the operation was left in doubt by another kind of tool than {effect.name}"
