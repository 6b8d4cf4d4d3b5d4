"""`once_per=`: a second intent of the same business event does not run."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from workbench import FORKS, NO_TIME, PATIENCE_SECONDS, Child, Ledger, call, kill_at, register

import semel

DAY = timedelta(days=1)
PERIOD = ("subscription", "period")


def charge_tool(guard, engine, ledger, *, effect=None, fails_with=(), **options):
    errors = list(fails_with)

    def charge(subscription, period, cents, *, call):
        ledger.enter("charge", call.key, cents=cents, arguments=dict(call.arguments))
        if errors:
            raise errors.pop(0)
        return f"charged {cents}"

    options = {"once_per": PERIOD} | options
    return register(guard, engine, charge, effect=effect or semel.Unsafe(), **options)


def charge(guard, engine, run_id, tool, cents=100, period="2026-12"):
    return call(guard, engine, run_id, tool, subscription="sub_42", period=period, cents=cents)


# hazard 10
def test_the_model_asking_again_reworded_under_a_new_id_gets_the_first_result(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger)
    assert charge(guard, engine, "run", tool, cents=100) == "charged 100"
    assert charge(guard, engine, "another run", tool, cents=10_000) == "charged 100"
    assert len(ledger.lines()) == 1
    assert guard.store.read_run("", "another run") == []


# hazard 10
def test_two_calls_of_one_turn_for_one_event_run_once(guard, ledger):
    tool = charge_tool(guard, "sync", ledger)
    with guard.run("run") as run:
        said = [
            run.call_at(
                tool, {"subscription": "s", "period": "p", "cents": cents}, step="turn 1", call_id=call_id
            )
            for cents, call_id in ((100, "call_0"), (1.0, "call_1"))
        ]
    assert said == ["charged 100"] * 2
    assert len(ledger.lines()) == 1


def test_another_event_runs(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger)
    for period in ("2026-12", "2027-01"):
        charge(guard, engine, period, tool, period=period)
    assert len(ledger.lines()) == 2


def test_the_event_may_be_a_function_of_the_arguments(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger, once_per=lambda subscription, period, cents: period[:4])
    charge(guard, engine, "run", tool, period="2026-12")
    charge(guard, engine, "another run", tool, period="2026-11")
    charge(guard, engine, "a third run", tool, period="2027-01")
    assert len(ledger.lines()) == 2


def test_the_event_of_another_tool_or_namespace_is_another_event(open_guard, ledger, engine):
    for namespace in ("", "shop"):
        guard = open_guard(namespace=namespace)
        for name in ("charge", "charge_again"):
            charge(guard, engine, name, charge_tool(guard, engine, ledger, name=name))
    assert len(ledger.lines()) == 4


def test_an_atomic_tool_grants_one_event_once(guard):
    @guard.tool(effect=semel.Atomic(), once_per="customer")
    def grant(customer, plan, *, tx):
        tx.execute("CREATE TABLE grants (customer TEXT)")  # a second time it would fail
        return plan

    with guard.run("run") as run:
        assert run.call(grant, "ann", "basic") == "basic"
    with guard.run("another run") as run:
        assert run.call(grant, "ann", "gold") == "basic"


# hazard 10
def test_while_the_first_is_in_doubt_the_second_is_refused_and_names_the_first(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger, fails_with=[TimeoutError()])
    with pytest.raises(semel.PausedForPerson) as first:
        charge(guard, engine, "run", tool)
    with pytest.raises(semel.PausedForPerson) as second:
        charge(guard, engine, "another run", tool, cents=50)
    assert second.value.key == first.value.key
    assert second.value.fingerprint == first.value.fingerprint
    assert len(ledger.lines()) == 1


# hazard 10
def test_a_second_intent_resends_the_first_under_its_key_with_its_arguments(guard, ledger, engine):
    tool = charge_tool(
        guard, engine, ledger, effect=semel.Idempotent(key_ttl=DAY), fails_with=[TimeoutError()]
    )
    with pytest.raises(semel.OutcomeUnknown):
        charge(guard, engine, "run", tool, cents=100)
    assert charge(guard, engine, "another run", tool, cents=50) == "charged 100"
    assert len(set(ledger.keys())) == 1
    assert [line["arguments"]["cents"] for line in ledger.lines()] == [100, 100]


def test_a_first_that_failed_does_not_use_up_the_event(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger, fails_with=[semel.Rejected("no funds")])
    with pytest.raises(semel.Rejected):
        charge(guard, engine, "run", tool)
    assert charge(guard, engine, "another run", tool, cents=50) == "charged 50"
    with pytest.raises(semel.PreviouslyFailed):
        charge(guard, engine, "run", tool)


# hazards 10, 13
def test_a_first_that_is_past_retention_is_not_run_again(guard, ledger, clock, engine):
    tool = charge_tool(guard, engine, ledger)
    charge(guard, engine, "run", tool)
    clock.advance(2 * DAY)
    guard.reap(older_than=DAY)
    with pytest.raises(semel.Reaped):
        charge(guard, engine, "another run", tool)
    assert len(ledger.lines()) == 1


# hazards 1, 10
def test_a_second_intent_waits_for_the_first_which_is_at_work(open_guard, ledger, engine):
    guard = open_guard(wait=timedelta(seconds=PATIENCE_SECONDS))
    at_work, may_go_on, said = threading.Event(), threading.Event(), []

    def linger(place, key):
        if place == "effect_done":
            at_work.set()
            assert may_go_on.wait(PATIENCE_SECONDS)

    slow = open_guard(checkpoint=linger)
    slow_tool = charge_tool(slow, "sync", ledger)
    first = threading.Thread(target=lambda: said.append(charge(slow, "sync", "run", slow_tool)))
    first.start()
    assert at_work.wait(PATIENCE_SECONDS)
    impatient = open_guard(wait=NO_TIME)
    with pytest.raises(semel.ClaimHeld) as held:
        charge(impatient, engine, "another run", charge_tool(impatient, engine, ledger))
    assert held.value.key == ledger.keys()[0]
    threading.Timer(0.05, may_go_on.set).start()
    said.append(charge(guard, engine, "a third run", charge_tool(guard, engine, ledger), cents=50))
    first.join()
    assert said == ["charged 100", "charged 100"]
    assert len(ledger.lines()) == 1


def charge_in_a_process(folder: Path, run_id: str, barrier: Any, place: str) -> str:
    ledger = Ledger(folder)
    wait = timedelta(seconds=PATIENCE_SECONDS)
    guard = semel.open(f"sqlite:///{folder}/agent.db", wait=wait, checkpoint=kill_at(place))
    honest = semel.Unsafe(
        lookup=lambda call: semel.Found("charged before") if ledger.keys() else semel.Absent(),
        lookup_lag=NO_TIME,
        request_deadline=NO_TIME,
    )
    tool = charge_tool(guard, "sync", ledger, effect=honest)
    if barrier is not None:
        barrier.wait(PATIENCE_SECONDS)
    return str(charge(guard, "sync", run_id, tool))


# hazards 1, 10
def test_of_several_processes_with_one_event_under_different_names_one_runs(tmp_path, ledger):
    barrier = FORKS.Barrier(3)
    children = [Child(charge_in_a_process, tmp_path, f"run {n}", barrier, "nowhere") for n in range(3)]
    assert [child.result() for child in children] == ["charged 100"] * 3
    assert len(ledger.lines()) == 1


# hazards 2, 10
@pytest.mark.parametrize(("place", "said"), [("claimed", "charged 100"), ("effect_done", "charged before")])
def test_the_event_of_a_dead_owner_is_settled_before_it_serves_another_run(tmp_path, ledger, place, said):
    Child(charge_in_a_process, tmp_path, "run", None, place).assert_killed()
    assert Child(charge_in_a_process, tmp_path, "another run", None, "nowhere").result() == said
    assert len(ledger.lines()) == 1


@pytest.mark.parametrize("once_per", ["customer", ["subscription", "customer"], []])
def test_an_event_must_be_named_by_arguments_of_the_tool(guard, once_per):
    with pytest.raises(semel.UsageError, match="Nothing was registered"):
        guard.tool(effect=semel.Unsafe(), once_per=once_per)(lambda subscription: None)


def test_an_event_that_has_no_faithful_form_is_refused_before_anything_is_sent(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger, once_per=lambda **arguments: object())
    with pytest.raises(semel.Unencodable):
        charge(guard, engine, "run", tool)
    assert (ledger.lines(), guard.store.read_run("", "run")) == ([], [])
