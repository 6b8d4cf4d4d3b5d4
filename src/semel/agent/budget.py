"""What a run may spend. Counted in the log, so that a resumed run goes on counting."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from semel.agent.errors import BudgetSpent
from semel.agent.turns import Usage
from semel.errors import UsageError

TURNS: Final = 1_000  # a run that needs more is several runs


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Limits of one run over all its lives; looked at before the model is asked for a further turn.

    `turns`   how many turns the model may be asked for
    `tokens`  of input and output together, as the provider counts them
    `time`    at work, by the store's clock: the time of all lives up to each one's last turn, and of this one.
              A wait for a person, and what was lost in a crash, do not count.
    What is over the limit by then is not undone: the last turn's calls have run. Raise the limit to go on.
    """

    turns: int = TURNS
    tokens: int | None = None
    time: timedelta | None = None

    def __post_init__(self) -> None:
        _require_whole("turns", self.turns)
        if self.tokens is not None:
            _require_whole("tokens", self.tokens)
        if self.time is not None and (not isinstance(self.time, timedelta) or self.time <= timedelta(0)):
            raise UsageError(f"Budget(time={self.time!r}) must be a timedelta and positive.")


@dataclass(slots=True)
class Spent:
    """So far, over all lives of a run."""

    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, usage: Usage | None) -> None:
        self.turns += 1
        if usage is not None:
            self.tokens += usage.input_tokens + usage.output_tokens


def ensure_left(budget: Budget, spent: Spent, run_id: str) -> None:
    """Raise `BudgetSpent` if nothing is left of one of the limits."""
    limits: dict[str, tuple[float, float | None]] = {
        "turns": (spent.turns, budget.turns),
        "tokens": (spent.tokens, budget.tokens),
        "time": (spent.seconds, None if budget.time is None else budget.time.total_seconds()),
    }
    for name, (used, limit) in limits.items():
        if limit is not None and used >= limit:
            raise BudgetSpent(
                f"Run {run_id!r} has used its budget of {name}: {used:g} of {limit:g}. The model was not asked for "
                "a further turn; everything up to here is recorded. Start the run again with a higher budget.",
                budget=name,
                spent=used,
                limit=limit,
                run_id=run_id,
            )


def _require_whole(name: str, number: int) -> None:
    if type(number) is not int or number < 1:
        raise UsageError(f"Budget({name}={number!r}) must be a whole number, at least 1.")
