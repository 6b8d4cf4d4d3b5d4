"""The processes of one contestant in one run: started in its own environment, killed, stopped, continued.

A killed life proves itself by the signal that ended it, a stopped one by the kernel's word to its parent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

import semel
from semel.lab.bakeoff.model import Entrant
from semel.lab.contestants.stage import Death, Order
from semel.lab.wire import Effect

RESUMES_MAX: Final = 3  # an operator who restarts a crashing process thrice has a stuck one


class GapNeverReached(Exception):
    """The process did not end where it was to: whatever it did, it proves nothing about a crash."""


@contextmanager
def borrowed_lab(folder: Path) -> Iterator[Path]:
    """A folder that holds Semel's package and nothing else, for the path of a foreign environment.

    The folder Semel is installed in would not do: it holds other packages too, which would win over the foreign
    environment's own.
    """
    lent = folder / "lab"
    lent.mkdir()
    (lent / "semel").symlink_to(Path(semel.__file__).parent, target_is_directory=True)
    yield lent


@dataclass(frozen=True, kw_only=True, slots=True)
class Troupe:
    """How a life of this contestant is started."""

    entrant: Entrant
    python: Path
    path: Path

    def started(self, order: Order, log: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [self.python, "-m", self.entrant.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=order.folder,
            env={**os.environ, "PYTHONPATH": str(self.path)},
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(order.to_json().encode() + b"\n")
            process.stdin.close()
        return process


@dataclass(frozen=True, kw_only=True, slots=True)
class Lives:
    """All lives of one run, in one folder."""

    troupe: Troupe
    order: Order

    def killed(self, death: Death) -> int:
        """One life that ends in the gap; the signal that ended it."""
        status = self._lived(death)
        if status != -signal.SIGKILL:
            raise GapNeverReached(f"{death.place} of step {death.step}: {self._ended(status)}")
        return -status

    def killed_if_it_gets_there(self, death: Death) -> int:
        """As `killed`, but a recovery that ends before the gap, well or badly, is 0."""
        status = self._lived(death)
        return -status if status == -signal.SIGKILL else 0

    @contextmanager
    def paused(self, death: Death) -> Iterator[None]:
        """One life that is stopped in the gap, and continued to its end afterwards."""
        with self._log() as log, self.troupe.started(replace(self.order, death=death), log) as process:
            try:
                _wait_until_stopped(process, self._seconds_max)
                yield
                process.send_signal(signal.SIGCONT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self._seconds_max)
            finally:
                process.kill()

    def resumed(self) -> str | None:
        """Fresh lives until one ends well; None then, else why not even the last one did."""
        for _ in range(RESUMES_MAX):
            status = self._lived(None)
            if status == 0:
                return None
        return self._ended(status)

    def ledger(self) -> tuple[Effect, ...]:
        """Asked of the contestant itself, whose own database holds the effects."""
        order = replace(self.order, wants_ledger=True)
        with self._log() as log, self.troupe.started(order, log) as process:
            assert process.stdout is not None
            text = process.stdout.read()
        if process.returncode != 0:
            raise RuntimeError(f"the effects can't be read: {self._ended(process.returncode)}")
        return tuple(map(Effect.from_json, json.loads(text)))

    def _lived(self, death: Death | None) -> int | None:
        """The exit status, minus n for signal n; None: it had to be ended."""
        if self.troupe.entrant.lease_seconds and self._log_file.exists():
            threading.Event().wait(self.troupe.entrant.lease_seconds)
        with self._log() as log, self.troupe.started(replace(self.order, death=death), log) as process:
            try:
                return process.wait(self._seconds_max)
            except subprocess.TimeoutExpired:
                return None
            finally:
                process.kill()

    @property
    def _seconds_max(self) -> float:
        return self.troupe.entrant.life_seconds_max

    @property
    def _log_file(self) -> Path:
        return Path(self.order.folder).with_suffix(".log")

    def _log(self) -> IO[bytes]:
        return self._log_file.open("ab")

    def _ended(self, status: int | None) -> str:
        if status is None:
            return f"the process had not ended after {self._seconds_max:.0f} seconds"
        lines = self._log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = [line for line in lines if line and not line[0].isspace()]
        return f"the process ended with {status}: {' '.join(said[-1].split())[:300] if said else 'no word'}"


def _wait_until_stopped(process: subprocess.Popen[bytes], seconds_max: float) -> None:
    """The kernel tells a parent that its child was stopped. A child that ends instead is left for Popen to bury."""
    too_late = threading.Timer(seconds_max, process.kill)
    too_late.start()
    try:
        seen = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    finally:
        too_late.cancel()
    if seen is None or seen.si_code != os.CLD_STOPPED:
        raise GapNeverReached("the first process ended instead of being stopped")
