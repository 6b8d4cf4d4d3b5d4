"""The example agent, as a reader runs it: offline, killed at its prompt, run again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from workbench import PATIENCE_SECONDS, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent.py"


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLE],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def charged(folder):
    books = folder / "books.txt"
    return sorted(line.split()[1] for line in books.read_text().splitlines()) if books.exists() else []


def finish(folder, keys="\n\n"):
    with start(folder) as process:
        out, err = process.communicate(keys, PATIENCE_SECONDS)
    assert process.returncode == 0, err
    return out


def test_undisturbed_it_charges_both_and_says_so(tmp_path):
    assert finish(tmp_path).endswith("Both are charged.\n")
    assert charged(tmp_path) == ["ann", "bob"]


@pytest.mark.parametrize("charges", [1, 2])
def test_killed_at_its_prompt_and_run_again_it_has_charged_each_once(tmp_path, charges):
    with start(tmp_path) as process:
        wait_until(lambda: len(charged(tmp_path)) >= charges)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert finish(tmp_path).endswith("Both are charged.\n")
    assert charged(tmp_path) == ["ann", "bob"]
    assert finish(tmp_path, keys="").endswith("Both are charged.\n"), "a run that has ended asks nobody"


def test_it_is_as_short_as_it_is_said_to_be():
    lines = EXAMPLE.read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 30
