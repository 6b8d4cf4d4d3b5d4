"""Play one world, find the first that fails, and shrink it to the few deviations that make it fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from semel.lab.model import Verdict
from semel.lab.mutants import BY_NAME, SOUND, Mutant
from semel.lab.simulate.choices import Choices, Deviations, Label
from semel.lab.simulate.judge import Finding, judge
from semel.lab.simulate.setting import Kind
from semel.lab.simulate.world import World

PAIRS_MAX: Final = 15  # deviations, of which any two may have to go together
TRIES_MAX: Final = 3_000  # of a world while it is shrunk: a second or two


@dataclass(frozen=True, slots=True)
class Case:
    """A world that can be played again: the guard's name, the provider, every deviation from a smooth run."""

    guard: str
    kind: Kind
    deviations: Deviations


@dataclass(frozen=True, slots=True)
class Failure:
    seed: int
    case: Case
    finding: Finding


def guard_named(name: str) -> Mutant:
    """Raises KeyError."""
    return SOUND if name == SOUND.name else BY_NAME[name]


def play(case: Case) -> Finding:
    return judge(_world(case).run())


def story(case: Case) -> tuple[str, ...]:
    """What happens in it, line by line."""
    lines: list[str] = []
    world = _world(case, say=lines.append).run()
    finding = judge(world)
    end = f"{finding.verdict.name}: {finding.why}" if finding.why else finding.verdict.name
    return (*_opening(world), *lines, end)


def case_of(guard: str, seed: int) -> Case:
    """The world of a seed."""
    world = World(guard_named(guard), Choices(seed=seed)).run()
    return Case(guard, world.setting.kind, dict(world.choices.made))


def failures(guard: str, seeds: Iterable[int]) -> Iterator[Failure]:
    """Worlds in which this guard fails; those of a broken one count only if the sound one passes."""
    mutant = guard_named(guard)
    for seed in seeds:
        world = World(mutant, Choices(seed=seed)).run()
        finding = judge(world)
        if finding.verdict is Verdict.OK:
            continue
        case = Case(guard, world.setting.kind, dict(world.choices.made))
        if mutant is SOUND or _passes(case):
            yield Failure(seed, case, finding)


def shrink(failure: Failure) -> Failure:
    """Take deviations away, in halves and then one by one, for as long as the verdict stays."""
    case, verdict = failure.case, failure.finding.verdict
    tries = iter(range(TRIES_MAX))

    def fails(deviations: Deviations) -> bool:
        if next(tries, None) is None:
            return False
        smaller = replace(case, deviations=deviations)
        return play(smaller).verdict is verdict and (case.guard == SOUND.name or _passes(smaller))

    smallest = replace(case, deviations=_fewest(case.deviations, fails))
    return Failure(failure.seed, smallest, play(smallest))


def _fewest(deviations: Deviations, fails: Callable[[Deviations], bool]) -> Deviations:
    size = max(1, len(deviations) // 2)
    while True:  # ends: it goes round again only at a smaller size, or with fewer deviations
        before, labels = deviations, list(deviations)
        parts = [labels[at : at + size] for at in range(0, len(labels), size)]
        if size == 1 and len(labels) <= PAIRS_MAX:
            parts += map(list, itertools.combinations(labels, 2))
        for part in parts:
            for without in _without(deviations, part):
                if len(without) < len(deviations) and fails(without):
                    deviations = without
                    break
        if size == 1 and deviations == before:
            return deviations
        size = max(1, size // 2)


def _without(deviations: Deviations, part: Sequence[Label]) -> Iterator[Deviations]:
    """Left out; and, where it is a single one, with the gap closed that it leaves: a write that is not lost is
    not repeated, and what deviated at the third write deviates at the second."""
    yield {label: way for label, way in deviations.items() if label not in part}
    if len(part) == 1 and part[0] in deviations:
        who, what, number = part[0]
        yield {
            (a, b, n - 1 if (a, b) == (who, what) and n > number else n): way
            for (a, b, n), way in deviations.items()
            if (a, b, n) != part[0]
        }


def _passes(case: Case) -> bool:
    return play(replace(case, guard=SOUND.name)).verdict is Verdict.OK


def _world(case: Case, *, say: Callable[[str], None] | None = None) -> World:
    return World(guard_named(case.guard), Choices(given=case.deviations), kind=case.kind, say=say)


def _opening(world: World) -> tuple[str, ...]:
    setting = world.setting
    declared = {
        "request_deadline": setting.request_deadline_ms,
        "lookup_lag": setting.lookup_lag_ms,
        "key_ttl": setting.key_ttl_ms,
    }
    of_effect = {name: f"{ms / 1000:g} s" for name, ms in declared.items() if hasattr(setting.effect, name)}
    hosts = "one host" if setting.is_one_host else "several hosts"
    return (
        f"guard: {world.mutant.name}; provider: {setting.kind}",
        f"declared: {', '.join(f'{name} {span}' for name, span in of_effect.items())}",
        f"plan: {setting.plan}; {setting.processes} processes on {hosts}",
        *((f"not true of this provider: its {setting.untrue}",) if setting.untrue else ()),
    )
