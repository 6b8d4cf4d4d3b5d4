"""What the model is told of a call that gave no result: did it happen, may it be asked for again, and when.

    {"outcome": "did_not_happen" | "happened" | "unknown",
     "retryable": bool, "retry_after_seconds": number or None, "error": one sentence}

There is no rule of thumb in it. Whether a retry makes sense follows from what kind of effect the tool has and from
what its error proves: a refusal is never retryable, what never left is, and what is in doubt is not the model's
to repeat. Each is made from the record or written into the log, so a resumed run tells it in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from semel import values
from semel.engine import refusals
from semel.engine.verdicts import describe
from semel.errors import NotSent, Rejected, ResultLost, Unencodable
from semel.model import Operation, State

SENTENCE_MAX: Final = 400  # characters
LATER_BUT_NOT_NEVER: Final = frozenset({408, 409, 425, 429})  # every other 400-type answer stays what it is

Told = dict[str, Any]


def did_not_happen(why: str | None, *, retryable: bool = False, retry_after: timedelta | None = None) -> Told:
    seconds = retry_after.total_seconds() if retryable and retry_after is not None else None
    return _told("did_not_happen", why or "it did not happen", retryable=retryable, seconds=seconds)


def happened(why: str) -> Told:
    return _told("happened", why)


def unknown(tool: str) -> Told:
    """Nothing in it that invites another try."""
    return _told(
        "unknown",
        f"{tool} may or may not have happened; it is being found out, so do not ask for it again in any words.",
    )


def _told(outcome: str, why: str, *, retryable: bool = False, seconds: float | None = None) -> Told:
    return {
        "outcome": outcome,
        "retryable": retryable,
        "retry_after_seconds": seconds,
        "error": one_sentence(why),
    }


def one_sentence(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= SENTENCE_MAX else whole[: SENTENCE_MAX - 1] + "…"


# ------------------------------------------------------------------ from what a tool raised, where nothing happened


def nothing_happened(error: BaseException) -> Told:
    """Of a tool that only reads, of an Atomic one, and of a request that never left."""
    if isinstance(error, Rejected | Unencodable):
        return did_not_happen(str(error))
    return did_not_happen(
        describe(error),
        retryable=not _is_refusal(error),
        retry_after=_span(getattr(error, "retry_after", None)),
    )


def _is_refusal(error: BaseException) -> bool:
    if isinstance(error, NotSent):
        return False
    status = getattr(error, "status", None)
    return type(status) is int and 400 <= status < 500 and status not in LATER_BUT_NOT_NEVER


def _span(said: Any) -> timedelta | None:
    return said if isinstance(said, timedelta) else None


# ------------------------------------------------------------------ from the record


def content_of(operation: Operation) -> Any:
    """What the model is told of an operation that has ended."""
    if operation.state is State.FAILED:
        return did_not_happen(operation.error)
    try:
        return refusals.recorded_result(operation)
    except ResultLost:
        return happened_without_result()


def as_recorded(value: Any) -> Any:
    """A result as every later run will read it; one with no recordable form is told in the same words."""
    try:
        return values.decode(values.encode(value))
    except Exception:
        return happened_without_result()


def happened_without_result() -> Told:
    return happened("it happened; its result could not be recorded")


def past_retention() -> Told:
    """Of a business event that an earlier run has seen to."""
    return happened("it happened long ago; its result is past retention")


def held_back(earlier: Operation) -> Told:
    """Of a call that was not run because it could have been an earlier one in other words."""
    became = "happened" if earlier.state is State.COMMITTED else "did not happen and will not"
    return did_not_happen(
        f"this call was not made: when it was asked for, an earlier call, {shown(earlier)}, was in doubt; that one "
        f"{became}. If this one is meant besides it, ask for it anew."
    )


def shown(operation: Operation) -> str:
    return call_shown(operation.tool, values.decode(operation.arguments))


def call_shown(tool: str, arguments: Mapping[str, Any]) -> str:
    words = ", ".join(f"{name}={value!r}" for name, value in arguments.items() if value is not None)
    return one_sentence(f"{tool}({words})")
