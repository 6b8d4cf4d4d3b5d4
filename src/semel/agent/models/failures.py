"""A model that gave no whole turn: whether asking again can help, and when.

Asking a model changes nothing in the world; it only costs tokens. So a lost answer is no matter of doubt, and
the one question is whether the same request can succeed later. The adapters ask once a call; the agent decides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final

from semel.errors import SemelError, UsageError

REFUSED_BUT_NOT_FOR_GOOD: Final = frozenset({408, 409, 425, 429})  # besides every 5xx
SERVER_ERRORS: Final = 500

USED_UP: Final = frozenset({"billing_error", "insufficient_quota"})  # told by a 429 that no waiting cures
PERMANENT: Final = USED_UP | frozenset(  # what an error's `type` or `code` says where no status says more
    {
        "authentication_error",
        "content_filter",
        "context_length_exceeded",
        "invalid_api_key",
        "invalid_prompt",
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
        "permission_error",
        "request_too_large",
    }
)
EXCERPT_CHARACTERS: Final = 300
TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})
SDKS: Final = frozenset({"anthropic", "openai"})


class ModelFailed(SemelError):
    """The model gave no whole turn. No turn was recorded and no tool was called.

    `retryable`            whether the same request can succeed later. Never for a 400-type answer.
    `retry_after_seconds`  how long the provider asks to be left alone; None where it does not say.
    `status`               the HTTP status of the answer; None where none came, or where it came whole but unusable.
    """

    def __init__(
        self,
        message: str = "",
        *,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.status = status


def failed(
    what: str,
    *,
    retryable: bool,
    retry_after_seconds: float | None = None,
    status: int | None = None,
    remedy: str = "",
) -> ModelFailed:
    advice = "Ask again." if retryable else "The same request will fail again."
    return ModelFailed(
        f"{what}. No turn was recorded and no tool was called. {remedy or advice}",
        retryable=retryable,
        retry_after_seconds=retry_after_seconds,
        status=status,
    )


def not_whole(why: str) -> ModelFailed:
    """The answer ended before it was complete. What arrived of it is not used."""
    return failed(f"The model's answer did not arrive whole: {why}", retryable=True)


@contextmanager
def told_as_failures() -> Iterator[None]:
    """Turn what the SDK or its transport raises into `ModelFailed`; let everything else pass."""
    try:
        yield
    except SemelError:
        raise
    except Exception as error:
        failure = _failure_of(error)
        if failure is None:
            raise
        raise failure from error


@contextmanager
def sending() -> Iterator[None]:
    """As `told_as_failures`; what the SDK itself finds wrong with a request, credentials say, is a `UsageError`."""
    try:
        with told_as_failures():
            yield
    except (TypeError, ValueError) as problem:
        raise UsageError(f"The SDK did not take the request: {_excerpt(problem)}") from problem


@contextmanager
def read_as_answer() -> Iterator[None]:
    """Turn what reading an answer of another form than the provider's raises into `ModelFailed`."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise not_whole(f"it has another form than it should ({error!r:.{EXCERPT_CHARACTERS}})") from error


def _failure_of(error: Exception) -> ModelFailed | None:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return not_whole(f"what came is no JSON ({error})")
    roots = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if roots & TRANSPORTS:
        return _broken(error)
    if not roots & SDKS:
        return None
    if any(kind.__name__ == "APIConnectionError" for kind in type(error).__mro__):
        return _broken(error.__cause__ or error)
    return _failure_by_answer(error)


def _broken(error: BaseException) -> ModelFailed:
    return failed(f"The connection to the model failed: {_excerpt(error)}", retryable=True)


def _failure_by_answer(error: Exception) -> ModelFailed:
    status = getattr(error, "status_code", None)
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = getattr(response, "headers", {})
    is_refusal = isinstance(status, int) and status >= 400
    said = f"The model's provider answered HTTP {status}" if is_refusal else "The model's provider failed"
    return failed(
        f"{said}: {_excerpt(error)}",
        retryable=_is_retryable(status if is_refusal else None, error, headers),
        retry_after_seconds=retry_after_seconds(headers),
        status=status if is_refusal else None,
    )


def _is_retryable(status: int | None, error: Exception, headers: Mapping[str, str]) -> bool:
    words = _words(getattr(error, "body", None))
    if status is None:  # an answer that had begun and then broke off; an error without a body was never sent
        return hasattr(error, "body") and not words & PERMANENT
    if words & USED_UP or headers.get("x-should-retry") == "false":
        return False
    return status in REFUSED_BUT_NOT_FOR_GOOD or status >= SERVER_ERRORS


def _words(body: Any) -> set[str]:
    """An error's `type` and `code`, which stand in the body or one level down in it."""
    if not isinstance(body, Mapping):
        return set()
    inner = body.get("error")
    levels = [body, inner] if isinstance(inner, Mapping) else [body]
    return {
        word for level in levels for word in (level.get("type"), level.get("code")) if isinstance(word, str)
    }


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """`retry-after-ms` or `Retry-After`, as seconds from the answer's own `Date` where it names a time of day."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is not None or said is None:
        return seconds
    try:
        span = parsedate_to_datetime(said) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, span.total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _excerpt(error: BaseException) -> str:
    return str(error)[:EXCERPT_CHARACTERS] or type(error).__name__
