"""What can go wrong between the guard and PostgreSQL, and what must then hold.

The servers, the wires and the processes are real. An effect is what stands in a file or a table that the guard
knows nothing of.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxy import Proxy

import semel
from semel import connect, lifecycle
from semel.model import Append, Insert, RunEvent, State
from semel.stores.postgres.clock import Sample, ServerClock, better_of, steady_microseconds
from semel.stores.postgres.store import PostgresStore
from semel.testing.conformance import claimed
from semel.testing.postgres_server import PostgresServer, free_port

HOUR = timedelta(hours=1)
NO_TIME = timedelta(0)

OpenGuard = Callable[..., semel.Guard]
Query = Callable[..., list[tuple[Any, ...]]]


class Ledger:
    """The provider's own list: one appended line an effect."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"

    def enter(self, key: str) -> None:
        file = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(file, f"{key}\n".encode())
        finally:
            os.close(file)

    def keys(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []

    def find(self, call: semel.Call) -> semel.Evidence:
        return semel.Found("found", key=call.key) if call.key in self.keys() else semel.Absent()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def open_guard(database: str) -> Iterator[OpenGuard]:
    """A guard on the test's database, or on another URL to it."""
    with ExitStack() as stack:

        def opened(url: str = database, **options: Any) -> semel.Guard:
            return stack.enter_context(semel.open(url, **{"wait": NO_TIME} | options))

        yield opened


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


@pytest.fixture
def through_proxy(postgres: PostgresServer, own_database: str, proxy: Proxy) -> str:
    return postgres.url_of(own_database.rpartition("/")[2], port=proxy.port)


def register_charge(guard: semel.Guard, ledger: Ledger) -> semel.Tool:
    @guard.tool(effect=semel.Unsafe(lookup=ledger.find, lookup_lag=NO_TIME, request_deadline=NO_TIME))
    def charge(amount: int, *, call: semel.Call) -> dict[str, Any]:
        ledger.enter(call.key)
        return {"charged": amount}

    return charge


def register_grant(guard: semel.Guard, during: Callable[[Any], None] = lambda tx: None) -> semel.Tool:
    @guard.tool(effect=semel.Atomic())
    def grant(customer: str, *, tx: Any) -> str:
        tx.execute("INSERT INTO grants (customer) VALUES (%s)", (customer,))
        during(tx)
        return f"granted to {customer}"

    return grant


GRANTS = "CREATE TABLE IF NOT EXISTS grants (customer text NOT NULL)"


def grants_in(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT customer FROM grants ORDER BY customer")]


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


# ------------------------------------------------------------------ an answer that is lost


def test_a_claim_whose_answer_is_lost_is_read_back_and_runs_once(
    open_guard: OpenGuard, through_proxy: str, proxy: Proxy, ledger: Ledger
) -> None:
    guard = open_guard(through_proxy)
    charge = register_charge(guard, ledger)
    with guard.run("r") as run:
        proxy.cut_with_the_answer_to(b"semel_claim")
        assert run.call(charge, amount=5) == {"charged": 5}
    assert proxy.cuts == 1, "the wire was never cut"
    assert len(ledger.keys()) == 1
    (operation,) = guard.store.read_run("", "r")
    assert (operation.state, operation.fence) == (State.COMMITTED, 1)


def test_a_completion_whose_answer_is_lost_is_recorded_once(
    open_guard: OpenGuard, through_proxy: str, proxy: Proxy, ledger: Ledger
) -> None:
    guard = open_guard(through_proxy)
    charge = register_charge(guard, ledger)
    with guard.run("r") as run:
        proxy.cut_with_the_answer_to(b"semel_commit")
        assert run.call(charge, amount=5) == {"charged": 5}
    assert proxy.cuts == 1, "the wire was never cut"
    assert len(ledger.keys()) == 1
    (operation,) = guard.store.read_run("", "r")
    assert operation.state is State.COMMITTED
    assert guard.divergences() == []


def test_claims_that_share_a_lost_answer_each_run_once(
    open_guard: OpenGuard, through_proxy: str, proxy: Proxy, ledger: Ledger
) -> None:
    guard = open_guard(through_proxy)
    charge = register_async_charge(guard, ledger)

    async def main() -> list[Any]:
        async with guard.run("r") as run:
            proxy.cut_with_the_answer_to(b"semel_write")
            return await asyncio.gather(*(run.call(charge, amount=n) for n in range(40)))

    assert asyncio.run(main()) == list(range(40))
    assert proxy.cuts == 1, "no claims were written together"
    assert len(ledger.keys()) == len(set(ledger.keys())) == 40


def register_async_charge(guard: semel.Guard, ledger: Ledger) -> semel.Tool:
    @guard.tool(effect=semel.Idempotent(key_ttl=HOUR))
    async def charge(amount: int, *, call: semel.Call) -> int:
        ledger.enter(call.key)
        return amount

    return charge


def test_an_atomic_commit_whose_answer_is_lost_is_read_back(
    open_guard: OpenGuard, through_proxy: str, own_database: str, proxy: Proxy
) -> None:
    execute(own_database, GRANTS)
    guard = open_guard(through_proxy)
    grant = register_grant(guard)
    with guard.run("r") as run:
        proxy.cut_with_the_answer_to(b"COMMIT\x00")
        assert run.call(grant, customer="ann") == "granted to ann"
    assert proxy.cuts == 1, "the wire was never cut"
    assert grants_in(own_database) == ["ann"]


def test_a_batch_of_which_a_part_is_recorded_is_never_told_as_not_recorded(
    through_proxy: str, proxy: Proxy
) -> None:
    store = PostgresStore(through_proxy)
    old, new = claimed(store, "1"), claimed(store, "2")
    store.apply([Insert(old)])
    proxy.cut_with_the_answer_to(b"WHERE key = ANY")
    with pytest.raises(semel.CommitInDoubt):
        store.apply([Insert(old), Insert(new)])
    assert proxy.cuts == 1, "the wire was never cut"
    assert store.read(new.key) == new
    store.close()


def test_a_wire_cut_before_commit_leaves_neither_effect_nor_record(
    open_guard: OpenGuard, through_proxy: str, own_database: str, proxy: Proxy
) -> None:
    execute(own_database, GRANTS)
    guard = open_guard(through_proxy)
    grant = register_grant(guard)
    with guard.run("r") as run:
        proxy.cut_with_the_answer_to(b"INSERT INTO grants")
        with pytest.raises(semel.StoreUnavailable):
            run.call(grant, customer="ann")
    assert proxy.cuts == 1, "the wire was never cut"
    assert grants_in(own_database) == []
    assert guard.store.read_run("", "r") == []
    with guard.run("r") as run:
        assert run.call(grant, customer="ann") == "granted to ann"
    assert grants_in(own_database) == ["ann"]


# ------------------------------------------------------------------ a server that is away


def test_a_refused_connection_at_the_claim_sends_nothing_and_heals(
    open_guard: OpenGuard, through_proxy: str, proxy: Proxy, ledger: Ledger
) -> None:
    guard = open_guard(through_proxy)
    charge = register_charge(guard, ledger)
    with guard.run("r") as run:
        proxy.refuse()
        with pytest.raises(semel.StoreUnavailable, match="nothing was sent"):
            run.call_at(charge, {"amount": 5}, step="1", call_id="1")
        assert ledger.keys() == []
        proxy.accept()
        assert run.call_at(charge, {"amount": 5}, step="1", call_id="1") == {"charged": 5}
    assert len(ledger.keys()) == 1


def test_a_server_that_was_never_there_is_said_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(semel.StoreUnavailable, match=r"Cannot connect to postgresql://127\.0\.0\.1"):
        semel.open(f"postgresql://postgres:secret@127.0.0.1:{free_port()}/nowhere")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_after_a_restart_of_the_server_the_next_call_finds_a_good_connection(
    how: signal.Signals, open_guard: OpenGuard, postgres: PostgresServer, own_database: str, ledger: Ledger
) -> None:
    execute(own_database, GRANTS)
    guard = open_guard(own_database)
    charge, grant = register_charge(guard, ledger), register_grant(guard)
    with guard.run("r") as run:
        run.call(charge, amount=1)
        run.call(grant, customer="ann")
        postgres.restart(how=how)
        assert run.call(charge, amount=2) == {"charged": 2}
        assert run.call(grant, customer="bob") == "granted to bob"
    assert len(ledger.keys()) == 2
    assert grants_in(own_database) == ["ann", "bob"]


def test_a_restart_while_the_effect_runs_does_not_lose_its_record(
    open_guard: OpenGuard, postgres: PostgresServer, own_database: str
) -> None:
    guard = open_guard(own_database)

    @guard.tool(effect=semel.Unsafe())
    def charge(*, call: semel.Call) -> str:
        postgres.restart(how=signal.SIGQUIT)
        return call.key

    with guard.run("r") as run:
        key = run.call(charge)
    found = guard.read(key)
    assert found is not None
    assert found.state is State.COMMITTED


def test_a_server_that_takes_no_writes_is_left_for_one_that_does(
    open_guard: OpenGuard, database: str, maintenance_url: str, ledger: Ledger
) -> None:
    guard = open_guard()
    charge = register_charge(guard, ledger)
    name = database.rpartition("/")[2]
    with guard.run("r") as run:
        run.call(charge, amount=1)
        execute(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with psycopg.connect(database, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with pytest.raises(semel.StoreUnavailable, match="read-only"):
            run.call_at(charge, {"amount": 2}, step="2", call_id="1")
        execute(maintenance_url, f"ALTER DATABASE {name} RESET ALL")
        assert run.call_at(charge, {"amount": 2}, step="2", call_id="1") == {"charged": 2}
    assert len(ledger.keys()) == 2


# ------------------------------------------------------------------ deadlocks and serialisation failures

COUNTERS = "CREATE TABLE counters (name text PRIMARY KEY, n integer NOT NULL)"


def test_of_two_atomic_tools_in_a_deadlock_both_take_effect_once(
    open_guard: OpenGuard, database: str, query: Query
) -> None:
    execute(database, f"{COUNTERS}; INSERT INTO counters VALUES ('a', 0), ('b', 0)")
    guard = open_guard()
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    @guard.tool(effect=semel.Atomic())
    def add(first: str, second: str, *, tx: Any) -> str:
        tries.append(first)
        tx.execute("UPDATE counters SET n = n + 1 WHERE name = %s", (first,))
        if tries.count(first) == 1:
            both_hold_one.wait(20)
        tx.execute("UPDATE counters SET n = n + 1 WHERE name = %s", (second,))
        return first

    def call(first: str, second: str) -> None:
        with guard.run(f"r:{first}") as run:
            run.call(add, first=first, second=second)

    in_parallel(lambda: call("a", "b"), lambda: call("b", "a"))
    assert len(tries) > 2, "there was no deadlock"
    assert query("SELECT n FROM counters") == [(2,), (2,)]


def test_an_atomic_tool_that_cannot_be_serialised_runs_again_and_takes_effect_once(
    open_guard: OpenGuard, database: str, query: Query
) -> None:
    execute(database, f"{COUNTERS}; INSERT INTO counters VALUES ('a', 0)")
    guard = open_guard(isolation="serializable")
    both_have_read = threading.Barrier(2)
    tries: list[str] = []

    @guard.tool(effect=semel.Atomic())
    def add(name: str, *, tx: Any) -> int:
        ((n,),) = tx.execute("SELECT n FROM counters").fetchall()
        tries.append(name)
        if tries.count(name) == 1:
            both_have_read.wait(20)
        tx.execute("UPDATE counters SET n = %s", (n + 1,))
        return int(n) + 1

    def call(name: str) -> None:
        with guard.run(f"r:{name}") as run:
            run.call(add, name=name)

    in_parallel(lambda: call("one"), lambda: call("two"))
    assert len(tries) > 2, "nothing had to be repeated"
    assert query("SELECT n FROM counters") == [(2,)]


def test_a_batch_in_a_deadlock_is_written_again_whole(database: str) -> None:
    store = PostgresStore(database)
    mine = [claimed(store, "1"), claimed(store, "2")]
    store.apply([Insert(op) for op in mine])
    outcomes: list[Any] = []
    writer = threading.Thread(target=lambda: outcomes.extend(store.apply([Insert(op) for op in mine])))
    with psycopg.connect(database) as other:
        other.execute("SET deadlock_timeout = '1h'")  # the other side does not give way
        other.execute("CREATE TEMP TABLE copies AS SELECT * FROM semel_operations")
        other.execute("DELETE FROM semel_operations")
        other.commit()
        other.execute("INSERT INTO semel_operations SELECT * FROM copies WHERE call_id = '2'")
        writer.start()
        wait_for_a_lock_on(database)
        other.execute("INSERT INTO semel_operations SELECT * FROM copies WHERE call_id = '1'")
    writer.join(20)
    assert outcomes == [(False, operation) for operation in mine]
    store.close()


def wait_for_a_lock_on(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
            connection.execute("SELECT pg_sleep(0.01)")


def in_parallel(*calls: Callable[[], None]) -> None:
    problems: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def test_a_tool_that_swallows_an_error_of_the_database_is_told_and_nothing_happened(
    open_guard: OpenGuard, database: str
) -> None:
    execute(database, GRANTS)
    guard = open_guard()

    def swallow(tx: Any) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable):
            tx.execute("SELECT * FROM nowhere")

    grant = register_grant(guard, swallow)
    with guard.run("r") as run, pytest.raises(semel.UsageError, match="SAVEPOINT"):
        run.call(grant, customer="ann")
    assert grants_in(database) == []
    assert guard.store.read_run("", "r") == []


def test_a_tool_may_go_back_to_its_own_savepoint(open_guard: OpenGuard, database: str) -> None:
    execute(database, GRANTS)
    guard = open_guard()

    def try_and_go_back(tx: Any) -> None:
        tx.execute("SAVEPOINT mine")
        with pytest.raises(psycopg.errors.UndefinedTable):
            tx.execute("SELECT * FROM nowhere")
        tx.execute("ROLLBACK TO SAVEPOINT mine")

    grant = register_grant(guard, try_and_go_back)
    with guard.run("r") as run:
        run.call(grant, customer="ann")
    assert grants_in(database) == ["ann"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1; COMMIT",
        ";COMMIT",
        "/* /* nested */ */ COMMIT",
        "-- x\n rollback",
        "PREPARE TRANSACTION 'x'",
        b"COMMIT",
        psycopg.sql.SQL("COMMIT"),
    ],
)
def test_nothing_that_a_tool_executes_ends_the_transaction(
    statement: Any, open_guard: OpenGuard, database: str
) -> None:
    execute(database, GRANTS)
    guard = open_guard()
    grant = register_grant(guard, lambda tx: tx.cursor().execute(statement))
    with guard.run("r") as run, pytest.raises((semel.UsageError, psycopg.errors.SyntaxError)):
        run.call(grant, customer="ann")
    assert grants_in(database) == []


# ------------------------------------------------------------------ values, and what cannot be held

STRANGE_RESULTS = [
    "NUL \x00 in the middle",
    "half a surrogate \ud800",
    "a literal \\u0000",
    2**53 + 1,
    10**40,
    {"\x00": ["\udfff", "\\ud800", float("inf")], "é ✓": b"\x00\xff"},
]


@pytest.mark.parametrize("result", STRANGE_RESULTS, ids=ascii)
def test_a_strange_result_comes_back_exactly(result: Any, open_guard: OpenGuard) -> None:
    guard = open_guard()

    @guard.tool(effect=semel.Unsafe())
    def fetch() -> Any:
        return result

    with guard.run("r") as run:
        run.call(fetch)
    other = open_guard()

    @other.tool(effect=semel.Unsafe(), name="fetch")
    def never() -> Any:
        raise AssertionError("it ran again")

    with other.run("r") as run:
        replayed = run.call(never)
    assert replayed == result
    assert type(replayed) is type(result)


def test_what_is_too_large_to_be_read_again_is_refused_before_it_is_sent(database: str) -> None:
    store = PostgresStore(database)
    operation = claimed(store)
    store.apply([Insert(operation)])
    too_large = lifecycle.commit(operation, result=" " * 400_000_001, now=store.now())
    with pytest.raises(semel.WriteRefused):
        store.apply([too_large])
    assert store.read(operation.key) == operation
    store.close()


def test_large_writes_in_one_batch_do_not_share_an_array(database: str) -> None:
    store = PostgresStore(database)
    operations = [claimed(store, str(n)) for n in range(4)]
    store.apply([Insert(op) for op in operations])
    large = '"' + "x" * 3_000_000 + '"'
    moves = [lifecycle.commit(op, result=large, now=store.now()) for op in operations]
    assert all(outcome.applied for outcome in store.apply(moves))
    assert [op.result for op in store.read_run("", "run")] == [large] * 4
    store.close()


def test_events_of_a_log_are_written_all_or_none(database: str) -> None:
    store = PostgresStore(database)
    events = tuple(
        RunEvent(namespace="", run_id="run", position=n, kind="turn", payload="1", at=store.now())
        for n in range(4)
    )
    assert store.apply([Append(events[:1])])[0].applied
    assert not store.apply([Append(events)])[0].applied
    assert store.read_log("", "run") == list(events[:1])
    store.close()


# ------------------------------------------------------------------ durability


def test_a_claim_is_flushed_whatever_the_server_is_set_to_and_a_completion_is_not_waited_for(
    postgres: PostgresServer, own_database: str
) -> None:
    name = own_database.rpartition("/")[2]
    execute(own_database, f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = PostgresStore(own_database)
    with psycopg.connect(own_database, autocommit=True) as witness:
        unflushed_completions = 0
        for n in range(20):
            operation = claimed(store, str(n))
            before = lsn(witness, "pg_current_wal_insert_lsn()")
            store.apply([Insert(operation)])
            assert lsn(witness, "pg_current_wal_flush_lsn()") > before, "the claim was not flushed"
            store.apply([lifecycle.commit(operation, result="1", now=store.now())])
            after = lsn(witness, "pg_current_wal_insert_lsn()")
            unflushed_completions += lsn(witness, "pg_current_wal_flush_lsn()") < after
    store.close()
    assert unflushed_completions > 0, "each completion was flushed"


def lsn(connection: psycopg.Connection[Any], which: str) -> int:
    ((position,),) = connection.execute(f"SELECT {which} - '0/0'::pg_lsn".encode()).fetchall()
    return int(position)


@pytest.mark.parametrize(
    ("how", "expected"), [("flushed", "on"), ("unflushed", "off"), ("untouched", "local")]
)
def test_a_setting_for_flushing_lasts_as_long_as_its_transaction(
    how: str, expected: str, database: str
) -> None:
    PostgresStore(database).close()
    with psycopg.connect(database) as connection:
        connection.execute(f"SET synchronous_commit = {'off' if how == 'flushed' else 'local'}".encode())
        connection.commit()
        connection.execute("SELECT semel_flush(%s)", (how,))
        assert connection.execute("SHOW synchronous_commit").fetchone() == (expected,)
        connection.commit()
        assert connection.execute("SHOW synchronous_commit").fetchone() != ("on",)


# ------------------------------------------------------------------ poolers


FLUSH = b"H\x00\x00\x00\x04"  # of the protocol; PgBouncer takes a session for it and keeps it


def test_nothing_is_sent_after_a_transaction_that_would_hold_a_poolers_session(
    through_proxy: str, proxy: Proxy
) -> None:
    store = PostgresStore(through_proxy)
    one, two, atomic = (claimed(store, str(n)) for n in range(3))
    store.apply([Insert(one)])
    assert not proxy.last_request.endswith(FLUSH)
    store.apply([Insert(two), lifecycle.commit(one, result="1", now=store.now())])
    assert not proxy.last_request.endswith(FLUSH)
    with store.transaction() as transaction:
        transaction.insert(atomic)
    assert not proxy.last_request.endswith(FLUSH)
    store.close()


# ------------------------------------------------------------------ forks


def test_parent_and_child_each_use_connections_of_their_own(open_guard: OpenGuard, tmp_path: Path) -> None:
    guard = open_guard()

    @guard.tool(effect=semel.Atomic())
    def session(*, tx: Any) -> int:
        return int(tx.execute("SELECT pg_backend_pid()").fetchone()[0])

    with guard.run("parent") as run:
        before = run.call(session)
        child = os.fork()
        if child == 0:
            with guard.run("child") as own_run:
                (tmp_path / "session").write_text(str(own_run.call(session)))
            guard.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert run.call(session) == before, "the child has closed the parent's connection"
    assert int((tmp_path / "session").read_text()) != before


# ------------------------------------------------------------------ the schema

OPEN_AND_CLOSE = """
import sys, semel, semel.stores.postgres.store
print("ready", flush=True)
sys.stdin.readline()
semel.open(sys.argv[1]).close()
"""


def test_processes_that_start_at_once_prepare_the_tables_once(database: str, query: Query) -> None:
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_CLOSE, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(6)
    ]
    assert [process.stdout.readline() for process in starting] == [b"ready\n"] * 6
    for process in starting:
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in starting:
        process.communicate(timeout=60)
    assert [process.returncode for process in starting] == [0] * 6
    assert query("SELECT version FROM semel_schema ORDER BY version") == [(1,), (2,)]


def test_a_newer_schema_is_refused_and_left_as_it_is(database: str, query: Query) -> None:
    connect.migrate_schema(database)
    query("INSERT INTO semel_schema (version) VALUES (999)")
    assert connect.schema_status(database).version == 999
    for refused in (semel.open, connect.migrate_schema):
        with pytest.raises(semel.UsageError, match="newer Semel"):
            refused(database)


def test_a_role_that_may_not_create_tables_is_told_what_to_run(database: str, query: Query) -> None:
    role = f"reader_{os.getpid()}"
    query(f"CREATE ROLE {role} LOGIN")
    try:
        as_reader = database.replace("postgres@", f"{role}@")
        with pytest.raises(semel.UsageError, match="semel db migrate"):
            semel.open(as_reader)
        with pytest.raises(semel.UsageError, match="semel db migrate"):
            semel.open(database, migrations="require")
        connect.migrate_schema(database)
        semel.open(database, migrations="require").close()
    finally:
        query(f"DROP ROLE {role}")


def test_the_command_tells_and_changes_the_schema(database: str, tmp_path: Path) -> None:
    for url in (database, f"sqlite:///{tmp_path}/agent.db"):
        told = [db(verb, url) for verb in ("status", "migrate", "status")]
        assert [status for status, _ in told] == [1, 0, 0], url
        assert "none of Semel's tables" in told[0][1]
        assert "up to date" in told[2][1]
    status, text = db("status", f"postgresql://postgres:secret@127.0.0.1:{free_port()}/nowhere")
    assert status == 2
    assert "secret" not in text


def db(verb: str, url: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "semel.cli.main", "db", verb, "--store", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_database_that_cannot_hold_all_text_is_refused(maintenance_url: str) -> None:
    name = f"semel_latin_{os.getpid()}"
    execute(maintenance_url, f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(semel.UsageError, match="UTF8"):
            semel.open(maintenance_url.rpartition("/")[0] + f"/{name}")
    finally:
        execute(maintenance_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("postgresql://h/d?nonsense=1", {}, "cannot be read"),
        ("postgresql://h/d", {"durability": "never"}, "durability="),
        ("postgresql://user:secret@h/d", {"unknown": 1}, "unknown"),
    ],
)
def test_what_cannot_be_opened_is_refused_without_telling_the_password(
    url: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(semel.UsageError, match=told) as refused:
        semel.open(url, **options)
    assert "secret" not in str(refused.value)


def test_without_psycopg_the_package_to_install_is_named() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; import semel\n"
        "try: semel.open('postgresql://h/d')\n"
        "except semel.UsageError as refused: print(refused)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "pip install 'semel[postgres]'" in told.stdout


# ------------------------------------------------------------------ the clock


def test_the_stores_clock_is_the_databases_and_needs_no_round_trip(database: str, query: Query) -> None:
    store = PostgresStore(database)
    before = store.now()
    ((server,),) = query("SELECT clock_timestamp()")
    store.close()
    assert abs((server - before).total_seconds()) < 1
    assert before < store.now(), "it goes on without a connection"


def test_of_two_samples_the_better_known_is_kept_and_goes_stale_in_time() -> None:
    good, poor = Sample(offset=1_000, error=50, taken=0), Sample(offset=900, error=200, taken=100_000)
    kept = better_of(good, poor)
    assert (kept.offset, kept.error) == (1_000, 50 + 50), "half a millisecond a second"
    late = poor._replace(taken=1_000_000)
    assert better_of(good, late) == late


def test_a_sample_that_contradicts_what_was_known_is_believed() -> None:
    good = Sample(offset=1_000, error=50, taken=0)
    another_server = Sample(offset=-5_000_000, error=4_000, taken=1_000_000)
    assert better_of(good, another_server) == another_server


def test_the_clock_does_not_go_back_while_it_learns_but_follows_a_server_that_is_set_back() -> None:
    clock, at = ServerClock(), steady_microseconds()
    clock.learn(at + 1_000_000, at - 100_000, at + 100_000)
    first = clock.now()
    clock.learn(at + 990_000, at, at)
    assert clock.now() >= first
    clock.learn(at - 60_000_000, at, at)
    assert clock.now() < first - timedelta(seconds=50)


# ------------------------------------------------------------------ limits


def test_when_all_connections_are_in_use_the_next_transaction_is_told_so(database: str) -> None:
    store = PostgresStore(database, transactions_max=1, wait_seconds=0.05)
    with store.transaction(), pytest.raises(semel.StoreUnavailable, match="All 1 connections"):
        store.transaction().__enter__()
    with store.transaction() as transaction:
        transaction.handle.execute("SELECT 1")
    store.close()


def test_a_store_that_was_closed_says_so(database: str) -> None:
    store = PostgresStore(database)
    store.close()
    with pytest.raises(semel.StoreUnavailable, match="closed"):
        store.read("0" * 64)
