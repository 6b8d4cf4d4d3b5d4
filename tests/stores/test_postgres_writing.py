"""Many writes as one statement: nothing of them is changed on the way, and no statement reads the whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from semel import keys, lifecycle
from semel.model import Insert
from semel.stores.postgres.store import PostgresStore
from semel.stores.postgres.writing import UNTOUCHED
from semel.testing.conformance import LEASE, claimed, intent

Query = Callable[..., list[tuple[Any, ...]]]

STRANGE_TEXTS = (
    "",
    "NULL",
    "null",
    " ",
    "a,b",
    '"quoted"',
    "back\\slash",
    '\\"',
    "{brace}",
    "new\nline\ttab",
    "é ✓ 𝄞",
    "%s $1 {how}",
)


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database)
    yield store
    store.close()


def test_a_batch_brings_every_text_back_exactly_as_it_was(store):
    claims = [
        replace(
            claimed(store, str(number)),
            namespace=text,
            run_id=text,
            step=text,
            call_id=text,
            tool=text,
            effect=text,
            fingerprint=text,
            arguments=text,
            once_key=f"{number}{text}",
            owner=text,
        )
        for number, text in enumerate(STRANGE_TEXTS)
    ]
    assert all(outcome.applied for outcome in store.apply([Insert(claim) for claim in claims]))
    assert [store.read(claim.key) for claim in claims] == claims
    ends = [
        lifecycle.commit(claim, result=text, now=store.now())
        for claim, text in zip(claims, STRANGE_TEXTS, strict=True)
    ]
    assert all(outcome.applied for outcome in store.apply(ends))
    assert [store.read(end.after.key) for end in ends] == [end.after for end in ends]


def test_a_batch_of_claims_and_completions_is_one_statement_and_tells_each_its_own(store):
    old, new, taken = (claimed(store, name) for name in ("old", "new", "taken"))
    other = replace(taken, owner="you/1")
    store.apply([Insert(old), Insert(other)])
    end = lifecycle.commit(old, result="1", now=store.now())
    stale = lifecycle.commit(replace(old, key="0" * 64), result="1", now=store.now())
    outcomes = store.apply([end, stale, Insert(new), Insert(taken)])
    assert [outcome.applied for outcome in outcomes] == [True, False, True, False]
    assert [outcome.operation for outcome in outcomes] == [end.after, None, new, other]


@pytest.mark.parametrize("size", [10, 2_000_000])
@pytest.mark.parametrize("once_key", [None, "event"])
def test_a_claim_is_told_what_is_in_its_way_whatever_its_size(store, size, once_key):
    first = claimed(store, "1", once_key=once_key)
    end = lifecycle.commit(first, result="x" * size, now=store.now())
    store.apply([Insert(first)])
    store.apply([end])
    second = claimed(store, "1" if once_key is None else "2", once_key=once_key, owner="you/1")
    (outcome,) = store.apply([Insert(second)])
    assert outcome == (False, end.after)


def test_a_record_that_is_not_a_fresh_claim_is_inserted_as_it_is(store):
    waiting = replace(lifecycle.not_sent(claimed(store), error="?", now=store.now()).after, fence=3)
    assert store.apply([Insert(waiting), Insert(claimed(store, "2"))])[0].applied
    assert store.read(waiting.key) == waiting


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
    assert {operation.key for operation in store.read_run("", "mine")} == {named.key, apart.key}


def test_no_read_of_a_call_or_a_sweep_goes_through_the_whole_table(store, database):
    parameters: dict[str, Any] = {
        "read": ("k",),
        "read_once": ("k",),
        "read_many": (["k"],),
        "read_run": {"first": "a", "past": "ag", "namespace": "", "run_id": "run"},
        "read_invoked": ("", "", 10),
        "read_at_rest": ("", "UNKNOWN", "", 10),
        "read_ended_before": ("", store.now(), "", 10),
        "read_history": ("k",),
        "read_divergences": ("", 10),
        "read_log": ("", "run"),
    }
    assert set(parameters) == {name for name in UNTOUCHED if name.startswith("read")}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")  # of empty tables it would be the better plan
        for name, given in parameters.items():
            plan = connection.execute(b"EXPLAIN " + UNTOUCHED[name], given).fetchall()
            assert not [line for (line,) in plan if "Seq Scan" in line], (name, plan)


GOOD: dict[str, Any] = {
    "key": "k",
    "namespace": "",
    "run_id": "run",
    "step": "1",
    "call_id": "",
    "tool": "charge",
    "effect": "unsafe",
    "fingerprint": "f",
    "arguments": "{}",
    "state": "INVOKED",
    "fence": 1,
    "lease_expires_at": "2026-01-01",
    "first_sent_at": "2026-01-01",
    "earlier_in_doubt": False,
    "created_at": "2026-01-01",
    "updated_at": "2026-01-01",
}
UNKNOWN = {"state": "UNKNOWN", "lease_expires_at": None}
COMMITTED = {"state": "COMMITTED", "lease_expires_at": None, "result": "1"}


def insert(query: Query, changes: dict[str, Any]) -> None:
    row = GOOD | changes
    query(
        f"INSERT INTO semel_operations ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})",
        *row.values(),
    )


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "changes", [{}, COMMITTED, UNKNOWN, COMMITTED | {"result": None, "reaped_at": "2026-01-02"}]
)
def test_a_good_row_is_taken(query, changes):
    insert(query, changes)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "changes",
    [
        {"state": "DONE"},
        {"fence": 0},
        {"lease_expires_at": None},
        {"first_sent_at": None},
        {"result": "1"},
        {"reaped_at": "2026-01-02"},
        UNKNOWN | {"lease_expires_at": "2026-01-02"},
        UNKNOWN | {"result": "1"},
        UNKNOWN | {"state": "PENDING", "reaped_at": "2026-01-02"},
        COMMITTED | {"result": None},
        COMMITTED | {"state": "FAILED"},
    ],
)
def test_a_bad_row_is_refused_by_a_sentence(query, changes):
    with pytest.raises(psycopg.errors.CheckViolation, match="each_state_has_its_columns_and_no_others"):
        insert(query, changes)
