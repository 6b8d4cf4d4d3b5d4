"""Where a run can be disturbed: a place has an ordinal and a name, and passing it may be the end of the process.

Only the thread that runs the plan passes places. What other threads do (the heartbeat renews a lease now and
then) depends on the time of day, and an ordinal that does would name another place in every run.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from semel.lab.explore.plan import Act, Deed


@dataclass(kw_only=True, slots=True)
class Journal:
    """What one process passed, written in one go before it ends. For the lab; no guard ever reads it.

    `in_doubt`    tools whose operation the store held as INVOKED or UNKNOWN at the end
    `claimed`     tools that were ever claimed
    `unanswered`  how often a tool's request got no answer that says what happened
    `divergences` how many the guard's history tells of
    """

    pid: int = 0
    places: list[str] = field(default_factory=list)
    in_doubt: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)
    unanswered: dict[str, int] = field(default_factory=dict)
    divergences: int = 0

    @classmethod
    def read(cls, file: Path) -> Journal:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(**raw)


class Places:
    """Counts the places that this process passes, and strikes at the one its act names."""

    def __init__(self, act: Act | None, file: Path, *, in_doubt: Iterable[str] = ()) -> None:
        self.tool = ""  # whose call is under way
        self.divergences = 0
        self._act = act
        self._file = file
        self._thread = threading.get_ident()
        self._names: list[str] = []
        self._in_doubt = set(in_doubt)
        self._claimed = set(in_doubt)
        self._unanswered: Counter[str] = Counter()

    def reach(self, name: str) -> None:
        if threading.get_ident() != self._thread:
            return
        self._names.append(name)
        if self._act is not None and name == self._act.place and self._names.count(name) == self._act.nth:
            self._strike(self._act)

    def note_state(self, tool: str, *, is_in_doubt: bool) -> None:
        """What the store holds of this tool's operation, as of now."""
        if is_in_doubt:
            self._in_doubt.add(tool)
            self._claimed.add(tool)
        else:
            self._in_doubt.discard(tool)

    def note_unanswered(self, tool: str) -> None:
        self._unanswered[tool] += 1

    def write(self) -> None:
        journal = Journal(
            pid=os.getpid(),
            places=self._names,
            in_doubt=sorted(self._in_doubt),
            claimed=sorted(self._claimed),
            unanswered=dict(self._unanswered),
            divergences=self.divergences,
        )
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(journal)), encoding="utf-8")
        unfinished.replace(self._file)  # whoever waits for the file sees all of it

    def _strike(self, act: Act) -> None:
        self.write()
        if act.deed is not Deed.RIVAL:
            os.kill(os.getpid(), signal.SIGSTOP if act.deed is Deed.STOP else signal.SIGKILL)
