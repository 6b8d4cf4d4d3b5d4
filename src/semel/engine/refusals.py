"""What a caller is told: what happened, what the record now says, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from semel import values
from semel.engine.call import Call
from semel.engine.verdicts import describe
from semel.errors import (
    ClaimHeld,
    CommitInDoubt,
    Compensated,
    Diverged,
    KeyReused,
    Outcome,
    OutcomeUnknown,
    PausedForPerson,
    PreviouslyFailed,
    Reaped,
    ResultLost,
    SemelError,
    StoreError,
)
from semel.model import Intent, Operation, State

LOST: Final = "$semel.result_lost"
_OUTCOMES: Final[Mapping[State | None, Outcome]] = {
    None: "did_not_happen",
    State.PENDING: "did_not_happen",
    State.FAILED: "did_not_happen",
    State.INVOKED: "unknown",
    State.UNKNOWN: "unknown",
    State.COMMITTED: "happened",
}


def recorded_result(operation: Operation) -> Any:
    """The result of a committed operation, as it was returned."""
    value = values.decode(operation.result or "null")
    if isinstance(value, dict) and LOST in value:
        raise ResultLost(
            f"{_name(operation)} happened, and its record says COMMITTED; but its result could not be recorded "
            f"({value[LOST]}). It is not run again. Read the result from the provider, by the key.",
            key=operation.key,
        )
    return value


def refuse(operation: Operation, reason: str, intent: Intent) -> SemelError:
    if reason == "key_reused":
        return KeyReused(
            f"{intent.tool} was called for run {intent.run_id!r}, step {intent.step!r}, call "
            f"{intent.call_id!r} with other arguments than before. Nothing was sent; the record keeps "
            f"{operation.tool}({operation.arguments}) and says {operation.state}. Repeat the call as it was, "
            "or give a new intent its own run, step or call id.",
            key=operation.key,
        )
    if reason == "reaped":
        return Reaped(
            outcome="happened" if operation.state is State.COMMITTED else "did_not_happen",
            message=f"{_name(operation)} ended as {operation.state} and is past retention: its result is deleted. "
            "Nothing was sent. Start a new run if it is meant to happen again.",
            key=operation.key,
        )
    return PreviouslyFailed(
        f"{_name(operation)} did not happen and will not under this key: {operation.error}. The record says "
        "FAILED; nothing was sent. If it is still wanted, that is a new intent: start a new run.",
        key=operation.key,
    )


def ask(operation: Operation, why: str, look_from: datetime | None = None) -> PausedForPerson:
    """`look_from`: until then an earlier request may still land, and be in no book yet."""
    late = "" if look_from is None else f" from {look_from:%H:%M:%S} UTC on (a request may land until then)"
    return PausedForPerson(
        f"{_name(operation)} may or may not have happened: {operation.error}; {why}. The record says UNKNOWN "
        f"and nothing more is sent. Look at the provider{late}, then answer: guard.resolve({operation.key!r}, "
        "ItHappened(result) | RunIt() | GiveUp(), by=..., why=...).",
        key=operation.key,
        fingerprint=operation.fingerprint,
        attempt=operation.fence,
    )


def not_yet(operation: Operation, why: str, retry_after: timedelta) -> SemelError:
    if operation.state is State.INVOKED:
        return ClaimHeld(
            f"{_name(operation)} is being worked on by a live owner. The record says INVOKED; this call sent "
            f"nothing. Call again within {retry_after} to get its result.",
            key=operation.key,
            retry_after=retry_after,
        )
    return OutcomeUnknown(
        f"{_name(operation)} may or may not have happened: {why}. The record says {operation.state}; nothing "
        f"more is sent until it is known. Repeat the same call in {retry_after}.",
        key=operation.key,
        retry_after=retry_after,
    )


def in_doubt(operation: Operation, failure: BaseException) -> OutcomeUnknown:
    """To be repeated at once, unless the provider asked to be left alone for a while."""
    asked_for = getattr(failure, "retry_after", None)
    return OutcomeUnknown(
        f"{_name(operation)} may or may not have happened: {describe(failure)}. The record says "
        f"{operation.state}. Repeat the same call: it goes on from the record and causes no second effect.",
        key=operation.key,
        retry_after=asked_for if isinstance(asked_for, timedelta) else timedelta(0),
    )


def unrecorded(operation: Operation, value: Any) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{_name(operation)} ran to its end, but the store took no record of it while the claim lasted. The record "
        "says INVOKED or UNKNOWN; it is not re-run on that account. What the tool returned is in `.result`. Once "
        "the store is back, call again or settle it with guard.resolve.",
        key=operation.key,
        result=value,
    )


def past_a_step_in_doubt(call: Call, name: str, unknown: BaseException) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"The step {name!r} of {call.tool} was not taken: an earlier step is in doubt ({describe(unknown)}), and "
        "the tool does not get past it. This step sent nothing. Let such an error leave the tool, and call again.",
        key=call.key,
        retry_after=getattr(unknown, "retry_after", None),
    )


def steps_left_open(call: Call, names: Sequence[str]) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{call.tool} came to its end, but an earlier attempt at it left steps open that this one did not settle: "
        f"{', '.join(map(repr, names))}. The record does not say COMMITTED. If the program has changed, finish the "
        "call with the old one; or settle the steps with guard.resolve, and call again.",
        key=call.key,
    )


def partly_done(call: Call, standing: Sequence[str], error: BaseException) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{call.tool} is done in part: {describe(error)}; but of its steps {', '.join(map(repr, standing))} took "
        "effect, or may have. The record says UNKNOWN. Call it again to go on from there, or undo what is done "
        "with run.compensate().",
        key=call.key,
    )


def compensated(intent: Intent, recorded: Operation | None, what: str) -> Compensated:
    """`what` was compensated: this operation, or its run."""
    state = None if recorded is None else recorded.state
    return Compensated(
        f"{what} was compensated, or is being: {intent.tool} (run {intent.run_id!r}, key {intent.key[:12]}…) is "
        f"not called, nor is its result given back as if all were well. Nothing was sent; the record says "
        f"{state or 'nothing of it'}. guard.open_sagas() lists what is not yet undone. To do it again, start a new "
        "run; what a tool does once per business event needs a new event.",
        key=intent.key,
        outcome=_OUTCOMES[state],
        result=_result_if_any(recorded),
    )


def _result_if_any(operation: Operation | None) -> Any:
    if operation is None or operation.result is None:
        return None
    value = values.decode(operation.result)
    return None if isinstance(value, dict) and LOST in value else value


def transaction_open(run_id: str, saga: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"Run {run_id!r} is not compensated yet: a transaction of an Atomic tool of it is open, and what it does "
        "is not known before it ends. Nothing was undone; the saga stays open. Compensate again once it has ended.",
        key=saga,
        retry_after=timedelta(seconds=1),
    )


def claim_in_doubt(wanted: Operation) -> StoreError:
    return StoreError(
        f"{_name(wanted)} was not started: the store did not confirm the claim, and could not be asked. Nothing "
        "was sent. Call again once the store is back.",
        key=wanted.key,
    )


def atomic_in_doubt(wanted: Operation) -> CommitInDoubt:
    return CommitInDoubt(
        f"{_name(wanted)} may or may not have happened: the store did not confirm the commit, and its record does "
        "not show it yet. Effect and record are one transaction: call again, and the record decides.",
        key=wanted.key,
    )


def record_vanished(intent: Intent) -> StoreError:
    return StoreError(
        f"The record of {intent.tool} ({intent.key[:12]}…) is gone from the store. Nothing more is sent. Somebody "
        "deleted it or the store was restored from a backup: compare with the provider before you go on.",
        key=intent.key,
    )


def record_vanished_of(operation: Operation) -> StoreError:
    return StoreError(
        f"The record of {_name(operation)} is gone from the store. Nothing more is sent. Somebody deleted it or "
        "the store was restored from a backup: compare with the provider before you go on.",
        key=operation.key,
    )


def diverged(operation: Operation, why: str, value: Any) -> Diverged:
    return Diverged(
        f"{_name(operation)} took effect against what was declared: {why}. The record says {operation.state} and "
        "keeps this in its history. Compare with the provider; compensate if there are two effects; then correct "
        "lookup_lag, request_deadline or the lookup.",
        key=operation.key,
        result=value,
    )


def too_many_turns(operation: Operation, turns: int) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{_name(operation)} did not come to rest in {turns} turns: others keep moving the record. It says "
        f"{operation.state}. Repeat the same call later.",
        key=operation.key,
    )


def told(error: BaseException, key: str) -> BaseException:
    """The tool's own error, with the operation's key where it can carry one."""
    if isinstance(error, SemelError) and error.key is None:
        error.key = key
    return error


def _name(operation: Operation) -> str:
    return f"{operation.tool} (run {operation.run_id!r}, key {operation.key[:12]}…)"
