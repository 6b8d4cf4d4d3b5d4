"""Messages as effects: written with the record or not at all, delivered by key, oldest first in each topic."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel import keys
from semel.engine import outbox as relaying
from semel.stores.sqlite.outbox import SqliteOutbox


class Mailbox:
    """Whoever receives: keeps every delivery, and refuses what it is told to."""

    def __init__(self, *refused: Any) -> None:
        self.deliveries: list[semel.Delivery] = []
        self.refused = list(refused)

    def __call__(self, delivery: semel.Delivery) -> None:
        self.deliveries.append(delivery)
        if delivery.payload in self.refused:
            raise ConnectionError(f"no to {delivery.payload}")

    def payloads(self) -> list[Any]:
        return [delivery.payload for delivery in self.deliveries]


def sender(guard: semel.Guard, *, name: str = "send", end: BaseException | None = None) -> semel.Tool:
    """Enqueues each payload on its topic; and then fails, if it is to."""

    @guard.tool(effect=semel.Atomic(), name=name)
    def send(messages: list[Any], *, tx: Any, call: semel.Call) -> list[str]:
        sent = [call.enqueue(topic, payload) for topic, payload in messages]
        if end is not None:
            raise end
        return sent

    return send


def send(guard: semel.Guard, *messages: tuple[str, Any], run_id: str = "run") -> list[str]:
    tool = guard._tools.get("send") or sender(guard)
    with guard.run(run_id) as run:
        return run.call(tool, messages=[list(message) for message in messages])


# ------------------------------------------------------------------ with the record, or not at all


def test_a_message_is_delivered_with_its_payload_and_the_key_that_the_tool_was_given(guard):
    payload = {"to": "ann", "when": (1, 2), "bytes": b"\x00"}
    (key,) = send(guard, ("mail", payload))
    mailbox = Mailbox()
    relayed = guard.relay(mailbox)
    (delivery,) = mailbox.deliveries
    assert (delivery.key, delivery.topic, delivery.payload, delivery.attempt) == (key, "mail", payload, 1)
    assert [message.key for message in relayed.delivered] == [key]
    assert guard.outbox() == []
    assert guard.relay(mailbox) == semel.Relayed()


def test_each_message_of_one_operation_has_a_key_of_its_own_that_follows_from_the_operations(guard):
    sent = send(guard, ("mail", 1), ("mail", 1), ("sms", 1))
    (operation,) = guard.store.read_run("", "run")
    assert sent == [keys.message_key(operation.key, number) for number in (1, 2, 3)]
    assert len(set(sent) | {operation.key}) == 4
    assert all(len(key) == 64 and int(key, 16) for key in sent)
    assert [(m.operation, m.number) for m in guard.outbox()] == [(operation.key, n) for n in (1, 2, 3)]


def test_a_replayed_call_enqueues_nothing_again(guard):
    assert send(guard, ("mail", 1)) == send(guard, ("mail", 1))
    assert len(guard.outbox()) == 1


@pytest.mark.parametrize("end", [ValueError("no"), semel.Rejected("no"), KeyboardInterrupt()])
def test_a_tool_that_fails_leaves_no_message(guard, end):
    tool = sender(guard, end=end)
    with pytest.raises(type(end)), guard.run("run") as run:
        run.call(tool, messages=[["mail", 1]])
    assert guard.outbox() == []


def test_a_payload_without_a_faithful_form_undoes_the_whole(guard):
    with pytest.raises(semel.Unencodable):
        send(guard, ("mail", 1), ("mail", object()))
    assert guard.outbox() == []
    assert guard.store.read_run("", "run") == []


def test_a_transaction_that_the_database_wants_repeated_leaves_each_message_once(guard):
    left = iter([semel.TransactionConflict("again"), None])

    @guard.tool(effect=semel.Atomic())
    def conflicting(*, tx: Any, call: semel.Call) -> str:
        key = call.enqueue("mail", 1)
        if (problem := next(left)) is not None:
            raise problem
        return key

    with guard.run("run") as run:
        key = run.call(conflicting)
    assert [message.key for message in guard.outbox()] == [key]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_within_the_callers_transaction_the_message_is_there_if_and_only_if_they_commit(
    guard, tmp_path, ends
):
    tool = sender(guard)
    connection = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with guard.run("run") as run:
        run.call_within(connection, tool, messages=[["mail", 1]])
    assert guard.outbox() == [], "nobody sees it yet"
    connection.execute(ends.upper())
    connection.close()
    assert len(guard.outbox()) == (1 if ends == "commit" else 0)


def test_what_fails_within_the_callers_transaction_leaves_no_message_when_they_commit(guard, tmp_path):
    tool = sender(guard, end=ValueError("no"))
    connection = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with guard.run("run") as run, pytest.raises(ValueError, match="no"):
        run.call_within(connection, tool, messages=[["mail", 1]])
    connection.execute("COMMIT")
    connection.close()
    assert guard.outbox() == []


def test_a_tool_of_another_kind_cannot_enqueue_and_is_told_why(guard):
    @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(days=1)))
    def charge(*, call: semel.Call) -> None:
        call.enqueue("mail", 1)

    with pytest.raises(semel.OutcomeUnknown) as told, guard.run("run") as run:
        run.call(charge)
    assert "not Atomic" in str(told.value.__cause__)
    assert guard.outbox() == []


def test_nothing_can_be_enqueued_once_the_tool_has_ended(guard):
    kept: list[semel.Call] = []

    @guard.tool(effect=semel.Atomic())
    def keep(*, tx: Any, call: semel.Call) -> None:
        kept.append(call)

    with guard.run("run") as run:
        run.call(keep)
    with pytest.raises(semel.UsageError, match="has ended"):
        kept[0].enqueue("mail", 1)
    assert guard.outbox() == []


@pytest.mark.parametrize("topic", ["", None, "a\x00b"])
def test_a_topic_that_is_no_name_is_refused_and_nothing_happens(guard, topic):
    with pytest.raises(semel.UsageError, match="topic"):
        send(guard, (topic, 1))
    assert guard.outbox() == []


def test_one_namespace_does_not_relay_the_messages_of_another(open_guard):
    mine, yours = open_guard(), open_guard(namespace="yours")
    send(yours, ("mail", "yours"))
    mailbox = Mailbox()
    mine.relay(mailbox)
    assert mailbox.payloads() == []
    yours.relay(mailbox)
    assert mailbox.payloads() == ["yours"]


def test_a_file_from_before_there_were_messages_gets_its_outbox_when_it_is_opened(tmp_path, open_guard):
    open_guard().close()
    connection = sqlite3.connect(tmp_path / "agent.db")
    connection.executescript("DROP TABLE semel_outbox; DELETE FROM semel_schema WHERE version = 2")
    connection.close()
    guard = open_guard()
    send(guard, ("mail", 1))
    assert len(guard.outbox()) == 1


# ------------------------------------------------------------------ order, and what fails


def test_in_each_topic_the_oldest_is_delivered_first(guard):
    for number in range(4):
        send(guard, ("mail", f"mail {number}"), ("sms", f"sms {number}"), run_id=f"run {number}")
    mailbox = Mailbox()
    guard.relay(mailbox)
    for topic in ("mail", "sms"):
        assert [p for p in mailbox.payloads() if p.startswith(topic)] == [f"{topic} {n}" for n in range(4)]


def test_what_fails_stays_visible_holds_its_own_topic_up_and_no_other(guard):
    send(guard, ("mail", 1), ("mail", 2), ("sms", 3))
    mailbox = Mailbox(1)
    relayed = guard.relay(mailbox)
    assert mailbox.payloads() == [1, 3]
    assert [message.error for message in relayed.failed] == ["ConnectionError: no to 1"]
    first, second = guard.outbox()
    assert (first.failures, first.error) == (1, "ConnectionError: no to 1")
    assert first.due_at > guard.store.now()
    assert second.failures == 0


def test_it_is_tried_again_after_a_delay_that_grows_and_then_the_rest_follows(guard, clock):
    send(guard, ("mail", 1), ("mail", 2))
    mailbox, delays = Mailbox(1), []
    for failures in range(1, 15):
        guard.relay(mailbox)
        assert len(mailbox.deliveries) == failures
        guard.relay(mailbox)
        assert len(mailbox.deliveries) == failures, "it was not due yet"
        delays.append(guard.outbox()[0].due_at - guard.store.now())
        clock.advance(delays[-1])
    assert delays[:4] == [timedelta(seconds=n) for n in (1, 2, 4, 8)]
    assert delays[-1] == timedelta(minutes=5)
    mailbox.refused.clear()
    guard.relay(mailbox)
    assert mailbox.payloads()[-2:] == [1, 2]
    assert {d.key for d in mailbox.deliveries[:-1]} == {mailbox.deliveries[0].key}, "one key at every try"
    assert [d.attempt for d in mailbox.deliveries[:-1]] == list(range(1, 16))


def test_a_person_can_have_a_message_skipped_and_the_rest_follows(guard):
    bad, _ = send(guard, ("mail", 1), ("mail", 2))
    mailbox = Mailbox(1)
    guard.relay(mailbox)
    guard.skip_message(bad, by="ann", why="the address is wrong")
    guard.relay(mailbox)
    assert mailbox.payloads() == [1, 2]
    skipped = guard.store.outbox.read(bad)
    assert (skipped.error, skipped.delivered_at is None) == ("skipped by ann: the address is wrong", False)
    with pytest.raises(semel.UsageError, match="Nothing was skipped"):
        guard.skip_message(bad, by="ann", why="again")


@pytest.mark.parametrize(("by", "why"), [("", "why"), ("ann", "")])
def test_nothing_is_skipped_without_who_and_why(guard, by, why):
    (key,) = send(guard, ("mail", 1))
    with pytest.raises(semel.UsageError, match="Nothing was skipped"):
        guard.skip_message(key, by=by, why=why)
    assert len(guard.outbox()) == 1


def test_a_relay_takes_only_the_topics_and_as_many_as_it_is_told(guard):
    send(guard, *[("mail", n) for n in range(5)], *[("sms", n) for n in range(5)])
    mailbox = Mailbox()
    assert len(guard.relay(mailbox, topics=["sms"], limit=3).delivered) == 3
    assert {delivery.topic for delivery in mailbox.deliveries} == {"sms"}
    assert len(guard.outbox()) == 7


@pytest.mark.parametrize("wrong", [{"topics": "mail"}, {"limit": 0}, {"limit": True}])
def test_a_relay_that_is_told_nonsense_delivers_nothing(guard, wrong):
    send(guard, ("mail", 1))
    mailbox = Mailbox()
    with pytest.raises(semel.UsageError, match="Nothing was delivered"):
        guard.relay(mailbox, **wrong)
    assert mailbox.deliveries == []


# ------------------------------------------------------------------ two relays


def relay_within_a_relay(first: semel.Guard, second: semel.Guard) -> Mailbox:
    """The second looks for messages while the first is delivering one."""
    mailbox = Mailbox()

    def deliver(delivery: semel.Delivery) -> None:
        mailbox(delivery)
        second.relay(mailbox)

    first.relay(deliver)
    return mailbox


def test_what_one_relay_is_delivering_another_leaves_alone_and_what_comes_after_it_too(open_guard):
    first, second = open_guard(), open_guard()
    send(first, ("mail", 1), ("mail", 2))
    assert relay_within_a_relay(first, second).payloads() == [1, 2]


def test_without_the_claim_a_message_is_caught_delivered_twice(open_guard, monkeypatch):
    monkeypatch.setattr(relaying, "_may_claim", lambda *_: True)
    monkeypatch.setattr(SqliteOutbox, "claim", lambda *_: True)
    first, second = open_guard(), open_guard()
    send(first, ("mail", 1), ("mail", 2))
    assert relay_within_a_relay(first, second).payloads().count(1) > 1


def test_of_two_relays_that_saw_the_same_message_one_claims_it(open_guard):
    first, second = open_guard(), open_guard()
    send(first, ("mail", 1))
    (seen,) = first.store.outbox.read_heads("")
    claims = [relaying._claimed(guard._core, seen) for guard in (first, second)]
    applied = [
        guard.store.outbox.claim(seen, claim) for guard, claim in zip((first, second), claims, strict=True)
    ]
    assert applied == [True, False]


def test_a_relay_that_is_slower_than_its_lease_is_overtaken_and_what_it_delivered_stays_delivered(
    open_guard, clock
):
    slow, fast = open_guard(), open_guard()
    (key,) = send(slow, ("mail", 1))
    mailbox = Mailbox()

    def deliver_slowly(delivery: semel.Delivery) -> None:
        mailbox(delivery)
        clock.advance(timedelta(minutes=1))
        fast.relay(mailbox)

    slow.relay(deliver_slowly)
    assert [(d.key, d.attempt) for d in mailbox.deliveries] == [(key, 1), (key, 2)], (
        "at least once, by one key"
    )
    assert slow.outbox() == []


def test_a_relay_that_was_overtaken_and_failed_disturbs_nothing(open_guard, clock):
    slow, fast = open_guard(), open_guard()
    send(slow, ("mail", 1))
    mailbox = Mailbox()

    def fail_slowly(delivery: semel.Delivery) -> None:
        clock.advance(timedelta(minutes=1))
        fast.relay(mailbox)
        raise ConnectionError

    slow.relay(fail_slowly)
    assert mailbox.payloads() == [1]
    assert slow.outbox() == []
    assert slow.store.outbox.read(mailbox.deliveries[0].key).failures == 0


# ------------------------------------------------------------------ async, and the broom


def test_async_code_relays_with_async_and_with_plain_deliverers(guard):
    send(guard, ("mail", 1), ("mail", 2), ("sms", 3))
    mailbox = Mailbox()

    async def deliver(delivery: semel.Delivery) -> None:
        await asyncio.sleep(0)
        mailbox(delivery)

    async def relay_both() -> None:
        await guard.relay_async(deliver, topics=["mail"])
        await guard.relay_async(mailbox)

    asyncio.run(relay_both())
    assert mailbox.payloads() == [1, 2, 3]


def test_an_async_deliverer_in_sync_code_delivers_nothing_and_the_message_stays(guard):
    send(guard, ("mail", 1))

    async def deliver(delivery: semel.Delivery) -> None:
        raise AssertionError("it ran")

    relayed = guard.relay(deliver)
    assert relayed.delivered == ()
    assert "relay_async" in guard.outbox()[0].error


def test_reaping_deletes_what_was_delivered_long_ago_and_nothing_else(guard, clock):
    old, _ = send(guard, ("mail", 1), ("sms", 2))
    guard.relay(Mailbox(), topics=["mail"])
    clock.advance(timedelta(days=2))
    guard.reap(older_than=timedelta(days=1))
    assert guard.store.outbox.read(old) is None
    assert [message.topic for message in guard.outbox()] == ["sms"]
