"""Carries out one plan with real processes, and gives what the world saw of it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from semel.lab import injector, power
from semel.lab.client import World
from semel.lab.explore import faults
from semel.lab.explore.agent import Audit, Life
from semel.lab.explore.places import Journal
from semel.lab.explore.plan import POWER_LOSSES, SOUND, Act, Deed, Plan
from semel.lab.nursery import Child
from semel.lab.wire import Counters, Effect

SECONDS_MAX: Final = 20.0  # of one process; past it, it waits for what never comes
BROKEN_SECONDS_MAX: Final = 8.0
STOPS_WITHIN_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.002


class Astray(Exception):
    """A process was not struck where it was to be: nothing is proved, nothing concluded."""


class NeverThere(Astray):
    """It ran to its end by another way: what it has to repeat or to wait for depends on the time of day."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """`journals` has one entry a process, in the order of their starts. `stuck` says why, or is empty."""

    plan: Plan
    ledger: Sequence[Effect]
    counters: Counters
    journals: Sequence[Journal]
    stuck: str
    seconds: float

    @property
    def recovery(self) -> Journal:
        """The process that ran to the end."""
        return self.journals[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Where the runs of one campaign take place: one world, one folder, one store."""

    address: str
    folder: Path
    postgres_url: str | None = None
    _numbers: count[int] = field(default_factory=count)

    def run(self, plan: Plan) -> Seen:
        """Raises `Astray`."""
        run = _Running(self, plan, f"run-{next(self._numbers)}")
        try:
            return run.to_its_end()
        finally:
            run.clear()


