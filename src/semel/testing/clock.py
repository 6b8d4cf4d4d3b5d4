"""A clock that stands still until it is told to move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 12, 1, tzinfo=UTC)


class ManualClock:
    """For tests of leases, lags and ages: `semel.open(url, clock=ManualClock())`.

    It is the store's clock, so everything the guard dates goes by it; only the waiting inside a call is real
    time (pass `wait=timedelta(0)` to be told at once instead). Not shared between processes.
    """

    def __init__(self, at: datetime = START) -> None:
        self._at = at.astimezone(UTC)

    def now(self) -> datetime:
        return self._at

    def advance(self, by: timedelta) -> datetime:
        """The new time. A negative span sets the clock back."""
        self._at += by
        return self._at
