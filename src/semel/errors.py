"""What can go wrong, grouped by the one question that matters: did the effect happen?

    NotExecuted        certainly not
    OutcomeUnknown     nobody can know yet
    PausedForPerson    nobody can know without a person (not an `Exception`, see below)
    ResultLost         it did; only its recorded result cannot be given back
    Reaped             it ended long ago; `outcome` says how
    Compensated        it, or its whole run, was undone or is being; `outcome` says how it had ended
    Diverged           it did, more than once
    StoreError         the record could not be read or written; the text says what that means here
    UsageError         the program is at fault; nothing was sent
    IllegalTransition  a move that the lifecycle does not know; nothing was written

Every message says what happened, what the record now says and what to do. Every error pickles.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

Outcome = Literal["did_not_happen", "happened", "unknown"]


class SemelError(Exception):
    """The root. `outcome` answers whether the effect happened; `key` names the operation, if there is one."""

    outcome: Outcome = "did_not_happen"

    def __init__(self, message: str = "", *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        """A result that does not pickle must not keep the error from being told: it is told as its text."""
        return type(self), self.args, {name: _picklable(value) for name, value in vars(self).items()}


def _picklable(value: Any) -> Any:
    import pickle

    try:
        pickle.dumps(value)
    except Exception:
        return f"{type(value).__name__} (could not be pickled)"
    return value


class NotExecuted(SemelError):
    """The effect certainly did not happen."""


class Rejected(NotExecuted):
    """Raise this in a tool when the effect certainly did not happen and will not: the operation is FAILED."""


class NotSent(NotExecuted):
    """Raise this in a tool when the request certainly never left: the operation may be tried again."""


class ClaimLost(NotSent):
    """The claim lapsed before the tool sent anything; sending now could collide with its successor."""


class PreviouslyFailed(NotExecuted):
    """The operation has ended in FAILED: it did not happen, and it will not under this key."""


class OutcomeUnknown(SemelError):
    """The effect may or may not have happened. Do not ask for it again in other words.

    `retry_after`  when a repeated call of the *same* intent can know more; None where it is not known.
    `result`       what the tool returned, if it returned and only the recording of it failed.
    """

    outcome: Outcome = "unknown"

    def __init__(
        self,
        message: str = "",
        *,
        key: str | None = None,
        retry_after: timedelta | None = None,
        result: Any = None,
    ) -> None:
        super().__init__(message, key=key)
        self.retry_after = retry_after
        self.result = result


class ClaimHeld(OutcomeUnknown):
    """A live owner is at work on this operation. This call sent nothing; ask again after `retry_after`."""


class SagaOpen(OutcomeUnknown):
    """Not everything that was to be compensated is. What is left keeps the saga open: `guard.open_sagas()`."""


class PausedForPerson(BaseException):
    """Only a person can say whether the effect happened; answer with `guard.resolve`.

    Not an `Exception`: seven of nine agent frameworks turn an `Exception` of a tool into text for the
    model, which then asks for the effect again. This has to stop the run.
    """

    outcome: Outcome = "unknown"

    def __init__(self, message: str = "", *, key: str = "", fingerprint: str = "", attempt: int = 0) -> None:
        super().__init__(message)
        self.key = key
        self.fingerprint = fingerprint
        self.attempt = attempt


class ResultLost(SemelError):
    """The effect happened and is recorded; its result had no faithful form to record."""

    outcome: Outcome = "happened"


class Reaped(SemelError):
    """The record is past retention: its result is deleted, and it is not run again. `outcome` says how it ended."""

    def __init__(self, message: str = "", *, key: str | None = None, outcome: Outcome = "happened") -> None:
        super().__init__(message, key=key)
        self.outcome = outcome


class Compensated(SemelError):
    """This call sent nothing: its operation, or its whole run, was compensated, or is being.

    `outcome`  how the operation itself had ended before that; `result`, what it had returned.
    """

    def __init__(
        self,
        message: str = "",
        *,
        key: str | None = None,
        outcome: Outcome = "did_not_happen",
        result: Any = None,
    ) -> None:
        super().__init__(message, key=key)
        self.outcome = outcome
        self.result = result


class Diverged(SemelError):
    """The effect happened more than once, or happened after it was declared not to.

    Some declaration (`lookup_lag`, `request_deadline`, a lookup, a person's answer) was not true.
    It is in the record's history; nothing was overwritten.
    """

    outcome: Outcome = "happened"

    def __init__(self, message: str = "", *, key: str | None = None, result: Any = None) -> None:
        super().__init__(message, key=key)
        self.result = result


class StoreError(SemelError):
    """The store could not do what was asked. An earlier attempt may have happened; this call sent nothing."""

    outcome: Outcome = "unknown"


class StoreUnavailable(StoreError):
    """The store did not take the write; nothing of it was recorded."""


class CommitInDoubt(StoreError):
    """The store may or may not have taken the write: the acknowledgement was lost."""

    outcome: Outcome = "unknown"


class TransactionConflict(StoreError):
    """The database rolled the transaction back (deadlock, serialisation failure): run it again, whole."""


class WriteRefused(StoreError):
    """The store will never take this write (too large, say), however often it is tried."""


class StoreVanished(StoreError):
    """The database file was removed or replaced while it was open."""


class UsageError(SemelError):
    """The program is at fault. Raised before any effect."""


class Unencodable(UsageError):
    """A value has no faithful form in the record. The message names its path."""


class KeyReused(UsageError):
    """One intent, two sets of arguments: the key already names something else."""


class IllegalTransition(SemelError):
    """The lifecycle knows no such move from this state."""
