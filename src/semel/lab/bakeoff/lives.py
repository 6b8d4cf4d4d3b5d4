"""The processes of one contestant in one run: born in its own environment, killed, stopped, continued.

Each life is a fork of a nursery that runs on that environment's Python and has the program imported. A killed life
proves itself by the signal that ended it, a stopped one by its state in the kernel.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import semel
from semel.lab.bakeoff.model import Entrant
from semel.lab.contestants.stage import LEDGER, PAUSED, Death, Order, live, log_of
from semel.lab.nursery import Child, Nursery
from semel.lab.wire import Effect

RESUMES_MAX: Final = 3  # an operator who restarts a crashing process thrice has a stuck one
POLL_SECONDS: Final = 0.01


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


@contextmanager
def nursery_for(entrant: Entrant, python: Path, lent: Path, folder: Path) -> Iterator[Nursery]:
    """Warmed, and ended with all that was born there."""
    home = folder / f"{entrant.name}-nursery"  # some packages make files when they are imported
    home.mkdir()
    nursery = Nursery(python=python, environment={**os.environ, "PYTHONPATH": str(lent)}, cwd=home)
    try:
        nursery.warm([entrant.program])
        yield nursery
    finally:
        nursery.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lives:
    """All lives of one run, in one folder."""

    entrant: Entrant
    nursery: Nursery
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
        child = self._born(replace(self.order, death=death))
        try:
            pid = self._wait_until_stopped()
            yield
            os.kill(pid, signal.SIGCONT)
        except BaseException:
            child.end()
            raise
        finally:
            child.exitcode(self._seconds_max)

    def resumed(self) -> str | None:
        """Fresh lives until one ends well; None then, else why not even the last one did."""
        for _ in range(RESUMES_MAX):
            status = self._lived(None)
            if status == 0:
                return None
        return self._ended(status)

    def ledger(self) -> tuple[Effect, ...]:
        """Asked of the contestant itself, whose own database holds the effects."""
        status = self._born(replace(self.order, wants_ledger=True)).exitcode(self._seconds_max)
        if status != 0:
            raise RuntimeError(f"the effects can't be read: {self._ended(status)}")
        text = (Path(self.order.folder) / LEDGER).read_text(encoding="utf-8")
        return tuple(map(Effect.from_json, json.loads(text)))

    def _lived(self, death: Death | None) -> int | None:
        """The exit status, minus n for signal n; None: it had to be ended."""
        if self.entrant.lease_seconds and log_of(self.order).exists():
            threading.Event().wait(self.entrant.lease_seconds)
        return self._born(replace(self.order, death=death)).exitcode(self._seconds_max)

    def _born(self, order: Order) -> Child:
        return self.nursery.bear(partial(live, self.entrant.program, order))

    @property
    def _seconds_max(self) -> float:
        return self.entrant.life_seconds_max

    def _wait_until_stopped(self) -> int:
        """The id of the stopped process. Polls: nothing announces a SIGSTOP to anyone but the parent."""
        pause, note = threading.Event(), Path(self.order.folder) / PAUSED
        for _ in range(int(self._seconds_max / POLL_SECONDS)):
            if note.exists() and (text := note.read_text()) and _state_of(int(text)) == "T":
                return int(text)
            pause.wait(POLL_SECONDS)
        raise GapNeverReached(f"the first process never stopped: {self._ended(None)}")

    def _ended(self, status: int | None) -> str:
        if status is None:
            return f"the process had not ended after {self._seconds_max:.0f} seconds"
        lines = log_of(self.order).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = [line for line in lines if line and not line[0].isspace()]
        return f"the process ended with {status}: {' '.join(said[-1].split())[:300] if said else 'no word'}"


def _state_of(pid: int) -> str:
    """As `ps` has it; empty if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
