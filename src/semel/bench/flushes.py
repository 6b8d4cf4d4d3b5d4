"""Does a peer flush before it runs the step, and after? Counted by `strace`, where that is there and may.

A peer that does not flush its intent is not doing the same work: after a power cut it does not know that the
step was begun.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

TRACED: Final = "trace=fsync,fdatasync,sync_file_range,msync"
ATTACH_SECONDS_MAX: Final = 10.0
_TIME: Final = re.compile(r"(\d{9,}\.\d+)\s+(?:fsync|fdatasync|sync_file_range|msync)\(")


class Flushes(NamedTuple):
    """In the median call: before the step's body ran, and after it up to the answer."""

    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.before:g} flushes before the effect, {self.after:g} after"


def can_trace() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    tried = subprocess.run([strace, "-f", "-e", TRACED, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def traced(command: Sequence[str | Path], to: Path) -> list[str | Path]:
    """The command, and all that it starts, watched."""
    return ["strace", "-f", "-qq", "-ttt", "-e", TRACED, "-o", to, *command]


@contextmanager
def watched(process: int, to: Path) -> Iterator[None]:
    """Whatever a running process starts from now on: a server's new sessions."""
    strace = subprocess.Popen(
        ["strace", "-f", "-ttt", "-e", TRACED, "-o", to, "-p", str(process)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_attached(process)
        yield
    finally:
        strace.send_signal(signal.SIGINT)  # it lets go, and the server lives on
        strace.wait()


def _wait_until_attached(process: int) -> None:
    ends_at = time.monotonic() + ATTACH_SECONDS_MAX
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
            if "TracerPid:\t0" not in status:
                return
        time.sleep(0.02)


def counted(files: Sequence[Path], marks: Sequence[Sequence[float]]) -> Flushes:
    at = [float(found) for file in files if os.path.exists(file) for found in _TIME.findall(file.read_text())]
    before = [sum(begun <= when < effect for when in at) for begun, effect, _ in marks]
    after = [sum(effect <= when <= ended for when in at) for _, effect, ended in marks]
    return Flushes(statistics.median(before), statistics.median(after))
