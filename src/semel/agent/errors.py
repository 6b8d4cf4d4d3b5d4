"""Why a run stopped without having ended. Whatever it did is recorded: start it again under its id to go on.

    ModelFailed     the model gave no whole turn
    BudgetSpent     it may go on with a higher budget
    RunCancelled    somebody asked it to stop
    RunHeld         another process is at work on it, and alive
    RunTakenOver    this process was silent for too long, and another may have gone on in its place
    ProgramChanged  the program no longer does what the log says it did

A pause for a person is `semel.PausedForPerson`, and a call in doubt is `semel.OutcomeUnknown`, as everywhere.
"""

from __future__ import annotations

from semel.errors import ClaimHeld, ClaimLost, SemelError, UsageError


class ModelFailed(SemelError):
    """The model gave no whole turn. No turn was recorded and no tool was called.

    `retryable`            whether the same request can succeed later. Never for a 400-type answer.
    `retry_after_seconds`  how long the provider asks to be left alone; None where it does not say.
    `status`               the HTTP status of the answer; None where none came, or it came whole but unusable.

    The loop goes by these attributes, not by the class: an error of a model's own with `retryable = True` counts.
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


class RunStopped(SemelError):
    """The run stopped between two steps, because it was to. It goes on from there when it is started again."""


class BudgetSpent(RunStopped):
    """`budget` is what ran out: "turns", "tokens" or "time"; `spent` and `limit` are in its unit (seconds)."""

    def __init__(
        self, message: str = "", *, budget: str = "", spent: float = 0, limit: float = 0, run_id: str = ""
    ) -> None:
        super().__init__(message)
        self.budget = budget
        self.spent = spent
        self.limit = limit
        self.run_id = run_id


class RunCancelled(RunStopped):
    """Somebody called `agent.cancel` for it."""


class RunHeld(ClaimHeld):
    """A live process is at work on this run. This one asked no model and called no tool.

    `owner`  names that process: boot, process namespace, process id, start time, and a number of the claim.
    """

    owner: str = ""


class RunTakenOver(ClaimLost):
    """The claim on the run lapsed while this process was silent. It has recorded nothing since, and stops here."""


class ProgramChanged(UsageError):
    """The program no longer matches the run's log. `difference` is the first one found. Nothing was sent."""

    difference: str = ""
