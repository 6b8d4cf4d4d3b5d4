"""Undoing: last first, each once, whoever asks; and not "compensated" until all of it is."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from workbench import (
    ENGINES,
    FORKS,
    NO_TIME,
    PATIENCE_SECONDS,
    WINDOWS,
    Child,
    Hook,
    Ledger,
    as_async,
    kill,
    kill_at,
    nothing,
)

import semel
from semel import keys
from semel.engine import calls
from semel.model import State
from semel.ports import no_checkpoint

LONG = timedelta(seconds=PATIENCE_SECONDS)
UNDOES = {"charge": "refund", "mail": "recall", "letter": "fetch"}


class Office:
    """One process's guard, tools that write to a ledger, and what undoes each.

    `charge` goes to a provider that honours keys, `mail` can be looked up, `letter` cannot. All that undoes can be
    looked up, but for `fetch`. `note` is meant to stand, `stamp` has no compensation.
    """

    def __init__(
        self,
        folder: Path,
        engine: str = "sync",
        *,
        before: Hook = nothing,
        after: Hook = nothing,
        registers: bool = True,
        **options: Any,
    ) -> None:
        self.ledger = Ledger(folder)
        self.engine = engine
        self.before, self.after = before, after
        options.setdefault("wait", NO_TIME)
        options.setdefault("checkpoint", no_checkpoint)
        self.guard = semel.open(f"sqlite:///{folder}/agent.db", **options)
        self.honest = semel.Unsafe(lookup=self.find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
        self.blind = semel.Unsafe(request_deadline=NO_TIME)
        self.tools: dict[str, semel.Tool] = {}
        if registers:
            self._register()

    def _register(self) -> None:
        effects = {
            "charge": semel.Idempotent(key_ttl=timedelta(days=1)),
            "mail": self.honest,
            "letter": self.blind,
        }
        for name, effect in effects.items():
            tool = self.guard.tool(effect=effect, name=name)(self._coloured(self._do(name)))
            undoes = self.blind if name == "letter" else self.honest
            tool.compensation(effect=undoes, name=UNDOES[name])(self._coloured(self._undo(UNDOES[name])))
            self.tools[name] = tool
        self.tools["note"] = self.guard.tool(effect=self.honest, name="note", irreversible=True)(
            self._coloured(self._do("note"))
        )
        self.tools["stamp"] = self.guard.tool(effect=self.honest, name="stamp")(
            self._coloured(self._do("stamp"))
        )

    def _coloured(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn if self.engine == "sync" else as_async(fn)

    def _do(self, name: str) -> Callable[..., Any]:
        def do(amount: int = 1, *, call: semel.Call) -> str:
            self._enter(name, call, amount=amount)
            return f"{name} {amount}"

        return do

    def _undo(self, name: str) -> Callable[..., Any]:
        def undo(arguments: Any, result: Any, *, call: semel.Call) -> str:
            self._enter(name, call, amount=arguments["amount"], result=result)
            return f"{name} done"

        return undo

    def _enter(self, name: str, call: semel.Call, **details: Any) -> None:
        self.before(call)
        self.ledger.enter(name, call.key, **details)
        self.after(call)

    def find(self, call: semel.Call) -> semel.Evidence:
        there = [line for line in self.ledger.lines(call.tool) if line["key"] == call.key]
        return semel.Found(f"{call.tool} {there[0]['amount']}", key=call.key) if there else semel.Absent()

    # -------------------------------------------------------------- in both colours

    def call(self, *names: str, run_id: str = "run") -> list[Any]:
        """One call after the other, with the amounts 1, 2, …"""
        if self.engine == "sync":
            with self.guard.run(run_id) as run:
                return [run.call(self.tools[name], amount=n) for n, name in enumerate(names, 1)]

        async def enter() -> list[Any]:
            async with self.guard.run(run_id) as run:
                return [await run.call(self.tools[name], amount=n) for n, name in enumerate(names, 1)]

        return asyncio.run(enter())

    def compensate(self, *named: Any, run_id: str = "run") -> list[str]:
        if self.engine == "sync":
            return self.guard.compensate(run_id, *named)
        return asyncio.run(self.guard.compensate_async(run_id, *named))

    # -------------------------------------------------------------- what there is

    def done(self) -> list[str]:
        return [line["tool"] for line in self.ledger.lines()]

    def undone(self) -> list[str]:
        return [name for name in self.done() if name in UNDOES.values()]

    def operations(self, run_id: str = "run") -> dict[str, semel.Operation]:
        return {op.tool: op for op in self.guard.store.read_run("", run_id)}

    def states(self) -> dict[str, str]:
        return {name: str(op.state) for name, op in self.operations().items()}


@pytest.fixture
def office(tmp_path):
    opened: list[Office] = []

    def open_one(engine: str = "sync", **options: Any) -> Office:
        opened.append(Office(tmp_path, engine, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.guard.close()


# ------------------------------------------------------------------ once


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_is_undone_last_first_with_the_arguments_and_the_results_of_what_is_undone(office, engine):
    mine = office(engine)
    mine.call("charge", "mail")
    by_tool = mine.operations()
    assert mine.compensate() == [by_tool["mail"].key, by_tool["charge"].key]
    recall, refund = mine.ledger.lines()[2:]
    assert (recall["tool"], recall["amount"], recall["result"]) == ("recall", 2, "mail 2")
    assert (refund["tool"], refund["amount"], refund["result"]) == ("refund", 1, "charge 1")
    assert refund["key"] == keys.compensation_key(by_tool["charge"].key)
    assert mine.guard.open_sagas() == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_refund_asked_for_again_is_the_same_refund(office, engine):
    mine = office(engine)
    mine.call("charge")
    charge = mine.operations()["charge"]
    asked = [mine.compensate() for _ in range(2)]
    asked += [mine.compensate(name) for name in (charge, charge.key, mine.tools["charge"])]
    assert asked == [[charge.key]] * 5
    assert mine.undone() == ["refund"]


def test_a_run_can_undo_itself(office):
    mine = office()
    with mine.guard.run("run") as run:
        run.call(mine.tools["charge"])
        assert len(run.compensate()) == 1
    assert mine.undone() == ["refund"]


def test_an_async_run_can_undo_itself(office):
    mine = office("async")

    async def abort() -> list[str]:
        async with mine.guard.run("run") as run:
            await run.call(mine.tools["charge"])
            return await run.compensate()

    assert len(asyncio.run(abort())) == 1
    assert mine.undone() == ["refund"]


def test_a_sweep_in_sync_code_runs_async_compensations(office):
    mine = office("async")
    mine.call("charge")
    assert len(mine.guard.compensate("run")) == 1
    assert mine.undone() == ["refund"]


def test_only_what_is_named_is_undone(office):
    mine = office()
    mine.call("charge", "mail", "charge")
    assert len(mine.compensate(mine.tools["charge"])) == 2
    assert mine.undone() == ["refund", "refund"]
    assert len({line["key"] for line in mine.ledger.lines("refund")}) == 2


def test_effect_and_undoing_can_both_be_transactions(office):
    mine = office()

    @mine.guard.tool(effect=semel.Atomic())
    def grant(plan: str, *, tx: Any) -> str:
        tx.execute("CREATE TABLE IF NOT EXISTS grants (plan TEXT)")
        tx.execute("INSERT INTO grants VALUES (?)", (plan,))
        return plan

    @grant.compensation(effect=semel.Atomic())
    def revoke(arguments: Any, result: Any, *, tx: Any) -> None:
        tx.execute("DELETE FROM grants WHERE plan = ?", (result,))

    with mine.guard.run("run") as run:
        run.call(grant, plan="pro")
        run.compensate()
    with mine.guard.store.transaction() as transaction:
        assert transaction.handle.execute("SELECT * FROM grants").fetchall() == []


# ------------------------------------------------------------------ across crashes, and from two places at once


def compensate_and_die(folder: Path, engine: str, place: str, nth: int) -> None:
    Office(folder, engine, checkpoint=kill_at(place, nth=nth)).compensate()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", WINDOWS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_across_a_crash_anywhere_in_it_each_undoing_is_one(tmp_path, office, place, nth, engine):
    mine = office(engine)
    mine.call("charge", "mail")
    kill(compensate_and_die, tmp_path, engine, place, nth)
    undone = mine.compensate()
    assert [mine.guard.read(key).tool for key in undone] == ["mail", "charge"]
    assert mine.undone() == ["recall", "refund"]
    assert mine.guard.open_sagas() == []
    assert set(mine.states().values()) == {"COMMITTED"}


def test_a_refund_whose_key_does_not_come_from_the_charge_is_caught_happening_twice(
    tmp_path, office, monkeypatch
):
    mine = office()
    mine.call("charge")
    kill(compensate_and_die, tmp_path, "sync", "effect_done", 1)
    monkeypatch.setattr(keys, "compensation_key", lambda original: keys.message_key(original, os.getpid()))
    with suppress(semel.SagaOpen):
        mine.compensate()
    assert mine.undone() == ["refund", "refund"]


def abort_when_both_are_there(folder: Path, barrier: Any) -> list[str]:
    """The run's own program: it charges, changes its mind, and undoes."""
    mine = Office(folder, wait=LONG)
    with mine.guard.run("run") as run:
        run.call(mine.tools["charge"], amount=1)
        run.call(mine.tools["mail"], amount=2)
        barrier.wait(PATIENCE_SECONDS)
        return run.compensate()


