"""What an HTTP answer proves about the effect, for tools that send exactly one request.

    with semel.http.one_request():
        response = client.post(url, json=..., headers={"Idempotency-Key": call.key})
        semel.http.check(response.status_code, semel.http.STRIPE, text=response.text)

Few answers prove that nothing happened. A refusal of the request as such does (400, 401, 403, 404, …). 408,
409, 425, 429 and every 5xx do not: the request may have been processed, be in progress, or have been counted
before it was refused. A message that the key was "already used", or the thing "already exists", speaks of an
earlier attempt, and that one may have happened (being wrong in this costs a lookup). A 406 is often found out
only when the answer is written, after the effect. What is no proof raises `StatusInDoubt`, and the operation
becomes UNKNOWN.

Status codes: RFC 9110, section 15. Idempotency-Key: draft-ietf-httpapi-idempotency-key-header (409 while the
first request is in progress, 422 for a key reused with another payload). Stripe: docs.stripe.com/api/errors
and /api/idempotent_requests (402 "request failed"; errors of type `idempotency_error`).
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from semel.errors import NotSent, Rejected, SemelError


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRules:
    """`rejected`: statuses that prove that this request had no effect and never will, repeated as it is.

    `turned_away`: statuses that prove that it was not looked at, and may be sent again: a 429 of a provider that
    documents so. Nobody's are by default.
    `speaks_of_earlier`: texts in an answer, in lower case, by which it speaks of an earlier request instead.
    """

    name: str
    rejected: frozenset[int]
    turned_away: frozenset[int] = frozenset()
    speaks_of_earlier: tuple[str, ...] = ("idempoten", "already", "duplicate")


GENERIC: Final = HttpRules(
    name="generic",
    rejected=frozenset({400, 401, 403, 404, 405, 410, 411, 413, 414, 415, 416, 417, 426, 428, 431, 451}),
)
STRIPE: Final = HttpRules(name="stripe", rejected=frozenset({400, 401, 402, 403, 404}))
VALIDATES_WITH_422: Final = HttpRules(
    name="validates with 422",  # for a provider that documents 422 as failed validation, before any effect
    rejected=GENERIC.rejected | {422},
)


class StatusInDoubt(Exception):
    """The answer does not prove what happened. `retry_after`: how long the provider asks to be left alone."""

    def __init__(self, message: str = "", *, status: int = 0, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def check(status: int, rules: HttpRules = GENERIC, *, text: str = "", retry_after: str | None = None) -> None:
    """Return on 2xx; raise `Rejected` where nothing happened for certain, `NotSent` where the request was turned
    away unread, `StatusInDoubt` otherwise.

    `text`: the answer's body; without it a 400 that only says "key already used" would pass for a refusal.
    `retry_after`: the answer's `Retry-After`, as it came; it goes with the error where a retry can make sense.
    """
    if 200 <= status < 300:
        return
    excerpt = text[:200]
    speaks_of_earlier = any(word in text.lower() for word in rules.speaks_of_earlier)
    if status in rules.rejected and not speaks_of_earlier:
        raise Rejected(f"the provider refused with HTTP {status}: {excerpt}")
    pause = pause_of(retry_after)
    if status in rules.turned_away and not speaks_of_earlier:
        raise NotSent(f"the provider turned it away with HTTP {status}: {excerpt}", retry_after=pause)
    raise StatusInDoubt(
        f"HTTP {status} ({rules.name} rules) does not prove what happened: {excerpt}",
        status=status,
        retry_after=pause,
    )


def pause_of(retry_after: str | None) -> timedelta | None:
    """A `Retry-After` in seconds; one that is a date, or makes no sense, is None (RFC 9110, section 10.2.3)."""
    text = (retry_after or "").strip()
    return timedelta(seconds=int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else None


@contextmanager
def one_request() -> Iterator[None]:
    """Turn "no connection came about" into `NotSent`. Only for a block that sends one request.

    That is without retries and without following redirects (urllib and requests follow them by themselves: a POST
    that took effect and is redirected to an address that refuses would be called `NotSent`).

    Believed: a refused connection and a name that does not resolve, from any client, and the connect errors of
    httpx and aiohttp. A time-out or a broken connection proves nothing and passes through.
    """
    handled_before = sys.exc_info()[1]  # of an earlier attempt: it says nothing about this one
    try:
        yield
    except (SemelError, StatusInDoubt):
        raise  # an answer has come
    except Exception as error:
        if any(_never_connected(cause) for cause in _causes(error, until=handled_before)):
            raise NotSent(f"no connection came about: {error}") from error
        raise


_CONNECT_ERRORS: Final = frozenset(
    {
        ("httpx", "ConnectError"),
        ("httpx", "ConnectTimeout"),
        ("httpx2", "ConnectError"),
        ("httpx2", "ConnectTimeout"),
        ("aiohttp", "ClientConnectorError"),
    }
)
_CAUSES_MAX: Final = 20  # links in a chain of exceptions


def _never_connected(error: BaseException) -> bool:
    if isinstance(error, ConnectionRefusedError | socket.gaierror):
        return True
    return (type(error).__module__.partition(".")[0], type(error).__name__) in _CONNECT_ERRORS


def _causes(error: BaseException, *, until: BaseException | None) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if current is None or current is until:
            return
        yield current
        current = _cause(current)


def _cause(error: BaseException) -> BaseException | None:
    reason = getattr(error, "reason", None)  # urllib hides the cause there
    if isinstance(reason, BaseException):
        return reason
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)
