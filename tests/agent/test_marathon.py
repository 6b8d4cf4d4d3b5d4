"""Twenty turns with parallel calls, killed at every checkpoint: the run ends as if nothing had happened.

In the suite one run dies at every single checkpoint in turn (on PostgreSQL at a sample of them), and a sample of
others dies once, or twice. `SEMEL_KILLS=1000` takes so many in each sample, `SEMEL_KILLS=full` all of them: three
hundred single kills in a minute, and forty-five thousand pairs in hours.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from marathon import TURNS, WANTED, Marathon, die_at, die_at_the_first_new_one
from workbench import PATIENCE_SECONDS

from semel import actions, values
from semel.agent.log import TURN, RunLog
from semel.decide import decide
from semel.lab.nursery import Nursery
from semel.model import Absent, State
from semel.stores.sqlite.place import memory_folder
from semel.testing.postgres_server import PostgresServer

KILLS = os.environ.get("SEMEL_KILLS", "")  # "full", a number, or nothing
IS_FULL = KILLS == "full"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if KILLS else 600)]
LIVES_MAX = 1_000  # there are about three hundred checkpoints
CHANCE = random.Random(20)


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.close()


NURSERY = Nursery()


def live(fn, *args):
    """How a process of its own ended that did this; minus n is signal n."""
    return NURSERY.bear(functools.partial(fn, *args)).exitcode(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def in_memory():
    """A kill takes no disk away, so the files need none; hundreds of lives need not wait for its flushes."""
    with tempfile.TemporaryDirectory(prefix="semel-test-", dir=memory_folder()) as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, in_memory):
    """Makes stores: an empty one at each call."""
    made = []
    tmp_path = Path(tempfile.mkdtemp(dir=in_memory))

    def new():
        folder = tmp_path / f"world-{len(made)}"
        made.append(folder)
        if request.param == "sqlite":
            return f"sqlite:///{folder}.db", folder
        server = request.getfixturevalue("server")
        name = f"{request.node.originalname}_{len(made)}"[-40:].lower()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name}")
        return urlsplit(server.url)._replace(path=f"/{name}").geturl(), folder

    new.kind = request.param
    return new


def finish(url, folder):
    """The last life, in this process."""
    mine = Marathon(url, folder)
    try:
        return mine, mine.run()
    finally:
        mine.guard.close()


@pytest.fixture
def undisturbed(place):
    mine, ended = finish(*place())
    assert ended.turns == TURNS + 1
    return mine, ended


def checked(url, folder, undisturbed, **options):
    mine = Marathon(url, folder, **options)
    try:
        mine.check(mine.run(), undisturbed)
        return mine
    finally:
        mine.guard.close()


# ------------------------------------------------------------------ one run, killed everywhere


def test_one_run_killed_at_every_checkpoint_in_turn_ends_as_if_undisturbed(place, undisturbed):
    first, ended = undisturbed
    names = sorted(set(first.passed))
    among = None if place.kind == "sqlite" or KILLS else set(CHANCE.sample(names, 25))
    url, folder = place()
    for _ in range(LIVES_MAX):
        exitcode = live(die_at_the_first_new_one, url, folder, among)
        if exitcode == 0:
            break
        assert exitcode == -signal.SIGKILL
    mine = checked(url, folder, ended)
    deaths = mine.killed_at()
    assert len(deaths) == len(set(deaths))
    if among is None:
        passed_in_every_life = {
            name for name in names if name.partition("@")[0] in ("asking", "asked", "recorded")
        }
        assert passed_in_every_life <= set(deaths)
        assert len(deaths) > 0.9 * len(names), "most checkpoints were never reached"
    else:
        assert len(deaths) > 0.7 * len(among)


# ------------------------------------------------------------------ killed once, and again while it resumes


def a_sample(names, size):
    size = int(KILLS) if KILLS and not IS_FULL else size
    return names if IS_FULL or size >= len(names) else CHANCE.sample(names, size)


def test_killed_once_anywhere_it_ends_as_if_undisturbed(place, undisturbed):
    first, ended = undisturbed
    for name in a_sample(first.passed, 16 if place.kind == "sqlite" else 5):
        url, folder = place()
        one, other = CHANCE.sample(["sync", "async"], 2)  # killed in one colour, resumed in the other
        assert live(functools.partial(die_at, colour=one), url, folder, name) == -signal.SIGKILL
        assert checked(url, folder, ended, colour=other).killed_at() == [name]


def test_killed_anywhere_and_again_while_it_resumes_it_ends_as_if_undisturbed(place, undisturbed):
    first, ended = undisturbed
    pairs = [(one, other) for at, one in enumerate(first.passed) for other in first.passed[at:]]
    for one, other in a_sample(pairs, 12 if place.kind == "sqlite" else 3):
        url, folder = place()
        assert live(die_at, url, folder, one) == -signal.SIGKILL
        exitcode = live(die_at, url, folder, other)
        assert exitcode in (0, -signal.SIGKILL)  # what was found to have happened passes no more there
        assert checked(url, folder, ended).killed_at()[0] == one


# ------------------------------------------------------------------ several at once, and each of them dies


def test_of_several_processes_on_one_run_each_goes_on_where_another_was_killed(place, undisturbed):
    first, ended = undisturbed
    url, folder = place()
    Marathon(url, folder).guard.close()  # the tables are there when they all begin
    names = CHANCE.sample(first.passed, 4)
    children = [NURSERY.bear(functools.partial(die_at, url, folder, name)) for name in names]
    exitcodes = [child.exitcode(PATIENCE_SECONDS) for child in children]
    mine = checked(url, folder, ended)
    assert set(exitcodes) <= {0, -signal.SIGKILL}
    assert len(mine.killed_at()) == exitcodes.count(-signal.SIGKILL) > 0


# ------------------------------------------------------------------ the check catches what it is for


def believing_nothing_happened(operation, effect, answer, now, **named):
    if operation is not None and operation.state is State.UNKNOWN:
        return actions.Settle(Absent())
    return decide(operation, effect, answer, now, **named)


def caught(mine, undisturbed):
    try:
        ended = mine.run()
        with pytest.raises(AssertionError):
            mine.check(ended, undisturbed)
        return mine.effects(), [line["turn"] for line in mine.asked.lines()]
    finally:
        mine.guard.close()


def test_a_guard_that_takes_a_doubt_for_a_no_is_caught(place, undisturbed):
    _, ended = undisturbed
    url, folder = place()
    assert live(die_at, url, folder, "effect_done@1/0") == -signal.SIGKILL
    effects, _ = caught(Marathon(url, folder, decide=believing_nothing_happened), ended)
    assert effects["mail"] == WANTED["mail"] + 1


def record_no_turns(log, kind, payload):
    return values.decode(values.encode(payload)) if kind == TURN else record(log, kind, payload)


record = RunLog.record


def die_without_recorded_turns(url, folder, name):
    RunLog.record = record_no_turns
    die_at(url, folder, name)


def test_a_log_without_turns_is_caught(place, undisturbed):
    _, ended = undisturbed
    url, folder = place()
    assert live(die_without_recorded_turns, url, folder, "calling@3/0") == -signal.SIGKILL
    _, asked = caught(Marathon(url, folder), ended)
    assert asked[:6] == [1, 2, 3, 1, 2, 3]
