"""The SQLite store against a plain dict: whatever is written, in whatever order, by however many handles.

Each step is a batch of writes made from the records as they are or as they once were; afterwards everything
that the store can be asked is asked, through both handles, and compared. Nothing is random: the same steps
every time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semel import keys, lifecycle
from semel.errors import IllegalTransition, StoreError
from semel.lifecycle import TERMINAL, UNREMARKABLE
from semel.model import (
    Append,
    Event,
    HistoryEntry,
    Insert,
    Intent,
    Move,
    Note,
    Operation,
    RunEvent,
    State,
    Write,
)
from semel.ports import Outcome
from semel.stores.records import entry_of
from semel.stores.sqlite.store import SqliteStore
from semel.testing.clock import START, ManualClock

NAMESPACES = ("", "other")
RUNS = ("run", "run:é ✗")
CALLS = ("1", "2", "3")
ONCE_KEYS = (None, None, "event a", "event b")
TEXTS = ('"plain"', '{"s":"\\u0000 \\ud800 é"}', "null", '""')
LEASE = timedelta(seconds=30)
SPANS = (timedelta(0), timedelta(microseconds=1), timedelta(seconds=1), timedelta(seconds=45), timedelta(-1))
FAR = START + timedelta(days=9_000)
OPEN = [state for state in State if state not in TERMINAL]


# ------------------------------------------------------------------ the model


@dataclass
class Books:
    """What the store should hold: operations in the order of their claims, histories, logs."""

    operations: dict[str, Operation] = field(default_factory=dict)
    history: list[HistoryEntry] = field(default_factory=list)
    log: dict[tuple[str, str, int], RunEvent] = field(default_factory=dict)
    reached: Counter[tuple[Event, bool]] = field(default_factory=Counter)

    def copy(self) -> Books:
        return Books(dict(self.operations), list(self.history), dict(self.log), self.reached.copy())

    def write(self, write: Write) -> Outcome:
        match write:
            case Insert(operation):
                return self._insert(operation)
            case Move():
                outcome = self._move(write)
                self.reached[write.event, outcome.applied] += 1
                return outcome
            case Note(entry):
                self.history.append(entry)
                return Outcome(True)
            case Append(events):
                return self._append(events)

    def _insert(self, operation: Operation) -> Outcome:
        in_the_way = self.operations.get(operation.key) or self._same_event(operation.once_key)
        if in_the_way is not None:
            return Outcome(False, in_the_way)
        self.operations[operation.key] = operation
        return Outcome(True, operation)

    def _same_event(self, once_key: str | None) -> Operation | None:
        """What failed does not use up its business event."""
        held = (op for op in self.operations.values() if op.once_key == once_key is not None)
        return next((op for op in held if op.state is not State.FAILED), None)

    def _move(self, move: Move) -> Outcome:
        here = self.operations.get(move.before.key)
        if here is None or (here.state, here.fence) != (move.before.state, move.before.fence):
            return Outcome(False, here)
        if move.seen_lease_at is not None and here.lease_expires_at != move.seen_lease_at:
            return Outcome(False, here)
        self.operations[here.key] = _after(here, move)
        if move.event not in UNREMARKABLE:
            self.history.append(entry_of(move))
        return Outcome(True, move.after)

    def _append(self, events: tuple[RunEvent, ...]) -> Outcome:
        for number, event in enumerate(events):
            place = (event.namespace, event.run_id, event.position)
            if place in self.log:
                if number == 0:
                    return Outcome(False)
                raise StoreError("a gap")
            self.log[place] = event
        return Outcome(True)


def _after(here: Operation, move: Move) -> Operation:
    """The owner completes whatever its own heartbeat did meanwhile; every other move says it all."""
    if move.event is not Event.COMMITTED:
        return move.after
    return replace(
        here,
        state=State.COMMITTED,
        lease_expires_at=None,
        result=move.after.result,
        updated_at=move.after.updated_at,
    )


# ------------------------------------------------------------------ what can be written


@dataclass(frozen=True)
class Recipe:
    """A write, before it is known what there is to write to: small numbers that pick from what there is."""

    kind: str
    which: int
    how: int
    text: str


RECIPES = st.builds(
    Recipe,
    kind=st.sampled_from(("insert", *["move"] * 5, "stale", "fenced out", "note", "append")),
    which=st.integers(0, 30),
    how=st.integers(0, 15),
    text=st.sampled_from(TEXTS),
)


def legal_moves(op: Operation, now, text: str, owner: str) -> list[Move]:
    """Those that the lifecycle allows from here; a new claim twice, so that lives get longer."""
    by = {"by": "ann", "why": "looked: é ✗"}
    makers = (
        lambda: lifecycle.claim(op, owner=owner, now=now, lease=LEASE),
        lambda: lifecycle.claim(op, owner=owner, now=now, lease=LEASE),
        lambda: lifecycle.renew(op, now=now, lease=LEASE),
        lambda: lifecycle.commit(op, result=text, now=now),
        lambda: lifecycle.reject(op, error="no", now=now),
        lambda: lifecycle.not_sent(op, error="refused", now=now),
        lambda: lifecycle.leave_in_doubt(op, error="?", now=now),
        lambda: lifecycle.expire(op, now=now),
        lambda: lifecycle.declare_owner_dead(op, now=now),
        lambda: lifecycle.find(op, result=text, now=now),
        lambda: lifecycle.find_absent(op, now=now),
        lambda: lifecycle.report_late(op, result=text, now=now),
        lambda: lifecycle.confirm(op, result=text, now=now, **by),
        lambda: lifecycle.clear(op, now=now, **by),
        lambda: lifecycle.abandon(op, now=now, **by),
        lambda: lifecycle.doubt_clearance(op, now=now),
        lambda: lifecycle.reap(op, now=now),
    )
    moves = []
    for make in makers:
        try:
            moves.append(make())
        except IllegalTransition:
            continue
    return moves


class StoreAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="semel-state-machine-"))
        self.clock = ManualClock()
        self.handles = [self.open(), self.open()]
        self.books = Books()
        self.versions: list[Operation] = []  # every record as it ever was
        self.owners = 0
        self.asked = 0
        self.steps = 0

    def open(self) -> SqliteStore:
        return SqliteStore(self.folder / "agent.db", clock=self.clock)

    def teardown(self) -> None:
        for handle in self.handles:
            handle.close()
        shutil.rmtree(self.folder)

    # -------------------------------------------------------------- the steps

    @rule(
        recipes=st.lists(RECIPES, min_size=3, max_size=9),
        handle=st.integers(0, 1),
        span=st.sampled_from(SPANS),
    )
    def apply_a_batch(self, recipes: list[Recipe], handle: int, span: timedelta) -> None:
        self.clock.advance(span)
        writes = [write for recipe in recipes for write in self.writes_of(recipe)]
        expected = self.books.copy()
        try:
            outcomes = [expected.write(write) for write in writes]
        except StoreError:
            with pytest.raises(StoreError):
                self.handles[handle].apply(writes)
            return  # all of the batch or nothing
        assert self.handles[handle].apply(writes) == outcomes
        self.books = expected
        self.remember()

    @rule(
        recipes=st.lists(RECIPES, min_size=2, max_size=5), handle=st.integers(0, 1), ends_well=st.booleans()
    )
    def run_a_transaction(self, recipes: list[Recipe], handle: int, ends_well: bool) -> None:
        writes = [write for recipe in recipes for write in self.writes_of(recipe)]
        expected = self.books.copy()
        try:
            with self.handles[handle].transaction() as transaction:
                for write in writes:
                    if isinstance(write, Insert):
                        assert transaction.insert(write.operation) == expected.write(write)
                    elif isinstance(write, Move):
                        assert transaction.move(write) == expected.write(write)
                if not ends_well:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return
        self.books = expected
        self.remember()

    @precondition(lambda self: self.steps % 7 == 6)
    @rule(handle=st.integers(0, 1))
    def open_again(self, handle: int) -> None:
        self.handles[handle].close()
        self.handles[handle] = self.open()

    @precondition(lambda self: self.steps % 5 == 4)
    @rule(
        namespace=st.sampled_from(NAMESPACES), older_than=st.sampled_from(SPANS[:4]), limit=st.integers(1, 3)
    )
    def reap_a_page(self, namespace: str, older_than: timedelta, limit: int) -> None:
        before = self.clock.now() - older_than
        ended = self.handles[0].read_ended_before(namespace, before, limit=limit)
        assert ended == self.ended_before(namespace, before)[:limit]
        moves = [lifecycle.reap(operation, now=self.clock.now()) for operation in ended]
        outcomes = [self.books.write(move) for move in moves]
        assert all(outcome.applied for outcome in outcomes)
        assert self.handles[1].apply(moves) == outcomes
        self.remember()

    # -------------------------------------------------------------- recipes into writes

    def writes_of(self, recipe: Recipe) -> Iterator[Write]:
        now, entries = self.clock.now(), list(self.books.operations.values())
        still_open = [operation for operation in entries if operation.state not in TERMINAL]
        match recipe.kind:
            case "insert":
                yield Insert(self.claimed(recipe))
            case "move" if still_open:
                yield from self.one_of(still_open[recipe.which % len(still_open)], recipe)
            case "stale" if self.versions:
                yield from self.one_of(self.versions[recipe.which % len(self.versions)], recipe)
            case "fenced out" if fenced_out := list(self.fenced_out()):
                yield from self.one_of(fenced_out[recipe.which % len(fenced_out)], recipe)
            case "note" if entries:
                operation = entries[recipe.which % len(entries)]
                yield Note(lifecycle.note_divergence(operation, fence=recipe.how, why="late ✗", now=now))
            case "append":
                yield self.appended(recipe)

    def fenced_out(self) -> Iterator[Operation]:
        """What a worker still holds that is in the right state and of an old fence: only the fence tells."""
        for once in self.versions:
            here = self.books.operations[once.key]
            if here.state is once.state and here.fence > once.fence:
                yield once

    def one_of(self, operation: Operation, recipe: Recipe) -> Iterator[Move]:
        moves = legal_moves(operation, self.clock.now(), recipe.text, self.next_owner())
        if moves:
            yield moves[recipe.how % len(moves)]

    def claimed(self, recipe: Recipe) -> Operation:
        namespace, run_id = NAMESPACES[recipe.how % 2], RUNS[recipe.how // 2 % 2]
        call_id = CALLS[recipe.which % len(CALLS)]
        intent = Intent(
            key=keys.idempotency_key(namespace, run_id, "1", call_id),
            namespace=namespace,
            run_id=run_id,
            step="1",
            call_id=call_id,
            tool="charge",
            effect="unsafe",
            fingerprint="f" * 64,
            arguments=recipe.text,
            once_key=ONCE_KEYS[recipe.how // 4],
        )
        return lifecycle.open_claim(intent, owner=self.next_owner(), now=self.clock.now(), lease=LEASE)

    def appended(self, recipe: Recipe) -> Append:
        first, count = recipe.which % 4, recipe.how % 4
        return Append(
            tuple(
                RunEvent(
                    namespace=NAMESPACES[recipe.how // 4 % 2],
                    run_id="run",
                    position=first + number,
                    kind="turn",
                    payload=recipe.text,
                    at=self.clock.now(),
                )
                for number in range(count)
            )
        )

    def next_owner(self) -> str:
        self.owners += 1
        return f"owner/{self.owners}"

    def remember(self) -> None:
        self.versions += [op for op in self.books.operations.values() if op not in self.versions]

    # -------------------------------------------------------------- the same answers to everything

    @invariant()
    def another_step_was_taken(self) -> None:
        self.steps += 1

    @invariant()
    def every_record_is_as_in_the_books(self) -> None:
        for namespace in NAMESPACES:
            for run_id in RUNS:
                expected = [op for op in self.of(namespace) if op.run_id == run_id]
                assert self.either.read_run(namespace, run_id) == expected
                assert [self.either.read(op.key) for op in expected] == expected

    @invariant()
    def what_is_open_and_what_has_ended_is_found_page_by_page(self) -> None:
        for namespace in NAMESPACES:
            for state in OPEN:
                expected = [op for op in self.of(namespace, by_key=True) if op.state is state]
                assert list(self.pages(namespace, state)) == expected
            ended = self.ended_before(namespace, FAR)
            assert self.either.read_ended_before(namespace, FAR, limit=100) == ended

    @invariant()
    def the_histories_are_as_in_the_books(self) -> None:
        for key in self.books.operations:
            expected = [entry for entry in self.books.history if entry.key == key]
            assert self.either.read_history(key) == expected
        for namespace in NAMESPACES:
            mine = {op.key for op in self.of(namespace)}
            diverged = [e for e in self.books.history if e.event is Event.DIVERGED and e.key in mine]
            assert self.either.read_divergences(namespace, limit=2) == diverged[:-3:-1]

    @invariant()
    def the_logs_are_as_in_the_books(self) -> None:
        for namespace in NAMESPACES:
            expected = [event for place, event in sorted(self.books.log.items()) if place[0] == namespace]
            assert self.either.read_log(namespace, "run") == expected

    @invariant()
    def what_has_ended_stays_as_it_ended_and_a_business_event_is_held_once(self) -> None:
        """Of the store alone, whatever the books say."""
        now_there = {op.key: op for op in self.everything()}
        for once in self.versions:
            if once.state in TERMINAL:
                assert now_there[once.key].state is once.state
                assert now_there[once.key].result in (once.result, None)
            assert now_there[once.key].fence >= once.fence
        held = [op.once_key for op in now_there.values() if op.once_key and op.state is not State.FAILED]
        assert len(held) == len(set(held))

    # -------------------------------------------------------------- asking

    @property
    def either(self) -> SqliteStore:
        """One handle, then the other."""
        self.asked += 1
        return self.handles[self.asked % 2]

    def everything(self) -> list[Operation]:
        return [op for ns in NAMESPACES for run_id in RUNS for op in self.either.read_run(ns, run_id)]

    def pages(self, namespace: str, state: State) -> Iterator[Operation]:
        after_key = ""
        for _ in range(
            len(self.books.operations) + 1
        ):  # a page that goes on from its own end comes to no end
            page = self.either.read_open(namespace, state, limit=2, after_key=after_key)
            assert len(page) <= 2
            if not page:
                return
            yield from page
            after_key = page[-1].key
        raise AssertionError("more pages than records")

    def of(self, namespace: str, *, by_key: bool = False) -> list[Operation]:
        mine = [op for op in self.books.operations.values() if op.namespace == namespace]
        return sorted(mine, key=lambda op: op.key) if by_key else mine

    def ended_before(self, namespace: str, when) -> list[Operation]:
        return [
            op
            for op in self.of(namespace, by_key=True)
            if op.state in TERMINAL and op.reaped_at is None and op.updated_at < when
        ]


STEPS = settings(
    max_examples=50,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # add Phase.shrink to have a failure made small; it takes minutes
    suppress_health_check=list(HealthCheck),
)


def test_the_sqlite_store_is_a_dict_that_compares_and_sets():
    reached: Counter[tuple[Event, bool]] = Counter()

    class Counted(StoreAgainstDict):
        def teardown(self) -> None:
            reached.update(self.books.reached)
            super().teardown()

    run_state_machine_as_test(Counted, settings=STEPS)
    every_event = set(Event) - {Event.DIVERGED}  # a note, not a move
    assert {event for event, is_applied in reached if is_applied} == every_event
    assert {event for event, is_applied in reached if not is_applied} == every_event - {Event.REAPED}
