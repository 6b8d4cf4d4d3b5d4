"""What an attempt's ending proves, and what a lookup's answer is worth. Pure.

The phase decides, not the exception's type: during the effect only `Rejected` and `NotSent` are believed;
every other exception, timeouts first, leaves the operation in doubt.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from semel.errors import NotSent, Rejected
from semel.model import Absent, Event, Evidence, Found, Inconclusive

ASK_AGAIN_AFTER: Final = timedelta(seconds=5)  # a lookup that is down: soon enough to help, no storm
TEXT_MAX: Final = 2_000  # characters of an error's text that are kept in the record


def event_of(error: BaseException) -> Event:
    """What happened to the operation, by what the tool raised."""
    if isinstance(error, Rejected):
        return Event.REJECTED
    if isinstance(error, NotSent):
        return Event.NOT_SENT
    return Event.LEFT_IN_DOUBT


def describe(error: BaseException) -> str:
    """An error as text that any store can hold."""
    text = f"{type(error).__name__}: {error}"[:TEXT_MAX]
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def as_evidence(answer: Any, key: str) -> Evidence:
    """A lookup must say Found, Absent or Inconclusive; 0, "", None, False or a list prove nothing."""
    if isinstance(answer, Found) and answer.key is not None and answer.key != key:
        return Inconclusive(f"the lookup found a row of another operation ({answer.key!r})")
    if isinstance(answer, Found | Absent | Inconclusive):
        return answer
    return Inconclusive(
        f"the lookup returned {answer!r:.80}, which is no evidence; it must return Found(...), Absent() or "
        "Inconclusive(...)"
    )


def failed_lookup(error: Exception) -> Evidence:
    return Inconclusive(f"the lookup failed ({describe(error)[:200]})", retry_after=ASK_AGAIN_AFTER)
