"""One guarded call in one process, sync and async alike: what is believed, what is recorded, what is replayed."""

from __future__ import annotations

import asyncio
import functools
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from workbench import NO_TIME, call, register

import semel

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
HONEST = {"lookup_lag": NO_TIME, "request_deadline": NO_TIME}


def only(guard: semel.Guard, run_id: str = "run") -> semel.Operation:
    (operation,) = guard.store.read_run("", run_id)
    return operation


# ------------------------------------------------------------------ runs, records, replays


@pytest.mark.parametrize("result", [None, 0, "", {"id": 1, "at": ("a", {2})}, b"\x00", [1.5, True]])
def test_a_call_runs_once_and_is_replayed_as_it_returned_type_included(guard, ledger, engine, result):
    def charge(to):
        ledger.enter("charge", to)
        return result

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    first, again = (call(guard, engine, "run", tool, to="ann") for _ in range(2))
    assert first == again == result
    assert type(first) is type(again)
    assert len(ledger.lines()) == 1


def test_the_claim_is_in_the_store_before_the_effect(guard, open_guard, ledger, engine):
    seen = []

    def charge():
        seen.append(only(open_guard()))

    call(guard, engine, "run", register(guard, engine, charge, effect=semel.Unsafe()))
    assert [(op.state, op.fence) for op in seen] == [(semel.State.INVOKED, 1)]


def test_the_places_of_a_call_are_passed_in_their_order(open_guard, engine):
    places = []
    guard = open_guard(checkpoint=lambda place, key: places.append(place))
    call(guard, engine, "run", register(guard, engine, lambda: None, name="charge", effect=semel.Unsafe()))
    assert places == ["claiming", "claimed", "effect_done", "completed"]


# hazard 15
def test_two_legitimate_equal_calls_both_run(guard, ledger):
    @guard.tool(effect=semel.Unsafe())
    def charge(to):
        ledger.enter("charge", to)

    for _ in range(2):
        with guard.run("run") as run:
            run.call(charge, "ann")
            run.call(charge, "ann")
    assert len(ledger.lines()) == 2


def test_a_resumed_run_that_replays_a_tool_which_calls_another_loses_and_repeats_nothing(guard, ledger):
    """The inner call has no place among the run's own: a replay of the outer one does not come to it."""

    @guard.tool(effect=semel.Unsafe())
    def mail(to):
        ledger.enter("mail", to)

    @guard.tool(effect=semel.Unsafe())
    def renew(to):
        mail(to)

    def life(*, dies=False):
        with guard.run("run") as run, suppress(KeyboardInterrupt):
            run.call(renew, "ann")
            if dies:
                raise KeyboardInterrupt
            run.call(mail, "ann")

    life(dies=True)
    life()
    life()
    assert len(ledger.lines("mail")) == 2, "one by renew, and one that the run itself means"


def test_another_attempt_at_a_tool_comes_to_the_same_inner_calls(guard, ledger, engine):
    tries = iter("12")

    def mail(to):
        ledger.enter("mail", to)

    inner = register(guard, engine, mail, effect=semel.Unsafe())

    def turned_away_once():
        if next(tries) == "1":
            raise semel.NotSent("busy")

    def renew():
        inner("ann")
        turned_away_once()

    async def renew_async():
        await inner("ann")
        turned_away_once()

    options = {"effect": semel.Unsafe(), "attempts": 2, "name": "renew"}
    call(guard, engine, "run", guard.tool(**options)(renew if engine == "sync" else renew_async))
    assert len(ledger.lines("mail")) == 1


def test_one_id_is_one_run_and_another_id_or_namespace_is_another(open_guard, ledger, engine):
    for namespace in ("", "shop"):
        guard = open_guard(namespace=namespace)
        tool = register(guard, engine, lambda: ledger.enter("charge"), name="charge", effect=semel.Unsafe())
        for run_id in ("run", "run", "another"):
            call(guard, engine, run_id, tool)
    assert len(ledger.lines()) == 4


