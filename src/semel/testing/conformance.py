"""What every store must do, as tests. They run on Semel's own stores and on anyone else's:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "db")     # each call: one more handle on the same data

Each test is a claim about the port (`semel.ports.Store`); none knows a database.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from semel import keys, lifecycle
from semel.errors import UsageError
from semel.model import Append, Insert, Intent, Message, Move, Note, Operation, RunEvent, State
from semel.ports import Store

LEASE: Final = timedelta(seconds=30)
STRANGE: Final = '{"s":"\\u0000 \\ud800 \\\\u0000 é ✓","n":90071992547409931234567890,"f":1e-300}'

OpenStore = Callable[[], Store]


def intent(call_id: str = "1", **changes: Any) -> Intent:
    """An intent named by its call id."""
    fields: dict[str, Any] = {
        "key": keys.idempotency_key("", "run", "1", call_id),
        "namespace": "",
        "run_id": "run",
        "step": "1",
        "call_id": call_id,
        "tool": "charge",
        "effect": "unsafe",
        "fingerprint": "f" * 64,
        "arguments": STRANGE,
    }
    return Intent(**(fields | changes))


def claimed(store: Store, call_id: str = "1", *, owner: str = "me/1", **changes: Any) -> Operation:
    """A fresh claim, not yet written."""
    return lifecycle.open_claim(intent(call_id, **changes), owner=owner, now=store.now(), lease=LEASE)


class StoreConformance:
    """Subclass it and define the fixture `open_store`."""

    # -------------------------------------------------------------- inserting

    def test_a_record_comes_back_exactly_as_it_went_in(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        (outcome,) = store.apply([Insert(operation)])
        assert outcome.applied
        assert outcome.operation == operation
        assert store.read(operation.key) == operation

    def test_a_key_that_nobody_used_reads_as_nothing(self, open_store: OpenStore) -> None:
        assert open_store().read("0" * 64) is None

    def test_a_second_insert_under_one_key_finds_the_first(self, open_store: OpenStore) -> None:
        store = open_store()
        first, second = claimed(store, owner="me/1"), claimed(store, owner="you/1")
        store.apply([Insert(first)])
        (outcome,) = store.apply([Insert(second)])
        assert not outcome.applied
        assert outcome.operation == first

    def test_one_batch_cannot_insert_one_key_twice(self, open_store: OpenStore) -> None:
        store = open_store()
        first, second = claimed(store, owner="me/1"), claimed(store, owner="you/1")
        outcomes = store.apply([Insert(first), Insert(second)])
        assert [outcome.applied for outcome in outcomes] == [True, False]
        assert outcomes[1].operation == first

    def test_a_second_intent_of_one_business_event_finds_the_first(self, open_store: OpenStore) -> None:
        store = open_store()
        first, second = claimed(store, "1", once_key="event"), claimed(store, "2", once_key="event")
        store.apply([Insert(first)])
        (outcome,) = store.apply([Insert(second)])
        assert not outcome.applied
        assert outcome.operation == first
        assert store.read(second.key) is None

    def test_a_failed_intent_does_not_use_up_its_business_event(self, open_store: OpenStore) -> None:
        store = open_store()
        first, second = claimed(store, "1", once_key="event"), claimed(store, "2", once_key="event")
        store.apply([Insert(first)])
        store.apply([lifecycle.reject(first, error="no", now=store.now())])
        (outcome,) = store.apply([Insert(second)])
        assert outcome.applied

    def test_of_many_callers_at_once_exactly_one_claims(self, open_store: OpenStore) -> None:
        handles = [open_store() for _ in range(4)]

        def claim(number: int) -> bool:
            store = handles[number % len(handles)]
            operation = claimed(store, str(number // 8), owner=f"w/{number}")
            return store.apply([Insert(operation)])[0].applied

        with ThreadPoolExecutor(8) as executor:
            wins = list(executor.map(claim, range(80)))
        assert [sum(wins[n : n + 8]) for n in range(0, 80, 8)] == [1] * 10

    # -------------------------------------------------------------- moving

    def test_a_move_that_saw_the_record_as_it_is_applies_whole(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        for move in _a_long_life(store, operation):
            (outcome,) = store.apply([move])
            assert outcome.applied, move.event
            assert outcome.operation == move.after
            assert store.read(operation.key) == move.after

    def test_a_move_that_saw_another_fence_changes_nothing(self, open_store: OpenStore) -> None:
        store = open_store()
        old = claimed(store)
        store.apply([Insert(old)])
        lost = lifecycle.expire(old, now=store.now())
        store.apply([lost])
        again = lifecycle.claim(lost.after, owner="you/1", now=store.now(), lease=LEASE)
        store.apply([again])
        (outcome,) = store.apply([lifecycle.commit(old, result='"late"', now=store.now())])
        assert not outcome.applied
        assert outcome.operation == again.after
        assert store.read(old.key) == again.after

    def test_a_move_that_saw_another_state_changes_nothing(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        in_doubt = lifecycle.leave_in_doubt(operation, error="?", now=store.now())
        store.apply([in_doubt])
        for stale in (
            lifecycle.commit(operation, result="1", now=store.now()),
            lifecycle.not_sent(operation, error="?", now=store.now()),
            lifecycle.renew(operation, now=store.now(), lease=LEASE),
        ):
            (outcome,) = store.apply([stale])
            assert not outcome.applied
            assert outcome.operation == in_doubt.after

    def test_a_terminal_state_is_never_overwritten(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        done = lifecycle.commit(operation, result='"first"', now=store.now())
        store.apply([done])
        for late in (
            lifecycle.commit(operation, result='"second"', now=store.now()),
            lifecycle.reject(operation, error="no", now=store.now()),
            lifecycle.leave_in_doubt(operation, error="?", now=store.now()),
        ):
            assert not store.apply([late])[0].applied
        assert store.read(operation.key) == done.after

    def test_an_owner_that_has_just_renewed_is_not_declared_gone(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        expired = lifecycle.expire(operation, now=store.now())
        renewed = lifecycle.renew(operation, now=store.now() + timedelta(seconds=1), lease=LEASE)
        store.apply([renewed])
        (outcome,) = store.apply([expired])
        assert not outcome.applied
        assert outcome.operation == renewed.after

    def test_the_owner_commits_whatever_its_heartbeat_did_meanwhile(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        store.apply([lifecycle.renew(operation, now=store.now() + timedelta(seconds=1), lease=LEASE)])
        (outcome,) = store.apply([lifecycle.commit(operation, result="1", now=store.now())])
        assert outcome.applied
        found = store.read(operation.key)
        assert found is not None
        assert (found.state, found.result) == (State.COMMITTED, "1")

    def test_a_move_of_a_record_that_is_not_there_finds_nothing(self, open_store: OpenStore) -> None:
        store = open_store()
        (outcome,) = store.apply([lifecycle.commit(claimed(store), result="1", now=store.now())])
        assert outcome == (False, None)

    def test_a_batch_answers_each_write_in_order(self, open_store: OpenStore) -> None:
        store = open_store()
        one, two = claimed(store, "1"), claimed(store, "2")
        outcomes = store.apply(
            [
                Insert(one),
                Insert(two),
                lifecycle.commit(one, result="1", now=store.now()),
                lifecycle.commit(one, result="2", now=store.now()),
            ]
        )
        assert [outcome.applied for outcome in outcomes] == [True, True, True, False]
        assert outcomes[3].operation == outcomes[2].operation

    # -------------------------------------------------------------- history and log

    def test_the_history_tells_every_remarkable_move_and_who_made_it(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        moves = _a_long_life(store, operation)
        for move in moves:
            store.apply([move])
        told = [
            (entry.event, entry.from_state, entry.to_state, entry.by)
            for entry in store.read_history(operation.key)
        ]
        made = [(m.event, m.before.state, m.after.state, m.by) for m in moves]
        assert told == [line for line in made if line[0] not in lifecycle.UNREMARKABLE]
        assert told

    def test_a_move_that_was_not_applied_leaves_no_history(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        store.apply([lifecycle.commit(operation, result="1", now=store.now())])
        store.apply([lifecycle.leave_in_doubt(operation, error="?", now=store.now())])
        assert store.read_history(operation.key) == []

    def test_a_divergence_is_noted_beside_the_record_and_found_again(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        entry = lifecycle.note_divergence(operation, fence=1, why="two effects", now=store.now())
        store.apply([Insert(operation), Note(entry)])
        assert store.read_divergences("", limit=10) == [entry]
        assert store.read_history(operation.key) == [entry]
        assert store.read(operation.key) == operation

    def test_a_log_is_read_in_its_order_and_apart_from_other_runs(self, open_store: OpenStore) -> None:
        store = open_store()
        events = tuple(_event(store, position) for position in range(3))
        other = replace(_event(store, 0), run_id="another")
        store.apply([Append(events[:2])])
        store.apply([Append((other,)), Append(events[2:])])
        assert store.read_log("", "run") == list(events)
        assert store.read_log("", "another") == [other]
        assert store.read_log("elsewhere", "run") == []

    def test_of_two_writers_at_one_place_of_a_log_one_is_refused(self, open_store: OpenStore) -> None:
        store, other = open_store(), open_store()
        mine, yours = _event(store, 0), replace(_event(store, 0), payload='"other"')
        (first,) = store.apply([Append((mine, _event(store, 1)))])
        (second,) = other.apply([Append((yours,))])
        assert (first.applied, second.applied) == (True, False)
        assert store.read_log("", "run")[0] == mine

    # -------------------------------------------------------------- reading many

    def test_open_operations_are_read_in_pages_by_key(self, open_store: OpenStore) -> None:
        store = open_store()
        operations = [claimed(store, str(n)) for n in range(7)]
        store.apply([Insert(operation) for operation in operations])
        store.apply([lifecycle.commit(operations[0], result="1", now=store.now())])
        expected = sorted(operation.key for operation in operations[1:])
        first = store.read_open("", State.INVOKED, limit=4)
        rest = store.read_open("", State.INVOKED, limit=4, after_key=first[-1].key)
        assert [operation.key for operation in first + rest] == expected
        assert store.read_open("", State.UNKNOWN, limit=4) == []

    def test_one_namespace_does_not_see_what_is_open_or_ended_in_another(self, open_store: OpenStore) -> None:
        store = open_store()
        mine, yours = claimed(store, "1"), claimed(store, "2", namespace="yours")
        store.apply([Insert(mine), Insert(yours)])
        store.apply([Note(lifecycle.note_divergence(yours, fence=1, why="?", now=store.now()))])
        assert store.read_open("", State.INVOKED, limit=9) == [mine]
        assert store.read_divergences("", limit=9) == []
        assert len(store.read_divergences("yours", limit=9)) == 1
        store.apply([lifecycle.commit(operation, result="1", now=store.now()) for operation in (mine, yours)])
        later = store.now() + timedelta(seconds=1)
        assert [op.key for op in store.read_ended_before("yours", later, limit=9)] == [yours.key]

    def test_a_run_reads_all_its_operations_in_the_order_of_their_claims(self, open_store: OpenStore) -> None:
        store = open_store()
        mine = [claimed(store, str(n)) for n in range(3)]
        store.apply([Insert(operation) for operation in mine])
        store.apply([Insert(claimed(store, "x", run_id="another"))])
        assert store.read_run("", "run") == mine

    def test_only_what_has_ended_before_a_time_is_read_for_reaping(self, open_store: OpenStore) -> None:
        store = open_store()
        ended, still_open = claimed(store, "1"), claimed(store, "2")
        store.apply([Insert(ended), Insert(still_open)])
        done = lifecycle.commit(ended, result="1", now=store.now())
        store.apply([done])
        later = store.now() + timedelta(seconds=1)
        assert store.read_ended_before("", later, limit=10) == [done.after]
        assert store.read_ended_before("", ended.created_at, limit=10) == []
        store.apply([lifecycle.reap(done.after, now=store.now())])
        assert store.read_ended_before("", later, limit=10) == []

    # -------------------------------------------------------------- transactions

    def test_a_transaction_keeps_effect_and_record_together(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        with store.transaction() as transaction:
            transaction.handle.execute("CREATE TABLE grants (customer TEXT)")
            assert transaction.insert(operation).applied
            transaction.handle.execute("INSERT INTO grants VALUES ('cus_42')")
            transaction.move(lifecycle.commit(operation, result="1", now=store.now()))
        found = open_store().read(operation.key)
        assert found is not None
        assert found.state is State.COMMITTED
        with store.transaction() as transaction:
            assert len(transaction.handle.execute("SELECT * FROM grants").fetchall()) == 1

    def test_a_transaction_that_fails_leaves_neither_effect_nor_record(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        with store.transaction() as transaction:
            transaction.handle.execute("CREATE TABLE grants (customer TEXT)")
        try:
            with store.transaction() as transaction:
                transaction.insert(operation)
                transaction.handle.execute("INSERT INTO grants VALUES ('cus_42')")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert store.read(operation.key) is None
        with store.transaction() as transaction:
            assert transaction.handle.execute("SELECT * FROM grants").fetchall() == []

    def test_a_tool_cannot_end_the_transaction_itself(self, open_store: OpenStore) -> None:
        store = open_store()
        for statement in ("COMMIT", "rollback;", " BEGIN", "/* now */ COMMIT", "-- now\nEND"):
            refused = False
            try:
                with store.transaction() as transaction:
                    transaction.handle.execute(statement)
            except UsageError:
                refused = True
            assert refused, statement

    # -------------------------------------------------------------- the outbox

    def test_a_message_comes_back_exactly_as_it_was_left(self, open_store: OpenStore) -> None:
        store = open_store()
        message = _message(store, 1)
        with store.transaction() as transaction:
            transaction.enqueue(message)
        assert open_store().outbox.read(message.key) == message
        assert store.outbox.read("0" * 64) is None

    def test_a_transaction_that_fails_leaves_no_message(self, open_store: OpenStore) -> None:
        store = open_store()
        message = _message(store, 1)
        try:
            with store.transaction() as transaction:
                transaction.enqueue(message)
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert store.outbox.read(message.key) is None

    def test_the_head_of_each_topic_is_its_oldest_undelivered_message(self, open_store: OpenStore) -> None:
        store = open_store()
        mail = [_message(store, n, topic="mail") for n in (1, 2)]
        sms, elsewhere = _message(store, 3, topic="sms"), _message(store, 4, namespace="elsewhere")
        for message in (mail[0], sms, mail[1], elsewhere):
            with store.transaction() as transaction:
                transaction.enqueue(message)
        assert store.outbox.read_heads("") == [mail[0], sms]
        assert store.outbox.mark_delivered(mail[0].key, at=store.now())
        assert store.outbox.read_heads("") == [sms, mail[1]]
        assert store.outbox.read_undelivered("", limit=9) == [sms, mail[1]]
        assert store.outbox.read_undelivered("", limit=1) == [sms]
        assert store.outbox.read_heads("elsewhere") == [elsewhere]
        assert store.outbox.read_heads("nowhere") == []

    def test_of_many_relays_at_once_exactly_one_claims_a_message(self, open_store: OpenStore) -> None:
        handles = [open_store() for _ in range(4)]
        messages = [_message(handles[0], n) for n in range(10)]
        with handles[0].transaction() as transaction:
            for message in messages:
                transaction.enqueue(message)

        def claim(number: int) -> bool:
            store, seen = handles[number % len(handles)], messages[number // 8]
            return store.outbox.claim(seen, _held(store, seen, owner=f"relay/{number}"))

        with ThreadPoolExecutor(8) as executor:
            wins = list(executor.map(claim, range(80)))
        assert [sum(wins[n : n + 8]) for n in range(0, 80, 8)] == [1] * 10

    def test_a_message_is_put_off_only_by_the_relay_that_holds_it(self, open_store: OpenStore) -> None:
        store = open_store()
        message = _message(store, 1)
        with store.transaction() as transaction:
            transaction.enqueue(message)
        first = _held(store, message, owner="relay/1")
        second = _held(store, first, owner="relay/2")
        assert store.outbox.claim(message, first)
        assert store.outbox.claim(first, second)
        later = store.now() + timedelta(seconds=9)
        off: dict[str, Any] = {
            "owner": None,
            "lease_expires_at": None,
            "failures": 1,
            "error": STRANGE,
            "due_at": later,
        }
        assert not store.outbox.put_off(replace(first, **off))
        assert store.outbox.read(message.key) == second
        assert store.outbox.put_off(replace(second, **off))
        assert store.outbox.read(message.key) == replace(second, **off)

    def test_what_was_delivered_is_delivered_whoever_holds_it_and_stays_so(
        self, open_store: OpenStore
    ) -> None:
        store = open_store()
        message = _message(store, 1)
        with store.transaction() as transaction:
            transaction.enqueue(message)
        held, at = _held(store, message, owner="relay/1"), store.now()
        assert store.outbox.claim(message, held)
        assert store.outbox.mark_delivered(message.key, at=at)
        assert not store.outbox.mark_delivered(message.key, at=store.now(), error="too late")
        assert not store.outbox.claim(held, _held(store, held, owner="relay/2"))
        assert not store.outbox.put_off(replace(held, owner=None, lease_expires_at=None, failures=1))
        assert store.outbox.read(message.key) == replace(
            held, owner=None, lease_expires_at=None, delivered_at=at
        )

    def test_only_what_was_delivered_before_a_time_is_deleted_and_a_few_at_a_time(
        self, open_store: OpenStore
    ) -> None:
        store = open_store()
        messages = [_message(store, n) for n in range(5)]
        with store.transaction() as transaction:
            for message in messages:
                transaction.enqueue(message)
        for message in messages[:4]:
            store.outbox.mark_delivered(message.key, at=store.now())
        later = store.now() + timedelta(seconds=1)
        assert store.outbox.delete_delivered("", messages[0].enqueued_at, limit=9) == 0
        assert store.outbox.delete_delivered("elsewhere", later, limit=9) == 0
        assert [store.outbox.delete_delivered("", later, limit=3) for _ in range(3)] == [3, 1, 0]
        assert store.outbox.read_undelivered("", limit=9) == messages[4:]

    # -------------------------------------------------------------- time and the end

    def test_all_handles_share_one_clock_that_does_not_run_backwards(self, open_store: OpenStore) -> None:
        one, two = open_store(), open_store()
        readings = [store.now() for _ in range(50) for store in (one, two)]
        spread = timedelta(milliseconds=50)  # a database's clock is known to its clients this well
        assert all(later >= earlier - spread for earlier, later in pairwise(readings))
        assert all(reading.utcoffset() == timedelta(0) for reading in readings)

    def test_what_was_applied_is_there_for_the_next_process(self, open_store: OpenStore) -> None:
        keeper, store = open_store(), open_store()  # the keeper keeps a store alive that lives in memory
        operation = claimed(store)
        store.apply([Insert(operation)])
        store.close()
        assert open_store().read(operation.key) == operation
        assert keeper.read(operation.key) == operation

    def test_results_up_to_a_hundred_megabytes_are_held(self, open_store: OpenStore) -> None:
        store = open_store()
        operation = claimed(store)
        store.apply([Insert(operation)])
        large = '"' + "x" * 100_000_000 + '"'
        store.apply([lifecycle.commit(operation, result=large, now=store.now())])
        found = store.read(operation.key)
        assert found is not None
        assert found.result == large


def _a_long_life(store: Store, operation: Operation) -> list[Move]:
    """Moves that touch every column, each made from what the one before left."""
    now = store.now()
    moves = [lifecycle.renew(operation, now=now, lease=LEASE)]
    moves.append(lifecycle.leave_in_doubt(moves[-1].after, error="Fehler: ü ✗", now=now))
    moves.append(lifecycle.claim(moves[-1].after, owner="you/1", now=now, lease=LEASE))
    moves.append(lifecycle.declare_owner_dead(moves[-1].after, now=now))
    moves.append(lifecycle.find_absent(moves[-1].after, now=now))
    moves.append(lifecycle.claim(moves[-1].after, owner="you/2", now=now, lease=LEASE))
    moves.append(lifecycle.not_sent(moves[-1].after, error="refused", now=now))
    moves.append(lifecycle.claim(moves[-1].after, owner="you/3", now=now, lease=LEASE))
    moves.append(lifecycle.expire(moves[-1].after, now=now))
    moves.append(lifecycle.confirm(moves[-1].after, result=STRANGE, by="ann", why="saw it", now=now))
    moves.append(lifecycle.reap(moves[-1].after, now=now))
    return moves


def _message(store: Store, number: int, *, topic: str = "mail", namespace: str = "") -> Message:
    now = store.now()
    return Message(
        key=keys.message_key("o" * 64, number),
        namespace=namespace,
        topic=topic,
        operation="o" * 64,
        number=number,
        payload=STRANGE,
        enqueued_at=now,
        due_at=now,
    )


def _held(store: Store, before: Message, *, owner: str) -> Message:
    return replace(before, fence=before.fence + 1, owner=owner, lease_expires_at=store.now() + LEASE)


def _event(store: Store, position: int) -> RunEvent:
    return RunEvent(
        namespace="", run_id="run", position=position, kind="turn", payload=STRANGE, at=store.now()
    )
