"""The smallest agent runtime that survives being killed anywhere: a model, tools, a guard, a log.

    transcript = run_agent(guard, model, {"charge": charge}, run_id="renewal:sub_42", opening="Renew sub_42.")

Started again under the same id it replays: recorded turns without asking the model, recorded results without
any effect. A crash-free run and a resumed one end in the same transcript, which is derived from the log and
the operations and from nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from semel import keys, values
from semel.agent.log import INPUT, READ, REFUSED, TURN, Answered, RunLog
from semel.agent.turns import Message, Model, ToolCall, Turn
from semel.engine.guard import Guard
from semel.engine.names import is_storable
from semel.engine.run import Run
from semel.engine.tool import Tool
from semel.errors import PreviouslyFailed, Rejected, ResultLost, Unencodable, UsageError
from semel.model import Safe

TURNS_MAX: Final = 1_000  # a run that needs more is several runs

HAPPENED_WITHOUT_RESULT: Final = {
    "outcome": "happened",
    "error": "it happened; its result could not be recorded",
}

Passing: TypeAlias = Callable[[str, str], None]  # place, "turn/position"


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
    _check(tools, opening)
    with guard.run(run_id) as run:
        agent = _Agent(RunLog(guard, run_id), run, guard, tools, checkpoint)
        return agent.run(model, opening)


def _check(tools: Mapping[str, Tool], opening: str) -> None:
    """Whatever is the program's fault is found before the model is asked and a turn is persisted."""
    if not isinstance(opening, str):
        raise UsageError(f"The opening {opening!r} must be a string. Nothing was recorded.")
    for name, tool in tools.items():
        if not isinstance(tool, Tool):
            raise UsageError(f"The tool {name!r} is not registered with @guard.tool. Nothing was recorded.")
        if tool.is_async:
            raise UsageError(
                f"The tool {name!r}: {tool.name} is async, and this loop is not. Nothing was recorded."
            )


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
        recorded = self._log.recorded(INPUT) or self._log.record(INPUT, [opening])
        if recorded != [opening]:
            raise UsageError(
                f"Run {self._run.run_id!r} was started with {recorded[0]!r} and is now given {opening!r}. Nothing "
                "was sent. Another task is another run: give it an id of its own."
            )
        return opening

    def _turn(self, model: Model, messages: Sequence[Message]) -> Turn:
        recorded = self._log.recorded(TURN)
        if recorded is None:
            recorded = self._log.record(TURN, _plain(model.next_turn(copy.deepcopy(list(messages)), [])))
        return _turn_from(recorded)

    def _answers(self, turn: Turn, number: int) -> Iterator[Message]:
        for position, call in enumerate(turn.calls):
            self._checkpoint("calling", f"{number}/{position}")
            content = self._answer(call, step=str(number), call_id=stable_id(turn, position))
            yield {"role": "tool", "call_id": call.id, "content": content}

    def _answer(self, call: ToolCall, *, step: str, call_id: str) -> Any:
        """What the model is told, the same on every run: from the operation, else from the log."""
        tool = self._tools.get(call.name)
        problem = self._cannot_be_made(tool, call)
        causes = tool is not None and problem is None and not isinstance(tool.effect, Safe)
        recorded = self._log.recorded_answer(step, call_id)
        if recorded is not None:
            return self._as_it_was(recorded, call, causes=causes)
        if tool is not None and causes:
            return self._cause(tool, call, step, call_id)
        self._refuse_if_it_was_made(call, step, call_id)
        if tool is None or problem is not None:
            return self._log.record_answer(step, call_id, REFUSED, _did_not_happen(problem))
        return self._log.record_answer(step, call_id, READ, self._read(tool, call, step, call_id))

    def _as_it_was(self, recorded: Answered, call: ToolCall, *, causes: bool) -> Any:
        """A call that could not be made stays so; one that only read must not have an effect now."""
        if recorded.how == READ and causes:
            raise UsageError(
                f"Run {self._run.run_id!r} recorded an answer of {call.name}, which only read then and would have "
                "an effect now: the program has changed. Nothing was sent. Finish the run with the old one."
            )
        return recorded.answer

    def _cannot_be_made(self, tool: Tool | None, call: ToolCall) -> str | None:
        """The model's mistakes are for the model to hear of."""
        if tool is None:
            return f"there is no tool named {call.name!r}"
        try:
            values.canonical(tool.bind((), call.arguments))
        except UsageError as wrong:
            return str(wrong)
        return None

    def _refuse_if_it_was_made(self, call: ToolCall, step: str, call_id: str) -> None:
        key = keys.idempotency_key(self._guard.namespace, self._run.run_id, step, call_id)
        if (operation := self._guard.read(key)) is not None:
            raise UsageError(
                f"Run {self._run.run_id!r} called {operation.tool} before, which has an effect, and cannot do so "
                f"now: the program has changed. The record says {operation.state}; nothing was "
                "sent. Run it with the tools it was started with.",
                key=key,
            )

    def _read(self, tool: Tool, call: ToolCall, step: str, call_id: str) -> Any:
        try:
            value = self._run.call_at(tool, copy.deepcopy(call.arguments), step=step, call_id=call_id)
            return values.decode(values.encode(value))
        except (Rejected, Unencodable) as refused:
            return _did_not_happen(str(refused))

    def _cause(self, tool: Tool, call: ToolCall, step: str, call_id: str) -> Any:
        try:
            value = self._run.call_at(tool, copy.deepcopy(call.arguments), step=step, call_id=call_id)
            return _as_recorded(value)
        except ResultLost:
            return dict(HAPPENED_WITHOUT_RESULT)
        except (Rejected, PreviouslyFailed) as refused:
            operation = self._guard.read(refused.key or "")
            return _did_not_happen(str(operation.error) if operation else str(refused))


def stable_id(turn: Turn, position: int) -> str:
    """The model's own call id, if it names this call and no other; else the call's place in the persisted turn.

    Some providers leave ids out, repeat them, or give the function's name.
    """
    call = turn.calls[position]
    if not is_storable(call.id):
        return f"place:{position}"
    is_unique = [other.id for other in turn.calls].count(call.id) == 1
    if call.id and is_unique and call.id != call.name:
        return f"id:{call.id}"
    return f"place:{position}"


def _as_recorded(value: Any) -> Any:
    """As every later run will read it; a result with no recordable form is told in the same words."""
    try:
        return values.decode(values.encode(value))
    except Exception:
        return dict(HAPPENED_WITHOUT_RESULT)


def _did_not_happen(why: str | None) -> dict[str, Any]:
    return {"outcome": "did_not_happen", "error": why}


def _said(turn: Turn) -> Message:
    return {"role": "assistant", **_plain(turn)}


def _plain(turn: Turn) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in turn.calls]
    return {"text": turn.text, "calls": calls}


def _turn_from(plain: Mapping[str, Any]) -> Turn:
    return Turn(text=plain["text"], calls=tuple(ToolCall(**call) for call in plain["calls"]))
