"""The database file: where it may lie, what it may hold, and what its schema refuses."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from workbench import FORKS, PATIENCE_SECONDS, Child, call, register

import semel
from semel.stores.sqlite.place import check_place, file_system_of

LINE = "{id} 1 0:{id} / {at} rw,relatime shared:1 - {kind} {source} rw"


def mounts(*lines: tuple[str, str]) -> str:
    """The text of /proc/self/mountinfo for these (mount point, file system)."""
    every = [("/", "ext4"), *lines]
    return "\n".join(
        LINE.format(id=n + 20, at=at, kind=kind, source="any") for n, (at, kind) in enumerate(every)
    )


# ------------------------------------------------------------------ the place


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "fuse.sshfs", "fuse.s3fs"])
def test_a_network_file_system_is_refused(tmp_path, kind):
    with pytest.raises(
        semel.UsageError, match=rf"network file system \({kind}\).*Nothing was opened.*local disk"
    ):
        check_place(tmp_path / "agent.db", mounts=mounts((str(tmp_path), kind)))


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs"])
def test_a_local_file_system_is_taken(tmp_path, kind):
    check_place(tmp_path / "agent.db", mounts=mounts((str(tmp_path), kind)))


def test_the_deepest_mount_point_above_the_folder_counts(tmp_path):
    local = mounts(("/tmp", "nfs4"), (str(tmp_path.parent), "nfs4"), (str(tmp_path), "ext4"))
    check_place(tmp_path / "agent.db", mounts=local)
    remote = mounts((str(tmp_path.parent), "ext4"), (str(tmp_path), "nfs4"), (f"{tmp_path}-2", "ext4"))
    with pytest.raises(semel.UsageError):
        check_place(tmp_path / "agent.db", mounts=remote)


def test_what_was_mounted_last_over_one_place_counts(tmp_path):
    """As with automount: first its trap, then the real thing, both at one mount point."""
    with pytest.raises(semel.UsageError, match="nfs4"):
        check_place(tmp_path / "agent.db", mounts=mounts((str(tmp_path), "autofs"), (str(tmp_path), "nfs4")))


@pytest.mark.parametrize("name", ["größe", "a b", "tab\there", "back\\slash", "日本"])
def test_a_mount_point_is_recognised_whatever_its_name(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    written = str(folder).replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011")
    assert file_system_of(folder, mounts((written, "nfs4"))) == "nfs4"


def test_a_database_that_is_a_link_into_a_network_file_system_is_refused(tmp_path):
    remote = tmp_path / "remote"
    remote.mkdir()
    semel.open(f"sqlite:///{remote}/agent.db").close()
    (tmp_path / "agent.db").symlink_to(remote / "agent.db")
    with pytest.raises(semel.UsageError, match="network file system"):
        check_place(tmp_path / "agent.db", mounts=mounts((str(remote), "nfs4")))


def test_a_folder_that_is_a_link_into_a_network_file_system_is_refused(tmp_path):
    remote = tmp_path / "remote"
    remote.mkdir()
    (tmp_path / "local").symlink_to(remote)
    with pytest.raises(semel.UsageError, match="network file system"):
        check_place(tmp_path / "local" / "agent.db", mounts=mounts((str(remote), "nfs4")))


def test_a_folder_and_a_missing_folder_are_refused(tmp_path):
    with pytest.raises(semel.UsageError, match="is a directory"):
        check_place(tmp_path)
    with pytest.raises(semel.UsageError, match="does not exist"):
        check_place(tmp_path / "nowhere" / "agent.db")


def open_as_nobody(path: str) -> str:
    os.setgid(65534)
    os.setuid(65534)
    try:
        semel.open(f"sqlite:///{path}").close()
    except semel.SemelError as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")
@pytest.mark.parametrize("what", ["the folder", "the file", "the folder of the file"])
def test_a_place_that_this_user_may_not_write_to_is_refused(tmp_path, what):
    folder = Path(f"/tmp/semel-test-{os.getpid()}-{what.replace(' ', '-')}")
    folder.mkdir(mode=0o755)
    try:
        if what != "the folder":
            semel.open(f"sqlite:///{folder}/agent.db").close()
            (folder / "agent.db").chmod(0o666 if what == "the folder of the file" else 0o644)
        said = Child(open_as_nobody, str(folder / "agent.db")).result()
        assert said.partition(":")[0] in ("UsageError", "StoreUnavailable")
        assert "Nothing was" in said
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


# ------------------------------------------------------------------ what the file holds


@pytest.mark.parametrize("content", [b"hello", b"SQLite format 4\x00" * 100, os.urandom(5000)])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "agent.db"
    path.write_bytes(content)
    with pytest.raises(
        semel.UsageError, match=r"is not an SQLite database.*Nothing was written.*another file"
    ):
        semel.open(f"sqlite:///{path}")
    assert path.read_bytes() == content


def foreign(path: Path, statement: str = "CREATE TABLE customers (name TEXT)") -> bytes:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize("statement", ["CREATE TABLE customers (name TEXT)", "PRAGMA application_id = 42"])
def test_another_programs_database_is_refused_and_left_alone(tmp_path, statement):
    before = foreign(tmp_path / "agent.db", statement)
    with pytest.raises(semel.UsageError, match=r"none of Semel's tables.*Nothing was written"):
        semel.open(f"sqlite:///{tmp_path}/agent.db")
    assert (tmp_path / "agent.db").read_bytes() == before


def test_ones_own_database_can_be_adopted(tmp_path):
    foreign(tmp_path / "agent.db")
    for existing in ("adopt", "refuse"):  # once its tables are there, no further word is needed
        with semel.open(f"sqlite:///{tmp_path}/agent.db", existing=existing) as guard:

            def grant(*, tx):
                tx.execute("INSERT INTO customers VALUES ('ann')")

            call(guard, "sync", "run", guard.tool(effect=semel.Atomic())(grant))
    connection = sqlite3.connect(tmp_path / "agent.db")
    assert connection.execute("SELECT * FROM customers").fetchall() == [("ann",)]
    connection.close()


def test_a_database_of_a_newer_semel_is_refused_and_left_alone(tmp_path):
    semel.open(f"sqlite:///{tmp_path}/agent.db").close()
    before = foreign(tmp_path / "agent.db", "INSERT INTO semel_schema VALUES (9999)")
    with pytest.raises(semel.UsageError, match=r"newer Semel \(schema 9999.*Nothing was changed.*Upgrade"):
        semel.open(f"sqlite:///{tmp_path}/agent.db")
    assert (tmp_path / "agent.db").read_bytes() == before


def schema(path: Path) -> list[Any]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    rows += connection.execute("SELECT version FROM semel_schema ORDER BY version").fetchall()
    connection.close()
    return rows


def test_migrations_run_once(tmp_path, ledger):
    with semel.open(f"sqlite:///{tmp_path}/agent.db") as guard:
        tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda: ledger.enter("charge"))
        call(guard, "sync", "run", tool)
    first = schema(tmp_path / "agent.db")
    with semel.open(f"sqlite:///{tmp_path}/agent.db") as guard:
        tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda: ledger.enter("charge"))
        call(guard, "sync", "run", tool)
    assert schema(tmp_path / "agent.db") == first
    assert len(ledger.lines()) == 1


def open_when_all_are_there(path: str, barrier: Any) -> None:
    barrier.wait(PATIENCE_SECONDS)
    semel.open(f"sqlite:///{path}").close()


def test_many_processes_that_open_a_new_file_at_once_all_find_one_schema(tmp_path):
    barrier = FORKS.Barrier(6)
    children = [Child(open_when_all_are_there, f"{tmp_path}/agent.db", barrier) for _ in range(6)]
    assert [child.result() for child in children] == [None] * 6
    versions = [row for row in schema(tmp_path / "agent.db") if len(row) == 1]
    assert versions == [(n + 1,) for n in range(len(versions))]


def test_an_empty_file_is_a_new_database(tmp_path):
    (tmp_path / "agent.db").touch()
    semel.open(f"sqlite:///{tmp_path}/agent.db").close()
    assert schema(tmp_path / "agent.db")


def test_a_relative_path_stays_the_same_file_when_the_program_changes_its_folder(
    tmp_path, monkeypatch, ledger
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with semel.open("sqlite:///agent.db") as guard:
        tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda: ledger.enter("charge"))
        monkeypatch.chdir(tmp_path / "elsewhere")
        call(guard, "sync", "run", tool)
    assert not (tmp_path / "elsewhere" / "agent.db").exists()


# ------------------------------------------------------------------ what is flushed to the disk


@pytest.mark.parametrize(
    ("options", "completion"),
    [({}, "NORMAL"), ({"durability": "strict"}, "FULL")],
    ids=["one flush", "strict"],
)
@pytest.mark.parametrize("engine", ["sync", "async"])
def test_a_claim_is_flushed_before_the_effect_and_a_completion_only_if_strict(
    tmp_path, monkeypatch, engine, options, completion
):
    said: list[str] = []
    connect = sqlite3.connect

    def connect_traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    with semel.open(f"sqlite:///{tmp_path}/agent.db", **options) as guard:
        tool = register(
            guard, engine, lambda: said.append("THE EFFECT"), name="charge", effect=semel.Unsafe()
        )
        said.clear()
        call(guard, engine, "run", tool)
    levels = {"PRAGMA synchronous = FULL": "FULL", "PRAGMA synchronous = NORMAL": "NORMAL"}
    marks = ("INSERT", "UPDATE", "THE EFFECT", "BEGIN")
    words = [next((mark for mark in marks if mark in word), levels.get(word, word)) for word in said]
    marked = [word for word in words if word in (*marks, "FULL", "NORMAL")]
    expected = ["FULL", "INSERT", "THE EFFECT", "NORMAL", "UPDATE"]  # each a transaction of its own: no BEGIN
    assert marked == [word for word in expected if completion == "NORMAL" or word != "NORMAL"]


# ------------------------------------------------------------------ the schema's own sentences

GOOD = {
    "key": "k",
    "namespace": "",
    "run_id": "r",
    "step": "1",
    "call_id": "",
    "tool": "t",
    "effect": "unsafe",
    "fingerprint": "f",
    "arguments": "{}",
    "state": "INVOKED",
    "fence": 1,
    "lease_expires_at": 5,
    "first_sent_at": 1,
    "earlier_in_doubt": 0,
    "created_at": 1,
    "updated_at": 1,
}
COMMITTED = {"state": "COMMITTED", "lease_expires_at": None, "result": "1"}
UNKNOWN = {"state": "UNKNOWN", "lease_expires_at": None}


@pytest.fixture
def connection(tmp_path):
    semel.open(f"sqlite:///{tmp_path}/agent.db").close()
    opened = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
    yield opened
    opened.close()


def insert(connection: sqlite3.Connection, **changes: Any) -> None:
    row = GOOD | changes
    places = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO semel_operations ({', '.join(row)}) VALUES ({places})", [*row.values()])


@pytest.mark.parametrize("changes", [{}, COMMITTED, UNKNOWN, COMMITTED | {"result": None, "reaped_at": 9}])
def test_a_good_row_is_taken(connection, changes):
    insert(connection, **changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "DONE", "lease_expires_at": None}, "state_is_known"),
        ({"fence": 0}, "fence_counts_claims"),
        ({"lease_expires_at": None}, "lease_exactly_while_invoked"),
        (UNKNOWN | {"lease_expires_at": 5}, "lease_exactly_while_invoked"),
        ({"result": "1"}, "result_only_if_committed"),
        (UNKNOWN | {"result": "1"}, "result_only_if_committed"),
        (COMMITTED | {"result": None}, "committed_has_result_until_reaped"),
        (UNKNOWN | {"reaped_at": 9}, "reaped_only_when_ended"),
        ({"first_sent_at": None}, "what_was_invoked_was_perhaps_sent"),
        ({"key": None}, "NOT NULL"),
        ({"updated_at": "now"}, "cannot store TEXT"),
        ({"fence": "one"}, "cannot store TEXT"),
    ],
)
def test_a_bad_row_is_refused_by_a_sentence(connection, changes, sentence):
    with pytest.raises(sqlite3.IntegrityError, match=sentence):
        insert(connection, **changes)


def test_two_rows_of_one_key_or_two_live_ones_of_one_business_event_are_refused(connection):
    insert(connection, once_key="e")
    for changes in ({}, {"key": "other", "once_key": "e"}):
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            insert(connection, **changes)
    insert(connection, key="failed", once_key="e", state="FAILED", lease_expires_at=None)
    insert(connection, key="without an event")


GIVEN = ("SCAN CONSTANT ROW", "SCAN done")  # the rows that a batch brings along


def test_no_query_of_a_call_or_a_sweep_reads_the_whole_table(connection):
    from semel.stores.sqlite import writes

    for name, statement in writes.SQL.items():
        if name.split("_")[0] not in ("insert", "note", "append"):
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", [None] * _places(statement)
            ).fetchall()
            steps = [row[3] for row in plan]
            scans = [step for step in steps if step.startswith("SCAN") and step not in GIVEN]
            assert not scans, (name, steps)


def _places(statement: str) -> int:
    return 16 if "?16" in statement else statement.count("?")
