"""In turns, several times, and the median: what a noisy machine does to one it does to its neighbour."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Chunk: TypeAlias = Callable[[], float]
"""Does a chunk of the work and returns seconds a call."""


def interleaved(chunks: Mapping[str, Chunk], rounds: int) -> dict[str, list[float]]:
    """Seconds a call, by name and round. Every other round runs backwards, so that nobody always follows the
    same neighbour's mess; a first one, which fills caches, is not counted."""
    found: dict[str, list[float]] = {name: [] for name in chunks}
    for number in range(-1, rounds):
        order = list(chunks) if number % 2 == 0 else list(chunks)[::-1]
        for name in order:
            seconds = chunks[name]()
            if number >= 0:
                found[name].append(seconds)
    return found


def timed(work: Callable[[], object], calls: int) -> float:
    """Seconds a call."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) / calls


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' own ratios."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def percentile(samples: Sequence[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(rounds: Sequence[float]) -> dict[str, float]:
    seconds = statistics.median(rounds)
    return {
        "microseconds_a_call": round(seconds * 1e6, 2),
        "calls_a_second": round(1 / seconds, 1),
        "fastest_microseconds": round(min(rounds) * 1e6, 2),
        "slowest_microseconds": round(max(rounds) * 1e6, 2),
    }