# hazard 11
def test_each_coordinate_given_by_a_framework_is_one_intent(guard, ledger):
    @guard.tool(effect=semel.Unsafe())
    def charge(to):
        ledger.enter("charge", to)

    places = [("turn 1", "call_0"), ("turn 1", "call_1"), ("turn 2", "call_0"), ("turn 2", "charge")]
    for _ in range(2):
        with guard.run("run") as run:
            for step, call_id in places:
                run.call_at(charge, {"to": "ann"}, step=step, call_id=call_id)
    assert len(ledger.lines()) == 4


# hazard 11
@pytest.mark.parametrize(("step", "call_id"), [("", "1"), ("1", ""), (None, "1"), ("1", 0), ("a\x00", "1")])
def test_a_coordinate_that_names_nothing_is_refused(guard, ledger, step, call_id):
    tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda: ledger.enter("charge"))
    with guard.run("run") as run, pytest.raises(semel.UsageError, match="Nothing was sent"):
        run.call_at(tool, {}, step=step, call_id=call_id)
    assert ledger.lines() == []


def test_the_way_a_call_is_written_does_not_matter(guard, ledger):
    @guard.tool(effect=semel.Unsafe())
    def charge(to, cents=5, *, note=None):
        ledger.enter("charge", to)

    for args, kwargs in [(("ann",), {}), ((), {"cents": 5.0, "to": "ann"}), (("ann", 5), {"note": None})]:
        with guard.run("run") as run:
            run.call(charge, *args, **kwargs)
    assert len(ledger.lines()) == 1


def test_a_safe_tool_runs_again_and_leaves_no_record(guard, ledger, engine):
    def balance(*, call):
        ledger.enter("balance", call.key)

    tool = register(guard, engine, balance, effect=semel.Safe())
    for _ in range(2):
        call(guard, engine, "run", tool)
    assert len(ledger.lines()) == 2
    assert len(set(ledger.keys())) == 1
    assert guard.store.read_run("", "run") == []


def test_a_tool_learns_its_key_its_attempt_and_its_deadline(guard, clock, engine):
    seen = []

    def charge(to, *, call):
        assert semel.current_call() is call
        seen.append((call.key, call.attempt, call.arguments, call.deadline_at, call.tool, call.run_id))

    call(guard, engine, "run", register(guard, engine, charge, effect=semel.Unsafe()), to="ann")
    deadline = clock.now() + timedelta(seconds=30)
    assert seen == [(only(guard).key, 1, {"to": "ann"}, deadline, "charge", "run")]
    with pytest.raises(semel.UsageError, match="no current call"):
        semel.current_call()


# hazard 1
@pytest.mark.parametrize("kind", ["unsafe", "keyed", "atomic"])
def test_of_many_threads_with_one_intent_one_runs_and_all_get_its_result(open_guard, ledger, kind):
    guard = open_guard(wait=timedelta(seconds=20))
    effects = {"unsafe": semel.Unsafe(), "keyed": semel.Idempotent(key_ttl=DAY), "atomic": semel.Atomic()}

    def charge():
        ledger.enter("charge")
        return "charged"

    tool = guard.tool(effect=effects[kind], name="charge")(
        charge if kind != "atomic" else lambda *, tx: charge()
    )
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: call(guard, "sync", "run", tool), range(16)))
    assert said == ["charged"] * 16
    assert len(ledger.lines()) == 1


# ------------------------------------------------------------------ the phase decides


class Down(Exception):
    """What a client library raises."""


