"""The life of an operation: one table, and one constructor for each legal move.

Every change of a record in any store is a `Move` made here; a store only compares and sets. What is not in
the table raises `IllegalTransition` before anything is written. A terminal state is never left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from semel.errors import IllegalTransition
from semel.model import Event, HistoryEntry, Intent, Move, Operation, State

_S, _E = State, Event

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        (_S.PENDING, _E.CLAIMED): _S.INVOKED,
        (_S.PENDING, _E.REPORTED_LATE): _S.COMMITTED,  # declared absent too early; its worker knows better
        (_S.PENDING, _E.CONFIRMED): _S.COMMITTED,
        (_S.PENDING, _E.ABANDONED): _S.FAILED,
        (_S.PENDING, _E.CLEARED_TOO_EARLY): _S.UNKNOWN,
        (_S.INVOKED, _E.RENEWED): _S.INVOKED,
        (_S.INVOKED, _E.COMMITTED): _S.COMMITTED,
        (_S.INVOKED, _E.REJECTED): _S.FAILED,
        (_S.INVOKED, _E.NOT_SENT): _S.PENDING,
        (_S.INVOKED, _E.LEFT_IN_DOUBT): _S.UNKNOWN,
        (_S.INVOKED, _E.LEASE_EXPIRED): _S.UNKNOWN,  # not PENDING: it may have happened
        (_S.INVOKED, _E.OWNER_DIED): _S.UNKNOWN,
        (_S.UNKNOWN, _E.RESENT): _S.INVOKED,  # only under a key that the provider honours
        (_S.UNKNOWN, _E.FOUND): _S.COMMITTED,
        (_S.UNKNOWN, _E.FOUND_ABSENT): _S.PENDING,
        (_S.UNKNOWN, _E.REPORTED_LATE): _S.COMMITTED,
        (_S.UNKNOWN, _E.REJECTED): _S.FAILED,  # a fenced-out worker was told no
        (_S.UNKNOWN, _E.NOT_SENT): _S.PENDING,  # a fenced-out worker never sent
        (_S.UNKNOWN, _E.CONFIRMED): _S.COMMITTED,
        (_S.UNKNOWN, _E.CLEARED): _S.PENDING,
        (_S.UNKNOWN, _E.ABANDONED): _S.FAILED,
    }
)
TERMINAL: Final = frozenset(State) - {state for state, _ in TRANSITIONS}
UNREMARKABLE: Final = frozenset({Event.RENEWED, Event.COMMITTED})  # the record itself tells all of them


# ------------------------------------------------------------------ claiming


def open_claim(intent: Intent, *, owner: str, now: datetime, lease: timedelta) -> Operation:
    """The record of a new intent, born INVOKED: claimed, and durable before anything is sent."""
    ends_at = now + lease
    return _with(
        intent,
        state=State.INVOKED,
        fence=1,
        owner=owner,
        lease_expires_at=ends_at,
        first_sent_at=now,
        send_deadline_at=ends_at,
        earlier_in_doubt=False,
        result=None,
        error=None,
        created_at=now,
        updated_at=now,
        reaped_at=None,
    )


def claim(before: Operation, *, owner: str, now: datetime, lease: timedelta) -> Move:
    """Claim again. From UNKNOWN this resends under the same key; `decide` says when that is licensed."""
    event = Event.RESENT if before.state is State.UNKNOWN else Event.CLAIMED
    return _move(
        before,
        event,
        now,
        fence=before.fence + 1,
        owner=owner,
        lease_expires_at=now + lease,
        first_sent_at=before.first_sent_at or now,
        send_deadline_at=_latest(before.send_deadline_at, now + lease),
        earlier_in_doubt=event is Event.RESENT,
        error=None,
    )


def renew(before: Operation, *, now: datetime, lease: timedelta) -> Move:
    ends_at = now + lease
    return _move(before, Event.RENEWED, now, lease_expires_at=ends_at, send_deadline_at=ends_at)


# ------------------------------------------------------------------ what the owner reports


def commit(before: Operation, *, result: str, now: datetime) -> Move:
    """The move of every call that goes well."""
    if before.state is not State.INVOKED:
        raise _illegal(before, Event.COMMITTED)
    after = _with(before, state=State.COMMITTED, lease_expires_at=None, result=result, updated_at=now)
    return Move(event=Event.COMMITTED, before=before, after=after)


def reject(before: Operation, *, error: str, now: datetime) -> Move:
    """FAILED; but a resend that was refused says nothing about the attempt before it."""
    if before.earlier_in_doubt:
        return leave_in_doubt(before, error=f"{error} (an earlier attempt is still in doubt)", now=now)
    return _move(before, Event.REJECTED, now, lease_expires_at=None, error=error, why=error)


def not_sent(before: Operation, *, error: str, now: datetime) -> Move:
    """Back to PENDING. If this was the only attempt, the provider has never seen the key."""
    if before.earlier_in_doubt:
        return leave_in_doubt(before, error=f"{error} (an earlier attempt is still in doubt)", now=now)
    first_sent_at = None if before.fence == 1 else before.first_sent_at  # earlier ones are settled as absent
    return _move(
        before,
        Event.NOT_SENT,
        now,
        lease_expires_at=None,
        first_sent_at=first_sent_at,
        send_deadline_at=None,
        error=error,
        why=error,
    )


def leave_in_doubt(before: Operation, *, error: str, now: datetime) -> Move:
    """The tool has ended without an answer that can be believed. It sends nothing more.

    Of an UNKNOWN operation nothing changes: it is in doubt already.
    """
    return _in_doubt(before, Event.LEFT_IN_DOUBT, now, error=error)


# ------------------------------------------------------------------ what others find


def expire(before: Operation, *, now: datetime) -> Move:
    """The lease has run out unrenewed; the owner may be paused and may still send until its deadline."""
    move = _in_doubt(
        before, Event.LEASE_EXPIRED, now, error="the lease ran out before the owner reported back"
    )
    return replace(move, seen_lease_at=before.lease_expires_at)


def declare_owner_dead(before: Operation, *, now: datetime) -> Move:
    """The owner's process is gone: it sends nothing more from now on."""
    move = _in_doubt(before, Event.OWNER_DIED, now, error="the owner died before it reported back")
    return replace(move, seen_lease_at=before.lease_expires_at)


