"""One run of the program: its folder, its name at the provider, and as many processes as it takes."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from semel.errors import PausedForPerson
from semel.lab.nursery import Child, Nursery
from semel.lab.own import plan
from semel.lab.own.life import ENDED, SAID, TRACE, Broke, Ended, Errand, Later, Paused, live
from semel.lab.own.model import Effect, Gap, Program
from semel.lab.own.provider import Provider

BREAKS_MAX: Final = 3  # an operator who restarts a crashing process thrice has a stuck one
PROCESSES_MAX: Final = 50  # of one run: one that pauses or puts off so often does not come to its end
WORDS_OF_THE_END: Final = 2_000  # characters of what the last process said


class GivenUp(Exception):
    """The lab was ended from outside; nothing is to be concluded."""


class Children:
    """The processes that live now, so that all of them end with the lab."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._alive: set[Child] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def live(self, life: Callable[[], None], seconds_max: float) -> int | None:
        """Its exit status; None if it took too long and was ended."""
        with self._lock:
            self._go_on()
            child = self._nursery.bear(life)
            self._alive.add(child)
        exitcode = child.exitcode(seconds_max)
        with self._lock:
            self._alive.discard(child)
            self._go_on()
        return exitcode

    def wait(self, seconds: float) -> None:
        self._ending.wait(seconds)
        self._go_on()

    def end(self) -> None:
        with self._lock:
            self._ending.set()
            for child in self._alive:
                child.end()

    def _go_on(self) -> None:
        if self._ending.is_set():
            raise GivenUp


class Life(NamedTuple):
    """How one process ended. `exitcode` None: it took too long."""

    exitcode: int | None
    ended: Ended
    said: str


class End(NamedTuple):
    """How a run ended, after as many processes as it took. `because` is None if it came to its end."""

    because: str | None
    waits_for_person: bool
    asks: int
    processes: int


@dataclass(slots=True)
class Run:
    """A run of the program: its folder, its name at the provider, and the processes it takes."""

    program: Program
    place: Path
    cell: str
    provider: Provider
    children: Children

    def begin(self) -> None:
        self.folder.mkdir(parents=True)
        self.provider.begin(self.cell, self.program.provider)

    @property
    def folder(self) -> Path:
        return self.place / self.cell / "run"

    @property
    def ledger(self) -> Path | None:
        return None if self.program.effects is None else self.folder / self.program.effects

    def live(
        self,
        number: int,
        *,
        gap: Gap | None = None,
        pause: PausedForPerson | None = None,
        is_traced: bool = False,
    ) -> Life:
        notes = self.place / self.cell / f"process-{number}"
        notes.mkdir()
        target = self.program.target if pause is None else self.program.resolver
        assert target is not None, "a pause is only taken further where there is a resolver"
        errand = Errand(
            target=target,
            cell=self.cell,
            folder=self.folder,
            home=self.program.home,
            notes=notes,
            environment=self._environment(),
            provider=self.provider,
            effects=self.ledger,
            gap=gap,
            pause=pause,
            is_traced=is_traced,
        )
        exitcode = self.children.live(partial(live, errand), self.program.seconds_max)
        return Life(exitcode, _ended(notes), _said(notes))

    def to_the_end(self, *, processes: int = 0, is_traced: bool = False) -> End:
        """Start it again until it comes to its end, as an operator would; a person is played by the resolver."""
        breaks = asks = 0
        patience = self.program.patience_seconds
        for number in range(processes + 1, PROCESSES_MAX):
            life = self.live(number, is_traced=is_traced)
            if life.exitcode == 0:
                return End(None, False, asks, number)
            match life.ended:
                case Paused() if self.program.resolver is None:
                    return End(f"it asked a person: {life.ended.pause}", True, asks + 1, number)
                case Paused(pause):
                    asks += 1
                    answered = self.live(PROCESSES_MAX + number, pause=pause)
                    if answered.exitcode != 0:
                        return End(f"the resolver did not answer: {answered.said}", False, asks, number)
                case Later(seconds) if seconds <= patience:
                    patience -= seconds
                    self.children.wait(seconds)  # the program's own word: before that it cannot know more
                case Later(seconds):
                    return End(_out_of_patience(seconds, self.program), False, asks, number)
                case _:
                    breaks += 1
                    if breaks == BREAKS_MAX:
                        return End(_why(life, self.program), False, asks, number)
        return End(f"{PROCESSES_MAX} processes did not bring it to its end", False, asks, PROCESSES_MAX)

    def effects(self) -> list[Effect]:
        seen = [Effect(tool=e["tool"], fields=e["fields"]) for e in self._record()["effects"]]
        return [*seen, *self.lines()]

    def lines(self) -> list[Effect]:
        if self.ledger is None or not self.ledger.exists():
            return []
        return [
            _effect_of(line) for line in self.ledger.read_text(encoding="utf-8").splitlines() if line.strip()
        ]

    def seen(self) -> plan.Seen:
        traces = sorted((self.place / self.cell).glob(f"process-*/{TRACE}"))
        passed = [plan.passed_from(line) for file in traces for line in file.read_text().splitlines()]
        return plan.Seen(
            passed=sorted(passed, key=lambda p: p.at),
            arrivals=[plan.Arrival(a["tool"], a["at"]) for a in self._record()["arrivals"]],
            effects=self.effects(),
            lines=self.lines(),
        )

    def _record(self) -> Mapping[str, Any]:
        return self.provider.record(self.cell)

    def _environment(self) -> dict[str, str]:
        known = {
            "provider": self.provider.url(self.cell),
            "folder": str(self.folder),
            "cell": self.cell,
            "home": str(self.program.home),
        }
        own = {f"SEMEL_LAB_{name.upper()}": value for name, value in known.items()}
        return {**own, **{name: _filled_in(text, known) for name, text in self.program.environment.items()}}


# ------------------------------------------------------------------ small


def _ended(notes: Path) -> Ended:
    file = notes / ENDED
    if not file.exists():
        return Broke()
    ended: Ended = pickle.loads(file.read_bytes())
    return ended


def _said(notes: Path) -> str:
    file = notes / SAID
    return file.read_text(errors="replace")[-WORDS_OF_THE_END:] if file.exists() else ""


def _why(life: Life, program: Program) -> str:
    if life.exitcode is None:
        return f"the process had not ended after {program.seconds_max:g} seconds\n{life.said}"
    return f"the process ended with {life.exitcode}\n{life.said}"


def _out_of_patience(seconds: float, program: Program) -> str:
    return (
        f"it can go on in {seconds:.1f} seconds, and the lab waits {program.patience_seconds:g} in all: raise "
        "--patience, or declare the request_deadline and lookup_lag that your provider really has"
    )


def _effect_of(line: str) -> Effect:
    """A line that is no JSON object, or was cut off by the kill, is an effect all the same."""
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return Effect(tool="the ledger", fields={"line": line})
    return Effect(
        tool=str(told.get("tool", "the ledger")), fields={k: v for k, v in told.items() if k != "tool"}
    )


def _filled_in(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"{{{name}}}", value)
    return text
