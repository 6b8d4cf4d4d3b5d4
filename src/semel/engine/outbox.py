"""Messages that Atomic tools leave, and the relay that delivers them.

A message is written in the transaction of its operation's effect and record: it is there if and only if they are.
The relay claims the oldest message of a topic, delivers it and marks it. Where it dies in between, another claims
the message again. So a message is delivered at least once outwards, and once by key for whoever keeps keys.

In each topic the oldest is delivered first, and nothing gets past it: one that fails holds its topic up until it
is delivered, or a person has it skipped. Topics do not wait for each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from semel import keys, values
from semel.engine.awaiting import in_thread
from semel.engine.core import Core
from semel.engine.names import require_name, require_text
from semel.engine.verdicts import describe
from semel.errors import UsageError
from semel.model import Message, Operation
from semel.ports import AtomicTransaction

DELAY_FIRST: Final = timedelta(seconds=1)  # doubled with each failure in a row
DELAY_MOST: Final = timedelta(minutes=5)
DELETED_AT_ONCE: Final = 1_000

Deliver: TypeAlias = Callable[["Delivery"], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One try to deliver one message.

    `key`      names the message, the same at every delivery; give it to whoever receives it. 64 hex characters.
    `attempt`  1, 2, …
    `operation`, `number`  the key of the operation that enqueued it, and its number there.
    """

    key: str
    topic: str
    payload: Any
    attempt: int
    operation: str
    number: int
    enqueued_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Relayed:
    """What one relay did: messages delivered, and those whose delivery raised: why, and when they are due again."""

    delivered: tuple[Message, ...] = ()
    failed: tuple[Message, ...] = ()


# ------------------------------------------------------------------ enqueuing


class MessageBook:
    """The messages of one attempt at one operation, in its transaction, for as long as the tool runs."""

    def __init__(self, transaction: AtomicTransaction, operation: Operation) -> None:
        self._transaction: AtomicTransaction | None = transaction
        self._operation = operation
        self._number = 0

    def enqueue(self, topic: str, payload: Any) -> str:
        """Raises `Unencodable`, which the tool had better let through: the effect is then undone."""
        require_name(topic, "topic")
        if self._transaction is None:
            raise UsageError(
                f"{self._operation.tool} has ended, and its transaction with it. Nothing was enqueued. Enqueue "
                "within the tool."
            )
        self._number += 1
        operation = self._operation
        message = Message(
            key=keys.message_key(operation.key, self._number),
            namespace=operation.namespace,
            topic=topic,
            operation=operation.key,
            number=self._number,
            payload=values.encode(payload),
            enqueued_at=operation.updated_at,
            due_at=operation.updated_at,
        )
        self._transaction.enqueue(message)
        return message.key

    def close(self) -> None:
        self._transaction = None


# ------------------------------------------------------------------ relaying


class HandOver(NamedTuple):
    """Answered by None, or by what was raised."""

    delivery: Delivery


class Do(NamedTuple):
    """Something with the store. Answered by what it returns."""

    what: Callable[[], Any]


Step: TypeAlias = HandOver | Do
Turns: TypeAlias = Generator[Step, Any, Relayed]


def relay(core: Core, deliver: Deliver, *, topics: Collection[str] | None, limit: int) -> Relayed:
    turns = _turns(core, topics, limit)
    answer: Any = None
    try:
        while True:  # bounded by the limit
            match turns.send(answer):
                case Do(what):
                    answer = what()
                case HandOver(delivery):
                    answer = _deliver(deliver, delivery)
    except StopIteration as end:
        relayed: Relayed = end.value
        return relayed


def _deliver(deliver: Deliver, delivery: Delivery) -> Exception | None:
    try:
        given = deliver(delivery)
    except Exception as error:
        return error
    if not hasattr(given, "__await__"):
        return None
    if hasattr(given, "close"):
        given.close()
    return UsageError("deliver returned something to await; nothing was delivered. Use guard.relay_async.")


async def relay_async(core: Core, deliver: Deliver, *, topics: Collection[str] | None, limit: int) -> Relayed:
    import asyncio  # slow to import, only for async callers

    turns = _turns(core, topics, limit)
    answer: Any = None
    try:
        while True:  # bounded by the limit
            match turns.send(answer):
                case Do(what):
                    answer = await asyncio.to_thread(what)
                case HandOver(delivery):
                    answer = await _deliver_async(deliver, delivery)
    except StopIteration as end:
        relayed: Relayed = end.value
        return relayed


