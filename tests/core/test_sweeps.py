"""Recover, reconcile, reap: many operations, no effect, and nobody else's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from workbench import NO_TIME, Child, Desk, call, kill_at, register

import semel

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
HONEST = {"lookup_lag": NO_TIME, "request_deadline": NO_TIME}


def time_out() -> None:
    raise TimeoutError


def leave_in_doubt(guard: semel.Guard, run_id: str, tool) -> str:
    with pytest.raises((semel.OutcomeUnknown, semel.PausedForPerson)) as unknown:
        call(guard, "sync", run_id, tool)
    return unknown.value.key


def once_down(answer):
    """A lookup that is down at first (so that the call leaves UNKNOWN) and then says this."""
    state = {"down": True}

    def lookup(call):
        if state.pop("down", False):
            raise ConnectionError("down")
        return answer

    return lookup


# ------------------------------------------------------------------ recover


def call_and_die(folder: Path) -> None:
    Desk(folder, checkpoint=kill_at("claimed")).call("letter")


def test_recovering_moves_the_dead_and_leaves_the_living_alone(tmp_path, desk):
    Child(call_and_die, tmp_path).assert_killed()
    mine = desk(before=lambda call: recovered.append(mine.guard.recover()))
    recovered: list[list[semel.Operation]] = []
    mine.call("letter", "alive")
    assert [[op.run_id for op in found] for found in recovered] == [["run"]]
    assert mine.operation().state is semel.State.UNKNOWN
    assert mine.operation("alive").state is semel.State.COMMITTED
    assert [op.run_id for op in mine.guard.in_doubt()] == ["run"]


def test_recovering_moves_a_claim_whose_lease_ran_out_even_of_an_owner_elsewhere(open_guard, clock):
    guard = open_guard(lease=HOUR)

    @guard.tool(effect=semel.Unsafe())
    def charge():
        other = open_guard()
        assert other.recover() == []
        clock.advance(HOUR)
        assert [op.state for op in other.recover()] == [semel.State.UNKNOWN]
        return "charged"

    with guard.run("run") as run:
        assert run.call(charge) == "charged"
    (operation,) = guard.store.read_run("", "run")
    assert operation.state is semel.State.COMMITTED, "its own late result settled it"


# ------------------------------------------------------------------ reconcile


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("answer", "state", "kind"),
    [
        (semel.Found("there"), semel.State.COMMITTED, "settled"),
        (semel.Absent(), semel.State.PENDING, "settled"),
        (semel.Inconclusive("in progress", retry_after=HOUR), semel.State.UNKNOWN, "waiting"),
        (semel.Inconclusive("two rows"), semel.State.UNKNOWN, "needs_person"),
    ],
)
def test_reconciling_settles_by_evidence_and_causes_no_effect(guard, clock, is_async, answer, state, kind):
    lookup = once_down(answer)

    async def look_async(call):
        return lookup(call)

    effect = semel.Unsafe(lookup=look_async if is_async else lookup, **HONEST)
    key = leave_in_doubt(guard, "run", guard.tool(effect=effect)(time_out))
    clock.advance(HOUR)
    found = guard.reconcile()
    assert len(getattr(found, kind)) == 1
    assert sum(map(len, (found.settled, found.waiting, found.resumable, found.needs_person))) == 1
    assert guard.read(key).state is state
    assert guard.read(key).fence == 1


def test_reconciling_tells_what_only_a_person_or_only_the_next_call_can_settle(open_guard, clock):
    guard = open_guard()
    blind = guard.tool(effect=semel.Unsafe(), name="blind")(time_out)
    keyed = guard.tool(effect=semel.Idempotent(key_ttl=DAY), name="keyed")(time_out)
    keys = {name: leave_in_doubt(guard, name, tool) for name, tool in (("blind", blind), ("keyed", keyed))}
    other = open_guard()
    other.tool(effect=semel.Idempotent(key_ttl=DAY), name="keyed")(time_out)
    for sweeper in (guard, other):
        found = sweeper.reconcile()
        assert [op.key for op in found.resumable] == [keys["keyed"]]
        ((operation, why),) = found.needs_person
        assert operation.key == keys["blind"]
        assert "no lookup is declared" in why or "no tool named 'blind'" in why


def test_a_lookup_that_misbehaves_does_not_stop_the_sweep(guard, clock):
    class Row:
        def __repr__(self):
            raise RuntimeError("no words")

    lookups = {
        "a row": once_down(Row()),
        "wrongly made evidence": lambda call: semel.Inconclusive("busy", retry_after=5),
        "good": once_down(semel.Found("there")),
    }
    for name, lookup in lookups.items():
        leave_in_doubt(guard, name, guard.tool(effect=semel.Unsafe(lookup=lookup), name=name)(time_out))
    clock.advance(HOUR)
    assert [op.run_id for op in guard.reconcile().settled] == ["good"]


def test_a_sweep_over_more_than_a_page_misses_nothing(guard, clock):
    effect = semel.Unsafe(lookup=lambda call: semel.Inconclusive("x", retry_after=HOUR))
    tool = guard.tool(effect=effect, name="charge")(lambda n: time_out())
    with guard.run("run") as run:
        for n in range(450):
            with pytest.raises(semel.OutcomeUnknown):
                run.call(tool, n)
    assert len(guard.in_doubt()) == 450
    assert len(guard.reconcile().waiting) == 450


# ------------------------------------------------------------------ reap


# hazard 13
@pytest.mark.parametrize("error", [None, semel.Rejected("no")])
def test_what_is_past_retention_is_refused_as_stale_and_not_run_again(guard, ledger, clock, engine, error):
    def charge(secret):
        ledger.enter("charge")
        if error is not None:
            raise error
        return secret

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    if error is None:
        call(guard, engine, "run", tool, secret="4111")
    else:
        with pytest.raises(semel.Rejected):
            call(guard, engine, "run", tool, secret="4111")
    clock.advance(DAY)
    assert guard.reap(older_than=DAY) == 0
    clock.advance(timedelta(microseconds=1))
    assert guard.reap(older_than=DAY) == 1
    with pytest.raises(semel.Reaped, match="past retention") as reaped:
        call(guard, engine, "run", tool, secret="4111")
    assert reaped.value.outcome == ("happened" if error is None else "did_not_happen")
    assert len(ledger.lines()) == 1
    (operation,) = guard.store.read_run("", "run")
    assert "4111" not in repr(operation)


# hazard 13
def test_what_is_open_is_never_reaped_however_old(guard, clock):
    key = leave_in_doubt(guard, "run", guard.tool(effect=semel.Unsafe())(time_out))
    clock.advance(1000 * DAY)
    assert guard.reap(older_than=NO_TIME) == 0
    assert guard.read(key).state is semel.State.UNKNOWN


def test_reaping_goes_on_until_everything_old_is_gone(guard, clock):
    tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda n: n)
    with guard.run("run") as run:
        for n in range(450):
            run.call(tool, n)
    clock.advance(DAY)
    assert guard.reap(older_than=HOUR) == 450
    assert guard.reap(older_than=HOUR) == 0


# ------------------------------------------------------------------ several programs in one store


def test_a_sweep_of_one_program_does_not_touch_another_in_the_same_store(open_guard, ledger, clock):
    """Two programs, two accounts at one provider: what the one does not show says nothing of the other."""
    theirs, ours = open_guard(namespace="theirs"), open_guard(namespace="ours")

    def charge(*, call):
        ledger.enter("charge", call.key)
        raise TimeoutError

    asked = []

    def look_at_our_account(call):
        asked.append(call.key)
        return semel.Absent()

    their_tool = theirs.tool(effect=semel.Unsafe())(charge)
    ours.tool(effect=semel.Unsafe(lookup=look_at_our_account, **HONEST))(charge)
    key = leave_in_doubt(theirs, "run", their_tool)
    clock.advance(HOUR)
    ours.reconcile()
    assert theirs.read(key).state is semel.State.UNKNOWN
    assert asked == []
    with pytest.raises(semel.PausedForPerson):
        call(theirs, "sync", "run", their_tool)
    assert len(ledger.lines()) == 1


def test_reaping_one_program_leaves_anothers_results(open_guard, clock):
    theirs, ours = open_guard(namespace="theirs"), open_guard(namespace="ours")
    tool = theirs.tool(effect=semel.Unsafe(), name="charge")(lambda: "charged")
    call(theirs, "sync", "run", tool)
    clock.advance(DAY)
    assert ours.reap(older_than=HOUR) == 0
    assert call(theirs, "sync", "run", tool) == "charged"
