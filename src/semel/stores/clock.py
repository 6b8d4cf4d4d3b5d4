"""Clocks for the stores that have none of their own."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def boot_id() -> str | None:
    """Names this boot of this host (and the time namespace, which has a clock of its own), or None where the
    platform does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    try:
        return f"{boot}/{os.readlink('/proc/self/ns/time')}"
    except OSError:
        return boot


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // _MICROSECOND


def instant(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def microseconds_since_boot() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class BootClock:
    """Time since boot plus an anchor fixed once a boot: no step of the wall clock can move it.

    Suspend counts. All processes of one boot that use the same anchor share it.
    """

    def __init__(self, anchor_us: int) -> None:
        self._booted_at = EPOCH + timedelta(microseconds=anchor_us)

    def now(self) -> datetime:
        return self._booted_at + timedelta(0, 0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)


class WallClock:
    """The plain wall clock, where the platform names no boot. A step of it can end a lease early."""

    def now(self) -> datetime:
        return datetime.now(UTC)