class Mute(Exception):
    """An error that cannot even be written down."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


IN_DOUBT = [
    TimeoutError("read timed out"),
    ConnectionRefusedError("but of which of its tries?"),
    Down("503"),
    Mute(),
    ValueError("the answer was no JSON"),
    sqlite3.OperationalError("database is locked"),
    semel.StoreUnavailable("of somebody else's guard"),
    semel.UsageError("of somebody else's guard"),
    semel.PreviouslyFailed("of another operation", key="other"),
    semel.ClaimHeld("of another operation", key="other"),
    semel.NotSent("of another operation", key="other"),
    semel.ClaimLost("of another operation", key="other"),
    semel.Rejected("of another operation", key="other"),
    MemoryError(),
    StopIteration(),
]


@pytest.mark.parametrize("error", IN_DOUBT, ids=lambda error: type(error).__name__)
def test_whatever_a_tool_raises_in_the_middle_leaves_it_in_doubt(guard, ledger, engine, error):
    def charge(*, call):
        ledger.enter("charge", call.key)
        raise error

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    with pytest.raises(semel.PausedForPerson, match="may or may not have happened"):
        call(guard, engine, "run", tool)
    assert only(guard).state is semel.State.UNKNOWN
    with pytest.raises(semel.PausedForPerson):
        call(guard, engine, "run", tool)
    assert len(ledger.lines()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_in_the_middle_leaves_it_in_doubt_and_goes_on_its_way(guard, ledger, error):
    @guard.tool(effect=semel.Unsafe())
    def charge():
        ledger.enter("charge")
        raise error

    with guard.run("run") as run, pytest.raises(error):
        run.call(charge)
    assert only(guard).state is semel.State.UNKNOWN


def test_a_rejection_fails_for_good_and_is_told_again_without_asking_the_provider(guard, ledger, engine):
    def charge():
        ledger.enter("charge")
        raise semel.Rejected("card declined")

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    with pytest.raises(semel.Rejected, match="card declined") as rejected:
        call(guard, engine, "run", tool)
    assert rejected.value.key == only(guard).key
    with pytest.raises(semel.PreviouslyFailed, match=r"card declined.*new run") as failed:
        call(guard, engine, "run", tool)
    assert failed.value.outcome == "did_not_happen"
    assert only(guard).state is semel.State.FAILED
    assert len(ledger.lines()) == 1


def test_what_was_not_sent_is_told_and_runs_at_the_next_call(guard, ledger, engine):
    is_down = [True]

    def charge():
        if is_down.pop() if is_down else False:
            raise semel.NotSent("connection refused")
        ledger.enter("charge")
        return "charged"

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    with pytest.raises(semel.NotSent, match="connection refused"):
        call(guard, engine, "run", tool)
    assert only(guard).state is semel.State.PENDING
    assert call(guard, engine, "run", tool) == "charged"
    assert len(ledger.lines()) == 1
    assert only(guard).fence == 2


# hazard 5
def test_a_connection_refused_once_and_then_healthy_runs_once(guard, engine):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    arrived = []

    def charge(*, call):
        try:
            connection = socket.create_connection(address, timeout=5)
        except ConnectionRefusedError as error:
            raise semel.NotSent("nobody listened") from error
        with connection:
            connection.sendall(call.key.encode())
            return connection.recv(100).decode()

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    for _ in range(2):
        with pytest.raises(semel.NotSent):
            call(guard, engine, "run", tool)
    with socket.create_server(address) as server:

        def serve():
            client, _ = server.accept()
            with client:
                arrived.append(client.recv(100).decode())
                client.sendall(b"charged")

        serving = threading.Thread(target=serve)
        serving.start()
        assert call(guard, engine, "run", tool) == "charged"
        serving.join()
    assert arrived == [only(guard).key]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_one_call_tries_as_often_as_the_tool_says(guard, ledger, engine, attempts):
    def charge(*, call):
        ledger.enter("charge", call.key, attempt=call.attempt)
        raise semel.NotSent("connection refused")

    tool = register(guard, engine, charge, effect=semel.Unsafe(), attempts=attempts)
    with pytest.raises(semel.NotSent):
        call(guard, engine, "run", tool)
    assert [line["attempt"] for line in ledger.lines()] == list(range(1, attempts + 1))


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_tool_whose_provider_honours_keys_is_resent_within_its_attempts(guard, ledger, engine, attempts):
    def charge(*, call):
        ledger.enter("charge", call.key)
        raise TimeoutError

    tool = register(guard, engine, charge, effect=semel.Idempotent(key_ttl=DAY), attempts=attempts)
    with pytest.raises(semel.OutcomeUnknown, match="Repeat the same call"):
        call(guard, engine, "run", tool)
    assert len(ledger.lines()) == attempts
    assert len(set(ledger.keys())) == 1


# hazard 29
def test_a_rejected_resend_is_not_taken_for_a_rejected_intent(guard, ledger, engine):
    """ "This key is already in use" is what a provider says to a resend of what it did."""
    answers = [TimeoutError("read timed out"), semel.Rejected("409: key in use")]

    def charge(*, call):
        ledger.enter("charge", call.key)
        if answers:
            raise answers.pop(0)
        return "charged"

    tool = register(guard, engine, charge, effect=semel.Idempotent(key_ttl=DAY))
    for _ in range(2):
        with pytest.raises(semel.OutcomeUnknown):
            call(guard, engine, "run", tool)
        assert only(guard).state is semel.State.UNKNOWN
    assert call(guard, engine, "run", tool) == "charged"


def test_every_attempt_gets_the_arguments_as_they_were_recorded(guard, engine):
    seen = []

    def ship(items):
        seen.append(list(items))
        items.pop()
        if len(seen) == 1:
            raise semel.NotSent("connection refused")

    tool = register(guard, engine, ship, effect=semel.Unsafe(), attempts=2)
    call(guard, engine, "run", tool, items=["a", "b"])
    assert seen == [["a", "b"], ["a", "b"]]


def test_a_rejection_that_comes_from_another_operation_inside_is_not_taken_for_ones_own(guard, ledger):
    @guard.tool(effect=semel.Unsafe())
    def mail():
        raise semel.Rejected("no such address")

    @guard.tool(effect=semel.Unsafe())
    def charge_and_mail():
        ledger.enter("charge")
        mail()

    with guard.run("run") as run, pytest.raises(semel.PausedForPerson):
        run.call(charge_and_mail)
    outer, inner = guard.store.read_run("", "run")
    assert (outer.state, inner.state) == (semel.State.UNKNOWN, semel.State.FAILED)


# ------------------------------------------------------------------ the effect must really have run


def plain_wrapper(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapped


def steps(ledger):
    def charge():
        ledger.enter("charge")
        yield "charged"

    return charge


def awaited(ledger):
    async def charge():
        ledger.enter("charge")
        return "charged"

    return charge


class Awaited:
    def __init__(self, ledger):
        self._ledger = ledger

    async def __call__(self):
        self._ledger.enter("charge")
        return "charged"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    "make",
    [lambda ledger: plain_wrapper(awaited(ledger)), Awaited, steps],
    ids=["a plain wrapper of an async function", "an object with an async call", "a generator"],
)
def test_what_only_promises_to_run_is_not_recorded_as_done(guard, ledger, make):
    with suppress(semel.SemelError, semel.PausedForPerson), guard.run("run") as run:
        run.call(guard.tool(effect=semel.Unsafe(), name="charge")(make(ledger)))
    states = [operation.state for operation in guard.store.read_run("", "run")]
    assert semel.State.COMMITTED not in states or ledger.lines()


def test_a_plain_wrapper_that_runs_an_async_function_to_its_end_is_a_plain_tool(guard, ledger, engine):
    async def charge():
        ledger.enter("charge")
        return "charged"

    @functools.wraps(charge)
    def run_to_end():
        with ThreadPoolExecutor(1) as elsewhere:
            return elsewhere.submit(asyncio.run, charge()).result()

    tool = guard.tool(effect=semel.Unsafe())(run_to_end)
    assert [call(guard, engine, "run", tool) for _ in range(2)] == ["charged"] * 2
    assert len(ledger.lines()) == 1


# ------------------------------------------------------------------ one key, other arguments


def bring_to(state: str, guard: semel.Guard, engine: str, tool, clock) -> None:
    """Call with 100 cents and leave the operation in that state."""
    if state == "REAPED":
        call(guard, engine, "run", tool, cents=100)
        clock.advance(DAY)
        assert guard.reap(older_than=SECOND) == 1
        return
    with suppress(semel.SemelError, semel.PausedForPerson):
        call(guard, engine, "run", tool, cents=100)


# hazard 25
@pytest.mark.parametrize("state", ["PENDING", "INVOKED", "UNKNOWN", "COMMITTED", "FAILED", "REAPED"])
@pytest.mark.parametrize("again", [{"cents": 50}, {"cents": "100"}, {"cents": True}])
def test_one_key_with_other_arguments_is_refused_in_every_state(
    open_guard, guard, ledger, clock, engine, state, again
):
    errors = {"PENDING": semel.NotSent("x"), "UNKNOWN": TimeoutError("x"), "FAILED": semel.Rejected("x")}
    found = []

    def refused_meanwhile():
        other = open_guard()
        with pytest.raises(semel.KeyReused):
            call(other, "sync", "run", other.tool(effect=semel.Unsafe())(charge), **again)
        found.append(only(guard).state)

    def charge(cents):
        ledger.enter("charge", cents=cents)
        if state == "INVOKED":
            refused_meanwhile()
        if state in errors:
            raise errors[state]

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    bring_to(state, guard, engine, tool, clock)
    before = only(guard)
    assert state in (before.state, *found, "REAPED" if before.reaped_at else "")
    with pytest.raises(semel.KeyReused, match=r"other arguments.*Nothing was sent") as reused:
        call(guard, engine, "run", tool, **again)
    assert reused.value.key == before.key
    assert only(guard) == before
    assert [line["cents"] for line in ledger.lines()] == [100]


# hazard 25
def test_one_key_with_another_tool_is_refused(guard, ledger, engine):
    charge = register(guard, engine, lambda: ledger.enter("charge"), name="charge", effect=semel.Unsafe())
    refund = register(guard, engine, lambda: ledger.enter("refund"), name="refund", effect=semel.Unsafe())
    call(guard, engine, "run", charge)
    with pytest.raises(semel.KeyReused):
        call(guard, engine, "run", refund)
    assert len(ledger.lines()) == 1


# hazard 25
def test_one_key_with_other_arguments_is_refused_by_an_atomic_tool_too(guard):
    @guard.tool(effect=semel.Atomic())
    def grant(to, *, tx):
        tx.execute("CREATE TABLE grants (customer TEXT)")

    with guard.run("run") as run:
        run.call(grant, "ann")
    with guard.run("run") as run, pytest.raises(semel.KeyReused):
        run.call(grant, "bob")


# ------------------------------------------------------------------ the claim lapses before anything is sent


def test_a_claim_that_lapsed_before_sending_sends_nothing(open_guard, ledger, clock, engine):
    def oversleep(place, key):
        if place == "claimed" and not ledger.lines("slept"):
            ledger.enter("slept")
            clock.advance(timedelta(hours=2))

    guard = open_guard(checkpoint=oversleep, lease=timedelta(hours=1))
    tool = register(guard, engine, lambda: ledger.enter("charge"), name="charge", effect=semel.Unsafe())
    with pytest.raises(semel.ClaimLost, match="sent nothing"):
        call(guard, engine, "run", tool)
    assert ledger.lines("charge") == []
    assert only(guard).state is semel.State.PENDING
    call(guard, engine, "run", tool)
    assert len(ledger.lines("charge")) == 1


def test_a_tool_that_looks_before_it_sends_hears_that_its_claim_lapsed(open_guard, ledger, clock, engine):
    guard = open_guard(lease=timedelta(hours=1))

    def charge(*, call):
        clock.advance(timedelta(minutes=59))
        call.ensure_held()
        clock.advance(timedelta(minutes=1))
        call.ensure_held()
        ledger.enter("charge")

    with pytest.raises(semel.ClaimLost):
        call(guard, engine, "run", register(guard, engine, charge, effect=semel.Unsafe()))
    assert ledger.lines() == []


# ------------------------------------------------------------------ atomic


@pytest.fixture
def atomic(guard):
    with guard.store.transaction() as transaction:
        transaction.handle.execute("CREATE TABLE grants (customer TEXT UNIQUE)")
    return guard


def granted(guard: semel.Guard) -> list[str]:
    with guard.store.transaction() as transaction:
        return [row[0] for row in transaction.handle.execute("SELECT customer FROM grants")]


@pytest.mark.parametrize(
    "error", [ValueError("x"), TimeoutError("x"), semel.NotSent("x"), KeyboardInterrupt()]
)
def test_an_atomic_tool_that_raises_did_nothing_and_may_run_again(atomic, error):
    errors = [error]

    @atomic.tool(effect=semel.Atomic())
    def grant(to, *, tx):
        tx.execute("INSERT INTO grants VALUES (?)", (to,))
        if errors:
            raise errors.pop()
        return "granted"

    with atomic.run("run") as run, pytest.raises(type(error)):
        run.call(grant, "ann")
    assert (granted(atomic), atomic.store.read_run("", "run")) == ([], [])
    with atomic.run("run") as run:
        assert run.call(grant, "ann") == "granted"
    assert granted(atomic) == ["ann"]


def test_an_atomic_tool_that_rejects_did_nothing_and_never_will(atomic):
    @atomic.tool(effect=semel.Atomic())
    def grant(to, *, tx):
        tx.execute("INSERT INTO grants VALUES (?)", (to,))
        raise semel.Rejected("no such plan")

    with atomic.run("run") as run, pytest.raises(semel.Rejected):
        run.call(grant, "ann")
    with atomic.run("run") as run, pytest.raises(semel.PreviouslyFailed, match="no such plan"):
        run.call(grant, "ann")
    assert granted(atomic) == []


def test_an_atomic_tool_whose_transaction_broke_underneath_leaves_no_effect_without_a_record(atomic):
    """A conflict clause rolls the whole transaction back; the tool does not mind and goes on."""

    @atomic.tool(effect=semel.Atomic())
    def grant(*, tx):
        tx.execute("INSERT INTO grants VALUES ('ann')")
        with suppress(sqlite3.IntegrityError):
            tx.execute("INSERT OR ROLLBACK INTO grants VALUES ('ann')")
        tx.execute("INSERT INTO grants VALUES ('bob')")

    with suppress(semel.SemelError), atomic.run("run") as run:
        run.call(grant)
    assert bool(granted(atomic)) == bool(atomic.store.read_run("", "run"))


def test_an_atomic_tool_that_rejects_what_a_person_has_cleared_is_recorded_as_failed(
    atomic, open_guard, clock
):
    before = open_guard()
    unsafe = before.tool(effect=semel.Unsafe(), name="grant")(lambda to: _raise(TimeoutError()))
    with before.run("run") as run, pytest.raises(semel.PausedForPerson) as asked:
        run.call(unsafe, "ann")
    before.resolve(asked.value.key, semel.RunIt(), by="ann", why="not there")
    clock.advance(DAY)

    @atomic.tool(effect=semel.Atomic())
    def grant(to, *, tx):
        raise semel.Rejected("no such plan")

    with atomic.run("run") as run, pytest.raises(semel.Rejected):
        run.call(grant, "ann")
    assert only(atomic).state is semel.State.FAILED


def _raise(error: BaseException) -> None:
    raise error
