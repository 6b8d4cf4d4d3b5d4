"""Sixty crash points for each agent, and what came of each: by the provider's ledger and the agent's database."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from semel.lab import injector
from semel.lab.client import World
from semel.lab.incident import agents
from semel.lab.incident.plan import PLAN, Nature, intent, intents, of_tool
from semel.lab.incident.provider import Provider, serving
from semel.lab.injector import Kill, Run, Stuck
from semel.lab.model import Verdict, Window
from semel.lab.wire import Ask, Effect

AT_ONCE: Final = 3
STEPS: Final = tuple(range(1, len(PLAN) + 1))
PUBLISHED: Final = (
    "A published evaluation of the same shape reported, for naive recovery, 18 of 34 exposed crashes repeating "
    "an action and 44 extra actions. These figures differ because the rate depends on the scenario: on which "
    "actions come before the crash, and on which of them may be repeated."
)

OnRow: TypeAlias = Callable[[str], None]


def ignore(name: str) -> None:
    """For callers that only want the result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One crash. `done_before`: actions that had happened when the process died.

    `extra` counts every action beyond the plan's; `harmless` is the part of them that only set a state again.
    """

    step: int
    window: Window
    done_before: int
    extra: int
    harmless: int
    lost: int
    asks: int
    false_asks: int
    stuck: str | None = None

    @property
    def is_exposed(self) -> bool:
        return self.done_before > 0

    @property
    def verdict(self) -> Verdict:
        return max(
            Verdict.DUPLICATE if self.extra > self.harmless else Verdict.OK,
            Verdict.LOST if self.lost else Verdict.OK,
            Verdict.STUCK if self.stuck is not None else Verdict.OK,
            Verdict.FALSE_ASK if self.false_asks else Verdict.OK,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One agent."""

    name: str
    points: tuple[Point, ...]

    @property
    def exposed(self) -> int:
        return sum(point.is_exposed for point in self.points)

    @property
    def repeated(self) -> int:
        """Exposed crashes after which an action happened again that matters."""
        return sum(point.is_exposed and point.extra > point.harmless for point in self.points)

    def total(self, count: str) -> int:
        return sum(int(getattr(point, count)) for point in self.points)

    @property
    def stuck(self) -> int:
        return sum(point.stuck is not None for point in self.points)

    @property
    def worst(self) -> Verdict:
        return max(point.verdict for point in self.points)


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    rows: tuple[Row, ...]

    @property
    def holds(self) -> bool:
        """Semel is OK at every point, and the others, which are unguarded, are caught."""
        return all((row.worst is Verdict.OK) is (row.name == "Semel") for row in self.rows)


def run(
    *,
    steps: Sequence[int] = STEPS,
    windows: Sequence[Window] = tuple(Window),
    names: Sequence[str] = tuple(agents.AGENTS),
    on_row: OnRow = ignore,
) -> Experiment:
    """All sixty points for every agent, unless narrowed."""
    injector.warm(["semel.lab.incident.agents"])
    kills = [Kill(window=window, step=step) for step in steps for window in windows]
    with serving() as provider, tempfile.TemporaryDirectory(prefix="semel-incident-") as folder:
        rows = []
        for name in names:
            on_row(name)
            crash = Crash(provider=provider, folder=Path(folder), name=name, agent=agents.AGENTS[name])
            with ThreadPoolExecutor(AT_ONCE) as pool:
                rows.append(Row(name=name, points=tuple(pool.map(crash.at, kills))))
    return Experiment(rows=tuple(rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """How one agent is killed and resumed."""

    provider: Provider
    folder: Path
    name: str
    agent: Run

    def at(self, kill: Kill) -> Point:
        world = World(address=self.provider.address, cell_id=f"{self.name}-{kill.window}-{kill.step}")
        folder = self.folder / world.cell_id
        folder.mkdir()
        injector.kill(self.agent, world, folder, kill)
        done_before = len(self._effects(world, folder))
        outcome = injector.resume(self.agent, world, folder)
        stuck = outcome.because if isinstance(outcome, Stuck) else None
        return judged(
            kill,
            self._effects(world, folder),
            self.provider.books(world.cell_id).asks,
            done_before=done_before,
            stuck=stuck,
        )

    def _effects(self, world: World, folder: Path) -> list[Effect]:
        return [*self.provider.books(world.cell_id).effects, *agents.own_effects(folder)]


def judged(
    kill: Kill, effects: Sequence[Effect], asks: Sequence[Ask], *, done_before: int, stuck: str | None
) -> Point:
    """By intent: what happened more often than it was meant, or less often."""
    happened, meant = Counter(effect.intent for effect in effects), Counter(intents())
    extra = happened - meant
    justified = [ask for ask in asks if _had_to_be_asked(ask, kill)][:1]  # once about one call
    return Point(
        step=kill.step,
        window=kill.window,
        done_before=done_before,
        extra=extra.total(),
        harmless=sum(extra[name] for name in HARMLESS),
        lost=0
        if stuck is not None
        else (meant - happened).total(),  # a stuck plan has not claimed to be done
        asks=len(asks),
        false_asks=len(asks) - len(justified),
        stuck=stuck,
    )


HARMLESS: Final = frozenset(
    intent(step.tool, step.arguments) for step in PLAN if step.nature is Nature.REPEATABLE
)


def _had_to_be_asked(ask: Ask, kill: Kill) -> bool:
    """Only about the interrupted call, only where its provider can do nothing, only in W2 and W3."""
    is_interrupted = PLAN[kill.step - 1].tool == ask.tool and kill.window in (Window.W2, Window.W3)
    return is_interrupted and of_tool(ask.tool).nature is Nature.BLIND
