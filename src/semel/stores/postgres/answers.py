"""A record as `semel_claim` gives it back: JSON, by the names of the columns."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final

from semel.model import Operation, State

_NAMES: Final = tuple(field.name for field in fields(Operation))


def operation_of(text: str) -> Operation:
    found = json.loads(text)
    return Operation(**{name: _revived(name, found[name]) for name in _NAMES if name in found})


def _revived(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_at"):
        return datetime.fromisoformat(value).astimezone(UTC)
    return State(value) if name == "state" else value
