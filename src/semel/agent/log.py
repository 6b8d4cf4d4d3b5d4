"""A run's log: its events, each written once, and the transcript that follows from them.

    input    position 0: what the run was started with
    turn     the model's turn, persisted as a unit before any of its calls runs
    answer   what the model is told where no operation holds it: a `Safe` tool's answer, a call that cannot be made
    resumed  another life has begun to write; whoever wrote before it writes no more
    forked   position 1 of a fork: which run it was taken from

Inputs and turns are in order. The answers to one turn's calls stand behind it in the order in which they became
known, which in parallel calls is any; each carries the coordinates of its call and is found by them.

An event is appended at the position after the last one read. Where something has been written there first, it
stands and is read instead: one run, one log, however many work on it. If what stands there is `resumed`, this
process was taken for gone, and stops: so one that wakes up late writes nothing, whatever its own clock says.

A turn need not be flushed by itself: the log and the operations are one sequential database, so the claim of
the turn's first call carries it to disk; if power fails before that, nothing of the turn was ever sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from semel import values
from semel.agent.errors import ProgramChanged, RunTakenOver
from semel.engine.guard import Guard
from semel.model import Append, RunEvent, Write

INPUT: Final = "input"
TURN: Final = "turn"
ANSWER: Final = "answer"
RESUMED: Final = "resumed"
FORKED: Final = "forked"

RACES_MAX: Final = 1_000  # events that others write between our read and our write

READ: Final = "read"  # a Safe tool gave it
REFUSED: Final = "refused"  # the call could not be made
GIVEN_UP: Final = "given up"  # it certainly did not happen; the model may ask for it anew
UNKNOWN: Final = "unknown"  # it may have happened, and the model was told so
HELD: Final = "held"  # it repeated one that was in doubt, and was answered by what became of that one
SERVED: Final = "served"  # the first intent of the same business event gave it
DELEGATED: Final = "delegated"  # a sub-agent gave it
COPIED: Final = "copied"  # of a fork: from the run that it was taken from


class Answered(NamedTuple):
    how: str
    answer: Any


def no_objection() -> None:
    """Write."""


class RunLog:
    """Read once on opening, then kept in step with the store. Safe to write to from several threads."""

    def __init__(
        self, guard: Guard, run_id: str, *, ensure_may_write: Callable[[], None] = no_objection
    ) -> None:
        """`ensure_may_write` raises where this process may no longer write."""
        self.ensure_may_write = ensure_may_write
        self._guard = guard
        self._run_id = run_id
        self._lock = threading.RLock()
        self._next = 0
        self._events: list[RunEvent] = []
        self._spine: list[RunEvent] = []  # without the answers
        self._answers: dict[tuple[str, str], Answered] = {}
        self._take(guard.store.read_log(guard.namespace, run_id))
        self._found = len(self._spine)

    @property
    def is_empty(self) -> bool:
        return not self._events

    @property
    def is_past(self) -> bool:
        """Whether what was read last was followed by more when the log was opened."""
        return self._next < self._found

    @property
    def has_ended(self) -> bool:
        """Whether the last word is a turn without calls."""
        if not self._spine or self._spine[-1].kind != TURN:
            return False
        return not values.decode(self._spine[-1].payload)["calls"]

    # -------------------------------------------------------------- reading

    def recorded(self, kind: str) -> Any | None:
        """The next input or turn, if it is already in the log. Raises if the log says something else there."""
        if self._next >= len(self._spine):
            return None
        event = self._spine[self._next]
        if event.kind != kind:
            raise changed(
                f"Run {self._run_id!r} recorded {event.kind!r} at position {event.position}, and the program now "
                f"comes to {kind!r} there"
            )
        self._next += 1
        return values.decode(event.payload)

    def recorded_answer(self, step: str, call_id: str) -> Answered | None:
        """The answer recorded for this very call, if there is one."""
        return self._answers.get((step, call_id))

    # -------------------------------------------------------------- writing

    def record(self, kind: str, payload: Any) -> Any:
        """Append, and return what the log now holds there: another process may have come first."""
        with self._lock:
            for _ in range(RACES_MAX):
                if self._next < len(self._spine) or self._append(kind, payload):
                    break
                self._read_on()
            return self.recorded(kind)

    def record_answer(
        self, step: str, call_id: str, how: str, answer: Any, *, beside: Sequence[Write] = ()
    ) -> Any:
        """Record what the model is told, and return what the log now holds.

        `beside`: writes that go with it, in the same transaction.
        """
        with self._lock:
            for _ in range(RACES_MAX):
                if self._append(ANSWER, [step, call_id, how, answer], beside):
                    return self._answers[step, call_id].answer
                beside = ()  # they were applied, or refused, with the first try
                self._read_on()
                if (step, call_id) in self._answers:
                    return self._answers[step, call_id].answer
        raise AssertionError("unreachable: each round another process has written more")

    def mark_resumed(self, fence: int) -> None:
        """From here on nothing is written by whoever claimed the run before."""
        with self._lock:
            for _ in range(RACES_MAX):
                if self._append(RESUMED, [fence]):
                    return
                self._read_on()

    def _append(self, kind: str, payload: Any, beside: Sequence[Write] = ()) -> bool:
        self.ensure_may_write()
        store = self._guard.store
        event = RunEvent(
            namespace=self._guard.namespace,
            run_id=self._run_id,
            position=len(self._events),
            kind=kind,
            payload=values.encode(payload),
            at=store.now(),
        )
        if not store.apply([*beside, Append((event,))])[-1].applied:
            return False
        self._take([event])
        return True

    def _read_on(self) -> None:
        events = self._guard.store.read_log(self._guard.namespace, self._run_id)[len(self._events) :]
        if any(event.kind == RESUMED for event in events):
            raise RunTakenOver(
                f"Run {self._run_id!r} was taken over by another process while this one was silent. This one has "
                "recorded nothing since, and stops. Start the run again to get what the other one comes to."
            )
        self._take(events)

    def _take(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            self._events.append(event)
            if event.kind == ANSWER:
                step, call_id, how, answer = values.decode(event.payload)
                self._answers.setdefault((step, call_id), Answered(how, answer))
            elif event.kind not in (RESUMED, FORKED):
                self._spine.append(event)


def changed(difference: str) -> ProgramChanged:
    error = ProgramChanged(
        f"{difference}: the program has changed. Nothing was sent. Finish the run with the program it was started "
        "with, or fork it: agent.fork(run_id, new_run_id, upto=turn) starts a new run from its beginning."
    )
    error.difference = difference
    return error