class _Running:
    def __init__(self, stage: Stage, plan: Plan, cell_id: str) -> None:
        self._plan = plan
        self._fault = faults.BY_NAME[plan.fault]
        self._folder = stage.folder / cell_id
        self._lab = World(address=stage.address, cell_id=cell_id)
        self._world = World(
            address=stage.address, cell_id=cell_id, timeout_seconds=self._fault.timeout_seconds
        )
        self._durable = self._folder / "durable"
        self._store = stage.postgres_url or f"sqlite:///{self._durable}/semel.db"
        self._journals: list[Journal] = []
        self._zombies: list[_Zombie] = []
        self._started = time.monotonic()

    def to_its_end(self) -> Seen:
        self._durable.mkdir(parents=True)
        self._lab.prepare(self._fault.settings(self._plan.provider, self._plan.struck, self._plan.seed))
        for number, act in enumerate(self._plan.acts):
            self._strike(number, act)
        stuck = self._finish() or self._wake_zombies()
        self._lab.release_held()
        stuck = stuck or self._audit()
        return Seen(
            plan=self._plan,
            ledger=self._lab.ledger(),
            counters=self._lab.counters(),
            journals=self._journals,
            stuck=stuck,
            seconds=time.monotonic() - self._started,
        )

    def clear(self) -> None:
        """No process is left behind, stopped or not."""
        for zombie in self._zombies:
            _continue(zombie.stopped)
            zombie.child.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -------------------------------------------------------------- one process

    def _life(self, number: int, act: Act | None) -> Life:
        return Life(
            world=self._world,
            store=self._store,
            namespace=self._lab.cell_id,
            provider=self._plan.provider,
            declared=self._fault.declared,
            lease_ms=self._fault.lease_ms,
            journal=self._folder / f"life-{number}.journal",
            guard=self._plan.guard,
            act=act,
            flushes_of=self._durable if self._loses_power() else None,
            person_takes_their_time=not self._fault.has_hasty_person,
            in_doubt=tuple(self._journals[-1].in_doubt) if self._journals else (),
        )

    def _strike(self, number: int, act: Act) -> None:
        life = self._life(number, act)
        child = injector.begin(life)
        if act.deed in (Deed.STOP, Deed.RIVAL):
            pid = _wait_until_there(child, life)
            stopped = pid if act.deed is Deed.STOP else None
            self._zombies.append(_Zombie(child, stopped, life.journal, len(self._journals)))
        else:
            exitcode = injector.ended(child, seconds_max=SECONDS_MAX)
            if exitcode == 0:
                raise NeverThere(f"{act}: the process ended without passing it")
            if exitcode != -signal.SIGKILL:
                raise Astray(f"{act}: the process ended with {exitcode}. {_last_words(life, exitcode)}")
            self._cut_power(act)
        self._journals.append(Journal.read(life.journal))
        threading.Event().wait(self._fault.recovery_after_ms / 1000)

    def _loses_power(self) -> bool:
        return any(act.deed in POWER_LOSSES for act in self._plan.acts)

    def _cut_power(self, act: Act) -> None:
        match act.deed:
            case Deed.POWER_LOSS:
                power.lose_unflushed(self._durable)
            case Deed.TORN_WRITES:
                power.lose_unflushed(self._durable, keeps=self._keeps)

    def _keeps(self, name: str, sector: int) -> bool:
        """By chance, the same in every run of this plan."""
        return random.Random(f"{self._plan.seed}/{self._plan.acts}/{name}/{sector}").random() < 0.5

    def _finish(self) -> str:
        """A fresh process runs to the end, a failing one is started again as an operator would; why it is stuck."""
        for again in range(self._resumes_max):
            life = self._life(len(self._plan.acts) + again, None)
            exitcode = injector.ended(injector.begin(life), seconds_max=self._seconds_max)
            if exitcode is not None:
                self._journals.append(Journal.read(life.journal))
            if exitcode == 0:
                return ""
        return _last_words(life, exitcode)

    @property
    def _resumes_max(self) -> int:
        return injector.RESUMES_MAX if self._plan.guard == SOUND else 1

    @property
    def _seconds_max(self) -> float:
        """A guard that is broken on purpose gets less patience: some of them wait for ever."""
        return SECONDS_MAX if self._plan.guard == SOUND else BROKEN_SECONDS_MAX

    def _wake_zombies(self) -> str:
        """What was held lands now; then the stopped go on to their own end. Why one of them is stuck."""
        zombies, self._zombies = self._zombies, []
        for zombie in zombies:
            self._lab.release_held()
            _continue(zombie.stopped)
            exitcode = injector.ended(zombie.child, seconds_max=self._seconds_max)
            if exitcode != 0:
                return f"the process that went on ended with {exitcode}: {_text(zombie.journal)}"
            when_struck, woken = self._journals[zombie.number], Journal.read(zombie.journal)
            self._journals[zombie.number] = replace(
                when_struck, divergences=woken.divergences, unanswered=woken.unanswered
            )
        return ""

    def _audit(self) -> str:
        """What was late has landed and shows; one more process asks about it. Why it is stuck."""
        if not self._fault.is_audited:
            return ""
        self._lab.catch_up()
        life = self._life(len(self._journals), None)
        exitcode = injector.ended(injector.begin(Audit(life)), seconds_max=self._seconds_max)
        if exitcode != 0:
            return _last_words(life, exitcode)
        told = Journal.read(life.journal).divergences
        self._journals[-1] = replace(self._journals[-1], divergences=told)
        return ""


class _Zombie(NamedTuple):
    """A process that goes on later, or all the while. `stopped`: the id of one that has to be woken."""

    child: Child
    stopped: int | None
    journal: Path
    number: int  # of its journal


def _wait_until_there(child: Child, life: Life) -> int:
    """The id of the process, once it is at its act's place (and stopped, if that is the act).

    Polls: nothing announces a SIGSTOP to anyone but the parent.
    """
    assert life.act is not None
    pause, gives_up_at = threading.Event(), time.monotonic() + STOPS_WITHIN_SECONDS
    while time.monotonic() < gives_up_at:
        if life.journal.exists():
            journal = Journal.read(life.journal)
            if journal.places.count(life.act.place) < life.act.nth:
                break
            if life.act.deed is Deed.RIVAL or _is_stopped(journal.pid):
                return journal.pid
        pause.wait(POLL_SECONDS)
    child.end()
    exitcode = injector.ended(child)
    if exitcode == 0:
        raise NeverThere(f"{life.act}: the process ended without passing it")
    raise Astray(f"{life.act}: it never came there. {_last_words(life, exitcode)}")


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _continue(pid: int | None) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _last_words(life: Life, exitcode: int | None) -> str:
    if exitcode is None:
        return "the process did not end: it waits for what never comes"
    return _text(life.journal) or f"the process ended with {exitcode}"


def _text(journal: Path) -> str:
    file = journal.with_suffix(".traceback")
    return file.read_text(encoding="utf-8") if file.exists() else ""
