"""A run's log: its events in order, each written once, and the transcript that follows from them.

    input   position 0: what the run was started with
    turn    the model's turn, persisted as a unit before any of its calls runs
    answer  what the model is told where no operation holds it: a `Safe` tool's answer, a call that cannot be made

An event is appended at the position after the last one read. Where another process has written there first,
its event stands and is read instead: one run, one log, however many work on it.

A turn need not be flushed by itself: the log and the operations are one sequential database, so the claim of
the turn's first call carries it to disk; if power fails before that, nothing of the turn was ever sent.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from semel import values
from semel.engine.guard import Guard
from semel.errors import UsageError
from semel.model import Append, RunEvent

INPUT: Final = "input"
TURN: Final = "turn"
ANSWER: Final = "answer"
READ: Final = "read"  # a Safe tool gave it
REFUSED: Final = "refused"  # the call could not be made


class Answered(NamedTuple):
    how: str
    answer: Any


class RunLog:
    """Read once on opening, then kept in step with the store."""

    def __init__(self, guard: Guard, run_id: str) -> None:
        self._guard = guard
        self._run_id = run_id
        self._events = guard.store.read_log(guard.namespace, run_id)
        self._next = 0

    def recorded(self, kind: str) -> Any | None:
        """The next event, if it is already in the log. Raises if the log says something else there."""
        if self._next >= len(self._events):
            return None
        event = self._events[self._next]
        if event.kind != kind:
            raise UsageError(
                f"Run {self._run_id!r} recorded {event.kind!r} at position {event.position}, and the program now "
                f"comes to {kind!r} there. Nothing was sent. The program has changed: finish the run with the "
                "old one, or start a new run."
            )
        self._next += 1
        return values.decode(event.payload)

    def recorded_answer(self, step: str, call_id: str) -> Answered | None:
        """The answer recorded for this very call, if the log has one here."""
        if self._next >= len(self._events) or self._events[self._next].kind != ANSWER:
            return None
        at_step, at_call, how, answer = values.decode(self._events[self._next].payload)
        if (at_step, at_call) != (step, call_id):
            return None
        self._next += 1
        return Answered(how, answer)

    def record_answer(self, step: str, call_id: str, how: str, answer: Any) -> Any:
        """Record what the model is told, and return what the log now holds. `how`: READ or REFUSED."""
        self.record(ANSWER, [step, call_id, how, answer])
        self._next -= 1
        held = self.recorded_answer(step, call_id)
        if held is None:
            raise UsageError(
                f"Run {self._run_id!r}: another process recorded another call here. Nothing more was sent; start "
                "the run again."
            )
        return held.answer

    def record(self, kind: str, payload: Any) -> Any:
        """Append, and return what the log now holds there: another process may have come first."""
        store = self._guard.store
        event = RunEvent(
            namespace=self._guard.namespace,
            run_id=self._run_id,
            position=self._next,
            kind=kind,
            payload=values.encode(payload),
            at=store.now(),
        )
        if store.apply([Append((event,))])[0].applied:
            self._events.append(event)
        else:
            self._events = store.read_log(self._guard.namespace, self._run_id)
        return self.recorded(kind)
