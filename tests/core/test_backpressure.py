"""What is queued for a store that hangs has an end: callers wait outside, nothing is lost, nothing is sent."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from workbench import PATIENCE_SECONDS, register, wait_until

import semel
from semel import lifecycle
from semel.connect import open_store
from semel.engine.group_commit import GroupCommit
from semel.engine.room import Room
from semel.model import Insert
from semel.testing.conformance import claimed

QUEUE_MAX = 8


class Stalled:
    """A real store that takes nothing until told; it notes the most that was queued for it."""

    def __init__(self, store, **options):
        self.store, self.batches = store, []
        self.arrived, self.may_go_on = threading.Event(), threading.Event()
        self.committer = GroupCommit(self.apply, queue_max=QUEUE_MAX, **options)
        self.most_queued = 0

    def apply(self, writes):
        self.arrived.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        self.most_queued = max(self.most_queued, self.committer.queued)
        self.batches.append(list(writes))
        return self.store.apply(writes)


@pytest.fixture
def stalled():
    store = open_store(":memory:")
    yield Stalled(store)
    store.close()


def inserts(store, names):
    return [Insert(claimed(store, str(name))) for name in names]


async def write(committer, insert):
    loop = asyncio.get_running_loop()
    future = committer.enqueue(insert, loop)
    if future is None:
        await committer.wait_for_room()
        future = committer.enqueue_in_room(insert, loop.create_future())
    return await future


def test_a_store_that_hangs_keeps_the_queue_short_and_all_callers_finish_once_it_works(stalled):
    committer = stalled.committer
    of_threads, of_tasks = inserts(stalled.store, range(40)), inserts(stalled.store, range(100, 200))

    async def tasks():
        return await asyncio.gather(*[write(committer, insert) for insert in of_tasks])

    with ThreadPoolExecutor(41) as pool:
        jobs = [pool.submit(committer.submit, insert) for insert in of_threads]
        loop = pool.submit(asyncio.run, tasks())
        wait_until(lambda: committer._room.waiting == 140 - QUEUE_MAX - 1)  # one is in the store's hands
        assert committer.queued == QUEUE_MAX
        stalled.may_go_on.set()
        outcomes = [job.result() for job in jobs] + loop.result()
    assert all(outcome.applied for outcome in outcomes)
    assert stalled.most_queued <= QUEUE_MAX
    assert all(
        stalled.store.read(insert.operation.key) == insert.operation for insert in of_threads + of_tasks
    )
    committer.close()


def test_callers_that_wait_too_long_for_room_are_told_that_nothing_was_recorded(stalled):
    committer = GroupCommit(stalled.apply, queue_max=1, room_seconds_max=0.01)
    first, queued, outside, outside_too = inserts(stalled.store, range(4))

    async def from_a_task():
        with pytest.raises(semel.StoreUnavailable, match=r"Nothing was recorded, nothing was sent"):
            await write(committer, outside_too)

    with ThreadPoolExecutor(2) as pool:
        written = [pool.submit(committer.submit, first)]
        assert stalled.arrived.wait(PATIENCE_SECONDS)
        written.append(pool.submit(committer.submit, queued))
        wait_until(lambda: committer.queued == 1)
        with pytest.raises(semel.StoreUnavailable, match=r"Nothing was recorded, nothing was sent"):
            committer.submit(outside)
        asyncio.run(from_a_task())
        stalled.may_go_on.set()
        assert all(job.result().applied for job in written)
    assert [stalled.store.read(one.operation.key) for one in (outside, outside_too)] == [None, None]
    assert committer.submit(outside).applied, "their places are free again"


def test_a_completion_needs_no_room_and_is_written_before_the_claims_that_wait(stalled):
    committer = stalled.committer
    (held,) = inserts(stalled.store, ["held"])
    stalled.store.apply([held])
    claims = inserts(stalled.store, range(3 * QUEUE_MAX))
    completion = lifecycle.commit(held.operation, result="1", now=stalled.store.now())
    with ThreadPoolExecutor(len(claims) + 1) as pool:
        jobs = [pool.submit(committer.submit, claim) for claim in claims]
        wait_until(lambda: committer._room.waiting == len(claims) - QUEUE_MAX - 1)
        jobs.append(pool.submit(committer.submit, completion))
        wait_until(lambda: committer.queued == QUEUE_MAX + 1)
        stalled.may_go_on.set()
        assert all(job.result().applied for job in jobs)
    assert stalled.batches[1][0] is completion


def test_a_task_that_waits_for_room_leaves_the_loop_free_and_can_be_cancelled(stalled):
    committer = stalled.committer
    queued, (outside,) = inserts(stalled.store, range(QUEUE_MAX + 1)), inserts(stalled.store, ["outside"])

    async def program():
        first, *rest = [asyncio.create_task(write(committer, insert)) for insert in queued]
        while committer.queued < QUEUE_MAX:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(write(committer, outside))
        while not committer._room.waiting:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        stalled.may_go_on.set()
        return await asyncio.gather(first, *rest)

    assert all(outcome.applied for outcome in asyncio.run(program()))
    assert stalled.store.read(outside.operation.key) is None
    assert committer._room.waiting == 0
    assert committer._room._free == QUEUE_MAX
    committer.close()


@pytest.mark.parametrize("engine", ["sync", "async"])
def test_nothing_is_sent_while_the_store_takes_no_claims_and_then_each_call_is_sent_once(
    engine, open_guard, ledger
):
    guard = open_guard()
    stalled = Stalled(guard.store)
    guard._core.committer = stalled.committer
    tool = register(
        guard, engine, lambda n: ledger.enter("tool", str(n)) or n, name="tool", effect=semel.Unsafe()
    )
    calls = 5 * QUEUE_MAX

    async def tasks():
        async with guard.run("run") as run:
            return await asyncio.gather(*[run.call(tool, n=n) for n in range(calls)])

    def threads():
        with guard.run("run") as run, ThreadPoolExecutor(calls) as callers:
            return list(
                callers.map(lambda n: run.call_at(tool, {"n": n}, step="1", call_id=str(n)), range(calls))
            )

    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(threads) if engine == "sync" else pool.submit(asyncio.run, tasks())
        wait_until(lambda: stalled.committer._room.waiting == calls - QUEUE_MAX - 1)
        assert ledger.lines() == []
        stalled.may_go_on.set()
        assert said.result() == list(range(calls))
    assert sorted(map(int, ledger.keys())) == list(range(calls))
    assert stalled.most_queued <= calls  # completions come on top of what waits for room
    stalled.committer.close()


def test_a_thread_that_is_interrupted_while_it_waits_keeps_nobody_from_writing(stalled):
    committer = stalled.committer
    first, mine, last = inserts(stalled.store, range(3))
    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(committer.submit, first)
        assert stalled.arrived.wait(PATIENCE_SECONDS)

        def interrupt():
            wait_until(lambda: committer.queued == 1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        interrupting = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            committer.submit(mine)
        interrupting.result()
        stalled.may_go_on.set()
        assert held.result().applied
    assert committer.submit(last).applied
    wait_until(lambda: stalled.store.read(mine.operation.key) == mine.operation)
    committer.close()


def test_a_place_is_never_lost_however_its_taker_ends():
    room = Room(2)

    def thread(number):
        if room.take(wait_seconds=0.001 * (number % 3)):
            room.give_back(1)

    async def task(number):
        if await room.take_async(wait_seconds=0.001 * (number % 4)):
            try:
                await asyncio.sleep(0)
            finally:
                room.give_back(1)

    async def tasks():
        started = [asyncio.create_task(task(number)) for number in range(60)]
        await asyncio.sleep(0)
        for each in started[::7]:
            each.cancel()
        await asyncio.gather(*started, return_exceptions=True)

    with ThreadPoolExecutor(9) as pool:
        loop = pool.submit(asyncio.run, tasks())
        list(pool.map(thread, range(200)))
        loop.result()
    assert room._free == 2
    assert room.waiting == 0
