"""Many workers, every intent delivered to each of them, processes killed and the server restarted in between.

The ledger is a file that the guard knows nothing of. Zero duplicates, zero lost, none stuck; and a guard that
is broken on purpose is caught by the same judge.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from worker import Ledger, register

import semel
from semel.model import State
from semel.testing.postgres_server import PostgresServer

HERE = Path(__file__).parent
WORKERS = 8
INTENTS = 50
KINDS = 3  # tools a run
PATIENCE_SECONDS = 100.0
GRANTS = "CREATE TABLE grants (customer integer NOT NULL)"


class Verdict(NamedTuple):
    duplicates: int
    lost: int


def judge(ledger: Ledger, grants: Counter[int], intents: int) -> Verdict:
    """By what the provider and the database saw. `notify` goes to a provider that knows a key again."""
    seen = Counter(ledger.lines())
    charges = [count for (tool, _), count in seen.items() if tool == "charge"]
    notices = [key for tool, key in seen if tool == "notify"]
    duplicates = sum(count - 1 for count in [*charges, *grants.values()])
    lost = sum(intents - len(which) for which in (charges, notices, grants))
    return Verdict(duplicates, lost)


class Crew:
    """Worker processes; one that was killed is started again, as an operator would."""

    def __init__(self, url: str, folder: Path, *, intents: int, risk: float, how: str) -> None:
        self._arguments = (url, str(folder))
        self._settings = (str(intents), str(risk), how)
        self._seeds = iter(range(1_000_000))
        self._working: set[subprocess.Popen[bytes]] = set()
        self.deaths = 0

    def hire(self, number: int) -> None:
        for _ in range(number):
            command = [sys.executable, HERE / "worker.py", *self._arguments, str(next(self._seeds))]
            self._working.add(subprocess.Popen([*command, *self._settings]))

    def look_after(self) -> bool:
        """Whether anybody still works."""
        for process in [process for process in self._working if process.poll() is not None]:
            self._working.discard(process)
            if process.returncode:
                assert process.returncode in (1, -signal.SIGKILL), "a worker failed of itself"
                self.deaths += process.returncode == -signal.SIGKILL
                self.hire(1)
        return bool(self._working)

    def kill(self, chosen: int) -> None:
        process = sorted(self._working, key=lambda process: process.pid)[chosen % len(self._working)]
        process.send_signal(signal.SIGKILL)

    def dismiss(self) -> None:
        for process in self._working:
            process.kill()
            process.wait()


@contextmanager
def crew_of(*arguments: Any, **settings: Any) -> Iterator[Crew]:
    crew = Crew(*arguments, **settings)
    try:
        yield crew
    finally:
        crew.dismiss()


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def grants_in(url: str) -> Counter[int]:
    return Counter(row[0] for row in execute(url, "SELECT customer FROM grants"))


def test_eight_workers_with_kills_and_restarts_cause_each_effect_once(
    postgres: PostgresServer, own_database: str, tmp_path: Path
) -> None:
    execute(own_database, GRANTS)
    ledger, chances = Ledger(tmp_path), random.Random(7)
    strikes = sorted(chances.sample(range(5, 2 * INTENTS - 5), 12))  # by lines in the ledger
    restarts = {strikes[3]: signal.SIGINT, strikes[6]: signal.SIGQUIT, strikes[9]: signal.SIGQUIT}
    ends_at = time.monotonic() + PATIENCE_SECONDS
    with crew_of(own_database, tmp_path, intents=INTENTS, risk=0.05, how="careful") as crew:
        crew.hire(WORKERS)
        while crew.look_after():
            if strikes and len(ledger.lines()) >= strikes[0]:
                strike = strikes.pop(0)
                if strike in restarts:
                    postgres.restart(how=restarts[strike])
                else:
                    crew.kill(chances.randrange(WORKERS))
            assert time.monotonic() < ends_at, "stuck"
            time.sleep(0.005)  # the pause between two looks
    assert not strikes, "the workers were never struck"
    places = set((tmp_path / "deaths").read_text().split())
    assert {"claimed", "effect_done"} <= places, "the windows were never reached"
    assert judge(ledger, grants_in(own_database), INTENTS) == Verdict(duplicates=0, lost=0)
    with semel.open(own_database) as guard:
        register(guard, ledger)
        assert (guard.recover(), guard.in_doubt(), guard.divergences()) == ([], [], [])
        states = Counter(execute(own_database, "SELECT state FROM semel_operations"))
    assert states == {(State.COMMITTED.value,): INTENTS * KINDS}
    assert execute(own_database, "SELECT count(*) FROM semel_history WHERE event = 'owner_died'") > [(0,)]


def test_a_guard_that_does_again_what_is_in_doubt_is_caught(own_database: str, tmp_path: Path) -> None:
    execute(own_database, GRANTS)
    ledger, ends_at = Ledger(tmp_path), time.monotonic() + PATIENCE_SECONDS
    caught = False
    with crew_of(own_database, tmp_path, intents=20, risk=0.2, how="careless") as crew:
        crew.hire(4)
        while crew.look_after() and not caught:
            caught = judge(ledger, grants_in(own_database), 20).duplicates > 0
            assert time.monotonic() < ends_at, "stuck"
            time.sleep(0.005)  # the pause between two looks
    assert caught


# ------------------------------------------------------------------ paused past the lease

STOPPING = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
import semel
from worker import Ledger, register

def stop(place, key):
    if place == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGSTOP)

guard = semel.open(sys.argv[1], lease=timedelta(seconds=1), checkpoint=stop)
charge, *_ = register(guard, Ledger(Path(sys.argv[2])))
try:
    with guard.run("r") as run:
        print(run.call(charge, order=5))
except semel.SemelError as problem:
    print(type(problem).__name__)
"""


@pytest.mark.parametrize(
    ("place", "its_words"), [("claimed", "5"), ("effect_done", "5")], ids=["before", "after the effect"]
)
def test_a_worker_paused_past_its_lease_changes_nothing_when_it_continues(
    place: str, its_words: str, database: str, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path)
    paused = subprocess.Popen(
        [sys.executable, "-c", STOPPING, database, tmp_path, place],
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )
    try:
        _, status = os.waitpid(paused.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it was never paused"
        with semel.open(database, lease=timedelta(seconds=1), wait=timedelta(seconds=30)) as guard:
            charge, *_ = register(guard, ledger)
            with guard.run("r") as run:
                assert run.call(charge, order=5) == 5
            (taken_over,) = guard.store.read_run("", "r")
            before = guard.history(taken_over.key)
            paused.send_signal(signal.SIGCONT)
            words, _ = paused.communicate(timeout=60)
            assert words.strip() == its_words
            assert guard.store.read_run("", "r") == [taken_over]
            assert guard.history(taken_over.key) == before
    finally:
        paused.kill()
        paused.wait()
    assert taken_over.state is State.COMMITTED
    assert len(ledger.lines()) == 1
