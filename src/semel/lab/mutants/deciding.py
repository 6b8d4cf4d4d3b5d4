"""Broken opinions: each is `decide` with one rule switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from semel import actions
from semel.decide import decide
from semel.engine.core import Decide
from semel.model import Absent, Answer, Effect, Event, Inconclusive, Operation, State, Unsafe

Opinion = Callable[[Operation, Effect, "Answer | None", datetime, dict[str, Any]], "actions.Action | None"]


def unless(opinion: Opinion) -> Decide:
    """`decide`, unless the broken opinion has something to say of the record."""

    def decide_unless(
        operation: Operation | None, effect: Effect, answer: Answer | None, now: datetime, **named: Any
    ) -> actions.Action:
        broken = None if operation is None else opinion(operation, effect, answer, now, named)
        return decide(operation, effect, answer, now, **named) if broken is None else broken

    return decide_unless


def on_answer(change: Callable[[Answer], Answer]) -> Decide:
    """`decide`, on an answer that was tampered with."""

    def decide_on(
        operation: Operation | None, effect: Effect, answer: Answer | None, now: datetime, **named: Any
    ) -> actions.Action:
        return decide(operation, effect, answer and change(answer), now, **named)

    return decide_on


# ------------------------------------------------------------------ evidence


@on_answer
def believing_an_early_absent(answer: Answer) -> Answer:
    if not isinstance(answer.evidence, Absent):
        return answer
    return replace(answer, asked_at=datetime.max.replace(tzinfo=answer.asked_at.tzinfo))


@on_answer
def taking_inconclusive_for_absent(answer: Answer) -> Answer:
    return replace(answer, evidence=Absent()) if isinstance(answer.evidence, Inconclusive) else answer


# ------------------------------------------------------------------ somebody else's claim


@unless
def overtaking_the_living(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    return actions.LeaveInDoubt(Event.OWNER_DIED) if _is_anothers(operation, named) else None


@unless
def taking_silence_for_death(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    """An owner who has not renewed for half a lease is dead."""
    if not _is_anothers(operation, named) or operation.lease_expires_at is None:
        return None
    half = (operation.lease_expires_at - operation.updated_at) / 2
    return actions.LeaveInDoubt(Event.OWNER_DIED) if now >= operation.updated_at + half else None


@unless
def waiting_for_the_dead(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    return (
        actions.Wait(now + timedelta(hours=1), "somebody is at it")
        if _is_anothers(operation, named)
        else None
    )


def _is_anothers(operation: Operation, named: dict[str, Any]) -> bool:
    return operation.state is State.INVOKED and operation.fence != named.get("held_fence")


# ------------------------------------------------------------------ doubt


@unless
def running_again_in_doubt(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    """UNKNOWN is taken for "did not happen"."""
    is_in_doubt = operation.state is State.UNKNOWN and isinstance(effect, Unsafe)
    return actions.Settle(Absent()) if is_in_doubt else None


@unless
def staying_in_doubt(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    in_doubt = operation.state is State.UNKNOWN
    return actions.Wait(now + timedelta(hours=1), "in doubt") if in_doubt else None


@unless
def asking_in_every_doubt(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    return actions.Ask("in doubt") if operation.state is State.UNKNOWN else None


@unless
def running_at_once_on_a_persons_word(
    operation: Operation, effect: Effect, answer: Answer | None, now: datetime, named: dict[str, Any]
) -> actions.Action | None:
    return actions.Claim() if operation.state is State.PENDING else None


# ------------------------------------------------------------------ whose key it is


def taking_any_arguments(
    operation: Operation | None, effect: Effect, answer: Answer | None, now: datetime, **named: Any
) -> actions.Action:
    """The fingerprint is not compared."""
    if operation is not None:
        named["fingerprint"] = operation.fingerprint
    return decide(operation, effect, answer, now, **named)