def sweep_when_both_are_there(folder: Path, barrier: Any) -> list[str]:
    mine = Office(folder, wait=LONG)
    barrier.wait(PATIENCE_SECONDS)
    return mine.compensate()


@pytest.mark.parametrize("nth", range(3))
def test_an_abort_and_a_sweep_at_once_in_two_processes_undo_each_operation_once(tmp_path, office, nth):
    barrier = FORKS.Barrier(2)
    abort = Child(abort_when_both_are_there, tmp_path, barrier)
    sweep = Child(sweep_when_both_are_there, tmp_path, barrier)
    assert abort.result() == sweep.result()
    assert office().undone() == ["recall", "refund"]


def compensate_and_linger(folder: Path, at_work: Any, may_go_on: Any) -> list[str]:
    def linger(call: semel.Call) -> None:
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)

    return Office(folder, before=linger).compensate()


def test_while_one_process_is_undoing_another_waits_or_is_told_and_undoes_nothing(tmp_path, office):
    mine = office()
    mine.call("charge")
    at_work, may_go_on = FORKS.Event(), FORKS.Event()
    abort = Child(compensate_and_linger, tmp_path, at_work, may_go_on)
    assert at_work.wait(PATIENCE_SECONDS)
    with pytest.raises(semel.ClaimHeld):
        mine.compensate()
    (saga,) = mine.guard.open_sagas()
    assert (saga.run_id, saga.operations) == ("run", ())
    with pytest.raises(semel.ClaimHeld):
        mine.compensate(mine.tools["charge"])
    may_go_on.set()
    assert abort.result() == mine.compensate()
    assert mine.undone() == ["refund"]


