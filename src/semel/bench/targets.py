"""What the project has set itself, judged on the rows of one run: ratios of neighbours, counts, and two bounds in
seconds, taken in the calmest round: what they bound waits for no disk, and a busy machine is no part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from semel.bench import calls, growth, replay, resume
from semel.bench.measure import ratio
from semel.bench.model import Row, Target
from semel.bench.sizes import Sizes

SEQUENTIAL_MOST: Final = 1.25
IN_FLIGHT_LEAST: Final = {"sqlite": 6.0, "postgres": 4.0}
OF_BATCHES_LEAST: Final = 0.25
REPLAY_MICROSECONDS_MOST: Final = 60.0
P99_GROWTH_MOST: Final = 1.5
RESUME_SECONDS_MOST: Final = 0.5
NAMES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def judge(rows: Sequence[Row], sizes: Sizes) -> list[Target]:
    """Those whose sections were run. One that could not be measured has no figure, and does not hold."""
    sections = {(row.section, row.store) for row in rows}
    found: list[Target] = []
    for store in NAMES:
        of_store = _Rows(row for row in rows if row.store == store)
        if ("calls", store) in sections:
            found += _of_calls(of_store, store)
        if ("replay", store) in sections:
            found += _of_replay(of_store, store)
        if ("growth", store) in sections:
            found.append(_of_growth(of_store, store, sizes))
        if ("resume", store) in sections:
            found += _of_resume(of_store, store, sizes)
    return found + list(_of_peers([row for row in rows if row.section == "peers"]))


class _Rows:
    def __init__(self, rows: Iterator[Row]) -> None:
        self._by_name = {row.name: row for row in rows}

    def ratio(self, ours: str, theirs: str) -> float | None:
        """Of seconds a call, in the median round."""
        one, other = self._by_name.get(ours), self._by_name.get(theirs)
        if one is None or other is None or not one.rounds or not other.rounds:
            return None
        return round(ratio(one.rounds, other.rounds), 2)

    def figure(self, name: str, figure: str) -> float | None:
        row = self._by_name.get(name)
        return None if row is None else row.figures.get(figure)


def _of_calls(rows: _Rows, store: str) -> list[Target]:
    times = IN_FLIGHT_LEAST[store]
    name = NAMES[store]
    return [
        Target(
            target=f"1. {name}: sequential call, times the raw one-flush floor, at most",
            measured=rows.ratio(calls.SEQUENTIAL, calls.ONE_FLUSH),
            limit=SEQUENTIAL_MOST,
        ),
        Target(
            target=f"1. {name}: sequential call, times the raw two-flush floor, below",
            measured=rows.ratio(calls.SEQUENTIAL, calls.TWO_FLUSHES),
            limit=1.0,
        ),
        Target(
            target=f"2. {name}: rate with 64 in flight, times the sequential rate, at least",
            measured=rows.ratio(calls.SEQUENTIAL, calls.ASYNC),
            limit=times,
            is_at_least=True,
        ),
        Target(
            target=f"2. {name}: rate with 64 in flight, share of the raw rate of 64 a batch, at least",
            measured=rows.ratio(calls.BATCHED, calls.ASYNC),
            limit=OF_BATCHES_LEAST,
            is_at_least=True,
        ),
    ]


def _of_replay(rows: _Rows, store: str) -> list[Target]:
    if store == "sqlite":
        return [
            Target(
                target="3. SQLite: replay of a committed call, microseconds in the calmest round, at most",
                measured=rows.figure(replay.ANEW, "fastest_microseconds"),
                limit=REPLAY_MICROSECONDS_MOST,
            )
        ]
    return [
        Target(
            target="3. PostgreSQL: replay of a committed call, round trips, at most",
            measured=rows.figure(replay.ANEW, "round_trips"),
            limit=1.0,
        )
    ]


def _of_growth(rows: _Rows, store: str, sizes: Sizes) -> Target:
    least, most = sizes.table_rows[0], sizes.table_rows[-1]
    return Target(
        target=f"4. {NAMES[store]}: claim p99 at {most:,} operations, times that at {least:,}, at most",
        measured=rows.ratio(growth.name_of(most), growth.name_of(least)),
        limit=P99_GROWTH_MOST,
    )


def _of_resume(rows: _Rows, store: str, sizes: Sizes) -> list[Target]:
    least, most = sizes.finished_calls[0], sizes.finished_calls[-1]
    few, many = (rows.figure(resume.name_of(number), "queries") for number in (least, most))
    return [
        Target(
            target=f"5. {NAMES[store]}: resume of {most:,} finished calls, seconds in the calmest round, at most",
            measured=rows.figure(resume.name_of(most), "fastest_seconds"),
            limit=RESUME_SECONDS_MOST,
        ),
        Target(
            target=f"5. {NAMES[store]}: queries more for it than for a run of {least:,}, at most",
            measured=None if few is None or many is None else many - few,
            limit=0.0,
        ),
    ]


def _of_peers(rows: Sequence[Row]) -> Iterator[Target]:
    """Of those measured that flush what they are about to do, where that could be told; else of all."""
    for row in rows:
        if row.is_measured and row.figures.get("flushes_before_effect", 1) >= 1:
            yield Target(
                target=f"6. {row.name} ({NAMES[row.store]}): its time, times Semel's, at least",
                measured=row.figures["times_semel"],
                limit=1.0,
                is_at_least=True,
            )
