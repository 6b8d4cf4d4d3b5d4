"""One process's work on one run: what its loop and its calls share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from semel import keys
from semel.agent.claim import RunClaim
from semel.agent.log import RunLog
from semel.agent.names import sub_run_id
from semel.agent.stop import Stop
from semel.engine.core import Core
from semel.engine.guard import Guard
from semel.engine.run import RunCore
from semel.engine.tool import Tool
from semel.model import Operation

if TYPE_CHECKING:
    from semel.agent.subagents import SubAgent

OnUnknown: TypeAlias = Literal["pause", "tell"]
OnNotDone: TypeAlias = Literal["tell", "stop"]
Passing: TypeAlias = Callable[[str, str], None]
"""Called with the name of the place and the turn ("3") or call ("3/0") there; the tests' kills the process.

"asking" "asked" "recorded" a turn; "calling" "called" a call that is not merely replayed.
"""


def pass_by(place: str, name: str) -> None:
    """No checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How an agent's calls are made. See `Agent`."""

    on_unknown: OnUnknown | Mapping[str, OnUnknown] = "pause"
    on_not_done: OnNotDone = "tell"
    calls_at_once: int = 8
    model_tries: int = 1

    def when_unknown(self, tool: str) -> OnUnknown:
        if isinstance(self.on_unknown, str):
            return self.on_unknown
        return self.on_unknown.get(tool, "pause")


@dataclass(kw_only=True, slots=True)
class Life:
    """`operations`: what the run had when this life began, by key. `told_unknown`: the keys of those of
    earlier turns of which the model was told that nobody knows, and has not yet been told the end."""

    guard: Guard
    run_id: str
    log: RunLog
    tools: Mapping[str, Tool | SubAgent]
    rules: Rules
    stop: Stop
    checkpoint: Passing
    run: RunCore
    claim: RunClaim | None = None
    operations: Mapping[str, Operation] = field(default_factory=dict)
    told_unknown: list[str] = field(default_factory=list)

    def ensure_may_go_on(self) -> None:
        """Raise if somebody asked for a stop, or if the run is no longer ours."""
        self.stop.ensure_not_asked()
        if self.claim is not None:
            self.claim.ensure_held()

    def key_of(self, step: str, call_id: str) -> str:
        return keys.idempotency_key(self.guard.namespace, self.run_id, step, call_id)

    def sub_run_id(self, step: str, call_id: str) -> str:
        return sub_run_id(self.guard.namespace, self.run_id, step, call_id)


def core_of(guard: Guard) -> Core:
    """The one place where the loop reaches behind the guard: its claims are the guard's own machinery."""
    return guard._core
