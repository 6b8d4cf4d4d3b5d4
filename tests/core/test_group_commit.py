"""Callers in flight at the same time share one flush, and nothing else: not their errors, not their fate."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from workbench import PATIENCE_SECONDS, register, wait_until

import semel
from semel import lifecycle
from semel.connect import open_store
from semel.engine.group_commit import BATCH_MAX, GroupCommit
from semel.model import Insert
from semel.testing.conformance import claimed


class Watched:
    """A real store that notes the size of each batch, and holds the first batch until told."""

    def __init__(self, store):
        self.store, self.sizes = store, []
        self.arrived, self.may_go_on = threading.Event(), threading.Event()

    def apply(self, writes):
        self.sizes.append(len(writes))
        if len(self.sizes) == 1:
            self.arrived.set()
            assert self.may_go_on.wait(PATIENCE_SECONDS)
        return self.store.apply(writes)


@pytest.fixture
def watched():
    store = open_store(":memory:")
    yield Watched(store)
    store.close()


def submit_all(watched, committer, writes):
    """The first write is held in the store until all the others have queued up behind it."""
    with ThreadPoolExecutor(len(writes)) as pool:
        first = pool.submit(committer.submit, writes[0])
        assert watched.arrived.wait(PATIENCE_SECONDS)
        rest = [pool.submit(committer.submit, write) for write in writes[1:]]
        wait_until(lambda: committer.queued == len(rest))
        watched.may_go_on.set()
        return [first, *rest]


def queue(committer, writes):
    """From a task; there is room for all of them."""
    futures = [committer.enqueue(write, asyncio.get_running_loop()) for write in writes]
    assert None not in futures
    return futures


def inserts(store, how_many, **changes):
    return [Insert(claimed(store, str(n), **changes)) for n in range(how_many)]


def test_callers_that_wait_at_the_same_time_share_one_transaction(watched):
    committer = GroupCommit(watched.apply)
    writes = inserts(watched.store, 20)
    for write, answered in zip(writes, submit_all(watched, committer, writes), strict=True):
        assert answered.result() == (True, write.operation)
    assert watched.sizes == [1, 19]


def test_a_caller_that_is_alone_writes_in_its_own_thread(watched):
    watched.may_go_on.set()
    threads = []
    committer = GroupCommit(
        lambda writes: threads.append(threading.current_thread()) or watched.apply(writes)
    )
    committer.submit(inserts(watched.store, 1)[0])
    assert threads == [threading.current_thread()]


def test_a_batch_has_a_limit(watched):
    committer = GroupCommit(watched.apply)
    first, *rest = inserts(watched.store, 1 + BATCH_MAX + 10)

    async def program():
        held = queue(committer, [first])
        assert await asyncio.to_thread(watched.arrived.wait, PATIENCE_SECONDS)
        futures = queue(committer, rest)
        watched.may_go_on.set()
        return await asyncio.gather(*held, *futures)

    assert all(outcome.applied for outcome in asyncio.run(program()))
    assert watched.sizes == [1, BATCH_MAX, 10]
    committer.close()


def test_each_of_a_batch_gets_its_own_answer(watched):
    committer = GroupCommit(watched.apply)
    (once, *_), again = inserts(watched.store, 1), inserts(watched.store, 1, owner="you/1")
    answers = [answered.result() for answered in submit_all(watched, committer, [once, *again, *again])]
    assert [outcome.applied for outcome in answers] == [True, False, False]
    assert all(outcome.operation == once.operation for outcome in answers)


# hazard 17
def test_one_write_that_is_too_large_for_the_store_does_not_take_its_neighbours_with_it(
    narrow_sqlite, watched
):
    committer = GroupCommit(watched.apply)
    first, *rest = inserts(watched.store, 5)
    huge = lifecycle.commit(first.operation, result="x" * 2 * narrow_sqlite, now=watched.store.now())
    *good, bad = submit_all(watched, committer, [first, *rest, huge])
    assert all(answered.result().applied for answered in good)
    with pytest.raises(semel.WriteRefused):
        bad.result()


def test_one_write_with_text_that_no_database_keeps_does_not_take_its_neighbours_with_it(watched):
    committer = GroupCommit(watched.apply)
    first, *rest = inserts(watched.store, 4)
    odd = claimed(watched.store, "odd", tool="\ud800")
    *good, bad = submit_all(watched, committer, [first, *rest, Insert(odd)])
    assert all(answered.result().applied for answered in good)
    with pytest.raises(semel.SemelError):
        bad.result()


def test_a_tool_whose_name_no_database_keeps_is_refused(guard):
    for name in ("\ud800", "a\x00"):
        with pytest.raises(semel.UsageError, match="Nothing was registered"):
            guard.tool(effect=semel.Unsafe(), name=name)(lambda: None)


def test_an_interrupted_leader_does_not_tell_the_others_that_nothing_was_written(watched):
    is_interrupted = []

    def apply(writes):
        outcomes = watched.apply(writes)
        if len(writes) > 1 and not is_interrupted:
            is_interrupted.append(True)
            raise KeyboardInterrupt
        return outcomes

    committer = GroupCommit(apply)
    answers = []
    for answered in submit_all(watched, committer, inserts(watched.store, 6))[1:]:
        try:
            answers.append(answered.result())
        except BaseException as error:
            answers.append(error)
    kinds = sorted(type(answer).__name__ for answer in answers)
    assert kinds == ["CommitInDoubt"] * 4 + ["KeyboardInterrupt"]


def test_a_loop_that_was_closed_meanwhile_does_not_stop_the_writer(watched):
    committer = GroupCommit(watched.apply)
    first, second = inserts(watched.store, 2)

    async def abandon():
        queue(committer, [first])
        assert await asyncio.to_thread(watched.arrived.wait, PATIENCE_SECONDS)

    asyncio.run(abandon())
    watched.may_go_on.set()
    assert committer.submit(second).applied
    assert watched.store.read(first.operation.key) == first.operation
    committer.close()


def test_sync_and_async_callers_of_one_guard_run_side_by_side(open_guard, ledger):
    guard = open_guard()
    plain = register(guard, "sync", lambda n: ledger.enter("plain") or n, name="plain", effect=semel.Unsafe())
    awaited = register(
        guard, "async", lambda n: ledger.enter("awaited") or n, name="awaited", effect=semel.Unsafe()
    )

    def sync_caller(number):
        with guard.run(f"sync {number}") as run:
            return [run.call(plain, n) for n in range(20)]

    async def async_caller():
        async with guard.run("async") as run:
            return await asyncio.gather(*[run.call(awaited, n) for n in range(60)])

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(sync_caller, number) for number in range(3)] + [
            pool.submit(asyncio.run, async_caller())
        ]
        said = [job.result() for job in jobs]
    assert said == [list(range(20))] * 3 + [list(range(60))]
    assert len(ledger.lines()) == 120