# ------------------------------------------------------------------ what is in doubt, or never was


def call_and_die(folder: Path, place: str, *names: str) -> None:
    Office(folder, checkpoint=kill_at(place, nth=len(names))).call(*names)


def test_what_is_in_doubt_and_happened_is_found_and_undone_and_never_sent_again(tmp_path, office):
    kill(call_and_die, tmp_path, "effect_done", "charge", "mail")
    mine = office()
    mine.compensate()
    assert mine.done() == ["charge", "mail", "recall", "refund"]
    assert mine.ledger.lines("recall")[0]["result"] == "mail 2"


def test_what_is_in_doubt_and_did_not_happen_is_given_up_and_needs_no_undoing(tmp_path, office):
    kill(call_and_die, tmp_path, "claimed", "charge", "mail")
    mine = office()
    mine.compensate()
    assert mine.done() == ["charge", "refund"]
    assert mine.operations()["mail"].state is State.FAILED
    assert "compensation" in mine.operations()["mail"].error


@pytest.mark.parametrize(
    ("answer", "undone"),
    [
        (semel.ItHappened("letter 1"), ["fetch", "refund"]),
        (semel.GiveUp(), ["refund"]),
        (semel.RunIt(), ["refund"]),
    ],
)
def test_what_only_a_person_can_know_keeps_the_saga_open_until_they_say(tmp_path, office, answer, undone):
    kill(call_and_die, tmp_path, "effect_done", "charge", "letter")
    mine = office()
    for _ in range(2):
        with pytest.raises(semel.PausedForPerson) as asked:
            mine.compensate()
        assert asked.value.key == mine.operations()["letter"].key
        (saga,) = mine.guard.open_sagas()
        assert saga.record.state is State.UNKNOWN
        assert mine.undone() == [], "what came before it may need it undone first"
    mine.guard.resolve(asked.value.key, answer, by="ann", why="asked them")
    mine.compensate()
    assert mine.undone() == undone
    assert mine.guard.open_sagas() == []


