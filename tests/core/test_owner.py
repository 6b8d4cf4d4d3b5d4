"""Who holds a claim: a dead owner is known dead at once, everybody else counts as alive."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from workbench import Child, wait_until

from semel.engine.owner import ProcessOwners


def my_token() -> str:
    return ProcessOwners().me()


def my_token_and_freeze(writer) -> None:
    writer.send(ProcessOwners().me())
    os.kill(os.getpid(), signal.SIGSTOP)


def changed(token: str, part: int, value: str) -> str:
    parts = token.split("/")
    parts[part] = value
    return "/".join(parts)


BOOT, NAMESPACE, PID, START = range(4)


def test_every_claim_of_every_guard_has_a_token_of_its_own():
    tokens = {owners.me() for owners in (ProcessOwners(), ProcessOwners()) for _ in range(10)}
    assert len(tokens) == 20


def test_a_process_that_ended_is_gone_and_a_living_one_is_not():
    assert ProcessOwners().is_gone(Child(my_token).result())
    assert not ProcessOwners().is_gone(ProcessOwners().me())


# hazard 19
def test_a_paused_process_is_not_gone():
    from workbench import FORKS

    reader, writer = FORKS.Pipe(duplex=False)
    child = Child(my_token_and_freeze, writer)
    token = reader.recv()
    child.wait_until_stopped()
    assert not ProcessOwners().is_gone(token)
    child.kill()
    wait_until(lambda: ProcessOwners().is_gone(token))


def test_a_dead_process_that_its_parent_has_not_looked_at_is_gone():
    code = "from semel.engine.owner import ProcessOwners; print(ProcessOwners().me())"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        token = child.stdout.read().strip()
        wait_until(lambda: _state(child.pid) == "Z")
        assert ProcessOwners().is_gone(token)


def test_a_later_process_with_the_same_number_is_another_one():
    mine = ProcessOwners().me()
    assert ProcessOwners().is_gone(changed(mine, START, "1"))


@pytest.mark.parametrize(
    ("part", "value"),
    [(BOOT, "another-boot"), (NAMESPACE, "4026539999")],
    ids=["another host", "another container"],
)
def test_a_process_elsewhere_is_never_known_to_be_gone(part, value):
    token = changed(Child(my_token).result(), part, value)
    assert not ProcessOwners().is_gone(token)


@pytest.mark.parametrize("token", ["", "me", "a/b", "elsewhere/-/7/-/n/1", "a/b/c/d/e/f", "/////"])
def test_a_token_that_says_nothing_is_nobody_known_to_be_gone(token):
    assert not ProcessOwners().is_gone(token)


def judge_without_descriptors(token: str) -> bool:
    """With every file descriptor used up, as under load."""
    owners = ProcessOwners()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        return owners.is_gone(token)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# hazard 1
def test_a_process_that_cannot_look_does_not_take_a_live_owner_for_dead():
    assert Child(judge_without_descriptors, ProcessOwners().me()).result() is False


def judge_in_a_proc_that_hides_others(token: str) -> bool | str:
    """As another user, in a /proc that shows a user only the user's own processes."""
    unshared = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c"),
            'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"',
            *("sh", sys.executable, "-c"),
            "import sys; sys.path[:0] = sys.argv[2:]\n"
            "from semel.engine.owner import ProcessOwners; print(ProcessOwners().is_gone(sys.argv[1]))",
            *(token, *sys.path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return unshared.stdout.strip() or unshared.stderr


# hazard 1
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_live_owner_of_another_user_is_not_taken_for_dead_where_proc_hides_it():
    said = judge_in_a_proc_that_hides_others(ProcessOwners().me())
    if said not in ("True", "False"):
        pytest.skip(f"this machine does not let us mount /proc: {said[-100:]}")
    assert said == "False"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
