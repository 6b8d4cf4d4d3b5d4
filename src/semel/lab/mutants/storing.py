"""Broken writes: each stands between the guard and its store and tampers with one kind of write.

Where the sound compare-and-set says no, some of these write all the same: as a move that says it saw what is
there, which is what an unconditional UPDATE comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias, cast

from semel import lifecycle
from semel.lifecycle import TERMINAL
from semel.model import Event, Insert, Move, Note, Operation, State, Write
from semel.ports import Outcome, Store

ApplyOne: TypeAlias = Callable[[Store, Write], Outcome]

_CLAIMS = frozenset({Event.CLAIMED, Event.RESENT})


class Tampered:
    """A store whose writes are tampered with, one by one; everything else passes through."""

    def __init__(self, store: Store, apply_one: ApplyOne) -> None:
        self._store = store
        self._apply_one = apply_one

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        return [self._apply_one(self._store, write) for write in writes]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def tampering(apply_one: ApplyOne) -> Callable[[Store], Store]:
    return lambda store: cast(Store, Tampered(store, apply_one))


# ------------------------------------------------------------------ no compare before the set


@tampering
def overwriting_the_end(store: Store, write: Write) -> Outcome:
    """A terminal state is overwritten by whoever comes later."""
    outcome = _apply(store, write)
    return _force(store, write, outcome) if _is_lost_to(outcome, write, TERMINAL) else outcome


@tampering
def without_fence(store: Store, write: Write) -> Outcome:
    """The state alone is compared, not the fence."""
    outcome = _apply(store, write)
    same_state = frozenset({write.before.state}) if isinstance(write, Move) else frozenset()
    return _force(store, write, outcome) if _is_lost_to(outcome, write, same_state) else outcome


@tampering
def letting_both_claim(store: Store, write: Write) -> Outcome:
    """Only the first claim is a compare-and-set; a recoverer's is not."""
    outcome = _apply(store, write)
    is_second = isinstance(write, Move) and write.event in _CLAIMS
    return (
        _force(store, write, outcome)
        if is_second and _is_lost_to(outcome, write, {State.INVOKED})
        else outcome
    )


def _is_lost_to(outcome: Outcome, write: Write, states: Any) -> bool:
    there = outcome.operation
    return isinstance(write, Move) and not outcome.applied and there is not None and there.state in states


def _force(store: Store, write: Write, outcome: Outcome) -> Outcome:
    assert isinstance(write, Move)
    assert outcome.operation is not None
    forced = Move(
        event=Event.RENEWED, before=outcome.operation, after=write.after
    )  # the plainest update there is
    return _apply(store, forced)


# ------------------------------------------------------------------ the order of claim, effect and completion


class ClaimsLater:
    """A first claim waits in memory for the next write of its operation: it dies with the process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, Operation] = {}

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        return [self._apply_one(write) for write in writes]

    def read(self, key: str) -> Operation | None:
        return self._kept.get(key) or self._store.read(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _apply_one(self, write: Write) -> Outcome:
        if isinstance(write, Insert):
            return self._keep(write.operation)
        kept = self._kept.pop(write.before.key, None) if isinstance(write, Move) else None
        if kept is not None and not (claimed := _apply(self._store, Insert(kept))).applied:
            return claimed
        return _apply(self._store, write)

    def _keep(self, operation: Operation) -> Outcome:
        if (there := self.read(operation.key)) is not None:
            return Outcome(False, there)
        self._kept[operation.key] = operation
        return Outcome(True, operation)


def claiming_later(store: Store) -> Store:
    return cast(Store, ClaimsLater(store))


@tampering
def completing_first(store: Store, write: Write) -> Outcome:
    """The completion is written with the claim, before anything is sent."""
    outcome = _apply(store, write)
    if outcome.applied and outcome.operation is not None and _is_claim(write):
        _apply(store, lifecycle.commit(outcome.operation, result="null", now=outcome.operation.updated_at))
    return outcome


# ------------------------------------------------------------------ what a claim remembers


@tampering
def believing_in_its_lease(store: Store, write: Write) -> Outcome:
    """The holder takes its lease for endless; the record knows better."""
    outcome = _apply(store, write)
    there = outcome.operation
    if not outcome.applied or there is None or there.lease_expires_at is None or not _is_claim(write):
        return outcome
    return Outcome(True, replace(there, lease_expires_at=there.lease_expires_at + timedelta(days=1)))


@tampering
def forgetting_the_earlier_doubt(store: Store, write: Write) -> Outcome:
    """What a resend learns of itself is taken for the whole truth."""
    if isinstance(write, Move) and write.event is Event.RESENT:
        write = replace(write, after=replace(write.after, earlier_in_doubt=False))
    return _apply(store, write)


@tampering
def counting_the_key_from_its_last_send(store: Store, write: Write) -> Outcome:
    if isinstance(write, Move) and write.event in _CLAIMS:
        write = replace(write, after=replace(write.after, first_sent_at=write.after.updated_at))
    return _apply(store, write)


@tampering
def counting_quiet_from_the_first_send(store: Store, write: Write) -> Outcome:
    """As if nothing could leave once the claim was made."""
    if isinstance(write, Move) and write.after.state is State.UNKNOWN:
        write = replace(write, after=replace(write.after, send_deadline_at=write.before.first_sent_at))
    return _apply(store, write)


# ------------------------------------------------------------------ late results


@tampering
def dropping_late_results(store: Store, write: Write) -> Outcome:
    """A completion that changes nothing is taken for done."""
    outcome = _apply(store, write)
    if isinstance(write, Move) and write.event is Event.COMMITTED and not outcome.applied:
        return Outcome(True, write.after)
    return outcome


@tampering
def keeping_divergences_to_itself(store: Store, write: Write) -> Outcome:
    """Whatever it is told happened twice, its history does not say so."""
    if isinstance(write, Note) and write.entry.event is Event.DIVERGED:
        return Outcome(True)
    return _apply(store, write)


# ------------------------------------------------------------------ small


def _is_claim(write: Write) -> bool:
    return isinstance(write, Insert) or (isinstance(write, Move) and write.event in _CLAIMS)


def _apply(store: Store, write: Write) -> Outcome:
    (outcome,) = store.apply([write])
    return outcome
