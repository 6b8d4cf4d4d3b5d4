"""The store fails: before the effect nothing is sent, after it nothing is run again."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
from workbench import FORKS, NO_TIME, PATIENCE_SECONDS, Child, Desk, call, register, wait_until

import semel
from semel import lifecycle
from semel.model import Event, Insert, Move

SHORT = timedelta(seconds=0.3)
LONG = timedelta(seconds=PATIENCE_SECONDS)
IMPATIENT = {"busy_timeout_seconds": 0.05}


class Flaky:
    """The real store; what `fails` raises for a write is raised before it, or (in doubt) after it."""

    def __init__(self, store, fails):
        self._store, self._fails = store, fails
        self.is_read_down = False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def apply(self, writes):
        errors = [error for write in writes if (error := self._fails(write)) is not None]
        if errors and not isinstance(errors[0], semel.CommitInDoubt):
            raise errors[0]
        outcomes = self._store.apply(writes)
        if errors:
            raise errors[0]
        return outcomes

    @contextmanager
    def transaction(self):
        error = self._fails("transaction")
        with self._store.transaction() as transaction:
            yield transaction
            if error is not None and not isinstance(error, semel.CommitInDoubt):
                raise error
        if error is not None:
            raise error

    def read(self, key):
        if self.is_read_down:
            raise semel.StoreUnavailable("Cannot read: down. Nothing was changed.")
        return self._store.read(key)


@pytest.fixture
def flaky(tmp_path, clock):
    """Guards on a store that fails as told; closed at the end."""
    guards = []

    def opened(fails, **options):
        from semel.connect import open_store

        store = Flaky(open_store(f"sqlite:///{tmp_path}/agent.db", clock=clock), fails)
        guard = semel.Guard(store, **({"wait": NO_TIME} | options))
        guards.append(guard)
        return guard

    yield opened
    for guard in guards:
        guard.close()


def charge_tool(guard, engine, ledger, effect=None):
    def charge(*, call):
        ledger.enter("charge", call.key)
        return "charged"

    return register(guard, engine, charge, effect=effect or semel.Unsafe())


def only(guard):
    (operation,) = guard.store.read_run("", "run")
    return operation


def is_event(write, event):
    return isinstance(write, Move) and write.event is event


# ------------------------------------------------------------------ before the effect


# hazard 22
@pytest.mark.parametrize("error", [semel.StoreUnavailable, semel.StoreVanished, semel.WriteRefused])
def test_a_store_that_is_down_at_the_claim_lets_nothing_be_sent(flaky, ledger, engine, error):
    is_down = [True]
    guard = flaky(lambda write: error("down") if isinstance(write, Insert) and is_down else None)
    tool = charge_tool(guard, engine, ledger)
    with pytest.raises(error):
        call(guard, engine, "run", tool)
    assert ledger.lines() == []
    is_down.clear()
    assert call(guard, engine, "run", tool) == "charged"
    assert len(ledger.lines()) == 1


# hazard 23
def test_a_database_locked_by_another_process_before_the_effect_lets_nothing_be_sent(
    tmp_path, open_guard, ledger, engine
):
    guard = open_guard(**IMPATIENT)
    tool = charge_tool(guard, engine, ledger)
    with locked(tmp_path), pytest.raises(semel.StoreUnavailable, match=r"locked.*Nothing was recorded"):
        call(guard, engine, "run", tool)
    assert ledger.lines() == []
    assert call(guard, engine, "run", tool) == "charged"


class locked:  # noqa: N801  (reads like a word: with locked(folder))
    """The database is locked by another process until the block ends."""

    def __init__(self, folder: Path) -> None:
        self._is_locked, self._may_unlock = FORKS.Event(), FORKS.Event()
        self._child = Child(hold_the_lock, folder, self._is_locked, self._may_unlock)

    def __enter__(self) -> locked:
        assert self._is_locked.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._may_unlock.set()
        self._child.result()


def hold_the_lock(folder: Path, is_locked: Any, may_unlock: Any) -> None:
    connection = sqlite3.connect(folder / "agent.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    is_locked.set()
    assert may_unlock.wait(PATIENCE_SECONDS)
    connection.execute("ROLLBACK")


# ------------------------------------------------------------------ after the effect


# hazard 23
def test_a_database_locked_after_the_effect_is_waited_for_and_the_effect_recorded(tmp_path, desk, engine):
    locks = []

    def lock(call):
        locks.append(locked(tmp_path).__enter__())

    mine = desk(engine, after=lock, lease=LONG, **IMPATIENT)
    unlocking = threading.Thread(target=lambda: (wait_until(lambda: bool(locks)), locks[0].__exit__()))
    unlocking.start()
    assert mine.call("letter") == "letter done"
    unlocking.join()
    assert mine.operation().state is semel.State.COMMITTED
    assert mine.effects("letter") == 1


# hazards 6, 23
@pytest.mark.parametrize("tool", ["letter", "mail", "charge"])
def test_a_database_locked_beyond_the_lease_leaves_it_in_doubt_with_its_result_in_hand(
    tmp_path, desk, engine, tool
):
    locks = []
    mine = desk(
        engine,
        after=lambda call: locks or locks.append(locked(tmp_path).__enter__()),
        lease=SHORT,
        **IMPATIENT,
    )
    with pytest.raises(semel.OutcomeUnknown, match="took no record") as unknown:
        mine.call(tool)
    locks[0].__exit__()
    assert unknown.value.result == f"{tool} done"
    assert unknown.value.outcome == "unknown"
    others = desk(engine, wait=LONG)
    if tool == "letter":
        with pytest.raises(semel.PausedForPerson):
            others.call(tool)
    else:
        others.call(tool)
    assert others.effects(tool) == 1


@pytest.fixture
def refusing(tmp_path, open_guard):
    """The real store really refuses one kind of row: a trigger that stands until it is lifted."""
    open_guard()
    connection = sqlite3.connect(tmp_path / "agent.db", isolation_level=None, check_same_thread=False)

    def refuse(state: str) -> None:
        connection.execute(
            f"CREATE TRIGGER refusal BEFORE UPDATE ON semel_operations WHEN new.state = '{state}' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )

    refuse.lift = lambda: connection.execute("DROP TRIGGER refusal")  # type: ignore[attr-defined]
    yield refuse
    connection.close()


# hazard 6
def test_a_store_that_refuses_the_completion_for_a_while_gets_it_later(open_guard, ledger, engine, refusing):
    guard = open_guard(lease=LONG, clock=None)
    refusing("COMMITTED")

    def charge():
        ledger.enter("charge")
        threading.Timer(0.1, refusing.lift).start()
        return "charged"

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    assert call(guard, engine, "run", tool) == "charged"
    assert only(guard).state is semel.State.COMMITTED
    assert call(guard, engine, "run", tool) == "charged"
    assert len(ledger.lines()) == 1


# hazard 6
@pytest.mark.parametrize(
    "kind", [semel.Unsafe(), semel.Idempotent(key_ttl=timedelta(days=1))], ids=["unsafe", "keyed"]
)
def test_a_store_that_refuses_the_completion_for_good_leaves_it_in_doubt_and_never_re_runs_it(
    open_guard, ledger, engine, refusing, kind
):
    guard = open_guard(lease=SHORT, wait=LONG, clock=None)
    refusing("COMMITTED")
    tool = charge_tool(guard, engine, ledger, kind)
    with pytest.raises(semel.OutcomeUnknown) as unknown:
        call(guard, engine, "run", tool)
    assert unknown.value.result == "charged"
    assert only(guard).state is semel.State.INVOKED
    refusing.lift()
    if isinstance(kind, semel.Unsafe):
        with pytest.raises(semel.PausedForPerson):
            call(guard, engine, "run", tool)
        assert only(guard).state is semel.State.UNKNOWN
        assert len(ledger.lines()) == 1
    else:
        assert call(guard, engine, "run", tool) == "charged"
        assert len(set(ledger.keys())) == 1


# hazard 6
def test_a_store_error_of_the_completion_is_never_told_as_did_not_happen(flaky, ledger, clock, engine):
    """The claim was taken from us meanwhile, and then the store goes down under our late report."""
    guard = flaky(
        lambda write: semel.StoreUnavailable("down") if is_event(write, Event.REPORTED_LATE) else None
    )

    def charge():
        ledger.enter("charge")
        clock.advance(timedelta(hours=1))
        guard.recover()
        return "charged"

    with pytest.raises(semel.SemelError) as told:
        call(guard, engine, "run", register(guard, engine, charge, effect=semel.Unsafe()))
    assert told.value.outcome == "unknown"
    assert getattr(told.value, "result", None) == "charged"


def use_up_the_disk(folder: Path, engine: str) -> tuple[Any, str]:
    """No file may grow any more, as on a full disk: from inside the tool until after the call."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(call: semel.Call) -> None:
        size = (folder / "agent.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))

    mine = Desk(folder, engine, after=fill, lease=SHORT)
    try:
        told: Any = mine.call("letter")
    except semel.OutcomeUnknown as unknown:
        told = unknown
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    return told, mine.operation().state


# hazard 6
def test_a_disk_that_is_full_after_the_effect_leaves_it_in_doubt(tmp_path, desk, engine):
    told, state = Child(use_up_the_disk, tmp_path, engine).result()
    assert isinstance(told, semel.OutcomeUnknown), "the disk was not full"
    assert (told.result, state) == ("letter done", "INVOKED")
    with pytest.raises(semel.PausedForPerson):
        desk(engine).call("letter")
    assert desk().effects("letter") == 1


# ------------------------------------------------------------------ results that are hard to keep

HARD = {
    "nul": "a\x00b",
    "half a surrogate pair": "\ud800",
    "both, as keys": {"\x00": 1, "\udfff": 2},
    "not a number": {"x": float("nan")},
}


# hazard 17
@pytest.mark.parametrize("name", HARD)
def test_a_result_that_is_hard_to_keep_is_kept(guard, ledger, engine, name):
    tool = register(
        guard, engine, lambda: ledger.enter("charge") or HARD[name], name="charge", effect=semel.Unsafe()
    )
    first, again = (call(guard, engine, "run", tool) for _ in range(2))
    assert repr(first) == repr(again) == repr(HARD[name])
    assert len(ledger.lines()) == 1


class Shapeless:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Nowhere(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        raise RuntimeError("no offset")


def without_form(name: str) -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return {
        "an object": Shapeless(),
        "a loop": loop,
        "a number of 5000 digits": 10**5000,
        "a key of 5000 digits": {10**5000: 1},
        "a time in no zone": datetime(2026, 1, 1, tzinfo=Nowhere()),
        "a lock": threading.Lock(),
    }[name]


# hazard 17
@pytest.mark.parametrize(
    "name",
    ["an object", "a loop", "a number of 5000 digits", "a key of 5000 digits", "a time in no zone", "a lock"],
)
def test_a_result_without_a_faithful_form_is_returned_and_the_effect_stands(guard, ledger, engine, name):
    value = without_form(name)
    tool = register(
        guard, engine, lambda: ledger.enter("charge") or value, name="charge", effect=semel.Unsafe()
    )
    assert call(guard, engine, "run", tool) is value
    assert only(guard).state is semel.State.COMMITTED
    with pytest.raises(semel.ResultLost, match=r"happened.*not run again") as lost:
        call(guard, engine, "run", tool)
    assert lost.value.outcome == "happened"
    assert len(ledger.lines()) == 1


# hazard 17
def test_an_atomic_result_without_a_faithful_form_is_returned_and_the_effect_stands(guard):
    value = Shapeless()

    @guard.tool(effect=semel.Atomic())
    def grant(*, tx):
        tx.execute("CREATE TABLE grants (customer TEXT)")
        return value

    with guard.run("run") as run:
        assert run.call(grant) is value
    with guard.run("run") as run, pytest.raises(semel.ResultLost):
        run.call(grant)


# hazard 17
def test_a_result_of_100_megabytes_is_kept(guard, ledger):
    @guard.tool(effect=semel.Unsafe())
    def fetch():
        ledger.enter("fetch")
        return "x" * 100_000_000

    with guard.run("run") as run:
        assert len(run.call(fetch)) == 100_000_000
    with guard.run("run") as run:
        assert len(run.call(fetch)) == 100_000_000
    assert len(ledger.lines()) == 1


# hazard 17
@pytest.mark.parametrize("kind", ["unsafe", "atomic"])
def test_a_result_larger_than_the_store_can_hold_is_returned_and_the_effect_stands(
    open_guard, ledger, narrow_sqlite, kind
):
    guard = open_guard()

    def fetch(**given):
        ledger.enter("fetch")
        return "x" * 2 * narrow_sqlite

    if kind == "atomic":
        tool = guard.tool(effect=semel.Atomic(), name="fetch")(lambda *, tx: fetch())
    else:
        tool = guard.tool(effect=semel.Unsafe(), name="fetch")(lambda: fetch())
    with guard.run("run") as run:
        assert len(run.call(tool)) == 2 * narrow_sqlite
    assert only(guard).state is semel.State.COMMITTED
    with guard.run("run") as run, pytest.raises(semel.ResultLost):
        run.call(tool)
    assert len(ledger.lines()) == 1


# hazards 6, 17
def test_a_store_that_refuses_even_the_bare_fact_leaves_it_in_doubt_with_its_result_in_hand(
    flaky, ledger, engine
):
    """The row has no room left, not even for saying that the result had none."""
    refused = []

    def refuse(write):
        if not is_event(write, Event.COMMITTED) or len(refused) == 20:
            return None
        refused.append(write)
        return semel.WriteRefused("full")

    guard = flaky(refuse)
    with pytest.raises(semel.OutcomeUnknown) as unknown:
        call(guard, engine, "run", charge_tool(guard, engine, ledger))
    assert unknown.value.result == "charged"
    assert len(refused) == 2, "the result, and the bare fact"
    assert len(ledger.lines()) == 1


# ------------------------------------------------------------------ COMMIT sent, acknowledgement lost


def in_doubt_once(is_it):
    """Really written, and the acknowledgement lost, at the first such write."""
    left = [semel.CommitInDoubt("the acknowledgement was lost")]
    return lambda write: left.pop() if left and is_it(write) else None


# hazard 18
@pytest.mark.parametrize(
    "is_it",
    [
        lambda write: isinstance(write, Insert),
        lambda write: is_event(write, Event.CLAIMED),
        lambda write: is_event(write, Event.COMMITTED),
        lambda write: is_event(write, Event.NOT_SENT),
    ],
    ids=["the first claim", "a later claim", "the completion", "not sent"],
)
def test_a_write_whose_acknowledgement_was_lost_is_read_back_by_key_and_fence(flaky, ledger, engine, is_it):
    guard = flaky(in_doubt_once(is_it))
    errors = [semel.NotSent("connection refused")]

    def charge(*, call):
        if errors:
            raise errors.pop()
        ledger.enter("charge", call.key)
        return "charged"

    tool = register(guard, engine, charge, effect=semel.Unsafe(), attempts=2)
    assert call(guard, engine, "run", tool) == "charged"
    assert (only(guard).state, only(guard).fence) == (semel.State.COMMITTED, 2)
    assert len(ledger.lines()) == 1


# hazard 18
def test_a_claim_in_doubt_that_cannot_be_read_back_sends_nothing_and_is_taken_back_later(
    flaky, ledger, engine
):
    guard = flaky(in_doubt_once(lambda write: isinstance(write, Insert)))
    tool = charge_tool(guard, engine, ledger)
    guard.store.is_read_down = True
    with pytest.raises(semel.StoreError, match="Nothing was sent"):
        call(guard, engine, "run", tool)
    assert ledger.lines() == []
    guard.store.is_read_down = False
    assert call(guard, engine, "run", tool) == "charged"
    assert len(ledger.lines()) == 1


# hazard 18
# hazards 18, 19
def test_a_claim_in_doubt_that_others_have_moved_since_is_not_held(flaky, open_guard, ledger, clock, engine):
    """The worker is paused between the lost acknowledgement and its look, for longer than its lease."""
    guard = flaky(in_doubt_once(lambda write: isinstance(write, Insert)))
    find = semel.Unsafe(lookup=ledger.find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
    tool = charge_tool(guard, engine, ledger, effect=find)
    read = guard.store._store.read

    def read_late(key):
        clock.advance(timedelta(hours=1))
        others = open_guard()
        charge_tool(others, engine, ledger, effect=find)
        others.recover()
        others.reconcile()
        del guard.store.read
        return read(key)

    guard.store.read = read_late
    assert call(guard, engine, "run", tool) == "charged"
    assert guard._core.heartbeat._held == set(), "a claim that is not INVOKED has no lease to renew"
    assert len(ledger.lines()) == 1


def test_a_claim_in_doubt_that_was_somebody_elses_is_not_taken_for_ones_own(
    flaky, open_guard, ledger, engine
):
    theirs = open_guard()
    claims = []

    def both_claim(write):
        if not isinstance(write, Insert) or claims:
            return None
        claims.append(replace(write.operation, owner="elsewhere/1"))
        assert theirs.store.apply([Insert(claims[0])])[0].applied
        return semel.CommitInDoubt("the acknowledgement was lost")

    guard = flaky(both_claim)
    with pytest.raises(semel.ClaimHeld):
        call(guard, engine, "run", charge_tool(guard, engine, ledger))
    assert ledger.lines() == []
    assert only(guard) == claims[0]


def granting(guard):
    with guard.store._store.transaction() as transaction:
        transaction.handle.execute("CREATE TABLE grants (customer TEXT)")

    @guard.tool(effect=semel.Atomic())
    def grant(*, tx):
        tx.execute("INSERT INTO grants VALUES ('ann')")
        return "granted"

    return grant


def grants(guard):
    with guard.store._store.transaction() as transaction:
        return transaction.handle.execute("SELECT count(*) FROM grants").fetchone()[0]


def once(error):
    left = [error]
    return lambda write: left.pop() if left and write == "transaction" else None


# hazard 18
def test_an_atomic_commit_whose_acknowledgement_was_lost_is_read_back(flaky, engine):
    guard = flaky(once(semel.CommitInDoubt("the acknowledgement was lost")))
    tool = granting(guard)
    assert [call(guard, engine, "run", tool) for _ in range(2)] == ["granted"] * 2
    assert grants(guard) == 1


# hazard 18
def test_an_atomic_commit_in_doubt_that_cannot_be_read_back_is_not_told_as_did_not_happen(flaky, engine):
    guard = flaky(once(semel.CommitInDoubt("the acknowledgement was lost")))
    tool = granting(guard)
    guard.store.is_read_down = True
    with pytest.raises(semel.SemelError) as told:
        call(guard, engine, "run", tool)
    assert told.value.outcome == "unknown"
    assert "Nothing was sent" not in str(told.value)
    guard.store.is_read_down = False
    assert call(guard, engine, "run", tool) == "granted"
    assert grants(guard) == 1


# hazard 24
def test_an_atomic_transaction_that_the_database_rolled_back_is_run_again_whole(flaky, engine):
    guard = flaky(once(semel.TransactionConflict("deadlock detected")))
    tool = granting(guard)
    assert [call(guard, engine, "run", tool) for _ in range(2)] == ["granted"] * 2
    assert grants(guard) == 1


# hazard 24
def test_an_atomic_transaction_that_conflicts_for_ever_is_given_up_with_nothing_done(flaky, engine):
    guard = flaky(lambda write: semel.TransactionConflict("deadlock") if write == "transaction" else None)
    tool = granting(guard)
    with pytest.raises(semel.TransactionConflict):
        call(guard, engine, "run", tool)
    assert (grants(guard), guard.store.read_run("", "run")) == (0, [])


# ------------------------------------------------------------------ what a store error claims


def test_a_store_that_cannot_be_read_does_not_say_that_the_effect_did_not_happen(
    flaky, open_guard, ledger, engine
):
    """Another owner is at work, and the store goes down while we wait for it."""
    guard, told = flaky(lambda write: None, wait=LONG), []

    def charge():
        ledger.enter("charge")
        guard.store.is_read_down = True
        with pytest.raises(semel.StoreError) as error:
            call(guard, "sync", "run", charge_again)
        told.append(error.value.outcome)

    charge_again = guard.tool(effect=semel.Unsafe())(charge)
    theirs = open_guard()
    call(theirs, engine, "run", register(theirs, engine, charge, effect=semel.Unsafe()))
    assert told == ["unknown"]


def test_a_store_that_goes_down_over_found_does_not_say_that_the_effect_did_not_happen(flaky, engine):
    guard = flaky(lambda write: semel.StoreUnavailable("down") if is_event(write, Event.FOUND) else None)

    def charge():
        raise TimeoutError

    effect = semel.Unsafe(lookup=lambda call: semel.Found("there"))
    with pytest.raises(semel.StoreError) as error:
        call(guard, engine, "run", register(guard, engine, charge, effect=effect))
    assert error.value.outcome == "unknown"


def test_a_store_that_goes_down_in_the_middle_of_a_run_does_not_say_that_the_effect_did_not_happen(
    flaky, ledger
):
    """This handle entered the run before another one finished the very same call."""
    down = []
    guard = flaky(lambda write: semel.StoreUnavailable("down") if down else None)
    tool = charge_tool(guard, "sync", ledger)
    with guard.run("run") as run:
        call(guard, "sync", "run", tool)
        down.append(True)
        with pytest.raises(semel.StoreError) as error:
            run.call(tool)
    assert error.value.outcome == "unknown"


# ------------------------------------------------------------------ between a look and a write


# hazards 1, 20
def test_an_owner_that_renews_at_the_last_instant_keeps_its_claim(flaky, open_guard, ledger, clock):
    """The taker has read that the lease is over; before it can say so, the owner renews."""
    owner = open_guard(lease=timedelta(hours=1))
    renewed = []

    def renew_first(write):
        if is_event(write, Event.LEASE_EXPIRED):
            move = lifecycle.renew(write.before, now=clock.now(), lease=timedelta(hours=1))
            renewed.extend(owner.store.apply([move]))

    taker = flaky(renew_first)

    def charge():
        ledger.enter("charge")
        if len(ledger.lines()) == 1:
            clock.advance(timedelta(hours=1))
            with pytest.raises(semel.ClaimHeld):
                call(
                    taker,
                    "sync",
                    "run",
                    taker.tool(effect=semel.Idempotent(key_ttl=timedelta(days=9)))(charge),
                )
        return "charged"

    tool = owner.tool(effect=semel.Idempotent(key_ttl=timedelta(days=9)))(charge)
    assert call(owner, "sync", "run", tool) == "charged"
    assert [outcome.applied for outcome in renewed] == [True]
    assert (only(owner).fence, len(ledger.lines())) == (1, 1)


# hazards 7, 19
def test_a_worker_that_returns_while_its_successor_is_at_work_overwrites_nothing(open_guard, ledger, clock):
    first, second = open_guard(lease=timedelta(hours=1)), open_guard(lease=timedelta(hours=1))
    at_work, may_go_on, said = threading.Event(), threading.Event(), []
    effect = semel.Unsafe(lookup=lambda call: semel.Absent(), lookup_lag=NO_TIME, request_deadline=NO_TIME)

    def successor():
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        return "second"

    take_over = second.tool(effect=effect, name="charge")(successor)
    thread = threading.Thread(target=lambda: said.append(call(second, "sync", "run", take_over)))

    def charge():
        clock.advance(timedelta(hours=2))
        thread.start()
        assert at_work.wait(PATIENCE_SECONDS)
        return "first"

    with pytest.raises(semel.Diverged, match="attempt 1 returned after attempt 2 was INVOKED") as diverged:
        call(first, "sync", "run", first.tool(effect=effect)(charge))
    assert diverged.value.result == "first"
    assert only(first).state is semel.State.INVOKED
    may_go_on.set()
    thread.join()
    assert said == ["second"]
    assert (only(first).state, only(first).fence, only(first).result) == (
        semel.State.COMMITTED,
        2,
        '"second"',
    )


# hazards 7, 19
def test_a_refusal_that_comes_after_a_person_said_run_it_is_not_told_as_the_last_word(
    guard, open_guard, ledger, clock, engine
):
    """The record is PENDING, and the next call runs it: "will not happen" would be false."""

    def charge(*, call):
        ledger.enter("charge", call.key)
        if call.attempt > 1:
            return "charged"
        clock.advance(timedelta(hours=2))
        others = open_guard()
        others.recover()
        others.resolve(call.key, semel.RunIt(), by="ann", why="not on the statement")
        raise semel.Rejected("card declined")

    tool = register(guard, engine, charge, effect=semel.Unsafe(request_deadline=NO_TIME))
    with pytest.raises(semel.OutcomeUnknown, match="Repeat the same call"):
        call(guard, engine, "run", tool)
    assert only(guard).state is semel.State.PENDING
    assert call(guard, engine, "run", tool) == "charged"


# ------------------------------------------------------------------ the file itself


# hazard 22
@pytest.mark.parametrize("what", ["deleted", "replaced", "its folder deleted"])
def test_a_store_that_vanished_is_noticed_before_anything_is_sent(tmp_path, ledger, engine, what):
    folder = tmp_path / "place"
    folder.mkdir()
    with semel.open(f"sqlite:///{folder}/agent.db", wait=NO_TIME) as guard:
        tool = charge_tool(guard, engine, ledger)
        call(guard, engine, "before", tool)
        remove(folder, what)
        with pytest.raises(semel.StoreVanished, match=r"removed or replaced.*Nothing was sent"):
            call(guard, engine, "run", tool)
        assert len(ledger.lines()) == 1


def remove(folder: Path, what: str) -> None:
    if what == "its folder deleted":
        shutil.rmtree(folder)
        return
    os.remove(folder / "agent.db")
    if what == "replaced":
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.remove(folder / f"agent.db{end}")
        semel.open(f"sqlite:///{folder}/agent.db").close()


# hazard 6
def test_a_store_that_vanishes_after_the_effect_gives_the_result_and_says_that_it_is_not_recorded(
    tmp_path, ledger, engine
):
    folder = tmp_path / "place"
    folder.mkdir()
    with semel.open(f"sqlite:///{folder}/agent.db", wait=NO_TIME) as guard:

        def charge():
            ledger.enter("charge")
            remove(folder, "deleted")
            return "charged"

        with pytest.raises(semel.OutcomeUnknown, match="took no record") as unknown:
            call(guard, engine, "run", register(guard, engine, charge, effect=semel.Unsafe()))
        assert unknown.value.result == "charged"


def test_a_closed_guard_sends_nothing(guard, ledger, engine):
    tool = charge_tool(guard, engine, ledger)
    guard.close()
    with pytest.raises(semel.StoreUnavailable, match=r"closed.*Nothing was sent"):
        call(guard, engine, "run", tool)
    assert ledger.lines() == []


# hazard 6
def test_a_call_that_is_in_flight_when_the_guard_is_closed_is_recorded_or_told_at_once(
    tmp_path, ledger, engine
):
    guard = semel.open(f"sqlite:///{tmp_path}/agent.db", lease=LONG)
    at_work, may_go_on, said = threading.Event(), threading.Event(), []

    def charge():
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        return "charged"

    tool = register(guard, engine, charge, effect=semel.Unsafe())

    def in_flight():
        try:
            said.append(call(guard, engine, "run", tool))
        except semel.OutcomeUnknown as unknown:
            said.append(unknown.result)

    calling = threading.Thread(target=in_flight)
    calling.start()
    assert at_work.wait(PATIENCE_SECONDS)
    threading.Timer(0.05, may_go_on.set).start()
    guard.close()
    calling.join(LONG.total_seconds() / 4)
    assert said == ["charged"]
    calling.join()
