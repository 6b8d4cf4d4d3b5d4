"""Real processes: that they died, that they were fresh, and what becomes of those that cannot go on."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import strange_levels

from semel.lab import injector
from semel.lab.client import World
from semel.lab.injector import Finished, GivenUp, Kill, Stuck, WindowNeverReached
from semel.lab.model import Window

NOWHERE = World(address="127.0.0.1:1", cell_id="nowhere")  # these levels never speak to it
W3 = Kill(window=Window.W3, step=1)


def test_a_kill_is_proved_by_the_exit_status(tmp_path):
    assert injector.kill(strange_levels.dies_by_its_own_hand, NOWHERE, tmp_path, W3) == signal.SIGKILL


@pytest.mark.parametrize("other", [Kill(window=Window.W4, step=1), Kill(window=Window.W3, step=2)])
def test_a_kill_strikes_at_its_own_window_and_step_only(tmp_path, other):
    with pytest.raises(WindowNeverReached):
        injector.kill(strange_levels.dies_by_its_own_hand, NOWHERE, tmp_path, other)


def test_a_level_that_never_reaches_the_window_is_no_experiment(tmp_path):
    with pytest.raises(WindowNeverReached):
        injector.kill(strange_levels.returns_at_once, NOWHERE, tmp_path, W3)


def test_a_level_that_fails_before_the_window_says_why(tmp_path):
    with pytest.raises(WindowNeverReached, match="cannot go on"):
        injector.kill(strange_levels.raises, NOWHERE, tmp_path, W3)


def test_a_resume_that_keeps_failing_is_stuck_and_keeps_its_traceback(tmp_path):
    match injector.resume(strange_levels.raises, NOWHERE, tmp_path):
        case Stuck(because=because):
            assert "RuntimeError: cannot go on" in because
        case finished:
            pytest.fail(f"{finished}")


def test_a_process_that_fails_is_started_again_a_few_times(tmp_path):
    folder = tmp_path / "durable"
    folder.mkdir()
    assert isinstance(injector.resume(strange_levels.raises_twice, NOWHERE, folder), Finished)
    assert len(list(folder.iterdir())) == 3


def test_a_resume_that_takes_too_long_is_ended_and_stuck(tmp_path):
    outcome = injector.finish(strange_levels.waits_for_ever, NOWHERE, tmp_path, seconds_max=0.3)
    assert isinstance(outcome, Stuck)
    assert "0.3 seconds" in outcome.because


def test_ending_all_ends_the_children_that_live_and_concludes_nothing(tmp_path):
    os.mkfifo(tmp_path / "alive")
    waits = strange_levels.says_that_it_lives_and_waits_for_ever
    with ThreadPoolExecutor() as pool:
        outcome = pool.submit(injector.resume, waits, NOWHERE, tmp_path)
        with (tmp_path / "alive").open("rb", buffering=0) as fifo:
            assert fifo.read(5) == b"alive"
            injector.end_all()
            assert fifo.read() == b"", "it outlived its end"
        with pytest.raises(GivenUp):
            outcome.result(timeout=10)
