"""The run that is explored: Semel's guard, its agent loop, and a client of the provider, in a child process.

It does what the author of tools should: declares what the provider keeps to, tells it until when a request may
land, answers a lookup in typed evidence, and repeats a call whose outcome is not known yet.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import semel
from semel.agent import run_agent
from semel.connect import open_store
from semel.engine.tool import Tool
from semel.lab import injector, power
from semel.lab.client import StillProcessing, UnexpectedStatus, World
from semel.lab.explore.guards import guard_named
from semel.lab.explore.places import Places
from semel.lab.explore.plan import SOUND, Act
from semel.lab.explore.telling import TellingStore
from semel.lab.ladder import TOOLS
from semel.lab.levels.l5_semel import Script, answer_of
from semel.lab.model import ProviderKind
from semel.lab.scenario import OPENING, RUN_ID

CALLS_MAX: Final = 60  # of the same run, each a little later: far more than any recovery seen
PAUSE_SECONDS_MAX: Final = 0.5
WAIT: Final = timedelta(seconds=2)  # longer than any lease or deadline here that is waited for
NO_ANSWER: Final = (OSError, http.client.HTTPException)
LOOK_AGAIN: Final = timedelta(milliseconds=50)
WHAT_HAPPENED: Final = {"POST": "provider", "GET": "lookup"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What the author of the tools states of the provider, in milliseconds."""

    request_deadline_ms: int = 150
    lookup_lag_ms: int = 0
    key_ttl_ms: int = 24 * 3600 * 1000

    @property
    def request_deadline(self) -> timedelta:
        return timedelta(milliseconds=self.request_deadline_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Life:
    """One process. Called in a child; what it passes stands in `journal` afterwards.

    `in_doubt`    tools that the life before it left in doubt.
    `flushes_of`  the folder whose flushes are recorded, for a power loss.
    `person_takes_their_time`  else they look at once, and may see nothing of what is about to land.
    """

    world: World
    store: str  # a URL
    namespace: str
    provider: ProviderKind
    declared: Declared
    lease_ms: int
    journal: Path
    guard: str = SOUND
    act: Act | None = None
    in_doubt: tuple[str, ...] = ()
    flushes_of: Path | None = None
    person_takes_their_time: bool = True

    def __call__(self) -> None:
        self.live(_Run.to_its_end)

    def live(self, until: Callable[[_Run], None]) -> None:
        places = Places(self.act, self.journal, in_doubt=self.in_doubt)
        try:
            with self._recording():
                until(_Run(self, places))
            places.write()
        except BaseException:
            self.last_words.write_text(traceback.format_exc(), encoding="utf-8")
            places.write()
            os._exit(injector.FAILED)

    def _recording(self) -> AbstractContextManager[None]:
        return nullcontext() if self.flushes_of is None else power.recording(self.flushes_of)

    @property
    def last_words(self) -> Path:
        return self.journal.with_suffix(".traceback")


@dataclass(frozen=True, slots=True)
class Audit:
    """A process that runs nothing: it has the guard ask about what is recorded, and tells of the divergences."""

    life: Life

    def __call__(self) -> None:
        self.life.live(_Run.audited)


@dataclass(slots=True)
class _Run:
    life: Life
    places: Places
    world: World = field(init=False)

    def __post_init__(self) -> None:
        self.world = replace(self.life.world, on_wire=self._on_wire)

    def to_its_end(self) -> None:
        self.places.reach("open the store: before")
        with self._guard() as guard:
            self.places.reach("open the store: after")
            tools = self._tools(guard)
            for _ in range(CALLS_MAX):
                if self._is_done(guard, tools):
                    self.places.divergences = len(guard.divergences())
                    return
        raise RuntimeError(f"the run was called {CALLS_MAX} times and does not end")

    def audited(self) -> None:
        with self._guard() as guard:
            self._tools(guard)
            guard.audit()
            self.places.divergences = len(guard.divergences())

    @contextmanager
    def _guard(self) -> Iterator[semel.Guard]:
        life, tried = self.life, guard_named(self.life.guard)
        store = TellingStore(open_store(life.store), self.places)
        with semel.Guard(
            tried.store(store),
            namespace=life.namespace,
            wait=WAIT,
            lease=timedelta(milliseconds=life.lease_ms),
            checkpoint=self._in_guard,
            decide=tried.decide,
        ) as guard:
            yield guard

    def _is_done(self, guard: semel.Guard, tools: dict[str, Tool]) -> bool:
        try:
            run_agent(
                guard,
                Script(self.world),
                tools,
                run_id=RUN_ID,
                opening=OPENING,
                checkpoint=self._in_loop,
            )
            return True
        except semel.PausedForPerson as pause:
            self._ask_person(guard, pause)
        except semel.OutcomeUnknown as unknown:
            _pass_time(unknown.retry_after)
        except (semel.NotSent, semel.Diverged, *NO_ANSWER):
            pass  # nothing was sent | it is in the history | the model did not answer: go on from the record
        return False

    # -------------------------------------------------------------- where it is

    def _in_loop(self, place: str, name: str) -> None:
        self.places.tool = TOOLS[int(name.partition("/")[0])]  # one call a turn
        self.places.reach(f"{place} {self.places.tool}")

    def _in_guard(self, place: str, key: str) -> None:
        self.places.reach(f"{place} {self.places.tool}")

    def _on_wire(self, place: str, request: str) -> None:
        method, _, path = request.partition(" ")
        _, part, *tool = path.partition("?")[0].split("/")
        what = WHAT_HAPPENED[method] if part == "provider" else part
        self.places.reach(f"{' '.join([what, *tool])}: {place}")

    # -------------------------------------------------------------- the tools

    def _tools(self, guard: semel.Guard) -> dict[str, Tool]:
        tool = partial(guard_named(self.life.guard).tool, guard, effect=self._effect())
        perform = self._perform

        @tool()
        def charge(
            customer: str,
            period: str,
            amount_cents: int | None = None,
            amount_usd: int | None = None,
            *,
            call: semel.Call,
        ) -> dict[str, Any]:
            return perform(call)

        @tool()
        def send_email(to: str, subject: str, body: str, *, call: semel.Call) -> dict[str, Any]:
            return perform(call)

        @tool()
        def grant_entitlement(
            customer: str, period: str, plan: str | None = None, tier: str | None = None, *, call: semel.Call
        ) -> dict[str, Any]:
            return perform(call)

        return {tool.name: tool for tool in (charge, send_email, grant_entitlement)}

    def _effect(self) -> semel.Idempotent | semel.Unsafe:
        declared = self.life.declared
        match self.life.provider:
            case ProviderKind.HONOURS_KEYS:
                ttl = timedelta(milliseconds=declared.key_ttl_ms)
                return semel.Idempotent(key_ttl=ttl, request_deadline=declared.request_deadline)
            case ProviderKind.HAS_LOOKUP:
                lag = timedelta(milliseconds=declared.lookup_lag_ms)
                return semel.Unsafe(
                    lookup=self._find, lookup_lag=lag, request_deadline=declared.request_deadline
                )
            case ProviderKind.BLIND:
                return semel.Unsafe(request_deadline=declared.request_deadline)

    def _perform(self, call: semel.Call) -> dict[str, Any]:
        """`lands_by` is fixed before anything is sent, so that a pause from here on makes the request late."""
        arguments = {name: value for name, value in call.arguments.items() if value is not None}
        lands_by = time.monotonic() + self.life.declared.request_deadline_ms / 1000
        try:
            return self.world.provider.perform(
                call.tool, arguments, key=call.key, reference=call.key, lands_by=lands_by
            )
        except (UnexpectedStatus, *NO_ANSWER):
            self.places.note_unanswered(call.tool)
            raise

    def _find(self, call: semel.Call) -> semel.Evidence:
        try:
            effects = self.world.provider.find_all(call.tool, call.key)
        except (StillProcessing, UnexpectedStatus, *NO_ANSWER) as problem:
            return semel.Inconclusive(str(problem), retry_after=LOOK_AGAIN)
        if not effects:
            return semel.Absent()
        return semel.Found(answer_of(effects[0]), key=effects[0].reference, times=len(effects))

    # -------------------------------------------------------------- the person

    def _ask_person(self, guard: semel.Guard, pause: semel.PausedForPerson) -> None:
        """The lab plays the person, who looks into the provider's own books and answers truly.

        What is still on its way is in no book; one who takes their time has waited for it.
        """
        if self.life.person_takes_their_time:
            _pass_time(self.life.declared.request_deadline)
        operation = guard.read(pause.key)
        assert operation is not None, "a pause names a recorded operation"
        effect = self.world.ask_person(operation.tool, reference=pause.key)
        answer = semel.RunIt() if effect is None else semel.ItHappened(answer_of(effect))
        moved_meanwhile = suppress(semel.ClaimHeld, semel.IllegalTransition, semel.UsageError)
        with moved_meanwhile:  # by another process: go on from the record
            guard.resolve(
                pause.key,
                answer,
                by="the lab's person",
                why="looked into the books",
                fingerprint=pause.fingerprint,
                attempt=pause.attempt,
            )


def _pass_time(span: timedelta | None) -> None:
    seconds = (span or timedelta(0)).total_seconds()
    threading.Event().wait(min(seconds, PAUSE_SECONDS_MAX))
