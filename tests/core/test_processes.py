"""Real processes, killed and stopped for real: one intent, one effect, at every window."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from workbench import (
    ENGINES,
    FORKS,
    PATIENCE_SECONDS,
    WINDOWS,
    Child,
    Desk,
    Ledger,
    kill,
    kill_at,
    run_program,
    stop_myself,
)

import semel
from semel import decide as decisions

SHORT = timedelta(seconds=0.3)
LONG = timedelta(seconds=PATIENCE_SECONDS)


# ------------------------------------------------------------------ kill -9 at every window


def call_and_die(folder: Path, engine: str, tool: str, place: str) -> None:
    Desk(folder, engine, checkpoint=kill_at(place)).call(tool)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("tool", ["charge", "mail", "grant"])
def test_resuming_after_a_kill_at_any_window_has_one_effect(tmp_path, desk, tool, window, engine):
    kill(call_and_die, tmp_path, engine, tool, window)
    mine = desk(engine)
    first = mine.call(tool)
    assert mine.effects(tool) == 1
    lines = len(mine.ledger.lines())
    assert mine.call(tool) == first
    assert len(mine.ledger.lines()) == lines, "a replay reached the provider"
    assert mine.operation().state is semel.State.COMMITTED


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("window", "effects"), [("claimed", 0), ("effect_done", 1)])
def test_without_key_or_lookup_a_kill_in_the_middle_asks_a_person_and_sends_nothing(
    tmp_path, desk, window, effects, engine
):
    kill(call_and_die, tmp_path, engine, "letter", window)
    mine = desk(engine)
    with pytest.raises(semel.PausedForPerson, match="UNKNOWN") as asked:
        mine.call("letter")
    assert mine.effects("letter") == effects
    assert asked.value.key == mine.operation().key
    assert asked.value.fingerprint == mine.operation().fingerprint


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("window", ["claiming", "completed"])
def test_without_key_or_lookup_a_kill_outside_the_middle_asks_nobody(tmp_path, desk, window, engine):
    kill(call_and_die, tmp_path, engine, "letter", window)
    mine = desk(engine)
    assert mine.call("letter") == "letter done"
    assert mine.effects("letter") == 1


# hazard 30
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("tool", "places"),
    [
        ("charge", ["claimed", "claiming", "claimed", "effect_done", "effect_done"]),
        ("mail", ["claimed", "looked_up", "settled", "claiming", "claimed", "looked_up", "effect_done"]),
        ("mail", ["effect_done", "looked_up", "looked_up", "settled"]),
        ("grant", ["claimed", "effect_done", "claiming", "effect_done"]),
    ],
)
def test_killed_again_and_again_during_recovery_it_still_has_one_effect(tmp_path, desk, tool, places, engine):
    for place in places:
        kill(call_and_die, tmp_path, engine, tool, place)
    mine = desk(engine)
    mine.call(tool)
    assert mine.effects(tool) == 1
    assert mine.operation().state is semel.State.COMMITTED


# hazard 30
def test_however_often_it_is_resumed_what_only_a_person_can_know_is_asked_and_not_sent(tmp_path, desk):
    kill(call_and_die, tmp_path, "sync", "letter", "effect_done")
    for _ in range(3):
        with pytest.raises(semel.PausedForPerson):
            Child(call_in_a_process, tmp_path, "letter").result()
    assert desk().effects("letter") == 1


def call_in_a_process(folder: Path, tool: str) -> Any:
    return Desk(folder).call(tool)


# ------------------------------------------------------------------ several processes at once


def call_when_all_are_there(folder: Path, engine: str, tool: str, barrier: Any) -> Any:
    mine = Desk(folder, engine, wait=LONG)
    barrier.wait(PATIENCE_SECONDS)
    return mine.call(tool)


# hazard 1
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tool", ["charge", "mail", "letter", "grant"])
def test_of_many_processes_with_one_intent_one_runs_and_all_get_its_result(tmp_path, desk, tool, engine):
    barrier = FORKS.Barrier(3)
    children = [Child(call_when_all_are_there, tmp_path, engine, tool, barrier) for _ in range(3)]
    assert [child.result() for child in children] == [f"{tool} done"] * 3
    assert desk().effects(tool) == 1
    assert len(desk().ledger.lines()) <= 1


def call_and_linger(
    folder: Path, engine: str, tool: str, at_work: Any, may_go_on: Any, lease: timedelta
) -> Any:
    def linger(call: semel.Call) -> None:
        at_work.set()
        assert may_go_on.wait(PATIENCE_SECONDS)

    return Desk(folder, engine, before=linger, lease=lease).call(tool)


def call_and_tell_of_waiting(folder: Path, engine: str, tool: str, is_waiting: Any) -> Any:
    def watched(*args: Any, **known: Any) -> Any:
        action = decisions.decide(*args, **known)
        if isinstance(action, decisions.Wait):
            is_waiting.set()
        return action

    return Desk(folder, engine, wait=LONG, decide=watched).call(tool)


# hazard 1
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tool", ["charge", "mail", "letter"])
def test_a_second_caller_waits_for_a_live_owner_and_gets_its_result(tmp_path, desk, tool, engine):
    at_work, may_go_on, is_waiting = FORKS.Event(), FORKS.Event(), FORKS.Event()
    owner = Child(call_and_linger, tmp_path, engine, tool, at_work, may_go_on, LONG)
    assert at_work.wait(PATIENCE_SECONDS)
    second = Child(call_and_tell_of_waiting, tmp_path, engine, tool, is_waiting)
    assert is_waiting.wait(PATIENCE_SECONDS)
    may_go_on.set()
    assert second.result() == owner.result() == f"{tool} done"
    assert len(desk().ledger.lines()) == 1


# hazard 1
def test_an_owner_that_works_longer_than_its_lease_keeps_its_claim(tmp_path, desk):
    at_work, may_go_on, is_waiting = FORKS.Event(), FORKS.Event(), FORKS.Event()
    owner = Child(call_and_linger, tmp_path, "sync", "letter", at_work, may_go_on, SHORT)
    assert at_work.wait(PATIENCE_SECONDS)
    mine = desk()
    first_lease = mine.operation().lease_expires_at
    second = Child(call_and_tell_of_waiting, tmp_path, "sync", "letter", is_waiting)
    assert is_waiting.wait(PATIENCE_SECONDS)
    renewals = {first_lease}
    while len(renewals) < 4:  # three renewals: longer than the lease itself
        renewals.add(mine.operation().lease_expires_at)
        assert mine.operation().state is semel.State.INVOKED
    may_go_on.set()
    assert second.result() == owner.result() == "letter done"
    assert mine.operation().fence == 1


# hazards 1, 8
@pytest.mark.parametrize("tool", ["charge", "mail", "letter"])
def test_a_caller_that_may_not_wait_hears_that_a_live_owner_is_at_work(tmp_path, desk, tool):
    at_work, may_go_on = FORKS.Event(), FORKS.Event()
    owner = Child(call_and_linger, tmp_path, "sync", tool, at_work, may_go_on, LONG)
    assert at_work.wait(PATIENCE_SECONDS)
    mine = desk()
    with pytest.raises(semel.ClaimHeld, match="live owner") as held:
        mine.call(tool)
    assert timedelta(0) < held.value.retry_after <= LONG
    assert held.value.outcome == "unknown"
    with pytest.raises(semel.ClaimHeld, match="still runs"):
        mine.guard.resolve(held.value.key, semel.RunIt(), by="ann", why="impatient")
    assert mine.guard.recover() == []
    may_go_on.set()
    assert owner.result() == f"{tool} done"
    assert len(mine.ledger.lines()) == 1


# hazard 2
@pytest.mark.parametrize("tool", ["charge", "mail", "grant"])
def test_several_callers_resuming_a_dead_owners_call_at_once_have_one_effect(tmp_path, desk, tool):
    kill(call_and_die, tmp_path, "sync", tool, "claimed")
    barrier = FORKS.Barrier(3)
    children = [Child(call_when_all_are_there, tmp_path, "sync", tool, barrier) for _ in range(3)]
    assert [child.result() for child in children] == [f"{tool} done"] * 3
    assert desk().effects(tool) == 1


def claim_many_and_die(folder: Path, how_many: int) -> None:
    mine = Desk(folder, "async", checkpoint=kill_at("claimed", nth=how_many), before=time_out)

    async def all_at_once() -> None:
        async with mine.guard.run("many") as run:
            calls = [run.call(mine.tools["letter"], to=str(n)) for n in range(how_many)]
            await asyncio.gather(*calls)

    asyncio.run(all_at_once())


def time_out(call: semel.Call) -> None:
    raise TimeoutError


def recover_when_all_are_there(folder: Path, barrier: Any) -> list[str]:
    mine = Desk(folder)
    barrier.wait(PATIENCE_SECONDS)
    return [operation.key for operation in mine.guard.recover()]


# hazard 2
def test_of_two_recoverers_each_dead_claim_is_moved_by_one(tmp_path, desk):
    kill(claim_many_and_die, tmp_path, 40)
    operations = desk().guard.store.read_run("", "many")
    left = [op.key for op in operations if op.state is semel.State.INVOKED]
    assert left, "the window was never reached"
    barrier = FORKS.Barrier(2)
    recoverers = [Child(recover_when_all_are_there, tmp_path, barrier) for _ in range(2)]
    one, two = (child.result() for child in recoverers)
    assert sorted(one + two) == sorted(left)


def call_all_in_parallel(folder: Path, place: str, nth: int) -> list[str]:
    mine = Desk(folder, "async", checkpoint=kill_at(place, nth=nth))

    async def all_at_once() -> list[str]:
        async with mine.guard.run("parallel") as run:
            return await asyncio.gather(*[run.call(mine.tools["mail"], to=str(n)) for n in range(6)])

    return asyncio.run(all_at_once())


# hazard 12
@pytest.mark.parametrize("place", ["claimed", "effect_done", "completed"])
def test_after_a_crash_between_parallel_calls_the_finished_replay_and_the_rest_run(tmp_path, desk, place):
    kill(call_all_in_parallel, tmp_path, place, 3)
    before = desk().ledger.lines()
    Child(call_all_in_parallel, tmp_path, "nowhere", 1).result()
    lines = desk().ledger.lines()
    assert lines[: len(before)] == before
    assert sorted(line["to"] for line in lines) == ["0", "1", "2", "3", "4", "5"]


# ------------------------------------------------------------------ paused past the lease


def call_and_freeze(folder: Path, tool: str, when: str) -> Any:
    def freeze(call: semel.Call) -> None:
        stop_myself()

    def freeze_and_look(call: semel.Call) -> None:
        stop_myself()
        call.ensure_held()

    hooks = {
        "before sending": {"before": freeze},
        "before a careful sending": {"before": freeze_and_look},
        "after sending": {"after": freeze},
    }
    return Desk(folder, "sync", lease=SHORT, **hooks[when]).call(tool)


# hazard 19
@pytest.mark.parametrize("tool", ["charge", "mail"])
def test_a_zombie_that_had_sent_is_settled_by_others_and_changes_nothing_when_it_wakes(tmp_path, desk, tool):
    zombie = Child(call_and_freeze, tmp_path, tool, "after sending")
    zombie.wait_until_stopped()
    mine = desk(wait=LONG)
    mine.call(tool)
    settled = mine.operation()
    zombie.resume()
    assert zombie.result() == f"{tool} done"
    assert mine.operation() == settled
    assert mine.effects(tool) == 1
    assert mine.guard.divergences() == []


# hazards 7, 19
def test_a_zombies_late_result_settles_what_only_a_person_could_have_known(tmp_path, desk):
    zombie = Child(call_and_freeze, tmp_path, "letter", "after sending")
    zombie.wait_until_stopped()
    mine = desk(wait=LONG)
    with pytest.raises(semel.PausedForPerson):
        mine.call("letter")
    zombie.resume()
    assert zombie.result() == "letter done"
    assert mine.operation().state is semel.State.COMMITTED
    assert mine.call("letter") == "letter done"
    assert mine.effects("letter") == 1
    events = [entry.event for entry in mine.guard.history(mine.operation().key)]
    assert events == [semel.Event.LEASE_EXPIRED, semel.Event.REPORTED_LATE]


# hazard 19
def test_a_zombie_that_looks_before_it_sends_sends_nothing(tmp_path, desk):
    zombie = Child(call_and_freeze, tmp_path, "mail", "before a careful sending")
    zombie.wait_until_stopped()
    mine = desk(wait=LONG)
    assert mine.call("mail") == "mail done"
    zombie.resume()
    assert zombie.result() == "mail done"
    assert [line["pid"] for line in mine.ledger.lines()] == [os.getpid()]
    assert mine.guard.divergences() == []


# hazards 4, 7, 19
def test_a_zombie_that_sends_against_what_was_declared_is_told_and_recorded(tmp_path, desk):
    zombie = Child(call_and_freeze, tmp_path, "mail", "before sending")
    zombie.wait_until_stopped()
    mine = desk(wait=LONG)
    mine.call("mail")
    committed = mine.operation()
    zombie.resume()
    with pytest.raises(semel.Diverged, match="attempt 1 returned after attempt 2 was COMMITTED") as diverged:
        zombie.result()
    assert diverged.value.result == "mail done"
    assert mine.effects("mail") == 2, "the lookup was told to be without lag, and was not true"
    assert mine.operation() == committed
    (entry,) = mine.guard.divergences()
    assert (entry.key, entry.event, entry.fence) == (committed.key, semel.Event.DIVERGED, 1)


# hazard 19
def test_a_paused_owner_is_not_dead(tmp_path, desk):
    paused = Child(call_and_freeze_long, tmp_path)
    paused.wait_until_stopped()
    with pytest.raises(semel.ClaimHeld):
        desk().call("letter")
    assert desk().guard.recover() == []
    paused.kill()
    assert [operation.key for operation in desk().guard.recover()] == [desk().operation().key]


def call_and_freeze_long(folder: Path) -> None:
    Desk(folder, "sync", before=lambda call: stop_myself(), lease=LONG).call("letter")


# ------------------------------------------------------------------ fork after open


def in_fork(fn: Any) -> int:
    """The exit status of a fork of this process that runs fn and ends like any program."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)  # a fork that hangs must not stay behind
        try:
            fn()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def fork_between_calls(folder: Path, engine: str) -> tuple[int, list[Any]]:
    mine = Desk(folder, engine)
    mine.call("letter", "before")
    status = in_fork(
        lambda: (mine.call("letter", "forked"), mine.call("letter", "before"), mine.guard.close())
    )
    return status, [mine.call("letter", run) for run in ("forked", "before", "after")]