async def _deliver_async(deliver: Deliver, delivery: Delivery) -> Exception | None:
    import asyncio  # slow to import, only for async callers

    try:
        if asyncio.iscoroutinefunction(deliver):
            await deliver(delivery)
        else:
            given = await in_thread(deliver, delivery)
            if hasattr(given, "__await__"):
                await given
    except Exception as error:
        return error
    return None


def _turns(core: Core, topics: Collection[str] | None, limit: int) -> Turns:
    _check(topics, limit)
    outbox = core.store.outbox
    delivered: list[Message] = []
    failed: list[Message] = []
    while (left := limit - len(delivered) - len(failed)) > 0:
        heads: list[Message] = yield Do(lambda: outbox.read_heads(core.namespace))
        now = core.store.now()
        ready = [
            one for one in heads if (topics is None or one.topic in topics) and _may_claim(core, one, now)
        ]
        held = []
        for message in ready[:left]:
            claim = _claimed(core, message)
            if not (yield Do(lambda message=message, claim=claim: outbox.claim(message, claim))):  # type: ignore[misc]
                continue  # another relay has it
            held.append(claim)
            core.checkpoint("message_claimed", claim.key)
            error = yield HandOver(_delivery(claim))
            after = yield from _record(core, claim, error)
            (delivered if error is None else failed).append(after)
        if not held:
            break
    return Relayed(delivered=tuple(delivered), failed=tuple(failed))


def _record(core: Core, claim: Message, error: Exception | None) -> Generator[Step, Any, Message]:
    outbox, now = core.store.outbox, core.store.now()
    if error is not None:
        after = _put_off(claim, error, now)
        yield Do(lambda: outbox.put_off(after))
        return after
    core.checkpoint("message_delivered", claim.key)
    yield Do(lambda: outbox.mark_delivered(claim.key, at=now))
    core.checkpoint("message_marked", claim.key)
    return dataclasses.replace(claim, owner=None, lease_expires_at=None, error=None, delivered_at=now)


def _may_claim(core: Core, message: Message, now: datetime) -> bool:
    """It is due, and no live relay is at it."""
    if message.lease_expires_at is None or message.lease_expires_at <= now:
        return message.due_at <= now
    return message.owner is not None and core.owners.is_gone(message.owner)


def _claimed(core: Core, before: Message) -> Message:
    return dataclasses.replace(
        before,
        fence=before.fence + 1,
        owner=core.owners.me(),
        lease_expires_at=core.store.now() + core.lease,
    )


def _put_off(claim: Message, error: Exception, now: datetime) -> Message:
    delay = DELAY_FIRST * 2 ** min(claim.failures, 20)
    return dataclasses.replace(
        claim,
        owner=None,
        lease_expires_at=None,
        failures=claim.failures + 1,
        error=describe(error),
        due_at=now + min(delay, DELAY_MOST),
    )


def _delivery(claim: Message) -> Delivery:
    return Delivery(
        key=claim.key,
        topic=claim.topic,
        payload=values.decode(claim.payload),
        attempt=claim.fence,
        operation=claim.operation,
        number=claim.number,
        enqueued_at=claim.enqueued_at,
    )


def _check(topics: Collection[str] | None, limit: int) -> None:
    if isinstance(topics, str):
        raise UsageError(f"topics={topics!r} must be several names: [{topics!r}]. Nothing was delivered.")
    if type(limit) is not int or limit < 1:
        raise UsageError(f"limit={limit!r} must be a whole number, at least 1. Nothing was delivered.")


# ------------------------------------------------------------------ a person, and the broom


def skip(core: Core, key: str, *, by: str, why: str) -> None:
    """Take a message out of its topic's way, undelivered; who and why stay with it."""
    if not by or not why:
        raise UsageError("To skip a message needs `by` (who says so) and `why`. Nothing was skipped.")
    require_text(by, "answer's `by`")
    require_text(why, "answer's `why`")
    if not core.store.outbox.mark_delivered(key, at=core.store.now(), error=f"skipped by {by}: {why}"):
        raise UsageError(
            f"No undelivered message has the key {key!r}. Nothing was skipped. See guard.outbox()."
        )


def delete_delivered(core: Core, *, older_than: timedelta) -> None:
    before = core.store.now() - older_than
    while (
        core.store.outbox.delete_delivered(core.namespace, before, limit=DELETED_AT_ONCE) == DELETED_AT_ONCE
    ):
        continue  # ends: each round deletes as many as are left, or a batch of them
