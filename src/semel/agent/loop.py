"""The smallest agent runtime that survives being killed anywhere: a model, tools, a guard, a log.

    transcript = run_agent(guard, model, {"charge": charge}, run_id="renewal:sub_42", opening="Renew sub_42.")

Started again under the same id it replays: recorded turns without asking the model, recorded results without
any effect. A crash-free run and a resumed one end in the same transcript, which is derived from the log and
the operations and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from semel.agent.log import ANSWER, INPUT, TURN, RunLog
from semel.engine.guard import Guard
from semel.engine.run import Run
from semel.engine.tool import Tool
from semel.errors import PreviouslyFailed, Rejected, UsageError
from semel.model import Safe

TURNS_MAX: Final = 1_000  # a run that needs more is several runs

Message: TypeAlias = dict[str, Any]
Passing: TypeAlias = Callable[[str, str], None]  # place, "turn/position"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """One tool picked by the model, as the model named it."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One answer of the model. No calls: the run has ended."""

    text: str
    calls: tuple[ToolCall, ...] = ()


class Model(Protocol):
    def next_turn(self, messages: Sequence[Message]) -> Turn:
        """The turn that follows these messages: `{"role": "user" | "assistant" | "tool", …}`."""


def pass_by(place: str, name: str) -> None:
    """No checkpoint."""


def run_agent(
    guard: Guard,
    model: Model,
    tools: Mapping[str, Tool],
    *,
    run_id: str,
    opening: str,
    checkpoint: Passing = pass_by,
) -> list[Message]:
    """Run to the end, or go on from where the log ends; the transcript.

    Raises what a call raises when its outcome has to be settled first (`PausedForPerson`, `OutcomeUnknown`,
    `ClaimHeld`, `NotSent`, `StoreError`); start it again afterwards. That a tool was `Rejected` goes to the model.
    """
    with guard.run(run_id) as run:
        agent = _Agent(RunLog(guard, run_id), run, guard, tools, checkpoint)
        return agent.run(model, opening)


class _Agent:
    def __init__(
        self, log: RunLog, run: Run, guard: Guard, tools: Mapping[str, Tool], checkpoint: Passing
    ) -> None:
        self._log = log
        self._run = run
        self._guard = guard
        self._tools = tools
        self._checkpoint = checkpoint

    def run(self, model: Model, opening: str) -> list[Message]:
        messages: list[Message] = [{"role": "user", "content": self._opening(opening)}]
        for number in range(1, TURNS_MAX + 1):
            turn = self._turn(model, messages)
            messages.append(_said(turn))
            if not turn.calls:
                return messages
            messages.extend(self._answers(turn, number))
        raise UsageError(
            f"Run {self._run.run_id!r} did not end in {TURNS_MAX} turns. What it did is recorded; it stops here."
        )

    def _opening(self, opening: str) -> str:
        recorded = self._log.recorded(INPUT)
        if recorded is not None and recorded != opening:
            raise UsageError(
                f"Run {self._run.run_id!r} was started with {recorded!r} and is now given {opening!r}. Nothing was "
                "sent. Another task is another run: give it an id of its own."
            )
        return str(recorded if recorded is not None else self._log.record(INPUT, opening))

    def _turn(self, model: Model, messages: Sequence[Message]) -> Turn:
        recorded = self._log.recorded(TURN)
        if recorded is None:
            recorded = self._log.record(TURN, _plain(model.next_turn(list(messages))))
        return _turn_from(recorded)

    def _answers(self, turn: Turn, number: int) -> Iterator[Message]:
        for position, call in enumerate(turn.calls):
            self._checkpoint("calling", f"{number}/{position}")
            content = self._answer(call, step=str(number), call_id=stable_id(turn, position))
            yield {"role": "tool", "call_id": call.id, "content": content}

    def _answer(self, call: ToolCall, *, step: str, call_id: str) -> Any:
        tool = self._tools.get(call.name)
        if tool is None:
            return {"outcome": "did_not_happen", "error": f"there is no tool named {call.name!r}"}
        if isinstance(tool.effect, Safe):
            return self._safe_answer(tool, call, step, call_id)
        try:
            return self._run.call_at(tool, call.arguments, step=step, call_id=call_id)
        except (Rejected, PreviouslyFailed) as refused:
            operation = self._guard.read(refused.key or "")
            return {"outcome": "did_not_happen", "error": operation.error if operation else str(refused)}

    def _safe_answer(self, tool: Tool, call: ToolCall, step: str, call_id: str) -> Any:
        """Reading twice may give two answers; the transcript keeps the first."""
        recorded = self._log.recorded(ANSWER)
        if recorded is not None:
            return recorded[0]
        value = self._run.call_at(tool, call.arguments, step=step, call_id=call_id)
        return self._log.record(ANSWER, [value])[0]


def stable_id(turn: Turn, position: int) -> str:
    """The model's own call id, if it names this call and no other; else the call's place in the persisted turn.

    Some providers leave ids out, repeat them, or give the function's name.
    """
    call = turn.calls[position]
    is_unique = [other.id for other in turn.calls].count(call.id) == 1
    if call.id and is_unique and call.id != call.name:
        return f"id:{call.id}"
    return f"place:{position}"


def _said(turn: Turn) -> Message:
    return {"role": "assistant", **_plain(turn)}


def _plain(turn: Turn) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in turn.calls]
    return {"text": turn.text, "calls": calls}


def _turn_from(plain: Mapping[str, Any]) -> Turn:
    return Turn(text=plain["text"], calls=tuple(ToolCall(**call) for call in plain["calls"]))