def test_what_a_person_cleared_while_it_could_still_land_is_asked_again_before_it_is_undone(guard, clock):
    @guard.tool(effect=semel.Unsafe(request_deadline=timedelta(minutes=1)), name="letter")
    def letter():
        raise TimeoutError

    with guard.run("run") as run, pytest.raises(semel.PausedForPerson) as asked:
        run.call(letter)
    guard.resolve(asked.value.key, semel.RunIt(), by="ann", why="not there")
    clock.advance(timedelta(hours=1))
    with pytest.raises(semel.PausedForPerson, match="look again") as again:
        guard.compensate("run")
    assert again.value.key == asked.value.key
    guard.resolve(asked.value.key, semel.GiveUp(), by="ann", why="looked again")
    assert guard.compensate("run") == []
    assert guard.open_sagas() == []


def test_what_could_be_sent_again_to_find_out_is_not_it_is_asked(tmp_path, office):
    kill(call_and_die, tmp_path, "claimed", "charge")
    mine = office()
    with pytest.raises(semel.PausedForPerson, match="does not send it again"):
        mine.compensate()
    assert mine.done() == []


def test_evidence_that_does_not_count_yet_keeps_the_saga_open_and_says_until_when(office):
    mine = office()
    lagging = semel.Unsafe(
        lookup=lambda call: semel.Absent(), lookup_lag=timedelta(hours=1), request_deadline=NO_TIME
    )

    @mine.guard.tool(effect=lagging)
    def slow() -> None:
        raise TimeoutError

    with pytest.raises(semel.OutcomeUnknown), mine.guard.run("run") as run:
        run.call(slow)
    with pytest.raises(semel.OutcomeUnknown) as told:
        mine.compensate()
    assert told.value.retry_after > timedelta(minutes=50)
    assert len(mine.guard.open_sagas()) == 1


def test_what_failed_needs_no_undoing(office):
    mine = office()

    @mine.guard.tool(effect=semel.Unsafe())
    def refused() -> None:
        raise semel.Rejected("no")

    with pytest.raises(semel.Rejected), mine.guard.run("run") as run:
        run.call(refused)
    assert mine.compensate() == []
    assert mine.guard.open_sagas() == []


def test_what_was_not_sent_is_given_up_so_that_nobody_sends_it_later(office):
    mine = office()

    @mine.guard.tool(effect=semel.Unsafe())
    def unsent() -> None:
        raise semel.NotSent("refused")

    with pytest.raises(semel.NotSent), mine.guard.run("run") as run:
        run.call(unsent)
    assert mine.compensate() == []
    assert mine.operations()["unsent"].state is State.FAILED


# ------------------------------------------------------------------ an undoing that fails, or is in doubt


def failing(mine: Office, error: Exception | None, *, effect: Any = None) -> dict[str, Any]:
    """A tool whose undoing raises `error`, as long as that is what `raises` holds."""
    raises = {"error": error}

    def parcel(amount: int, *, call: semel.Call) -> str:
        return "sent"

    tool = mine.guard.tool(effect=mine.honest, name="parcel")(parcel)

    @tool.compensation(effect=effect or mine.blind)
    def call_back(arguments: Any, result: Any, *, call: semel.Call) -> str:
        if raises["error"] is not None:
            raise raises["error"]
        return "back"

    mine.tools["parcel"] = tool
    return raises


