"""(b) Replay of a committed call: what a resumed run pays for each call that it has already finished.

`entered anew`  the whole of it: enter the run again, which reads it in one query, and call.
`in a resumed run`  one call of a run that is already open.
`delivered twice`  the same coordinates again, to a run that was entered before the call was finished.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from semel.bench.guarded import Guarded, guarded, new_run_id
from semel.bench.measure import figures, interleaved, timed
from semel.bench.model import Row
from semel.bench.places import Place
from semel.bench.round_trips import CountingRelay
from semel.bench.sizes import Sizes

ANEW: Final = "replay, run entered anew"
RESUMED: Final = "replay, in a resumed run"
TWICE: Final = "replay, delivered twice to an open run"


def measure(place: Place, sizes: Sizes) -> list[Row]:
    url = place.new_url()
    with guarded(url) as semel:
        ways = _ways(semel, sizes.replays)
        found = interleaved(ways, sizes.rounds)
    trips = _round_trips(url) if place.store == "postgres" else {}
    return [
        Row(
            section="replay",
            name=name,
            store=place.store,
            figures=figures(rounds) | trips.get(name, {}),
            rounds=rounds,
        )
        for name, rounds in found.items()
    ]


def _ways(semel: Guarded, replays: int) -> dict[str, Callable[[], float]]:
    anew = new_run_id()
    _call_again(semel, anew, 1)

    def entered_anew() -> float:
        return timed(lambda: _call_again(semel, anew, replays), replays)

    finished = new_run_id()
    with semel.guard.run(finished) as run:
        for n in range(replays):
            run.call(semel.plain, n=n)

    def resumed() -> float:
        with semel.guard.run(finished) as run:
            return timed(lambda: [run.call(semel.plain, n=n) for n in range(replays)], replays)

    def delivered_twice() -> float:
        with semel.guard.run(new_run_id()) as run:
            again = [{"n": 1}] * replays
            run.call_at(semel.plain, {"n": 1}, step="1", call_id="a")
            return timed(
                lambda: [run.call_at(semel.plain, each, step="1", call_id="a") for each in again], replays
            )

    return {ANEW: entered_anew, RESUMED: resumed, TWICE: delivered_twice}


def _call_again(semel: Guarded, run_id: str, times: int) -> None:
    for _ in range(times):
        with semel.guard.run(run_id) as run:
            run.call(semel.plain, n=0)


def _round_trips(url: str) -> dict[str, dict[str, float]]:
    with closing(CountingRelay(url)) as relay, guarded(relay.url, migrations="require") as semel:

        def counted(work: Callable[[], object]) -> dict[str, float]:
            before = relay.count
            work()
            return {"round_trips": relay.count - before}

        def first(step: str) -> None:
            with semel.guard.run("trips") as run:
                run.call_at(semel.plain, {"n": 0}, step=step, call_id="a")

        first("1")
        anew = counted(lambda: first("1"))
        with semel.guard.run("trips") as run:
            resumed = counted(lambda: run.call_at(semel.plain, {"n": 0}, step="1", call_id="a"))
            run.call_at(semel.plain, {"n": 0}, step="2", call_id="a")
            twice = counted(lambda: run.call_at(semel.plain, {"n": 0}, step="2", call_id="a"))
    return {ANEW: anew, RESUMED: resumed, TWICE: twice}