# hazard 21
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fork_goes_on_with_connections_of_its_own_and_so_does_its_parent(tmp_path, desk, engine):
    assert Child(fork_between_calls, tmp_path, engine).result() == (0, ["letter done"] * 3)
    lines = desk().ledger.lines()
    assert len(lines) == len(set(desk().ledger.keys())) == 3
    owners = [desk().operation(run).owner for run in ("before", "forked", "after")]
    processes = [owner.rsplit("/", 2)[0] for owner in owners if owner]
    assert processes[0] == processes[2] != processes[1]


def fork_while_another_thread_writes(folder: Path) -> list[int]:
    mine, is_over = Desk(folder), threading.Event()

    def keep_writing() -> None:
        number = 0
        while not is_over.is_set():
            mine.call("letter", f"thread {number}")
            number += 1

    writer = threading.Thread(target=keep_writing)
    writer.start()
    statuses = [in_fork(lambda n=n: mine.call("letter", f"fork {n}")) for n in range(10)]
    is_over.set()
    writer.join()
    return statuses


# hazard 21
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_in_the_middle_of_another_threads_write_neither_hangs_nor_breaks_the_file(tmp_path, desk):
    assert Child(fork_while_another_thread_writes, tmp_path).result() == [0] * 10
    assert sum(line["to"] == "ann" for line in desk().ledger.lines()) == len(set(desk().ledger.keys()))
    with desk().guard.store.transaction() as transaction:
        assert transaction.handle.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def fork_holding_a_claim(folder: Path) -> tuple[int, str]:
    """The fork finds its parent's claim held; it is not its own."""
    status: list[int] = []

    def ask_from_a_fork(call: semel.Call) -> None:
        def ask() -> None:
            with pytest.raises(semel.ClaimHeld):
                mine.call("letter")

        status.append(in_fork(ask))

    mine = Desk(folder, before=ask_from_a_fork)
    return mine.call("letter"), status[0]