def test_an_undoing_that_is_refused_leaves_the_saga_open_and_the_rest_undone(office):
    mine = office()
    failing(mine, semel.Rejected("too late to call it back"))
    mine.call("charge", "parcel")
    for _ in range(2):
        with pytest.raises(semel.SagaOpen, match=r"parcel.*too late to call it back"):
            mine.compensate()
        assert mine.undone() == ["refund"]
        (saga,) = mine.guard.open_sagas()
        assert saga.record.state is State.UNKNOWN
        assert "too late" in saga.record.error
        assert saga.record.key in {op.key for op in mine.guard.in_doubt()}
    assert mine.states()["call_back"] == "FAILED"


def test_a_person_closes_a_saga_that_they_have_finished_by_hand(office):
    mine = office()
    failing(mine, semel.Rejected("too late"))
    mine.call("parcel")
    with pytest.raises(semel.SagaOpen):
        mine.compensate()
    (saga,) = mine.guard.open_sagas()
    mine.guard.resolve(saga.record.key, semel.ItHappened(), by="ann", why="fetched it myself")
    assert mine.guard.open_sagas() == []
    assert mine.compensate() == []


def test_an_undoing_in_doubt_stops_the_saga_until_a_person_has_settled_it(office):
    mine = office()
    failing(mine, TimeoutError())
    mine.call("charge", "parcel")
    with pytest.raises(semel.PausedForPerson) as asked:
        mine.compensate()
    assert mine.undone() == []
    assert mine.guard.read(asked.value.key).tool == "call_back"
    assert len(mine.guard.open_sagas()) == 1
    mine.guard.resolve(asked.value.key, semel.ItHappened("back"), by="ann", why="it is here")
    mine.compensate()
    assert mine.undone() == ["refund"]
    assert mine.guard.open_sagas() == []


def test_an_undoing_that_did_not_leave_is_sent_by_the_next_sweep(office):
    mine = office()
    raises = failing(mine, semel.NotSent("connection refused"))
    mine.call("charge", "parcel")
    with pytest.raises(semel.NotSent):
        mine.compensate()
    (saga,) = mine.guard.open_sagas()
    raises["error"] = None
    assert len(mine.guard.compensate(saga.run_id, *saga.operations)) == 2
    assert mine.guard.open_sagas() == []


def test_the_undoing_of_some_operations_is_open_and_visible_in_the_same_way(office):
    mine = office()
    raises = failing(mine, semel.NotSent("connection refused"))
    mine.call("charge", "parcel")
    with pytest.raises(semel.NotSent):
        mine.compensate(mine.tools["parcel"])
    (saga,) = mine.guard.open_sagas()
    assert saga.operations == (mine.operations()["parcel"].key,)
    raises["error"] = None
    mine.guard.compensate(saga.run_id, *saga.operations)
    assert mine.guard.open_sagas() == []
    assert mine.undone() == [], "the charge was not named"


def test_what_has_no_compensation_leaves_the_saga_open_and_the_rest_undone(office):
    mine = office()
    mine.call("charge", "stamp")
    with pytest.raises(semel.SagaOpen, match=r"stamp.*irreversible=True"):
        mine.compensate()
    assert mine.undone() == ["refund"]


def test_what_is_declared_irreversible_stands_and_keeps_nothing_open(office):
    mine = office()
    mine.call("note", "charge")
    assert len(mine.compensate()) == 1
    assert mine.undone() == ["refund"]
    assert mine.guard.open_sagas() == []


def test_a_sweep_that_does_not_know_the_tool_undoes_nothing_and_leaves_the_saga_to_one_that_does(office):
    mine = office()
    mine.call("charge")
    with pytest.raises(semel.SagaOpen, match="no tool named 'charge' is registered here"):
        office(registers=False).compensate()
    assert len(mine.compensate()) == 1
    assert mine.undone() == ["refund"]


