"""(d) Resuming a run: seconds and queries, by how many of its calls are finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import semel
from semel import lifecycle
from semel.bench.guarded import Guarded
from semel.bench.measure import figures, interleaved, timed
from semel.bench.model import Row
from semel.bench.places import Place
from semel.bench.sizes import Sizes
from semel.connect import open_store
from semel.engine.guard import LEASE
from semel.engine.run import RunCore
from semel.model import Insert, Intent, Move
from semel.ports import Store

BATCH_MAX: Final = 500
_QUERIES: Final = frozenset({"apply", "transaction", "join"})


def name_of(finished: int) -> str:
    return f"resume, {finished:,} finished calls"


class Counted:
    """A store that counts how often its database is asked; each of a store's verbs is one query or more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.queries = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in _QUERIES and not name.startswith("read"):
            return verb

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.queries += 1
            return verb(*args, **kwargs)

        return counted


def measure(place: Place, sizes: Sizes) -> list[Row]:
    store = Counted(open_store(place.new_url()))
    with semel.Guard(store) as guard:
        ours = Guarded(guard)
        for finished in sizes.finished_calls:
            _finish(ours, _run_id(finished), finished)
        found = interleaved(
            {
                name_of(finished): lambda finished=finished: _resume(ours, finished)  # type: ignore[misc]
                for finished in sizes.finished_calls
            },
            sizes.rounds,
        )
        queries = {}
        for finished in sizes.finished_calls:
            before = store.queries
            _resume(ours, finished)
            queries[name_of(finished)] = store.queries - before
    return [
        Row(
            section="resume",
            name=name_of(finished),
            store=place.store,
            figures=_figures(found[name_of(finished)], finished) | {"queries": queries[name_of(finished)]},
            rounds=found[name_of(finished)],
            note="enter the run and make every call of it again",
        )
        for finished in sizes.finished_calls
    ]


def _figures(rounds: Sequence[float], finished: int) -> dict[str, float]:
    of_a_call = figures(rounds)
    return of_a_call | {
        "seconds": round(of_a_call["microseconds_a_call"] * finished / 1e6, 4),
        "fastest_seconds": round(of_a_call["fastest_microseconds"] * finished / 1e6, 4),
    }


def _run_id(finished: int) -> str:
    return f"run of {finished}"


def _resume(ours: Guarded, finished: int) -> float:
    def again() -> None:
        with ours.guard.run(_run_id(finished)) as run:
            for n in range(finished):
                run.call(ours.plain, n=n)

    return timed(again, finished)


def _finish(ours: Guarded, run_id: str, calls: int) -> None:
    """As if every call had been made: the same intents, written in large batches."""
    core = RunCore(ours.guard._core, run_id)
    intents = [core.intent(ours.plain, {"n": n}, core.next_step(), "") for n in range(calls)]
    for start in range(0, calls, BATCH_MAX):
        _write(ours.guard.store, intents[start : start + BATCH_MAX])


def _write(store: Store, intents: Sequence[Intent]) -> None:
    now = store.now()
    claims = [lifecycle.open_claim(one, owner="bench/1", now=now, lease=LEASE) for one in intents]
    ends: list[Move] = [lifecycle.commit(claim, result="1", now=now) for claim in claims]
    store.apply([Insert(claim) for claim in claims])
    store.apply(ends)
