"""One pass over what is to be undone: what is done about each operation, last first.

A generator, like the loop of a call: it yields what is to be done in the world and is sent what came of it.
What is done about an operation, by how it stands:

- COMMITTED: its tool's compensation is called with what is recorded of it. A compensation in doubt stops the
  pass: what came before it may need it undone first. One that has FAILED does not: nothing will change it, so the
  rest is undone, and the saga stays open.
- in doubt: found out by evidence, never by sending again; where that needs a person, the saga waits for them.
- never sent: given up, so that nobody sends it later.
- FAILED: nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from semel import actions, keys, lifecycle, values
from semel.engine import refusals
from semel.engine.core import Core
from semel.engine.course import POLL_FIRST_SECONDS, POLL_MOST_SECONDS, TURNS_MAX, Apply, Pause, Read, settle
from semel.engine.intents import COMPENSATES, is_saga, make_intent, original_of, parent_of
from semel.engine.tool import Tool
from semel.errors import PreviouslyFailed, Rejected, ResultLost, SagaOpen
from semel.model import (
    Answer,
    Effect,
    Evidence,
    Idempotent,
    Intent,
    Move,
    Operation,
    State,
    Steps,
    Unsafe,
)
from semel.ports import Outcome

Tools: TypeAlias = Mapping[str, Tool]

NOT_SENT: Final = "its run is compensated, and it was not sent"
STEPS_UNDONE: Final = "its run is compensated, and none of its steps stands"


class ReadRun(NamedTuple):
    """Answered by the run's operations, in the order of their first claims."""

    run_id: str


class HasAnnounced(NamedTuple):
    """Answered by whether a transaction is still open that may write to the run."""

    name: str


class Ask(NamedTuple):
    """Ask the tool's lookup. Answered by `Evidence`."""

    tool: Tool
    operation: Operation


class Undo(NamedTuple):
    """Call a compensation. Answered once it is COMMITTED; what it raises is thrown in."""

    tool: Tool
    intent: Intent
    arguments: Mapping[str, Any]


Step: TypeAlias = ReadRun | HasAnnounced | Ask | Undo | Apply | Read | Pause
Turns: TypeAlias = Generator[Step, Any, list[str]]


