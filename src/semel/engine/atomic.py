"""Atomic tools: effect, completion and fence in one transaction of the guard's own database.

There is no window between the effect and its record, so there is nothing to be in doubt about: a crash at any
point leaves either both or neither, and a repeated call finds out which by reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semel import actions, keys, lifecycle, values
from semel.engine import refusals
from semel.engine.call import CURRENT_CALL, call_of
from semel.engine.claims import HeldClaim
from semel.engine.core import Core
from semel.engine.course import lost_result, recordable
from semel.engine.outbox import MessageBook
from semel.engine.tool import Tool
from semel.engine.verdicts import describe
from semel.errors import CommitInDoubt, Rejected, StoreError, TransactionConflict, WriteRefused
from semel.model import Intent, Operation, State
from semel.ports import AtomicTransaction

TRIES_MAX: Final = 10  # of a transaction that the database asks us to repeat


def drive(core: Core, tool: Tool, intent: Intent, arguments: Mapping[str, Any]) -> Any:
    """The call's result, or what it raises. Any exception of the tool means that nothing happened."""
    for tries_left in reversed(range(TRIES_MAX)):
        wanted = _wanted(core, intent)
        try:
            with core.store.transaction() as transaction:
                value = _within(core, tool, intent, arguments, wanted, transaction)
        except TransactionConflict:
            if not tries_left:
                raise
            continue
        except CommitInDoubt as problem:
            return _read_back(core, wanted, problem)
        except Rejected as rejection:
            if rejection.key not in (None, intent.key):
                raise  # of a guarded tool called inside this one: it speaks of that operation
            _record_rejection(core, wanted, rejection)
            raise refusals.told(rejection, intent.key) from rejection.__cause__
        core.checkpoint("completed", intent.key)
        return value
    raise AssertionError("unreachable: the last try returns or raises")


def drive_within(core: Core, tool: Tool, intent: Intent, arguments: Mapping[str, Any], caller: Any) -> Any:
    """The same in a transaction of the caller's: it happened, and is recorded, if and only if they commit.

    Nothing is tried again here: after a `TransactionConflict` the whole transaction is theirs to repeat.
    """
    wanted = _wanted(core, intent)
    try:
        with core.store.join(caller) as transaction:
            return _within(core, tool, intent, arguments, wanted, transaction)
    except Rejected as rejection:
        if rejection.key not in (None, intent.key):
            raise
        with core.store.join(caller) as transaction:
            _reject(core, wanted, rejection, transaction)
        raise refusals.told(rejection, intent.key) from rejection.__cause__


def _within(
    core: Core,
    tool: Tool,
    intent: Intent,
    arguments: Mapping[str, Any],
    wanted: Operation,
    transaction: AtomicTransaction,
) -> Any:
    core.checkpoint("claiming", intent.key)
    if tool.announces:
        transaction.announce(keys.saga_key(intent.namespace, intent.run_id))
    operation = _claim(core, tool, intent, wanted, transaction)
    if operation.state is not State.INVOKED:
        if operation.key != intent.key and core.store.read(keys.compensation_key(operation.key)) is not None:
            raise refusals.compensated(intent, operation, "The business event")
        return refusals.recorded_result(operation)
    core.checkpoint("claimed", operation.key)
    in_hand = arguments if operation.key == intent.key else values.decode(operation.arguments)
    value = _perform(tool, operation, in_hand, HeldClaim(operation, tool.effect, core.store.now), transaction)
    core.checkpoint("effect_done", operation.key)
    try:
        transaction.move(lifecycle.commit(operation, result=recordable(value), now=core.store.now()))
    except WriteRefused as problem:
        transaction.move(lifecycle.commit(operation, result=lost_result(problem), now=core.store.now()))
    return value


def _claim(
    core: Core, tool: Tool, intent: Intent, wanted: Operation, transaction: AtomicTransaction
) -> Operation:
    """Our claim (INVOKED), or the record of what already happened (COMMITTED)."""
    outcome = transaction.insert(wanted)
    found = outcome.operation
    if found is None:
        raise refusals.record_vanished(intent)
    if outcome.applied:
        return found
    now = core.store.now()
    fingerprint = intent.fingerprint if found.key == intent.key else found.fingerprint
    action = core.decide(
        found,
        tool.effect,
        None,
        now,
        fingerprint=fingerprint,
        owner_is_gone=found.owner is not None and core.owners.is_gone(found.owner),
    )
    match action:
        case actions.Replay():
            return found
        case actions.Claim():
            claim = lifecycle.claim(found, owner=wanted.owner or "", now=now, lease=core.lease)
            transaction.move(claim)
            return claim.after
        case actions.Wait(until=until, why=why):
            raise refusals.not_yet(found, why, until - now)
        case actions.Refuse(reason):
            raise refusals.refuse(found, reason, intent)
        case _:
            raise refusals.ask(found, "it was left open by a tool of another kind under the same key")


def _perform(
    tool: Tool,
    operation: Operation,
    arguments: Mapping[str, Any],
    claim: HeldClaim,
    transaction: AtomicTransaction,
) -> Any:
    messages = MessageBook(transaction, operation)
    call = call_of(operation, arguments, claim, messages)
    token = CURRENT_CALL.set(call)
    try:
        return tool.fn(**arguments, **tool.injected(call=call, tx=transaction.handle))
    finally:
        CURRENT_CALL.reset(token)
        messages.close()


def _wanted(core: Core, intent: Intent) -> Operation:
    return lifecycle.open_claim(intent, owner=core.owners.me(), now=core.store.now(), lease=core.lease)


def _read_back(core: Core, wanted: Operation, problem: CommitInDoubt) -> Any:
    """The acknowledgement of COMMIT was lost. The record is in the same transaction as the effect: it knows."""
    try:
        current = core.store.read(wanted.key)
    except StoreError:
        raise refusals.atomic_in_doubt(wanted) from problem
    if current is not None and current.state is State.COMMITTED:
        return refusals.recorded_result(current)
    raise refusals.atomic_in_doubt(wanted) from problem


def _record_rejection(core: Core, wanted: Operation, rejection: Rejected) -> None:
    """The transaction is rolled back; that it shall not happen is worth a record of its own."""
    with core.store.transaction() as transaction:
        _reject(core, wanted, rejection, transaction)


def _reject(core: Core, wanted: Operation, rejection: Rejected, transaction: AtomicTransaction) -> None:
    now, found = core.store.now(), transaction.insert(wanted).operation
    if found is not None and found.key == wanted.key and found.state is State.PENDING:
        again = lifecycle.claim(found, owner=wanted.owner or "", now=now, lease=core.lease)
        found = transaction.move(again).operation
    if found is not None and found.owner == wanted.owner:
        transaction.move(lifecycle.reject(found, error=describe(rejection), now=now))
