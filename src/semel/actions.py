"""What `decide` can say is to be done next. Imperatives, each one thing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from semel.model import Absent, Event, Found


@dataclass(frozen=True, slots=True)
class Claim:
    """Take the exclusive right to invoke, durably."""


@dataclass(frozen=True, slots=True)
class Invoke:
    """We hold the claim: cause the effect."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A live owner is at work, or time has to pass before evidence counts. Read again by `until`."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class LeaveInDoubt:
    """The owner is gone: move to UNKNOWN."""

    event: Event


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask the provider."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The evidence proves one or the other: Found → COMMITTED, Absent → PENDING."""

    evidence: Found | Absent


@dataclass(frozen=True, slots=True)
class Ask:
    """Only a person can know."""

    why: str


@dataclass(frozen=True, slots=True)
class Replay:
    """Give back the recorded result; no effect."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Never under this key: `reason` is the state FAILED, `reaped`, or `key_reused`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Accept:
    """A late result that changes nothing: it is recorded already, or the provider deduped it."""


@dataclass(frozen=True, slots=True)
class Report:
    """A late result that settles what was in doubt, or was declared absent too early."""


@dataclass(frozen=True, slots=True)
class Diverge:
    """A late result that nothing can settle: another attempt ran, or a person gave up."""


Action: TypeAlias = Claim | Invoke | Wait | LeaveInDoubt | Lookup | Settle | Ask | Replay | Refuse

LateAction: TypeAlias = Accept | Report | Diverge