class Undoing:
    """One pass over a run. Use once."""

    def __init__(self, core: Core, tools: Tools, run_id: str, named: Sequence[str] | None) -> None:
        self._core = core
        self._tools = tools
        self._run_id = run_id
        self._named = named
        self._gives_up_at = time.monotonic() + core.wait.total_seconds()
        self._recorded: dict[str, Operation] = {}
        self._undone: list[str] = []
        self._left: dict[str, str] = {}  # why, by the key of the operation that still stands

    def turns(self) -> Turns:
        yield from self._await_transactions()
        operations = yield from self._read()
        for operation in operations:
            if self._is_meant(operation) and self._is_body_running(operation):
                yield from self._released(operation, self._tools[operation.tool])
        operations = yield from self._read()
        for operation in reversed(list(self._plan(operations))):
            yield from self._take(operation)
        if self._left:
            raise self._open()
        return self._undone

    def _await_transactions(self) -> Generator[Step, Any, None]:
        """What an open transaction of the run has done cannot be read yet."""
        saga = keys.saga_key(self._core.namespace, self._run_id)
        while self._named is None and (yield HasAnnounced(saga)):  # ends with our patience
            if time.monotonic() >= self._gives_up_at:
                raise refusals.transaction_open(self._run_id, saga)
            yield Pause(POLL_MOST_SECONDS)

    def _read(self) -> Generator[Step, Any, list[Operation]]:
        operations: list[Operation] = yield ReadRun(self._run_id)
        self._recorded = {operation.key: operation for operation in operations}
        return operations

    def _is_body_running(self, operation: Operation) -> bool:
        """Of a tool of steps: whether it is undone whole or by its steps is known when its body has ended."""
        tool = self._tools.get(operation.tool)
        return operation.state is State.INVOKED and tool is not None and isinstance(tool.effect, Steps)

    def _plan(self, operations: Sequence[Operation]) -> Iterator[Operation]:
        for operation in operations:
            line = list(self._line_of(operation))
            is_undoing = any(is_saga(above) or original_of(above) is not None for above in line)
            is_undone_with_whole = any(
                self._is_meant(above) and self._is_undone_whole(above) for above in line[1:]
            )
            if self._is_meant(operation) and not is_undoing and not is_undone_with_whole:
                yield operation

    def _is_meant(self, operation: Operation) -> bool:
        return self._named is None or any(above.key in self._named for above in self._line_of(operation))

    def _line_of(self, operation: Operation | None) -> Iterator[Operation]:
        """The operation, the one that it is a step of, and so on."""
        while operation is not None:  # ends: a step's key is a digest of its parent's
            yield operation
            operation = self._recorded.get(parent_of(operation) or "")

    def _is_undone_whole(self, parent: Operation) -> bool:
        """A tool that has ended, and knows how to undo all of itself, answers for its steps.

        Once it has been begun by its steps it is finished by them: both ways would undo twice.
        """
        tool = self._tools.get(parent.tool)
        if tool is None or parent.state is not State.COMMITTED or self._is_undone_by_steps(parent):
            return False
        return tool.irreversible or tool.compensated_by is not None

    def _is_undone_by_steps(self, parent: Operation) -> bool:
        steps = (key for key, operation in self._recorded.items() if parent_of(operation) == parent.key)
        return any(keys.compensation_key(key) in self._recorded for key in steps)

    def _take(self, operation: Operation) -> Generator[Step, Any, None]:
        tool = self._tools.get(operation.tool)
        if operation.state is not State.FAILED and not (tool is not None and tool.irreversible):
            operation = yield from self._settled(operation, tool)
        if operation.state is State.COMMITTED:
            why = yield from self._undo(operation, tool)
            if why is not None:
                self._left[operation.key] = f"{operation.tool} ({operation.key[:12]}…): {why}"

    # -------------------------------------------------------------- one that happened

    def _undo(self, operation: Operation, tool: Tool | None) -> Generator[Step, Any, str | None]:
        """Why it still stands, if it does."""
        if tool is not None and tool.irreversible:
            return None
        if tool is not None and isinstance(tool.effect, Steps) and not self._is_undone_whole_now(operation):
            return None  # its steps are all there is to undo, and had their turn
        undoes = self._recorded.get(keys.compensation_key(operation.key))
        if undoes is not None and undoes.state is State.FAILED:
            return undoes.error or "its compensation failed"
        if undoes is None or undoes.state is not State.COMMITTED:
            if tool is None or tool.compensated_by is None:
                return _why_not(operation, tool)
            if operation.reaped_at is not None:
                return "it is past retention, and its arguments and result are deleted"
            try:
                yield self._call_for(operation, tool.compensated_by)
            except (Rejected, PreviouslyFailed, ResultLost) as refused:
                return str(refused)
        self._undone.append(operation.key)
        return None

    def _is_undone_whole_now(self, operation: Operation) -> bool:
        """As it was when its steps were passed by: it may have ended since."""
        return self._is_undone_whole(self._recorded[operation.key])

    def _call_for(self, operation: Operation, undoes: Tool) -> Undo:
        arguments = {
            "arguments": values.decode(operation.arguments),
            "result": refusals.recorded_result(operation),
        }
        intent = make_intent(
            undoes,
            arguments,
            key=keys.compensation_key(operation.key),
            namespace=operation.namespace,
            run_id=operation.run_id,
            step=COMPENSATES,
            call_id=operation.key,
        )
        return Undo(undoes, intent, arguments)

    # -------------------------------------------------------------- one that may have

    def _settled(self, operation: Operation, tool: Tool | None) -> Generator[Step, Any, Operation]:
        """The operation in a terminal state, or a tool of steps, some of which still stand."""
        answer: Answer | None = None
        for _ in range(TURNS_MAX):
            operation = yield from self._released(operation, tool)
            if operation.state in lifecycle.TERMINAL:
                return operation
            match self._decide(operation, tool, answer):
                case actions.Claim() if self._has_standing_steps(operation):
                    return operation
                case actions.Claim():
                    operation = yield from self._given_up(operation)
                case actions.Wait() as wait:
                    operation = yield from self._wait(operation, wait)
                case actions.Lookup() if tool is not None:
                    asked_at = self._core.store.now()
                    evidence: Evidence = yield Ask(tool, operation)
                    answer = Answer(evidence=evidence, asked_at=asked_at, fence=operation.fence)
                case actions.LeaveInDoubt(event):  # a person cleared it while an earlier request could land
                    leave = lifecycle.IN_DOUBT[event]
                    operation = yield from _moved(leave(operation, now=self._core.store.now()))
                case actions.Settle(evidence):
                    outcome = yield from settle(operation, evidence, self._core)
                    operation = _there(outcome.operation, operation)
                case actions.Ask(why):
                    raise refusals.ask(operation, _why_ask(operation, tool, why))
                case action:
                    raise AssertionError(f"unreachable: {action} of what is {operation.state}")
        raise refusals.too_many_turns(operation, TURNS_MAX)

    def _released(self, operation: Operation, tool: Tool | None) -> Generator[Step, Any, Operation]:
        """Once nobody works on it any more."""
        while operation.state is State.INVOKED:  # ends with our patience
            match self._decide(operation, tool, None):
                case actions.Wait() as wait:
                    operation = yield from self._wait(operation, wait)
                case actions.LeaveInDoubt(event):
                    leave = lifecycle.IN_DOUBT[event]
                    operation = yield from _moved(leave(operation, now=self._core.store.now()))
                case action:
                    raise AssertionError(f"unreachable: {action} of what is {operation.state}")
        return operation

    def _decide(self, operation: Operation, tool: Tool | None, answer: Answer | None) -> actions.Action:
        owner = operation.owner
        return self._core.decide(
            operation,
            Unsafe() if tool is None else _asking_only(tool.effect),
            answer,
            self._core.store.now(),
            fingerprint=operation.fingerprint,
            owner_is_gone=owner is not None and self._core.owners.is_gone(owner),
        )

    def _has_standing_steps(self, operation: Operation) -> bool:
        lines = (self._line_of(self._recorded[key]) for key in self._left)
        return any(above.key == operation.key for line in lines for above in line)

    def _given_up(self, operation: Operation) -> Generator[Step, Any, Operation]:
        why = NOT_SENT if operation.state is State.PENDING else STEPS_UNDONE
        now = self._core.store.now()
        return (yield from _moved(lifecycle.abandon(operation, by="compensation", why=why, now=now)))

    def _wait(self, operation: Operation, wait: actions.Wait) -> Generator[Step, Any, Operation]:
        seconds = max(0.0, (wait.until - self._core.store.now()).total_seconds())
        left = self._gives_up_at - time.monotonic()
        is_at_work = operation.state is State.INVOKED
        if left <= 0 or (seconds > left and not is_at_work):
            raise refusals.not_yet(operation, wait.why, timedelta(seconds=seconds))
        poll = POLL_MOST_SECONDS if is_at_work else seconds
        yield Pause(max(POLL_FIRST_SECONDS, min(poll, seconds, left)))
        return _there((yield Read(operation.key)), operation)

    def _open(self) -> SagaOpen:
        return SagaOpen(
            f"Run {self._run_id!r} is not wholly compensated; {len(self._undone)} undone, and still standing: "
            f"{'; '.join(self._left.values())}. The saga stays open (guard.open_sagas()). Put right what is in the "
            "way and call guard.compensate again; or undo it by hand, and close the saga with guard.resolve.",
            key=keys.saga_key(self._core.namespace, self._run_id, self._named or ()),
        )


