"""What the loop wants done in the world, a value each; `sync` and `aio` carry it out.

The loop and its calls are generators that yield these and are sent, or thrown, what came of them: so there is one
loop, and no second opinion in the other colour.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from semel.agent.turns import AsyncModel, Message, Model, OnText, ToolSpec
from semel.engine.run import RunCore
from semel.engine.tool import Tool
from semel.engine.verdicts import describe
from semel.errors import PausedForPerson, StoreError

if TYPE_CHECKING:
    from semel.agent.agent import Agent
    from semel.agent.stop import Stop

T = TypeVar("T")


class Do(NamedTuple):
    """Talk to the store: short, and not to be broken off."""

    what: Callable[[], Any]


class Pause(NamedTuple):
    seconds: float


class Ask(NamedTuple):
    """Answered by the model's turn."""

    model: Model | AsyncModel
    messages: Sequence[Message]
    specs: Sequence[ToolSpec]
    on_text: OnText | None


class Make(NamedTuple):
    """Make one call through the guard. Answered by its result."""

    run: RunCore
    tool: Tool
    arguments: Mapping[str, Any]
    step: str
    call_id: str


class Delegate(NamedTuple):
    """Have a sub-agent run, or go on. Answered by its last words."""

    agent: Agent
    task: str
    run_id: str
    stop: Stop


class Together(NamedTuple):
    """Follow these, so many at once. Answered by an `Ended` each, in their order."""

    courses: Sequence[Course]
    at_once: int


class Returned(NamedTuple):
    value: Any


class Raised(NamedTuple):
    error: BaseException


Ended: TypeAlias = Returned | Raised
Step: TypeAlias = Do | Pause | Ask | Make | Delegate | Together
Course: TypeAlias = Generator[Step, Any, Any]

_GRAVITY: Final = (Exception, StoreError, PausedForPerson)  # what is raised of several, the gravest last


def values_of(ended: Sequence[Ended]) -> list[Any]:
    """What all returned. If some raised, the gravest (the first of several) is raised; it notes the others."""
    errors = [end.error for end in ended if isinstance(end, Raised)]
    if errors:
        gravest = max(errors, key=_gravity)
        for other in errors:
            if other is not gravest:
                gravest.add_note(f"Another call of the same turn: {describe(other)}")
        raise gravest
    return [end.value for end in ended if isinstance(end, Returned)]


def _gravity(error: BaseException) -> int:
    ranks = [rank for rank, kind in enumerate(_GRAVITY) if isinstance(error, kind)]
    return ranks[-1] if ranks else len(_GRAVITY)  # an interrupt
