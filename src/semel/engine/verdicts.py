"""What an attempt's ending proves, and what a lookup's answer is worth. Pure.

The phase decides, not the exception's type: during the effect only `Rejected` and `NotSent` are believed;
every other exception, timeouts first, leaves the operation in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from semel.errors import NotSent, Rejected
from semel.keys import is_name_of
from semel.model import Absent, Event, Evidence, Found, Inconclusive

ASK_AGAIN_AFTER: Final = timedelta(seconds=5)  # a lookup that is down: soon enough to help, no storm
TEXT_MAX: Final = 2_000  # characters of an error's text that are kept in the record


def event_of(error: BaseException, key: str) -> Event:
    """What happened to the operation `key`, by what its tool raised.

    An error that carries another operation's key (of a guarded tool called inside this one) speaks of that one.
    """
    if not isinstance(error, Rejected | NotSent) or error.key not in (None, key):
        return Event.LEFT_IN_DOUBT
    return Event.REJECTED if isinstance(error, Rejected) else Event.NOT_SENT


def describe(error: BaseException) -> str:
    """An error as text that any store can hold."""
    return text_of(error, make=lambda it: f"{type(it).__name__}: {it}")


def text_of(thing: object, *, make: Callable[[Any], str] = str) -> str:
    """Text, whatever it takes: a broken `__str__` must not hide what it was about."""
    try:
        text = make(thing)[:TEXT_MAX]
    except Exception:
        text = f"a {type(thing).__name__} whose text cannot be made"
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def as_evidence(answer: Any, key: str) -> Evidence:
    """A lookup must say Found, Absent or Inconclusive; 0, "", None, False or a list prove nothing."""
    if isinstance(answer, Found) and answer.key is not None and not is_name_of(key, answer.key):
        return Inconclusive(f"the lookup found a row of another operation ({text_of(answer.key)})")
    if isinstance(answer, Found | Absent | Inconclusive):
        return answer
    return Inconclusive(
        f"the lookup returned {text_of(answer, make=repr)[:80]}, which is no evidence; "
        "it must return Found(...), Absent() or Inconclusive(...)"
    )


def failed_lookup(error: Exception) -> Evidence:
    return Inconclusive(f"the lookup failed ({describe(error)[:200]})", retry_after=ASK_AGAIN_AFTER)