def test_a_reconciling_sweep_says_that_an_open_saga_only_wants_to_be_gone_on_with(office):
    mine = office()
    failing(mine, semel.NotSent("connection refused"))
    mine.call("parcel")
    with pytest.raises(semel.NotSent):
        mine.compensate()
    found = mine.guard.reconcile()
    assert [op.tool for op in found.resumable] == ["semel.compensation"]
    assert found.needs_person == ()


# ------------------------------------------------------------------ a run that was undone


@pytest.mark.parametrize("engine", ENGINES)
def test_a_resumed_run_that_was_undone_neither_replays_nor_goes_on(office, engine):
    mine = office(engine)
    mine.call("charge")
    mine.compensate()
    with pytest.raises(semel.Compensated, match="start a new run") as told:
        mine.call("charge", "mail")
    assert (told.value.outcome, told.value.result) == ("happened", "charge 1")
    assert mine.done() == ["charge", "refund"]


def test_a_run_that_undid_itself_does_not_go_on_in_the_same_breath(office):
    mine = office()
    with mine.guard.run("run") as run:
        run.call(mine.tools["charge"])
        run.compensate()
        with pytest.raises(semel.Compensated) as told:
            run.call(mine.tools["note"])
    assert told.value.outcome == "did_not_happen"
    assert mine.done() == ["charge", "refund"]


def test_a_run_of_which_some_was_undone_goes_on_but_for_that(office):
    mine = office()
    mine.call("charge", "mail")
    mine.compensate(mine.tools["charge"])
    with mine.guard.run("run") as run:
        with pytest.raises(semel.Compensated) as told:
            run.call(mine.tools["charge"], amount=1)
        assert told.value.result == "charge 1"
        assert run.call(mine.tools["mail"], amount=2) == "mail 2"
        assert run.call(mine.tools["mail"], amount=3) == "mail 3"


def call_into_an_undone_run(mine: Office, other: Office) -> None:
    """The run was entered before it was undone from elsewhere, and knows nothing of it."""
    with mine.guard.run("run") as run:
        run.call(mine.tools["mail"], amount=1)
        other.compensate()
        run.call(mine.tools["mail"], amount=2)


def test_a_live_run_that_is_undone_from_elsewhere_sends_nothing_more_that_would_need_undoing(office):
    mine, other = office(), office()
    with pytest.raises(semel.Compensated):
        call_into_an_undone_run(mine, other)
    assert mine.done() == ["mail", "recall"]
    assert [op.state for op in mine.guard.store.read_run("", "run") if op.tool == "mail"] == [
        "COMMITTED",
        "FAILED",
    ]


def test_a_live_async_run_sends_nothing_more_either(office):
    mine, other = office("async"), office("async")

    async def call_before_and_after() -> None:
        async with mine.guard.run("run") as run:
            await run.call(mine.tools["mail"], amount=1)
            await other.guard.compensate_async("run")
            await run.call(mine.tools["mail"], amount=2)

    with pytest.raises(semel.Compensated):
        asyncio.run(call_before_and_after())
    assert mine.done() == ["mail", "recall"]


@pytest.mark.parametrize("within", [False, True], ids=["its own transaction", "the caller's transaction"])
def test_a_live_run_that_is_undone_from_elsewhere_does_nothing_more_in_a_transaction(
    office, tmp_path, within
):
    mine, other = office(), office()
    grants: list[str] = []

    @mine.guard.tool(effect=semel.Atomic())
    def grant(*, tx: Any) -> None:
        grants.append("granted")

    grant.compensation(effect=semel.Atomic(), name="revoke")(lambda arguments, result, tx: None)
    with mine.guard.run("run") as run:
        other.compensate()
        connection = sqlite3.connect(tmp_path / "agent.db")
        with pytest.raises(semel.Compensated):
            run.call_within(connection, grant) if within else run.call(grant)
        connection.commit()
        connection.close()
    assert grants == []
    assert mine.states()["grant"] == "FAILED"


def test_without_that_look_a_call_is_caught_slipping_past_the_undoing(office, monkeypatch):
    monkeypatch.setattr(calls, "_checked_body", lambda core, tool, intent: tool.fn)
    mine, other = office(), office()
    call_into_an_undone_run(mine, other)
    assert mine.done() == ["mail", "recall", "mail"]


