"""A store that tells of its writes: before each, and after it. Everything else goes straight through."""

from __future__ import annotations

from collections.abc import Sequence

from semel.lab.explore.places import Places
from semel.model import Append, Insert, Move, Note, Operation, State, Write
from semel.ports import Outcome, Store
from semel.stores.records import is_durable

_OPEN = frozenset({State.INVOKED, State.UNKNOWN})


class TellingStore:
    """See `semel.ports.Store`."""

    def __init__(self, store: Store, places: Places) -> None:
        self._store = store
        self._places = places
        self.read = store.read
        self.read_run = store.read_run
        self.read_open = store.read_open
        self.read_ended_before = store.read_ended_before
        self.read_history = store.read_history
        self.read_divergences = store.read_divergences
        self.read_log = store.read_log
        self.has_announced = store.has_announced
        self.outbox = store.outbox
        self.transaction = store.transaction
        self.join = store.join
        self.now = store.now
        self.before_fork = store.before_fork
        self.after_fork_in_parent = store.after_fork_in_parent
        self.after_fork_in_child = store.after_fork_in_child
        self.close = store.close

    def apply(self, writes: Sequence[Write]) -> list[Outcome]:
        name = _name_of(writes)
        self._places.reach(f"{name}: before")
        outcomes = self._store.apply(writes)
        for write, outcome in zip(writes, outcomes, strict=True):
            self._note(write, outcome)
        self._places.reach(f"{name}: after")
        return outcomes

    def _note(self, write: Write, outcome: Outcome) -> None:
        held = outcome.operation or _left_by(write)
        if held is not None:
            self._places.note_state(held.tool, is_in_doubt=held.state in _OPEN)


def _left_by(write: Write) -> Operation | None:
    match write:
        case Insert(operation):
            return operation
        case Move(after=after):
            return after
        case _:
            return None


def _name_of(writes: Sequence[Write]) -> str:
    what = " + ".join(map(_name_of_one, writes))
    return f"write {what} ({'flushed' if any(map(is_durable, writes)) else 'not flushed'})"


def _name_of_one(write: Write) -> str:
    match write:
        case Insert(operation):
            return f"claim of {operation.tool}"
        case Move(event=event, before=before):
            return f"{event} of {before.tool}"
        case Append(events):
            return f"{events[0].kind} in the log"
        case Note(entry):
            return str(entry.event)