def _moved(move: Move) -> Generator[Step, Any, Operation]:
    outcome: Outcome = yield Apply(move)
    return _there(outcome.operation, move.before)


def _there(found: Operation | None, expected: Operation) -> Operation:
    if found is None:
        raise refusals.record_vanished_of(expected)
    return found


def _asking_only(effect: Effect) -> Effect:
    """Whoever undoes a thing does not send it again to find out whether it happened."""
    if not isinstance(effect, Idempotent):
        return effect
    return Unsafe(
        lookup=effect.lookup, lookup_lag=effect.lookup_lag, request_deadline=effect.request_deadline
    )


def _why_ask(operation: Operation, tool: Tool | None, why: str) -> str:
    if tool is None and parent_of(operation) is not None:
        return "it is a step whose effect is declared nowhere but in its tool"
    if tool is None:
        return f"no tool named {operation.tool!r} is registered here"
    if isinstance(tool.effect, Idempotent) and tool.effect.lookup is None:
        return "no lookup is declared, and a compensation does not send it again to find out"
    return why


def _why_not(operation: Operation, tool: Tool | None) -> str:
    if tool is None and parent_of(operation) is not None:
        return "only its whole tool could undo this step, and that has not ended; make the step a tool of its own"
    if tool is None:
        return f"no tool named {operation.tool!r} is registered here"
    return "it has no compensation; if what it does is meant to stand, declare the tool irreversible=True"
