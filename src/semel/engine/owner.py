"""Who holds a claim: one process of one host, told apart from a later process with the same number.

A dead owner on this host is known dead at once, so recovery need not wait out its lease. Everything else
(another host, another container, a platform without /proc) counts as alive until the lease ends; so does a
process that is merely paused.
"""

from __future__ import annotations

import itertools
import os
import secrets
from pathlib import Path


class ProcessOwners:
    """See `semel.ports.Owners`. A token reads `boot/pid-namespace/pid/start-time/nonce/number`."""

    def __init__(self) -> None:
        self._process = _describe_process(os.getpid())
        self._prefix = f"{self._process or f'elsewhere/-/{os.getpid()}/-'}/{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)

    def me(self) -> str:
        return f"{self._prefix}/{next(self._numbers)}"

    def is_gone(self, owner: str) -> bool:
        parts = owner.split("/")
        if self._process is None or len(parts) != 6 or parts[:2] != self._process.split("/")[:2]:
            return False
        return _describe_process(int(parts[2])) != "/".join(parts[:4])


def _describe_process(pid: int) -> str | None:
    """`boot/pid-namespace/pid/start-time`, or None if there is no such process (or no /proc)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid").partition("[")[2].rstrip("]")
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()  # the name in parentheses may hold spaces
    state, start_time = fields[0], fields[19]  # fields 3 and 22 of proc(5)
    if state in {"Z", "X"}:
        return None  # dead; its parent has not looked yet
    return f"{boot}/{namespace}/{pid}/{start_time}"
