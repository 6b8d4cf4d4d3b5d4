"""Broken ears: declarations that are not heeded, errors and answers taken for what they are not, wrong keys."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from semel.errors import NotSent, Rejected
from semel.lab.mutants.mutant import Attempt, Place
from semel.model import Absent, Effect, Found, Idempotent, Unsafe

NO_TIME: Final = timedelta(0)
FOR_EVER: Final = timedelta(days=36_500)

# ------------------------------------------------------------------ declarations


def no_lookup_lag(effect: Effect) -> Effect:
    return replace(effect, lookup_lag=NO_TIME) if isinstance(effect, Idempotent | Unsafe) else effect


def no_request_deadline(effect: Effect) -> Effect:
    return replace(effect, request_deadline=NO_TIME) if isinstance(effect, Idempotent | Unsafe) else effect


def an_endless_key(effect: Effect) -> Effect:
    return replace(effect, key_ttl=FOR_EVER) if isinstance(effect, Idempotent) else effect


def a_key_that_is_honoured(effect: Effect) -> Effect:
    """Whatever the provider is: resend, it will dedupe."""
    if not isinstance(effect, Unsafe):
        return effect
    return Idempotent(key_ttl=FOR_EVER, request_deadline=effect.request_deadline, lookup=effect.lookup)


# ------------------------------------------------------------------ errors


def any_error_is_not_sent(error: Exception) -> Exception:
    return error if isinstance(error, NotSent | Rejected) else NotSent(str(error))


def any_error_is_final(error: Exception) -> Exception:
    return error if isinstance(error, NotSent | Rejected) else Rejected(str(error))


def not_sent_is_final(error: Exception) -> Exception:
    return Rejected(str(error)) if isinstance(error, NotSent) else error


# ------------------------------------------------------------------ answers of a lookup


def falsy_is_absent(answer: Any) -> Any:
    return answer or Absent()


def any_row_is_ours(answer: Any) -> Any:
    return Found(answer.result) if isinstance(answer, Found) else answer


# ------------------------------------------------------------------ keys


def fresh_for_each_attempt(attempt: Attempt) -> str:
    return _digest(f"{attempt.key}/{attempt.number}")


def made_of_the_arguments(attempt: Attempt) -> str:
    return _digest(attempt.arguments)


def run_together(place: Place) -> Place:
    """`a:b` + `c` is `a` + `b:c`."""
    return Place(f"{place.step}:{place.call_id}", "-")


def without_the_step(place: Place) -> Place:
    return Place("-", place.call_id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
