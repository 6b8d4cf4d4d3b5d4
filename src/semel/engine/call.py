"""What a tool learns of its own call."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from semel import keys, values
from semel.engine.claims import HeldClaim
from semel.errors import UsageError
from semel.model import Operation

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One attempt at one intent.

    `key`        64 hex characters; the same on every attempt. Give it to the provider, as its idempotency
                 key or as the reference that your lookup searches for.
    `attempt`    1, 2, …
    `arguments`  as recorded at the first attempt.
    `deadline_at`  after this instant send nothing (None in a lookup): the claim may be somebody else's.
    """

    key: str
    attempt: int
    tool: str
    arguments: Mapping[str, Any]
    run_id: str
    step: str
    call_id: str
    claim: HeldClaim | None = None

    @property
    def deadline_at(self) -> datetime | None:
        return None if self.claim is None else self.claim.send_until

    @property
    def uuid(self) -> UUID:
        """The key for a provider that wants a UUID."""
        return keys.key_as_uuid(self.key)

    def key_for(self, *, max_length: int) -> str:
        """The key for a provider with a length limit (16 at least)."""
        return keys.short_key(self.key, max_length=max_length)

    def ensure_held(self) -> None:
        """Call this right before sending, where much time may pass in the tool first.

        Raises `ClaimLost` (a `NotSent`) once the claim has lapsed.
        """
        if self.claim is not None:
            self.claim.ensure_held()


def call_of(operation: Operation, arguments: Mapping[str, Any] | None, claim: HeldClaim | None) -> Call:
    """`arguments`: those the caller has in hand, or None to take them from the record."""
    return Call(
        key=operation.key,
        attempt=operation.fence,
        tool=operation.tool,
        arguments=values.decode(operation.arguments) if arguments is None else arguments,
        run_id=operation.run_id,
        step=operation.step,
        call_id=operation.call_id,
        claim=claim,
    )


CURRENT_CALL: Final[ContextVar[Call | None]] = ContextVar("semel_current_call", default=None)


def current_call() -> Call:
    """The call that the running tool serves, for code that has no `call` parameter."""
    call = CURRENT_CALL.get()
    if call is None:
        raise UsageError("There is no current call: this code does not run inside a guarded tool.")
    return call
