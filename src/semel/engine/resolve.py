"""A person's answer to UNKNOWN: it happened | it did not, run it | it did not, give up."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from semel import lifecycle, values
from semel.engine.core import Core
from semel.engine.names import require_text
from semel.engine.sweeps import leave_in_doubt
from semel.errors import ClaimHeld, OutcomeUnknown, UsageError
from semel.model import (
    REQUEST_DEADLINE,
    Effect,
    GiveUp,
    Idempotent,
    ItHappened,
    Move,
    Operation,
    Resolution,
    RunIt,
    State,
    Unsafe,
)

RACES_MAX: Final = 10  # moves by others between our read and our write


def resolve(
    core: Core,
    key: str,
    answer: Resolution,
    *,
    by: str,
    why: str,
    fingerprint: str | None,
    attempt: int | None,
    effect: Effect | None = None,
) -> Operation:
    """The operation as it now stands. Recorded with who and why.

    `effect`  what its tool declares, where that is registered.

    An answer speaks of one attempt: where another has begun since it was asked (or since we first read the
    record), it is not taken for that one.
    """
    _require_reasons(by, why)
    if isinstance(answer, ItHappened):
        values.encode(answer.result)  # refused here, before anything changes
    for _ in range(RACES_MAX):
        operation = _read(core, key, fingerprint)
        attempt = _same_attempt(operation, attempt)
        move = _move(core, operation, answer, effect, by=by, why=why)
        outcome = core.committer.submit(move)
        if outcome.applied and outcome.operation is not None and move.before.state is not State.INVOKED:
            return outcome.operation
    raise ClaimHeld(
        f"The record of {key[:12]}… keeps being moved by others. Your answer was not recorded. Look again.",
        key=key,
    )


def _move(
    core: Core, operation: Operation, answer: Resolution, effect: Effect | None, *, by: str, why: str
) -> Move:
    now = core.store.now()
    if operation.state is State.INVOKED:
        in_doubt = leave_in_doubt(core, operation)
        if in_doubt is None:
            ends_at = operation.lease_expires_at or now
            raise ClaimHeld(
                f"{operation.tool} ({key_start(operation)}) still runs: its owner is alive. Your answer was not "
                "recorded. Wait for it to end.",
                key=operation.key,
                retry_after=ends_at - now,
            )
        return in_doubt
    match answer:
        case ItHappened(result):
            return lifecycle.confirm(operation, result=values.encode(result), by=by, why=why, now=now)
        case RunIt():
            return lifecycle.clear(operation, by=by, why=why, now=now)
        case GiveUp():
            _require_quiet(operation, effect, now)
            return lifecycle.abandon(operation, by=by, why=why, now=now)
        case _:
            raise UsageError(
                f"{answer!r} is no answer. Nothing was recorded. Say ItHappened(result), RunIt() or GiveUp()."
            )


def _require_quiet(operation: Operation, effect: Effect | None, now: datetime) -> None:
    """FAILED says that it will not happen; while a request may still land, nobody can say so."""
    sends_until = operation.send_deadline_at
    is_open = operation.state in (State.UNKNOWN, State.PENDING)
    if not is_open or sends_until is None or operation.effect not in (Idempotent.name, Unsafe.name):
        return
    deadline = effect.request_deadline if isinstance(effect, Idempotent | Unsafe) else REQUEST_DEADLINE
    lands_by = sends_until + deadline
    if now < lands_by:
        raise OutcomeUnknown(
            f"{operation.tool} ({key_start(operation)}): until {lands_by:%H:%M:%S} UTC a request may still land, "
            f"so nobody can give it up yet. The record says {operation.state}; your answer was not recorded. Look "
            "again from then on.",
            key=operation.key,
            retry_after=lands_by - now,
        )


def _read(core: Core, key: str, fingerprint: str | None) -> Operation:
    operation = core.store.read(key)
    if operation is None:
        raise UsageError(
            f"No operation has the key {key!r}. Nothing was recorded. guard.in_doubt() lists those in doubt."
        )
    if fingerprint is not None and fingerprint != operation.fingerprint:
        raise UsageError(
            f"The answer is bound to fingerprint {fingerprint[:12]}…, but {operation.tool} "
            f"({key_start(operation)}) was called with other arguments: {operation.arguments}. Nothing was "
            "recorded. Look at the call again."
        )
    return operation


def _same_attempt(operation: Operation, attempt: int | None) -> int:
    if attempt is not None and attempt != operation.fence:
        raise UsageError(
            f"The answer speaks of attempt {attempt} of {operation.tool} ({key_start(operation)}), and attempt "
            f"{operation.fence} has begun since. Your answer was not recorded; the record says {operation.state}. "
            "Look again."
        )
    return operation.fence


def _require_reasons(by: str, why: str) -> None:
    if not by or not why:
        raise UsageError(
            "An answer needs `by` (who says so) and `why` (how they know). Nothing was recorded."
        )
    require_text(by, "answer's `by`")
    require_text(why, "answer's `why`")


def key_start(operation: Operation) -> str:
    return f"key {operation.key[:12]}…"
