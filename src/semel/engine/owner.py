"""Who holds a claim: one process of one host, told apart from a later process with the same number.

A dead owner on this host is known dead at once, so recovery need not wait out its lease. Everything else
(another host, another container, a platform without /proc) counts as alive until the lease ends; so does a
process that is merely paused.
"""

from __future__ import annotations

import itertools
import os
from typing import Final

BOOT_LENGTH: Final = 16  # 64 random bits: the token is written with every claim, and no two boots are alike


class ProcessOwners:
    """See `semel.ports.Owners`. A token reads `boot/pid-namespace/pid/start-time/nonce/number`."""

    def __init__(self) -> None:
        self._process = _describe_process(os.getpid())
        self._prefix = f"{self._process or f'elsewhere/-/{os.getpid()}/-'}/{os.urandom(4).hex()}"
        self._numbers = itertools.count(1)

    def me(self) -> str:
        return f"{self._prefix}/{next(self._numbers)}"

    def is_gone(self, owner: str) -> bool:
        parts = owner.split("/")
        if self._process is None or len(parts) != 6 or parts[:2] != self._process.split("/")[:2]:
            return False
        return _has_ended(int(parts[2]), start_time=parts[3])


def _describe_process(pid: int) -> str | None:
    """`boot/pid-namespace/pid/start-time`, or None where the platform does not tell."""
    try:
        boot = _text("/proc/sys/kernel/random/boot_id").strip().replace("-", "")[:BOOT_LENGTH]
        namespace = os.readlink("/proc/self/ns/pid").partition("[")[2].rstrip("]")
        _, start_time = _state_and_start(pid)
    except OSError:
        return None
    return f"{boot}/{namespace}/{pid}/{start_time}"


def _has_ended(pid: int, *, start_time: str) -> bool:
    """Proof, not absence of a sign: a /proc that cannot be read (descriptors used up, hidepid) proves nothing."""
    try:
        state, started = _state_and_start(pid)
    except (FileNotFoundError, ProcessLookupError):
        return not _answers_signals(pid)
    except OSError:
        return False
    return started != start_time or state in {"Z", "X"}  # dead; its parent has not looked yet


def _state_and_start(pid: int) -> tuple[str, str]:
    status = _text(f"/proc/{pid}/stat")
    fields = status.rpartition(")")[2].split()  # the name in parentheses may hold spaces
    return fields[0], fields[19]  # fields 3 and 22 of proc(5)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _answers_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
