"""(a) A guarded call that does nothing, alone and with 64 in flight, beside the raw driver's floor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from semel.bench.floors import Floor, postgres_floor, sqlite_floor
from semel.bench.guarded import Guarded, guarded
from semel.bench.measure import figures, interleaved
from semel.bench.model import Row
from semel.bench.own_statements import OneByOne, on_postgres, on_sqlite
from semel.bench.places import Place
from semel.bench.sizes import Sizes

SEQUENTIAL: Final = "guarded call, sequential"
ASYNC: Final = "guarded call, 64 in flight (asyncio)"
THREADS: Final = "guarded call, 64 in flight (threads)"
ONE_FLUSH: Final = "raw driver, one flush"
TWO_FLUSHES: Final = "raw driver, two flushes"
OWN: Final = "raw driver, Semel's two statements"
BATCHED: Final = "raw driver, 64 calls a batch"

NOTES: Final = {
    ONE_FLUSH: "durable insert + update that rides on the next flush",
    TWO_FLUSHES: "durable insert + durable update",
    OWN: "as one flush, on Semel's own table: what the record costs without the guard",
    BATCHED: "64 inserts in one durable transaction + 64 updates in one",
}


def measure(place: Place, sizes: Sizes) -> list[Row]:
    with _both(place) as (semel, floor, own):
        found = interleaved(
            {
                SEQUENTIAL: lambda: semel.sequential(sizes.calls),
                ONE_FLUSH: lambda: floor.one_flush(sizes.calls),
                TWO_FLUSHES: lambda: floor.two_flushes(sizes.calls),
                OWN: lambda: own(sizes.calls),
                ASYNC: lambda: semel.in_flight_async(sizes.concurrent_calls),
                BATCHED: lambda: floor.batched(sizes.concurrent_calls),
                THREADS: lambda: semel.in_flight_threads(sizes.concurrent_calls),
            },
            sizes.rounds,
        )
    return [
        Row(
            section="calls",
            name=name,
            store=place.store,
            figures=figures(rounds),
            rounds=rounds,
            note=NOTES.get(name, ""),
        )
        for name, rounds in found.items()
    ]


@contextmanager
def _both(place: Place) -> Iterator[tuple[Guarded, Floor, OneByOne]]:
    with ExitStack() as stack:
        enter = stack.enter_context
        semel = enter(guarded(place.new_url()))
        if place.store == "sqlite":
            yield semel, enter(sqlite_floor(place.new_folder())), enter(on_sqlite(place.new_url()))
        else:
            yield semel, enter(postgres_floor(place.new_url())), enter(on_postgres(place.new_url()))