# hazards 1, 21
def test_a_fork_does_not_take_its_parents_claim_for_its_own(tmp_path):
    assert Child(fork_holding_a_claim, tmp_path).result() == ("letter done", 0)
    assert len(Ledger(tmp_path).lines()) == 1


def fork_that_outlives_its_parents_guard(folder: Path) -> int:
    mine = Desk(folder)
    mine.call("letter", "before")
    started, parent_is_done = FORKS.Event(), FORKS.Event()

    def go_on() -> None:
        mine.call("letter", "fork 1")
        started.set()
        assert parent_is_done.wait(PATIENCE_SECONDS)
        mine.call("letter", "fork 2")

    def close_meanwhile() -> None:
        assert started.wait(PATIENCE_SECONDS)
        mine.guard.close()
        parent_is_done.set()

    closing = threading.Thread(target=close_meanwhile)
    closing.start()
    status = in_fork(go_on)
    closing.join()
    return status


# hazard 21
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_what_a_fork_records_after_its_parent_has_closed_the_store_is_not_lost(tmp_path, desk):
    assert Child(fork_that_outlives_its_parents_guard, tmp_path).result() == 0
    mine = desk()
    recorded = [run for run in ("before", "fork 1", "fork 2") if mine.guard.store.read_run("", run)]
    assert recorded == ["before", "fork 1", "fork 2"]


# hazard 21
def test_a_fork_that_ends_leaves_its_parents_store_in_memory_alone():
    code = (
        "import os, semel\n"
        "guard = semel.open(':memory:')\n"
        "tool = guard.tool(effect=semel.Unsafe(), name='letter')(lambda: 'done')\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    os.waitpid(pid, 0)\n"
        "    with guard.run('after') as run:\n"
        "        print(run.call(tool))\n"
        "    guard.close()\n"
    )
    assert run_program(code) == "done\n"
