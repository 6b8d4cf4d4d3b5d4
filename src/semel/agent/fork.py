"""A new run from the beginning of an old one: its opening, its first turns, what the model was told of their calls.

What the operations of the old run hold is copied into the new log as answers, in one write: there is no half a
fork, and nothing of the old run's runs again. What it had spent by then counts as spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from semel import keys, lifecycle, values
from semel.agent import advice
from semel.agent.life import core_of
from semel.agent.log import ANSWER, COPIED, FORKED, HELD, INPUT, TURN, UNKNOWN, Answered, RunLog
from semel.agent.names import stable_id
from semel.agent.record import recorded_turn
from semel.agent.turns import ToolCall, Turn
from semel.engine.names import require_name
from semel.engine.run import Run, RunCore
from semel.engine.tool import Tool
from semel.errors import UsageError
from semel.model import Append, RunEvent

if TYPE_CHECKING:
    from semel.agent.agent import Agent

Entry = tuple[str, Any]  # kind, payload


def fork(agent: Agent, run_id: str, new_run_id: str, *, upto: int | None) -> None:
    require_name(run_id, "run id")
    require_name(new_run_id, "run id")
    if upto is not None and (type(upto) is not int or upto < 0):
        raise UsageError(f"upto={upto!r} must be a whole number of turns. Nothing was recorded.")
    entries = list(_Old(agent, run_id).entries(upto))
    _write(agent, new_run_id, entries)


def _write(agent: Agent, run_id: str, entries: list[Entry]) -> None:
    store, namespace, now = agent.guard.store, agent.guard.namespace, agent.guard.store.now()
    events = tuple(
        RunEvent(
            namespace=namespace,
            run_id=run_id,
            position=position,
            kind=kind,
            payload=values.encode(payload),
            at=now,
        )
        for position, (kind, payload) in enumerate(entries)
    )
    if store.apply([Append(events)])[0].applied:
        return
    there = store.read_log(namespace, run_id)[: len(events)]
    if [(event.kind, event.payload) for event in there] != [(event.kind, event.payload) for event in events]:
        raise UsageError(
            f"Run {run_id!r} has begun already, with something else. Nothing was recorded. Give the new run an id "
            "of its own."
        )


class _Old:
    """The run that is forked: read, never written."""

    def __init__(self, agent: Agent, run_id: str) -> None:
        self._agent = agent
        self._run_id = run_id
        guard = agent.guard
        self._log = RunLog(guard, run_id)
        self._operations = {
            operation.key: operation for operation in guard.store.read_run(guard.namespace, run_id)
        }
        self._run = RunCore(core_of(guard), run_id)
        self._run.load()

    def entries(self, upto: int | None) -> Iterator[Entry]:
        opening = self._log.recorded(INPUT)
        if opening is None:
            self._refuse("has not begun")
        turns = list(iter(lambda: self._log.recorded(TURN), None))
        yield INPUT, opening
        yield FORKED, [self._run_id, upto]
        for number in range(1, 1 + (len(turns) if upto is None else upto)):
            if number > len(turns):
                self._refuse(f"has {len(turns)} turns, and not {upto}")
            turn = recorded_turn(turns[number - 1]).turn
            answers = self._answers(turn, number, is_followed=number < len(turns))
            if not turn.calls or answers is None:
                if upto is None:
                    return
                what = "is its last" if not turn.calls else "has calls that are not answered yet"
                self._refuse(f"cannot be forked after turn {number}, which {what}")
            yield TURN, turns[number - 1]
            yield from answers or ()

    def _answers(self, turn: Turn, number: int, *, is_followed: bool) -> list[Entry] | None:
        """None: one of them is still to come."""
        entries: list[Entry] = []
        for position, call in enumerate(turn.calls):
            step, call_id = str(number), stable_id(turn, position)
            answered = self._answered(call, step, call_id, is_followed=is_followed)
            if answered is None:
                return None
            entries.append((ANSWER, [step, call_id, *answered]))
        return entries

    def _answered(self, call: ToolCall, step: str, call_id: str, *, is_followed: bool) -> Answered | None:
        """What the model was told is unknown stays so, with the old operation's key: the new run, too, holds back
        what could repeat it."""
        recorded = self._log.recorded_answer(step, call_id)
        if recorded is not None:
            return recorded if recorded.how in (UNKNOWN, HELD) else Answered(COPIED, recorded.answer)
        key = keys.idempotency_key(self._agent.guard.namespace, self._run_id, step, call_id)
        operation = self._operations.get(key)
        if operation is not None and self._run.is_undone(key):
            self._refuse(
                f"cannot be forked behind its call of {operation.tool} in turn {step}, which was undone"
            )
        if operation is not None and operation.state in lifecycle.TERMINAL and operation.reaped_at is None:
            return Answered(COPIED, advice.content_of(operation))
        return Answered(COPIED, self._told_by_the_first(call, step, call_id)) if is_followed else None

    def _told_by_the_first(self, call: ToolCall, step: str, call_id: str) -> Any:
        """A later turn stands in the log, so it was answered; with no record of its own, by the first intent of the
        same business event (`once_per`). Asked for again, that one is replayed."""
        tool = self._agent.tools.get(call.name)
        if not isinstance(tool, Tool) or tool.business_identity(tool.bind((), call.arguments)) is None:
            self._refuse(f"has no record of its call of {call.name} in turn {step}")
        return advice.as_recorded(Run(self._run).call_at(tool, call.arguments, step=step, call_id=call_id))

    def _refuse(self, why: str) -> NoReturn:
        raise UsageError(f"Run {self._run_id!r} {why}. Nothing was recorded.")