def call_and_linger(folder: Path, at_work: Any, may_go_on: Any) -> list[Any]:
    def linger(call: semel.Call) -> None:
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)

    return Office(folder, before=linger).call("mail")


def sweep_and_tell_of_waiting(folder: Path, is_waiting: Any) -> list[str]:
    def tell(place: str, key: str) -> None:
        if place == "claimed":
            is_waiting.set()

    return Office(folder, wait=LONG, checkpoint=tell).compensate()


def test_a_call_in_flight_when_the_undoing_begins_is_waited_for_and_undone(tmp_path, office):
    at_work, may_go_on, has_begun = FORKS.Event(), FORKS.Event(), FORKS.Event()
    caller = Child(call_and_linger, tmp_path, at_work, may_go_on)
    assert at_work.wait(PATIENCE_SECONDS)
    with pytest.raises(semel.ClaimHeld):
        office().compensate()
    sweep = Child(sweep_and_tell_of_waiting, tmp_path, has_begun)
    assert has_begun.wait(PATIENCE_SECONDS)
    may_go_on.set()
    assert caller.result() == ["mail 1"]
    assert len(sweep.result()) == 1
    assert office().done() == ["mail", "recall"]


@pytest.mark.parametrize("kind", ["idempotent", "atomic"])
def test_a_business_event_that_was_undone_does_not_serve_a_second_intent_as_if_it_stood(office, kind):
    mine = office()
    plain = lambda period: f"bill {period}"  # noqa: E731
    atomic = lambda period, tx: f"bill {period}"  # noqa: E731
    effect = semel.Atomic() if kind == "atomic" else semel.Idempotent(key_ttl=timedelta(days=1))
    bill = mine.guard.tool(effect=effect, once_per="period", name="bill")(
        atomic if kind == "atomic" else plain
    )
    bill.compensation(effect=mine.honest, name="unbill")(lambda arguments, result: None)
    for run_id in ("first", "second"):
        with mine.guard.run(run_id) as run:
            assert run.call(bill, period="2026-12") == "bill 2026-12"
    mine.compensate(run_id="first")
    with mine.guard.run("third") as run, pytest.raises(semel.Compensated) as told:
        run.call(bill, period="2026-12")
    assert told.value.result == "bill 2026-12"


# ------------------------------------------------------------------ tools of steps


def trip(
    mine: Office, *, end: Exception | None = None, whole: bool = False, plain: bool = False
) -> semel.Tool:
    """A tool of two steps: tools that can be undone, or plain functions; perhaps it can be undone whole."""

    def body(*, call: semel.Call) -> str:
        for name in ("mail", "charge"):
            if plain:
                call.step(name, mine._do(name), amount=1)
            else:
                call.step(name, mine.tools[name], amount=1)
        if end is not None:
            raise end
        return "trip"

    tool = mine.guard.tool(effect=semel.Steps(each=mine.honest), name="trip")(body)
    if whole:
        tool.compensation(effect=mine.honest, name="cancel")(
            lambda arguments, result, call: mine.ledger.enter("cancel", call.key, result=result, amount=0)
        )
    mine.tools["trip"] = tool
    return tool


def take(mine: Office, tool: semel.Tool) -> Any:
    with mine.guard.run("run") as run:
        return run.call(tool)


def test_a_tool_of_steps_is_undone_by_its_steps_last_first(office):
    mine = office()
    take(mine, trip(mine))
    mine.compensate()
    assert mine.done() == ["mail", "charge", "refund", "recall"]


def test_a_tool_of_steps_that_can_be_undone_whole_is_and_its_steps_are_not(office):
    mine = office()
    take(mine, trip(mine, whole=True))
    assert len(mine.compensate()) == 1
    assert mine.done() == ["mail", "charge", "cancel"]
    assert mine.ledger.lines("cancel")[0]["result"] == "trip"


