"""Many writes as one statement: each is made once, whatever their number, and a run is found by its keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from semel import keys, lifecycle
from semel.model import Insert
from semel.stores.sqlite.plain_writes import ROWS_MOST, _sizes
from semel.stores.sqlite.store import SqliteStore
from semel.testing.conformance import LEASE, claimed, intent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "agent.db")
    yield store
    store.close()


@pytest.mark.parametrize("number", [1, 2, 3, ROWS_MOST - 1, ROWS_MOST, ROWS_MOST + 1, 3 * ROWS_MOST + 7])
def test_a_batch_of_any_size_writes_each_of_its_records_once(store, number):
    claims = [claimed(store, str(n)) for n in range(number)]
    assert [outcome.applied for outcome in store.apply([Insert(claim) for claim in claims])] == [
        True
    ] * number
    assert sorted(store.read_run("", "run"), key=lambda op: int(op.call_id)) == claims
    ends = [lifecycle.commit(claim, result=claim.call_id, now=store.now()) for claim in claims]
    assert [outcome.operation for outcome in store.apply(ends)] == [end.after for end in ends]
    assert [store.read(end.after.key) for end in ends] == [end.after for end in ends]


@pytest.mark.parametrize("number", range(2 * ROWS_MOST + 2))
def test_the_sizes_of_the_statements_add_up(number):
    sizes = list(_sizes(number))
    assert sum(sizes) == number
    assert all(size & (size - 1) == 0 and size <= ROWS_MOST for size in sizes)


def test_what_stands_in_the_way_of_one_does_not_keep_the_others_of_its_batch_from_being_written(store):
    claims = [claimed(store, str(n)) for n in range(10)]
    theirs = replace(claims[4], owner="you/1")
    store.apply([Insert(theirs)])
    stale = lifecycle.commit(claimed(store, "none"), result="1", now=store.now())
    outcomes = store.apply([stale, *[Insert(claim) for claim in claims]])
    assert [outcome.applied for outcome in outcomes] == [False, *[n != 4 for n in range(10)]]
    assert outcomes[5].operation == theirs
    assert len(store.read_run("", "run")) == 10


def test_a_run_is_read_whole_whether_or_not_its_keys_begin_with_its_name(store):
    named = lifecycle.open_claim(
        intent("1", key=keys.idempotency_key("", "mine", "1", "1"), run_id="mine"),
        owner="me/1",
        now=store.now(),
        lease=LEASE,
    )
    apart = claimed(store, "2", run_id="mine", key="f" * 64)
    other = claimed(store, "3", run_id="other", key=named.key[:-1] + "x")
    store.apply([Insert(named), Insert(apart), Insert(other)])
    assert store.read_run("", "mine") == [named, apart]
