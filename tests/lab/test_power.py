"""A power loss takes every unflushed byte, and no others; Semel's claim survives it, its completion need not."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.lab import power
from semel.stores.sqlite.store import SqliteStore

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "semel.stores.sqlite.store"])
PATIENCE_SECONDS = 30.0
NO_TIME = timedelta(0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "durable"
    folder.mkdir()
    try:
        with power.recording(folder):
            return folder
    except power.NotRecordable as why:
        pytest.skip(str(why))


def killed(live: Callable[..., None], *arguments: Any) -> None:
    """Run it in a process of its own, which kills itself."""
    child = FORKS.Process(target=live, args=arguments)
    child.start()
    child.join(PATIENCE_SECONDS)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == -signal.SIGKILL, "it never came to the kill"


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# ------------------------------------------------------------------ the interposer itself


def insert_rows(folder: Path, level: str, rows: int) -> None:
    with power.recording(folder):
        connection = sqlite3.connect(folder / "rows.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE rows (number INTEGER)")
        connection.execute(f"PRAGMA synchronous = {level}")
        for number in range(rows):
            connection.execute("INSERT INTO rows VALUES (?)", (number,))
        die()


def rows_in(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "rows.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])


@pytest.mark.parametrize(("level", "left"), [("FULL", 5), ("NORMAL", 0), ("OFF", 0)])
def test_a_commit_survives_if_and_only_if_it_was_flushed(folder: Path, level: str, left: int) -> None:
    killed(insert_rows, folder, level, 5)
    power.lose_unflushed(folder)
    assert rows_in(folder) == left


def test_without_a_power_loss_a_killed_process_loses_nothing(folder: Path) -> None:
    """Else the tests above would prove nothing about flushes."""
    killed(insert_rows, folder, "OFF", 5)
    assert rows_in(folder) == 5


def test_whatever_part_of_the_unflushed_reaches_the_disk_what_was_flushed_survives(folder: Path) -> None:
    killed(insert_rows, folder, "FULL", 5)
    flushed = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    for seed in range(20):
        for name, content in flushed.items():
            (folder / name).write_bytes(content)
        chance = random.Random(seed)
        power.lose_unflushed(folder, keeps=lambda name, sector, chance=chance: chance.random() < 0.5)
        assert rows_in(folder) == 5


def test_a_partly_kept_log_is_mixed_sector_by_sector(folder: Path) -> None:
    killed(insert_rows, folder, "NORMAL", 5)
    there = (folder / "rows.db-wal").read_bytes()
    power.lose_unflushed(folder, keeps=lambda name, sector: True)
    assert (folder / "rows.db-wal").read_bytes() == there
    assert rows_in(folder) == 5


def create_and_die(folder: Path) -> None:
    with power.recording(folder):
        connection = sqlite3.connect(folder / "rows.db", isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE rows (number INTEGER)")
        die()


def test_a_file_that_was_never_flushed_is_gone_and_others_than_sqlites_are_left_alone(folder: Path) -> None:
    (folder / "ledger.jsonl").write_text("{}")
    killed(create_and_die, folder)
    assert (folder / "rows.db").exists()
    power.lose_unflushed(folder)
    assert os.listdir(folder) == ["ledger.jsonl"]


def insert_one_more(folder: Path, level: str) -> None:
    with power.recording(folder):
        connection = sqlite3.connect(folder / "rows.db", isolation_level=None)
        connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("INSERT INTO rows VALUES (6)")
        die()


def test_what_lay_there_before_the_recording_counts_as_flushed(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "rows.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE rows (number INTEGER)")
        connection.execute("INSERT INTO rows VALUES (1)")
    killed(insert_one_more, folder, "OFF")
    power.lose_unflushed(folder)
    assert rows_in(folder) == 1


def test_the_records_of_processes_that_follow_each_other_are_one(folder: Path) -> None:
    killed(insert_rows, folder, "FULL", 2)
    killed(insert_one_more, folder, "FULL")
    killed(insert_one_more, folder, "NORMAL")
    power.lose_unflushed(folder)
    assert rows_in(folder) == 3


def test_a_process_that_holds_a_lock_still_holds_it_after_a_flush(folder: Path) -> None:
    """To read the file through a descriptor of our own would give up the locks on it."""
    with power.recording(folder):
        writer = sqlite3.connect(folder / "rows.db", isolation_level=None)
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE rows (number INTEGER)")
        writer.execute("PRAGMA wal_checkpoint")
        writer.execute("BEGIN IMMEDIATE")
        child = FORKS.Process(target=_write_at_once, args=(folder,))
        child.start()
        child.join(PATIENCE_SECONDS)
        writer.execute("ROLLBACK")
        writer.close()
    assert child.exitcode == LOCKED


LOCKED = 7


def _write_at_once(folder: Path) -> None:
    connection = sqlite3.connect(folder / "rows.db", isolation_level=None, timeout=0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        os._exit(LOCKED)


def test_after_the_recording_files_are_opened_as_ever(folder: Path) -> None:
    with power.recording(folder):
        pass
    with closing(sqlite3.connect(folder / "rows.db")) as connection:
        connection.execute("CREATE TABLE rows (number INTEGER)")
    assert not (power.flushed_folder(folder) / "rows.db").exists()


# ------------------------------------------------------------------ Semel's claim and completion


def charge_until(folder: Path, place: str | None, *, flushes: bool = True) -> None:
    """One guarded charge; the process dies at the given place of the guard."""
    ledger = folder.with_name("ledger")

    def checkpoint(at: str, key: str) -> None:
        if at == place:
            die()

    def find(call: semel.Call) -> semel.Evidence:
        return semel.Found("paid", key=call.key) if ledger.exists() else semel.Absent()

    if not flushes:
        SqliteStore._flush_level = lambda self, level: "OFF"  # type: ignore[method-assign]
    with (
        power.recording(folder),
        semel.open(f"sqlite:///{folder}/semel.db", checkpoint=checkpoint) as guard,
        guard.run("renewal") as run,
    ):

        @guard.tool(effect=semel.Unsafe(lookup=find, lookup_lag=NO_TIME, request_deadline=NO_TIME))
        def charge(*, call: semel.Call) -> str:
            with open(ledger, "a") as entries:
                entries.write(f"{call.key}\n")
            return "paid"

        assert run.call(charge) == "paid"


def charges(folder: Path) -> int:
    ledger = folder.with_name("ledger")
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def record_in(folder: Path) -> semel.Operation | None:
    with semel.open(f"sqlite:///{folder}/semel.db") as guard:
        found = guard.store.read_run("", "renewal")
    return found[0] if found else None


def test_the_claim_survives_a_power_loss_at_the_very_moment_it_is_made(folder: Path) -> None:
    killed(charge_until, folder, "claimed")
    power.lose_unflushed(folder)
    record = record_in(folder)
    assert record is not None
    assert record.state is semel.State.INVOKED
    charge_until(folder, None)
    assert charges(folder) == 1


@pytest.mark.parametrize("place", ["effect_done", "completed"])
def test_a_completion_lost_with_the_power_leaves_a_doubt_that_is_looked_up_and_no_second_effect(
    folder: Path, place: str
) -> None:
    killed(charge_until, folder, place)
    power.lose_unflushed(folder)
    record = record_in(folder)
    assert record is not None
    assert record.state is semel.State.INVOKED, "the completion costs no flush, so it is lost here"
    charge_until(folder, None)
    assert charges(folder) == 1
    settled = record_in(folder)
    assert settled is not None
    assert settled.state is semel.State.COMMITTED


def be_refused_and_die(folder: Path) -> None:
    with (
        power.recording(folder),
        semel.open(f"sqlite:///{folder}/semel.db") as guard,
        guard.run("renewal") as run,
    ):

        @guard.tool(effect=semel.Unsafe())
        def charge() -> str:
            raise semel.Rejected("card declined")

        try:
            run.call(charge)
        except semel.Rejected:
            die()


def test_that_it_will_not_happen_survives_a_power_loss_once_it_has_been_told(folder: Path) -> None:
    """The caller may have gone another way by then: a call after the loss must not run it."""
    killed(be_refused_and_die, folder)
    power.lose_unflushed(folder)
    record = record_in(folder)
    assert record is not None
    assert record.state is semel.State.FAILED


def test_a_claim_that_is_not_flushed_is_lost_and_the_effect_repeated(folder: Path) -> None:
    """The broken twin: what the flush of the claim is for."""
    killed(_charge_unflushed, folder, "effect_done")
    power.lose_unflushed(folder)
    charge_until(folder, None)
    assert charges(folder) == 2


def _charge_unflushed(folder: Path, place: str) -> None:
    charge_until(folder, place, flushes=False)
