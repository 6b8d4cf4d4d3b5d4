"""How much is done: enough for a steady figure, or quickly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

IN_FLIGHT: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """`calls`, `concurrent_calls`, `peer_calls`: of one chunk. `claims`: samples for each table size."""

    rounds: int
    calls: int
    concurrent_calls: int
    replays: int
    table_rows: Sequence[int]
    claims: int
    finished_calls: Sequence[int]
    peer_rounds: int
    peer_calls: int
    peer_concurrent_calls: int


FULL: Final = Sizes(
    rounds=9,
    calls=400,
    concurrent_calls=64 * 30,
    replays=1000,
    table_rows=(10_000, 1_000_000, 5_000_000),
    claims=4000,
    finished_calls=(10, 1_000, 10_000),
    peer_rounds=5,
    peer_calls=100,
    peer_concurrent_calls=256,
)
SHORT: Final = Sizes(
    rounds=5,
    calls=150,
    concurrent_calls=64 * 12,
    replays=300,
    table_rows=(10_000, 200_000),
    claims=1000,
    finished_calls=(10, 1_000, 10_000),
    peer_rounds=3,
    peer_calls=50,
    peer_concurrent_calls=128,
)
TINY: Final = Sizes(  # for the tests: that everything runs, not how fast
    rounds=1,
    calls=4,
    concurrent_calls=IN_FLIGHT,
    replays=3,
    table_rows=(20, 40),
    claims=10,
    finished_calls=(2, 5),
    peer_rounds=1,
    peer_calls=2,
    peer_concurrent_calls=4,
)
