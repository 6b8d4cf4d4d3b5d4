"""Time: one clock for all processes of the host, which no step of the wall clock moves."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest
from workbench import Child, Desk, kill_at

import semel
from semel.connect import open_store
from semel.stores import clock as clocks
from semel.testing.clock import START, ManualClock

HOUR = timedelta(hours=1)
CLOSE = timedelta(
    seconds=5
)  # a machine under load, and far less than the hour by which clocks are wrong here


def step_the_wall_clock(by: timedelta) -> None:
    """From now on this process reads the wall clock so far ahead, whichever way it asks."""
    real_ns, real_datetime = time.time_ns, datetime

    class Stepped(real_datetime):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return real_datetime.now(tz) + by

    time.time_ns = lambda: real_ns() + int(by.total_seconds() * 1e9)
    clocks.datetime = Stepped  # type: ignore[misc]


def now_with_the_wall_clock_ahead(path: str, by: timedelta) -> datetime:
    """What a process whose wall clock is wrong takes for the time in this store."""
    step_the_wall_clock(by)
    return open_store(f"sqlite:///{path}").now()


# hazard 20
@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_process_whose_wall_clock_was_stepped_has_the_time_of_the_others(tmp_path, by):
    with closing(open_store(f"sqlite:///{tmp_path}/agent.db")) as store:
        theirs = Child(now_with_the_wall_clock_ahead, f"{tmp_path}/agent.db", by).result()
        assert abs(theirs - store.now()) < CLOSE


# hazard 20
def test_whoever_comes_first_in_a_boot_sets_the_clock_for_all(tmp_path):
    first = Child(now_with_the_wall_clock_ahead, f"{tmp_path}/agent.db", HOUR).result()
    with closing(open_store(f"sqlite:///{tmp_path}/agent.db")) as store:
        assert abs(store.now() - first) < CLOSE
        assert abs(store.now() - datetime.now(UTC) - HOUR) < CLOSE


def test_the_clock_of_a_new_store_is_the_wall_clock(tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path}/agent.db")) as store:
        assert abs(store.now() - datetime.now(UTC)) < CLOSE
        assert store.now().utcoffset() == timedelta(0)


# hazard 20
def test_a_container_with_a_time_since_boot_of_its_own_has_the_time_of_the_others(tmp_path):
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from semel.connect import open_store; print(open_store(sys.argv[1]).now().isoformat())"
    )
    url = f"sqlite:///{tmp_path}/agent.db"
    with closing(open_store(url)) as store:
        apart = [
            "unshare",
            "--time",
            "--boottime",
            "3600",
            "--fork",
            sys.executable,
            "-c",
            code,
            url,
            *sys.path,
        ]
        said = subprocess.run(apart, capture_output=True, text=True, check=False)
        if said.returncode != 0:
            pytest.skip(f"this machine gives us no time namespace: {said.stderr[-100:]}")
        assert abs(datetime.fromisoformat(said.stdout.strip()) - store.now()) < CLOSE


def take_over_with_the_wall_clock_ahead(folder: Path, by: timedelta) -> str:
    step_the_wall_clock(by)
    mine = Desk(folder)
    assert mine.guard.recover() == []
    try:
        return str(mine.call("mail"))
    except semel.ClaimHeld:
        return "held"


# hazard 20
def test_a_taker_whose_clock_is_ahead_does_not_take_over_early(tmp_path, desk):
    said = []

    def ask(call: semel.Call) -> None:
        said.append(Child(take_over_with_the_wall_clock_ahead, tmp_path, HOUR).result())

    mine = desk(before=ask)
    assert mine.call("mail") == "mail done"
    assert said == ["held"]
    assert mine.effects("mail") == 1


# hazard 20
def test_a_clock_that_was_set_back_extends_a_lease_and_ends_none(open_guard, clock):
    guard = open_guard(lease=HOUR)

    @guard.tool(effect=semel.Unsafe())
    def charge():
        clock.advance(-24 * HOUR)
        assert open_guard().recover() == []

    with guard.run("run") as run:
        run.call(charge)


def test_a_manual_clock_stands_still_until_it_is_told_to_move():
    clock = ManualClock()
    assert clock.now() == clock.now() == START
    assert clock.advance(HOUR) == clock.now() == START + HOUR
    assert clock.advance(-2 * HOUR) == START - HOUR


def test_a_manual_clock_speaks_utc():
    east = timezone(HOUR)
    assert ManualClock(datetime(2026, 1, 1, 1, tzinfo=east)).now() == datetime(2026, 1, 1, tzinfo=UTC)
    assert ManualClock(datetime(2026, 1, 1, 1, tzinfo=east)).now().tzinfo is UTC


def die_holding_a_claim(folder: Path) -> None:
    Desk(folder, checkpoint=kill_at("claimed")).call("letter")


def test_a_claim_of_an_earlier_boot_counts_by_its_lease(tmp_path, desk):
    """After a reboot the owner cannot be looked up any more; its lease still ends."""
    Child(die_holding_a_claim, tmp_path).assert_killed()
    mine = desk()
    key = mine.operation().key
    with mine.guard.store.transaction() as transaction:
        transaction.handle.execute(
            "UPDATE semel_operations SET owner = 'an-earlier-boot/' || substr(owner, 38) WHERE key = ?",
            (key,),
        )
    assert mine.guard.recover() == []
    with mine.guard.store.transaction() as transaction:
        transaction.handle.execute("UPDATE semel_operations SET lease_expires_at = 0 WHERE key = ?", (key,))
    assert [operation.key for operation in mine.guard.recover()] == [key]
