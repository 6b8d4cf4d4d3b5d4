"""One simulated world: a clock, a queue of what happens next, and those to whom it happens."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from semel.engine.tool import Tool
from semel.lab.mutants.mutant import Heeds, Mutant
from semel.lab.simulate.choices import Choices
from semel.lab.simulate.process import Process
from semel.lab.simulate.provider import Provider
from semel.lab.simulate.setting import TOOL, Kind, Setting, draw_setting, intent_of
from semel.lab.simulate.sweep import Sweep
from semel.lab.simulate.table import Table
from semel.model import Effect

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
CHAOS_MS: Final = 20_000  # nothing deviates after this, so that what is left can come to its end
HORIZON_MS: Final = 300_000  # far beyond every lease, deadline and pause: who is not done by then is stuck
EVENTS_MAX: Final = 20_000  # a smooth world has about thirty, a rough one some hundreds
CHANCE_MOST: Final = 0.5
SWEEPS_MOST: Final = 6
POWER_LOSSES: Final = 8  # the moments at which the power may go


class World:
    """`say` is given every line of the story; None spares the telling."""

    def __init__(
        self,
        mutant: Mutant,
        choices: Choices,
        *,
        kind: Kind | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.mutant = mutant
        self.choices = choices
        self.setting: Setting = draw_setting(choices, kind)
        self.time_ms = 0
        self.now_at = START
        self.table = Table(lambda: self.now_at)
        self.provider = Provider(self.setting)
        self.tool = _tool(mutant.heeds, self.setting.effect, self.setting.attempts)
        self.event_of: dict[tuple[str, str], str] = {}
        self.heard: dict[str, set[int]] = {}  # the effects, by event, that a course came to its end with
        self.baffled: set[str] = set()  # the keys of which a lookup said what only a person can make sense of
        self.flaws: list[str] = []  # what a process or a person met that must not be
        self.false_asks: list[str] = []
        self.is_told = say is not None
        self._say = say
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self.processes = [self._process(number) for number in range(self.setting.processes)]

    def run(self) -> World:
        for process in self.processes:
            late = self.choices.deviate("world", "late start", 0.5, 6)
            self.after(10 * process.number + 150 * late, process.start)
        for number in range(self.choices.deviate("world", "sweeps", 0.3, SWEEPS_MOST)):
            process = self.processes[number % len(self.processes)]
            self.after(700 * (number + 1), Sweep(process).start)
        if lost := self.choices.deviate("world", "power loss", 0.1, POWER_LOSSES):
            self.after(40 * lost**2, self._lose_power)
        for _ in range(EVENTS_MAX):
            if not self._queue:
                return self
            at_ms, _, what, arguments = heapq.heappop(self._queue)
            if at_ms > HORIZON_MS:
                return self
            if at_ms != self.time_ms:
                self.time_ms, self.now_at = at_ms, START + timedelta(milliseconds=at_ms)
            what(*arguments)
        self.flaws.append(f"{EVENTS_MAX} events and no end")
        return self

    def after(self, ms: int, what: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (self.time_ms + ms, next(self._order), what, arguments))

    def deviates(self, who: str, what: str, ways: tuple[str, ...], *, times: int = 1) -> str:
        """In which way, if in any. `times`: how much likelier than elsewhere."""
        if self.time_ms > CHAOS_MS:
            return ""
        way = self.choices.deviate(who, what, min(self.setting.chance * times, CHANCE_MOST), len(ways))
        return ways[way - 1] if way else ""

    def tell(self, who: str, text: str, *values: Any) -> None:
        if self._say is not None:
            self._say(f"{self.time_ms / 1000:8.3f} s  {who:<10} {text % values if values else text}")

    def _process(self, number: int) -> Process:
        wanted = self.setting.wanted(number)
        calls = tuple(
            (w, intent_of(w, self.setting.plan, self.tool.effect.name, self.mutant)) for w in wanted
        )
        for want, intent in calls:
            self.event_of.setdefault((intent.key, intent.fingerprint), want.event)
        return Process(self, number, calls)

    def _lose_power(self) -> None:
        self.tell("the power", "goes, and with it every write that no flush has carried")
        self.table.lose_unflushed()
        self.heard.clear()  # a completion that is lost takes with it what anybody knew
        for process in self.processes:
            process.die()


@functools.cache
def _tool(heeds: Heeds, effect: Effect, attempts: int) -> Tool:
    def perform(amount: int) -> None:
        raise AssertionError("the simulator performs the effect itself")

    return Tool(
        perform, name=TOOL, effect=heeds(effect), once_per=None, attempts=attempts, caller=lambda *_: None
    )