def find(before: Operation, *, result: str, now: datetime) -> Move:
    return _move(before, Event.FOUND, now, result=result, error=None)


def find_absent(before: Operation, *, now: datetime) -> Move:
    """Proven absent: nothing that was sent can land any more."""
    return _move(before, Event.FOUND_ABSENT, now, earlier_in_doubt=False, send_deadline_at=None)


def report_late(before: Operation, *, result: str, now: datetime) -> Move:
    return _move(before, Event.REPORTED_LATE, now, result=result, error=None)


# ------------------------------------------------------------------ what a person answers


def confirm(before: Operation, *, result: str, by: str, why: str, now: datetime) -> Move:
    return _move(before, Event.CONFIRMED, now, by=by, why=why, result=result, error=None)


def clear(before: Operation, *, by: str, why: str, now: datetime) -> Move:
    """A person saw no effect; that an earlier request can still land, `decide` goes on to mind."""
    return _move(before, Event.CLEARED, now, by=by, why=why, earlier_in_doubt=False)


def doubt_clearance(before: Operation, *, now: datetime) -> Move:
    """They looked while an earlier request could still land, and it may have landed since."""
    error = "a person saw no effect while an earlier request could still land; look again"
    return _move(before, Event.CLEARED_TOO_EARLY, now, error=error, why=error)


def abandon(before: Operation, *, by: str, why: str, now: datetime) -> Move:
    error = f"given up by {by}: {why}"
    return _move(before, Event.ABANDONED, now, by=by, why=why, error=error)


# ------------------------------------------------------------------ after the end


def reap(before: Operation, *, now: datetime) -> Move:
    """Blank what is past retention. The key stays, so that a late repeat is refused and not run again."""
    if before.state not in TERMINAL:
        raise _illegal(before, Event.REAPED)
    after = replace(before, arguments="{}", result=None, error=None, reaped_at=now, updated_at=now)
    return Move(event=Event.REAPED, before=before, after=after)


def note_divergence(operation: Operation, *, fence: int, why: str, now: datetime) -> HistoryEntry:
    """What is known to have happened besides what the record says, and the record, rightly, does not take."""
    return HistoryEntry(
        key=operation.key,
        event=Event.DIVERGED,
        from_state=operation.state,
        to_state=operation.state,
        fence=fence,
        at=now,
        by=None,
        why=why,
    )


def note_more_than_one(operation: Operation, *, times: int, now: datetime) -> HistoryEntry:
    """The provider shows more effects than the one that the record is of."""
    why = f"the provider shows {times} effects under this reference"
    return note_divergence(operation, fence=operation.fence, why=why, now=now)


# ------------------------------------------------------------------ what `decide` may find in doubt

IN_DOUBT: Final[Mapping[Event, Callable[..., Move]]] = MappingProxyType(
    {
        _E.LEASE_EXPIRED: expire,
        _E.OWNER_DIED: declare_owner_dead,
        _E.CLEARED_TOO_EARLY: doubt_clearance,
    }
)


# ------------------------------------------------------------------ the one place that makes a move


def _move(
    before: Operation,
    event: Event,
    now: datetime,
    *,
    by: str | None = None,
    why: str | None = None,
    **changes: Any,
) -> Move:
    to_state = TRANSITIONS.get((before.state, event))
    if to_state is None:
        raise _illegal(before, event)
    after = replace(before, state=to_state, updated_at=now, **changes)
    return Move(event=event, before=before, after=after, by=by, why=why)


def _with(before: Intent | Operation, **changes: Any) -> Operation:
    """What `replace` would give, for the two moves that every call makes: it and a constructor of 22 fields cost
    more than all else that is done for them."""
    operation = object.__new__(Operation)
    object.__setattr__(operation, "__dict__", before.__dict__ | changes)
    return operation


def _in_doubt(before: Operation, event: Event, now: datetime, *, error: str) -> Move:
    """Nothing is sent after this instant, or after the lease where the owner may still be running."""
    ends_at = before.lease_expires_at or now
    sends_until = ends_at if event is Event.LEASE_EXPIRED else min(ends_at, now)
    return _move(
        before,
        event,
        now,
        lease_expires_at=None,
        send_deadline_at=sends_until,
        error=error,
        why=error,
    )


def _latest(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)


def _illegal(before: Operation, event: Event) -> IllegalTransition:
    return IllegalTransition(
        f"An operation that is {before.state} cannot be {event.value}. Nothing was written: the record of "
        f"{before.tool} ({before.key[:12]}…) still says {before.state}. Read it again before you decide.",
        key=before.key,
    )
