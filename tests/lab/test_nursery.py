"""Forks of a warmed process: how they end, and that none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import semel
from semel.lab.nursery import NotBorn, Nursery

LAB = """
import sys
from pathlib import Path
import strange_levels
from semel.lab import injector
from semel.lab.client import World
nowhere = World(address="127.0.0.1:1", cell_id="nowhere")
injector.resume(strange_levels.says_that_it_lives_and_waits_for_ever, nowhere, Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def nursery():
    return Nursery()


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_is_the_childs_own(nursery, status):
    assert nursery.bear(partial(os._exit, status)).exitcode(10) == status


def test_a_signal_shows_in_the_exit_status(nursery):
    suicide = partial(signal.raise_signal, signal.SIGKILL)
    assert nursery.bear(suicide).exitcode(10) == -signal.SIGKILL


def test_a_child_is_another_process(nursery, tmp_path):
    child = nursery.bear(partial(os.execv, "/bin/sh", ["sh", "-c", f"echo $$ > {tmp_path}/pid"]))
    assert child.exitcode(10) == 0
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_a_child_that_is_ended_gives_no_exit_status(nursery):
    child = nursery.bear(partial(signal.sigwait, {signal.SIGUSR1}))
    assert child.exitcode(0.05) is None


def test_what_cannot_be_imported_is_not_born_and_says_why(nursery):
    class Unknown:
        def __reduce__(self):
            return __import__, ("no_such_module",)

    with pytest.raises(NotBorn, match="no_such_module"):
        nursery.bear(Unknown()).exitcode(10)
    assert nursery.bear(partial(os._exit, 0)).exitcode(10) == 0, "the nursery must survive it"


def test_no_child_outlives_a_lab_that_is_killed(tmp_path):
    os.mkfifo(tmp_path / "alive")
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with (
        subprocess.Popen([sys.executable, "-c", LAB, tmp_path], env=here) as lab,
        (tmp_path / "alive").open("rb", buffering=0) as fifo,
    ):
        assert fifo.read(5) == b"alive"
        lab.kill()
        assert fifo.read() == b"", "the child outlived the lab"


def write_where_semel_is(file: Path) -> None:
    file.write_text(semel.__file__)


def test_with_variables_of_its_own_it_finds_its_modules_there_and_not_where_the_lab_does(tmp_path):
    lent = tmp_path / "lent"
    lent.mkdir()
    (lent / "semel").symlink_to(Path(semel.__file__).parent)
    (lent / Path(__file__).name).symlink_to(__file__)
    nursery = Nursery(environment={"PYTHONPATH": str(lent)}, cwd=tmp_path)
    try:
        child = nursery.bear(partial(write_where_semel_is, tmp_path / "found"))
        assert child.exitcode(30) == 0
    finally:
        nursery.close()
    assert (tmp_path / "found").read_text().startswith(str(lent))


def test_a_closed_nursery_has_ended():
    nursery = Nursery()
    nursery.warm(())
    process = nursery._process
    assert process is not None
    nursery.close()
    assert process.returncode == 0
