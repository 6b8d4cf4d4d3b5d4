"""Async calls: cancelled at any place, the record and the world still agree."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from workbench import NO_TIME, PATIENCE_SECONDS, register, wait_until

import semel
from semel.connect import open_store
from semel.model import Event, Insert, Move, State

LONG = timedelta(seconds=PATIENCE_SECONDS)


class Slow:
    """The real store, which holds chosen writes until they may go on."""

    def __init__(self, store, is_held):
        self._store, self._is_held = store, is_held
        self.arrived, self.may_go_on = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def apply(self, writes):
        if any(map(self._is_held, writes)):
            self.arrived.set()
            assert self.may_go_on.wait(PATIENCE_SECONDS)
        return self._store.apply(writes)


@pytest.fixture
def slow(tmp_path):
    """A guard whose store holds the writes that are of this kind."""
    guards = []

    def opened(is_held, **options):
        store = Slow(open_store(f"sqlite:///{tmp_path}/agent.db"), is_held)
        guards.append(semel.Guard(store, **({"wait": NO_TIME} | options)))
        return guards[-1]

    yield opened
    for guard in guards:
        guard.store.may_go_on.set()
        guard.close()


def only(guard):
    (operation,) = guard.store.read_run("", "run")
    return operation


async def begin(guard, tool, **arguments):
    """A task that calls the tool as the first call of the run."""
    run = await guard.run("run").__aenter__()
    return asyncio.ensure_future(run.call(tool, **arguments))


async def there(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_SECONDS)


def is_move(write, event):
    return isinstance(write, Move) and write.event is event


def charge_tool(guard, ledger, **options):
    return register(
        guard,
        "async",
        lambda: ledger.enter("charge") or "charged",
        **({"effect": semel.Unsafe(), "name": "charge"} | options),
    )


# ------------------------------------------------------------------ cancelled in each phase


# hazard 16
def test_cancelled_before_anything_was_written_nothing_was_sent(guard, ledger):
    async def program():
        task = await begin(guard, charge_tool(guard, ledger))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert (ledger.lines(), guard.store.read_run("", "run")) == ([], [])


# hazard 16
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("attempts", [1, 3])
def test_cancelled_while_the_claim_is_written_it_is_given_back_unsent(slow, ledger, times, attempts):
    guard = slow(lambda write: isinstance(write, Insert))
    tool = charge_tool(guard, ledger, attempts=attempts)

    async def program():
        task = await begin(guard, tool)
        await there(guard.store.arrived)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        guard.store.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ledger.lines() == []
        assert only(guard).state is State.PENDING
        assert await (await begin(guard, tool)) == "charged"

    asyncio.run(program())
    assert len(ledger.lines()) == 1


# hazard 16
@pytest.mark.parametrize(
    "effect", [semel.Unsafe(), semel.Idempotent(key_ttl=timedelta(days=1))], ids=["unsafe", "keyed"]
)
def test_cancelled_in_the_middle_of_the_effect_it_is_in_doubt(guard, ledger, effect):
    async def charge():
        ledger.enter("charge")
        at_work.set()
        await asyncio.Event().wait()

    at_work = threading.Event()
    tool = guard.tool(effect=effect)(charge)

    async def program():
        task = await begin(guard, tool)
        await there(at_work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert only(guard).state is State.UNKNOWN
    assert "CancelledError" in only(guard).error


# hazard 16
def test_a_tool_that_will_not_be_cancelled_is_recorded_as_it_ended(guard, ledger):
    async def charge():
        at_work.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        ledger.enter("charge")
        return "charged"

    at_work = threading.Event()
    tool = guard.tool(effect=semel.Unsafe())(charge)

    async def program():
        task = await begin(guard, tool)
        await there(at_work)
        task.cancel()
        return await task

    assert asyncio.run(program()) == "charged"
    assert only(guard).state is State.COMMITTED


# hazards 6, 16
@pytest.mark.parametrize("times", [1, 3])
def test_cancelled_while_the_completion_is_written_it_is_recorded_all_the_same(slow, ledger, times):
    guard = slow(lambda write: is_move(write, Event.COMMITTED))
    tool = charge_tool(guard, ledger)

    async def program():
        task = await begin(guard, tool)
        await there(guard.store.arrived)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        guard.store.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await (await begin(guard, tool))

    assert asyncio.run(program()) == "charged"
    assert len(ledger.lines()) == 1


class Refusing(Slow):
    """Refuses the held writes until they may go on."""

    def apply(self, writes):
        if any(map(self._is_held, writes)) and not self.may_go_on.is_set():
            raise semel.StoreUnavailable("down for a while")
        return self._store.apply(writes)


def is_pausing(task) -> bool:
    """Whether the task sleeps, by the coroutines that it waits for."""
    awaited = task.get_coro()
    while awaited is not None and getattr(awaited, "__name__", "") != "sleep":
        awaited = getattr(awaited, "cr_await", None)
    return awaited is not None


# hazards 6, 16
def test_cancelled_between_two_tries_of_the_completion_it_is_recorded_all_the_same(tmp_path, ledger):
    store = Refusing(
        open_store(f"sqlite:///{tmp_path}/agent.db"), lambda write: is_move(write, Event.COMMITTED)
    )
    guard = semel.Guard(store, wait=NO_TIME, lease=LONG)
    tool = charge_tool(guard, ledger)

    async def program():
        task = await begin(guard, tool)
        while not is_pausing(task):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        store.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert only(guard).state is State.COMMITTED
    guard.close()


# hazards 1, 16
def test_cancelled_while_it_waits_for_another_owner_it_ends_at_once(open_guard, ledger):
    guard, may_go_on, at_work = open_guard(wait=LONG), threading.Event(), threading.Event()

    def charge():
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        ledger.enter("charge")
        return "charged"

    async def program():
        first = await begin(guard, guard.tool(effect=semel.Unsafe())(charge))
        await there(at_work)
        second = await begin(guard, charge_tool(guard, ledger, name="charge again"))
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        may_go_on.set()
        assert await first == "charged"

    asyncio.run(program())
    assert len(ledger.lines()) == 1


# hazards 1, 16
def test_cancelled_while_it_claims_what_another_owner_holds_it_ends_without_waiting(slow, open_guard, ledger):
    others, guard = open_guard(clock=None), slow(lambda write: isinstance(write, Insert), wait=LONG)
    tool = charge_tool(guard, ledger)

    async def program():
        task = await begin(guard, tool)
        await there(guard.store.arrived)
        task.cancel()
        await asyncio.sleep(0)
        guard.store.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 5)

    def charge():
        ledger.enter("charge")
        asyncio.run(program())

    with others.run("run") as run:
        run.call(others.tool(effect=semel.Unsafe())(charge))
    assert len(ledger.lines()) == 1


# hazard 16
def test_cancelled_while_it_looks_up_it_stays_in_doubt(guard, ledger):
    asking = threading.Event()

    async def look(call):
        asking.set()
        await asyncio.Event().wait()

    def charge():
        ledger.enter("charge")
        raise TimeoutError

    tool = register(guard, "async", charge, effect=semel.Unsafe(lookup=look))

    async def program():
        task = await begin(guard, tool)
        await there(asking)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert only(guard).state is State.UNKNOWN


# ------------------------------------------------------------------ a plain tool in a thread


# hazard 16
def test_a_plain_tool_whose_call_was_cancelled_is_in_flight_until_its_thread_ends(guard, ledger):
    at_work, may_go_on = threading.Event(), threading.Event()

    def charge():
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)
        ledger.enter("charge")
        return "charged"

    tool = guard.tool(effect=semel.Unsafe())(charge)

    async def program():
        task = await begin(guard, tool)
        await there(at_work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert only(guard).state is State.INVOKED
        with pytest.raises(semel.ClaimHeld):
            await (await begin(guard, tool))
        may_go_on.set()
        await asyncio.to_thread(wait_until, lambda: only(guard).state is State.COMMITTED)
        assert await (await begin(guard, tool)) == "charged"

    asyncio.run(program())
    assert len(ledger.lines()) == 1


# hazard 16
def test_a_loop_that_ends_while_a_plain_tool_works_waits_for_its_thread_and_keeps_its_record(guard, ledger):
    at_work = threading.Event()

    def charge():
        at_work.set()
        ledger.enter("charge")
        return "charged"

    tool = guard.tool(effect=semel.Unsafe())(charge)

    async def program():
        task = await begin(guard, tool)
        await there(at_work)
        task.cancel()

    asyncio.run(program())
    assert only(guard).state is State.COMMITTED


# ------------------------------------------------------------------ many at once


# hazard 12
def test_gathered_calls_keep_the_places_in_which_they_are_written(guard, ledger):
    tool = register(
        guard, "async", lambda to: ledger.enter("mail", to=to) or to, name="mail", effect=semel.Unsafe()
    )

    async def program():
        async with guard.run("run") as run:
            return await asyncio.gather(*[run.call(tool, to=str(n)) for n in range(20)])

    assert asyncio.run(program()) == asyncio.run(program()) == [str(n) for n in range(20)]
    steps = {op.step: op.arguments for op in guard.store.read_run("", "run")}
    assert steps == {str(n + 1): f'{{"to":"{n}"}}' for n in range(20)}
    assert len(ledger.lines()) == 20


# hazard 1
def test_of_many_tasks_with_one_intent_one_runs(open_guard, ledger):
    guard = open_guard(wait=LONG)
    tool = charge_tool(guard, ledger)

    async def program():
        return await asyncio.gather(*[await begin(guard, tool) for _ in range(20)])

    assert asyncio.run(program()) == ["charged"] * 20
    assert len(ledger.lines()) == 1


def test_one_call_that_fails_leaves_its_neighbours_alone(guard, ledger):
    def charge(n):
        ledger.enter("charge")
        if n % 3 == 0:
            raise semel.Rejected(f"no {n}")
        if n % 3 == 1:
            raise TimeoutError
        return n

    tool = register(guard, "async", charge, effect=semel.Unsafe())

    async def program():
        async with guard.run("run") as run:
            return await asyncio.gather(*[run.call(tool, n=n) for n in range(12)], return_exceptions=True)

    said = asyncio.run(program())
    kinds = [semel.Rejected, semel.PausedForPerson, int]
    assert [type(answer) for answer in said] == kinds * 4
    states = [op.state for op in guard.store.read_run("", "run")]
    assert states == [State.FAILED, State.UNKNOWN, State.COMMITTED] * 4


def test_the_loop_is_not_held_up_by_a_slow_store(slow, ledger):
    guard = slow(lambda write: isinstance(write, Insert))
    tool = charge_tool(guard, ledger)

    async def program():
        task = await begin(guard, tool)
        await there(guard.store.arrived)
        await asyncio.wait_for(asyncio.sleep(0), 1)  # the loop still turns
        guard.store.may_go_on.set()
        return await task

    assert asyncio.run(program()) == "charged"


def test_a_question_for_a_person_stops_a_task_and_a_group_of_tasks(guard, ledger):
    def charge():
        raise TimeoutError

    tool = register(guard, "async", charge, effect=semel.Unsafe())

    async def program():
        try:
            return await (await begin(guard, tool))
        except Exception:
            return "turned into text for the model"

    with pytest.raises(semel.PausedForPerson):
        asyncio.run(program())


def test_a_guard_serves_one_event_loop_after_another_and_several_at_once(guard, ledger):
    tool = charge_tool(guard, ledger)

    def one_loop(number):
        async def program():
            async with guard.run(f"run {number}") as run:
                return await asyncio.gather(*[run.call(tool) for _ in range(5)])

        said.append(asyncio.run(program()))

    said: list[list[str]] = []
    for round_ in range(2):
        threads = [threading.Thread(target=one_loop, args=(4 * round_ + n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == [["charged"] * 5] * 8
    assert len(ledger.lines()) == 40


@pytest.mark.parametrize("effect", [semel.Safe(), semel.Atomic()], ids=lambda effect: effect.name)
def test_a_plain_tool_that_raises_stop_iteration_does_not_leave_its_caller_waiting(guard, effect):
    """No future takes a `StopIteration`; it is told as where it leaves a coroutine."""

    def stop():
        return next(iter([]))

    def stop_within(*, tx):
        return stop()

    tool = guard.tool(effect=effect, name="stop")(stop_within if isinstance(effect, semel.Atomic) else stop)

    async def enter():
        async with guard.run("run") as run:
            await asyncio.wait_for(run.call(tool), PATIENCE_SECONDS)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(enter())
    assert guard.store.read_run("", "run") == []
