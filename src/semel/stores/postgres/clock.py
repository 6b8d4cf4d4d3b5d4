"""The database's clock, known here without asking it each time.

One question ("what time is it?") is answered at some instant between asking and hearing, so the answer fixes
the distance between the server's clock and this host's time since boot up to half the round trip. It is asked
on every new connection and again with whatever is done next once `ASK_AGAIN_AFTER` has passed; the better of
the old knowledge, which goes stale at `DRIFT_MAX`, and the new is kept.

Error bound: half the best round trip, plus half a millisecond for each second since. Two workers disagree by
at most the sum of theirs: well under a millisecond on one network, and small beside any lease.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from semel.stores.clock import EPOCH, microseconds

ASK_AGAIN_AFTER: Final = 10_000_000  # microseconds
DRIFT_MAX: Final = 500e-6  # the most by which a disciplined clock is slewed (ntp_adjtime(2))
STEP_MIN: Final = (
    1_000_000  # microseconds; less is our own better knowledge, more is the server's clock set back
)
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # suspend counts, where it can


class Sample(NamedTuple):
    """All in microseconds: server time minus steady time, give or take the error, as of `taken`."""

    offset: int
    error: int
    taken: int


class ServerClock:
    """Shared by threads without a lock: each reading uses one sample, and samples are replaced whole."""

    def __init__(self) -> None:
        self._sample: Sample | None = None
        self._last = 0

    def now(self) -> datetime:
        """Does not go back while we learn better; follows a server whose clock is set back."""
        sample = self._sample
        assert sample is not None, "the first connection asks before anybody reads"
        reading, last = steady_microseconds() + sample.offset, self._last
        if last - STEP_MIN < reading < last:
            reading = last
        self._last = reading
        return EPOCH + timedelta(microseconds=reading)

    def is_due(self) -> bool:
        return self._sample is None or steady_microseconds() - self._sample.taken >= ASK_AGAIN_AFTER

    def ask(self, connection: Any) -> None:
        """One round trip on an autocommit connection."""
        before = steady_microseconds()
        (server,) = connection.execute("SELECT clock_timestamp()").fetchone()
        self.learn(microseconds(server), before, steady_microseconds())

    def learn(self, server: int, before: int, after: int) -> None:
        """The server said `server` at some instant from `before` to `after`."""
        new = Sample(offset=server - (before + after) // 2, error=(after - before + 1) // 2, taken=after)
        self._sample = new if self._sample is None else better_of(self._sample, new)


def better_of(old: Sample, new: Sample) -> Sample:
    """The one that is known better by now; the new one where they contradict each other: a clock was set, or
    another server has taken over."""
    error = old.error + round((new.taken - old.taken) * DRIFT_MAX)
    if abs(new.offset - old.offset) > error + new.error or new.error <= error:
        return new
    return Sample(old.offset, error, new.taken)


def steady_microseconds() -> int:
    return time.clock_gettime_ns(_STEADY) // 1000
