"""What to do next, from the record alone. Pure: no clock, no store, no provider.

The engine is a loop: read the record, decide, do one thing, repeat. Nothing an attempt needs lives anywhere
but in the record, so recovery is the same loop run again, and a crash window is the gap between two turns.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, assert_never

from semel.actions import (
    Accept,
    Action,
    Ask,
    Claim,
    Diverge,
    Invoke,
    LateAction,
    LeaveInDoubt,
    Lookup,
    Refuse,
    Replay,
    Report,
    Settle,
    Wait,
)
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
    Steps,
    Unsafe,
)

PACE: Final = timedelta(milliseconds=100)  # the least between two lookups: no provider is a busy loop


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
            return _decide_pending(operation, effect, now)
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


def decide_late_result(operation: Operation, effect: Effect, *, fence: int) -> LateAction:
    """What a result is worth that comes back to a worker after its claim (`fence`) was taken from it.

    The effect stands; the record as it is now says whether this settles something or contradicts it.
    """
    is_one_key = isinstance(effect, Idempotent | Steps)  # of steps: each has a key, and one result
    match operation.state:
        case State.COMMITTED:
            return Accept() if operation.fence == fence or is_one_key else Diverge()
        case State.UNKNOWN:
            return Report() if operation.fence == fence or is_one_key else Diverge()
        case State.PENDING:
            return Report()
        case State.INVOKED:
            return Accept() if is_one_key else Diverge()
        case State.FAILED:
            return Diverge()
        case _:
            assert_never(operation.state)


def _decide_pending(operation: Operation, effect: Effect, now: datetime) -> Action:
    """A person may have seen no effect while an earlier request was still on its way: it may have landed since,
    so that what they saw proves nothing, and they have to look again."""
    if not isinstance(effect, Unsafe) or operation.send_deadline_at is None:
        return Claim()
    lands_by, looked_at = operation.send_deadline_at + effect.request_deadline, operation.updated_at
    if looked_at >= lands_by:
        return Claim()
    if now < lands_by:
        return Wait(lands_by, "an earlier request may still land")
    return LeaveInDoubt(Event.CLEARED_TOO_EARLY)


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
    if isinstance(effect, Steps):
        return Claim()  # its body has no effect outside its steps, and does not get past one in doubt
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


def shows_at(operation: Operation, effect: Idempotent | Unsafe) -> datetime:
    """From this instant on a lookup shows what the record says has happened."""
    return operation.updated_at + effect.lookup_lag


def resend_until(operation: Operation, effect: Idempotent, now: datetime) -> datetime:
    """Up to this instant a resend arrives while the provider still remembers the key.

    A key from the future has no known age (a clock was set back): treated as forgotten.
    """
    if operation.first_sent_at is None:
        return datetime.max.replace(tzinfo=now.tzinfo)
    return now if operation.first_sent_at > now else _remembered_until(operation.first_sent_at, effect)


def send_until(operation: Operation, effect: Effect) -> datetime:
    """Up to this instant the holder of the claim may send: while the lease lasts, and, where it resends,
    while what it sends still reaches a provider that remembers the key."""
    ends_at, first_sent_at = operation.lease_expires_at, operation.first_sent_at
    assert ends_at is not None, "only an INVOKED operation has a holder, and it has a lease"
    if not isinstance(effect, Idempotent) or not operation.earlier_in_doubt or first_sent_at is None:
        return ends_at
    return min(ends_at, _remembered_until(first_sent_at, effect))


def _remembered_until(first_sent_at: datetime, effect: Idempotent) -> datetime:
    return first_sent_at + effect.key_ttl - effect.request_deadline


def _why_ask(effect: Effect) -> str:
    if isinstance(effect, Idempotent):
        return "the provider may have forgotten the key, and no lookup is declared"
    if isinstance(effect, Unsafe):
        return "the provider honours no key, and no lookup is declared"
    return f"the operation was left in doubt by another kind of tool than {effect.name}"
