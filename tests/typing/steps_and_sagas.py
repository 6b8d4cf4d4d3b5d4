"""Steps, compensation and outbox, for the type checker (see tests/test_public_names.py). Never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, assert_type

import semel

guard = semel.open("sqlite:///agent.db")
STRIPE = semel.Idempotent(key_ttl=timedelta(hours=24))


@guard.tool(effect=STRIPE)
def charge(customer: str, amount_cents: int, *, call: semel.Call) -> dict[str, Any]:
    return {"id": call.key}


@charge.compensation(effect=STRIPE)
def refund(arguments: Mapping[str, Any], result: Any, *, call: semel.Call) -> None:
    print(arguments["amount_cents"], result["id"], call.key)


@guard.tool(effect=semel.Atomic(), irreversible=True)
def grant(plan: str, *, tx: Any, call: semel.Call) -> None:
    tx.execute("INSERT INTO grants VALUES (?)", (plan,))
    assert_type(call.enqueue("mail", {"plan": plan}), str)


def reserve(seats: int, *, call: semel.Call) -> str:
    return f"{seats} {call.key}"


@guard.tool(effect=semel.Steps(each=STRIPE))
def check_out(*, call: semel.Call) -> str:
    seat: str = call.step("reserve", reserve, seats=2)
    call.step("charge", charge, customer="cus_42", amount_cents=100)
    call.step("grant", grant, "pro")
    return seat


@guard.tool(effect=semel.Steps(), name="check_out_async")
async def check_out_async(*, call: semel.Call) -> str:
    seat: str = await call.step("reserve", reserve, seats=2, effect=semel.Unsafe())
    return seat


assert_type(refund, semel.Tool)


def use_it() -> None:
    with guard.run("trip:42") as run:
        run.call(check_out)
        assert_type(run.compensate(), list[str])
        assert_type(run.compensate(charge, "key"), list[str])


async def use_it_async() -> None:
    async with guard.run("trip:42") as run:
        assert_type(await run.compensate(), list[str])
    assert_type(await guard.compensate_async("trip:42"), list[str])
    assert_type(await guard.relay_async(deliver_async), semel.Relayed)


def deliver(delivery: semel.Delivery) -> None:
    print(delivery.key, delivery.topic, delivery.payload)


async def deliver_async(delivery: semel.Delivery) -> None:
    deliver(delivery)


def sweep() -> None:
    for saga in guard.open_sagas():
        assert_type(guard.compensate(saga.run_id, *saga.operations), list[str])
    relayed = guard.relay(deliver, topics=["mail"], limit=10)
    assert_type(relayed.failed, tuple[semel.Message, ...])
    assert_type(guard.outbox(), list[semel.Message])
    guard.skip_message("key", by="ann", why="nobody reads it")
