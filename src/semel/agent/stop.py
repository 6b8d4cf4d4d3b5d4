"""Asking a run to stop, from any thread."""

from __future__ import annotations

import threading

from semel.agent.errors import RunCancelled


class Stop:
    """One run's, shared with the sub-agents inside it. Looked at between two steps: nothing is broken off."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def ensure_not_asked(self) -> None:
        if self._asked.is_set():
            raise RunCancelled(
                f"Run {self._run_id!r} was cancelled. Everything up to here is recorded and nothing more was sent. "
                "Start it again under its id to go on."
            )
