"""What a tool learns of its own call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from semel import keys, values
from semel.engine.claims import HeldClaim
from semel.errors import UsageError
from semel.model import Effect, Operation

if TYPE_CHECKING:
    from uuid import UUID


class TakesSteps(Protocol):
    def take(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        effect: Effect | None,
    ) -> Any: ...


class TakesMessages(Protocol):
    def enqueue(self, topic: str, payload: Any) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One attempt at one intent.

    `key`        64 hex characters; the same on every attempt. Give it to the provider, as its idempotency
                 key or as the reference that your lookup searches for.
    `attempt`    1, 2, …
    `arguments`  as recorded at the first attempt.
    `deadline_at`  after this instant send nothing (None in a lookup): the claim may be somebody else's.
    `run_id`, `position`, `call_id`  where the intent stands: its run, the step there, the call in that.
    """

    key: str
    attempt: int
    tool: str
    arguments: Mapping[str, Any]
    run_id: str
    position: str
    call_id: str
    claim: HeldClaim | None = None
    steps: TakesSteps | None = None
    outbox: TakesMessages | None = None
    inner: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False, compare=False)

    @property
    def deadline_at(self) -> datetime | None:
        return None if self.claim is None else self.claim.send_until

    @property
    def uuid(self) -> UUID:
        """The key for a provider that wants a UUID."""
        return keys.key_as_uuid(self.key)

    def next_step_inside(self) -> str:
        """The name of the next place inside this attempt, for a guarded tool that the body calls.

        Counted from one at every attempt, so that another attempt comes to the same places; and apart from the
        run's own positions, since a resumed run that replays this call does not come to them.
        """
        place = self.key if "/" in self.position else f"{self.position}/{self.call_id}"
        return (
            f"{place}/{next(self.inner)}"  # unambiguous: no "/" in a key, nor in a position that is spelt out
        )

    def key_for(self, *, max_length: int) -> str:
        """The key for a provider with a length limit (16 at least)."""
        return keys.short_key(self.key, max_length=max_length)

    def ensure_held(self) -> None:
        """Call this right before sending, where much time may pass in the tool first.

        Raises `ClaimLost` (a `NotSent`) once the claim has lapsed.
        """
        if self.claim is not None:
            self.claim.ensure_held()

    def step(
        self, name: str, fn: Callable[..., Any], /, *args: Any, effect: Effect | None = None, **kwargs: Any
    ) -> Any:
        """A recovery point in a tool of the kind `Steps(...)`: `fn(*args, **kwargs)` as an operation of its own.

        Gives its result, which is recorded; in an async tool, what is to be awaited for it. On a later attempt at
        the tool a finished step gives back its result and does not run. `fn` may take `call`, with the step's own
        key for the provider, or be a tool, which then has a compensation of its own. Give what the step depends on
        as arguments: those are recorded, and other ones under the same name are refused (`KeyReused`).

        `name`    tells the step from the others of this call; the same at every attempt.
        `effect`  the step's kind; else the tool's `Steps(each=...)`.
        """
        if self.steps is None:
            raise UsageError(
                f"{self.tool} takes no steps: a body that is entered again must have no other effect, and the tool "
                f"has to say so. The step {name!r} sent nothing. Declare the tool effect=semel.Steps(...)."
            )
        return self.steps.take(name, fn, args, kwargs, effect)

    def enqueue(self, topic: str, payload: Any) -> str:
        """In an Atomic tool: leave a message that is written with the effect and the record, or not at all.

        `guard.relay(...)` delivers it, under the key returned here (64 hex characters): at least once outwards, and
        once by key. `payload` is anything that has a faithful form in the record.
        """
        if self.outbox is None:
            raise UsageError(
                f"{self.tool} is not Atomic, so there is no transaction that a message could be part of. Nothing "
                "was enqueued. Declare it effect=semel.Atomic(), or send the message as the tool's effect."
            )
        return self.outbox.enqueue(topic, payload)


def call_of(
    operation: Operation,
    arguments: Mapping[str, Any] | None,
    claim: HeldClaim | None,
    outbox: TakesMessages | None = None,
) -> Call:
    """`arguments`: those the caller has in hand, or None to take them from the record."""
    return Call(
        key=operation.key,
        attempt=operation.fence,
        tool=operation.tool,
        arguments=values.decode(operation.arguments) if arguments is None else arguments,
        run_id=operation.run_id,
        position=operation.step,
        call_id=operation.call_id,
        claim=claim,
        outbox=outbox,
    )


CURRENT_CALL: Final[ContextVar[Call | None]] = ContextVar("semel_current_call", default=None)


def current_call() -> Call:
    """The call that the running tool serves, for code that has no `call` parameter."""
    call = CURRENT_CALL.get()
    if call is None:
        raise UsageError("There is no current call: this code does not run inside a guarded tool.")
    return call