def test_a_tool_of_steps_that_has_not_ended_is_undone_by_its_steps_and_given_up(office):
    mine = office()
    with pytest.raises(semel.OutcomeUnknown):
        take(mine, trip(mine, end=TimeoutError(), whole=True))
    assert len(mine.compensate()) == 2
    assert mine.done() == ["mail", "charge", "refund", "recall"]
    assert mine.operations()["trip"].state is State.FAILED
    assert mine.guard.in_doubt() == []


def test_steps_that_only_their_whole_tool_could_undo_keep_the_saga_open_while_it_has_not_ended(office):
    mine = office()
    with pytest.raises(semel.OutcomeUnknown):
        take(mine, trip(mine, end=TimeoutError(), plain=True, whole=True))
    with pytest.raises(semel.SagaOpen, match="make the step a tool"):
        mine.compensate()
    assert mine.undone() == []
    assert mine.operations()["trip"].state is State.UNKNOWN


def test_once_begun_by_its_steps_a_tool_is_not_undone_whole_as_well(office):
    mine = office()
    take(mine, trip(mine, whole=True))
    mine.compensate(mine.guard.store.read_run("", "run")[1])  # the first step, by name
    with pytest.raises(semel.Compensated):
        take(mine, mine.tools["trip"])
    mine.compensate(mine.tools["trip"])
    assert "cancel" not in mine.done()
    assert sorted(mine.undone()) == ["recall", "refund"]


# ------------------------------------------------------------------ refused


@pytest.mark.parametrize("named", ["nothing of that name", "0" * 64])
def test_what_the_run_does_not_have_cannot_be_named_and_nothing_is_undone(office, named):
    mine = office()
    mine.call("charge")
    with pytest.raises(semel.UsageError, match="Nothing was sent"):
        mine.compensate(named)
    assert mine.undone() == []
    assert mine.guard.open_sagas() == []


def test_a_tool_that_was_not_called_cannot_be_named_and_does_not_mean_everything(office):
    mine = office()
    mine.call("charge")
    with pytest.raises(semel.UsageError):
        mine.compensate(mine.tools["mail"])
    assert mine.undone() == []


def test_a_compensation_is_not_called_by_itself(office):
    mine = office()
    mine.call("charge")
    refund = mine.tools["charge"].compensated_by
    with mine.guard.run("run") as run:
        for attempt in (
            lambda: refund({"amount": 1}, "charge 1"),
            lambda: run.call(refund, {"amount": 1}, "charge 1"),
            lambda: run.call_at(refund, {"arguments": {}, "result": 1}, step="1", call_id="1"),
        ):
            with pytest.raises(semel.UsageError, match=r"run\.compensate"):
                attempt()
    assert mine.undone() == []


def wrong_signature(amount: int) -> None: ...


def right_signature(arguments: Any, result: Any) -> None: ...


@pytest.mark.parametrize(
    ("original", "effect", "fn", "why"),
    [
        ({"effect": semel.Unsafe()}, semel.Unsafe(), wrong_signature, "takes `arguments` and `result`"),
        ({"effect": semel.Unsafe()}, semel.Safe(), right_signature, "is not Safe"),
        ({"effect": semel.Safe()}, semel.Unsafe(), right_signature, "nothing to undo"),
        ({"effect": semel.Unsafe(), "irreversible": True}, semel.Unsafe(), right_signature, "irreversible"),
    ],
)
def test_a_compensation_that_cannot_be_one_is_refused_when_it_is_declared(guard, original, effect, fn, why):
    tool = guard.tool(name="tool", **original)(lambda: None)
    with pytest.raises(semel.UsageError, match=why):
        tool.compensation(effect=effect)(fn)
    assert tool.compensated_by is None


def test_a_tool_has_one_compensation_and_a_compensation_has_none(guard):
    tool = guard.tool(effect=semel.Unsafe(), name="tool")(lambda: None)
    undoes = tool.compensation(effect=semel.Unsafe(), name="one")(right_signature)
    with pytest.raises(semel.UsageError, match="already"):
        tool.compensation(effect=semel.Unsafe(), name="two")(right_signature)
    with pytest.raises(semel.UsageError, match="itself a compensation"):
        undoes.compensation(effect=semel.Unsafe(), name="three")(right_signature)
