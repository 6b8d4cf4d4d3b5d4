"""Names and notes that every database keeps as they are."""

from __future__ import annotations

from typing import Any

from semel.errors import UsageError


def require_name(name: Any, what: str) -> None:
    """Raise `UsageError` unless it is text, not empty, and storable."""
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"The {what} {name!r} must be a non-empty string: it names the intent. Nothing was sent."
        )
    require_text(name, what)


def require_text(text: Any, what: str) -> None:
    """Raise `UsageError` unless every database can hold it."""
    if not is_storable(text):
        raise UsageError(
            f"The {what} {text!r} must be text without NUL or half a surrogate pair, which no database keeps. "
            "Nothing was sent."
        )


def is_storable(text: Any) -> bool:
    """Whether every database can hold it."""
    return isinstance(text, str) and "\x00" not in text and _is_encodable(text)


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
