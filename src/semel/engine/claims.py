"""The claims this process holds, and the heartbeat that renews their leases while effects run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from semel import lifecycle
from semel.decide import send_until
from semel.errors import ClaimLost, StoreError
from semel.model import Effect, Operation, Write
from semel.ports import Outcome


class HeldClaim:
    """The exclusive right to invoke, for as long as the lease says."""

    __slots__ = ("_effect", "_now", "is_lost", "operation")

    def __init__(self, operation: Operation, effect: Effect, now: Callable[[], datetime]) -> None:
        self.operation = operation
        self._effect = effect
        self.is_lost = False
        self._now = now

    @property
    def ends_at(self) -> datetime:
        assert self.operation.lease_expires_at is not None, "a held claim is INVOKED and has a lease"
        return self.operation.lease_expires_at

    @property
    def send_until(self) -> datetime:
        return send_until(self.operation, self._effect)

    def ensure_held(self) -> None:
        """Raise `ClaimLost` if the claim has lapsed: whatever is sent now could collide with a successor."""
        if self.is_lost or self._now() >= self.send_until:
            raise ClaimLost(
                f"The claim on {self.operation.tool} ({self.operation.key[:12]}…) lapsed before the request "
                "was sent. This attempt sent nothing. Call again; if this repeats, lengthen the lease.",
                key=self.operation.key,
            )


class Heartbeat:
    """Renews every held claim when a third of its lease has passed. One thread, started when first needed."""

    def __init__(
        self, submit: Callable[[Write], Outcome], now: Callable[[], datetime], lease: timedelta
    ) -> None:
        self._submit = submit
        self._now = now
        self._lease = lease
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        self._held: set[HeldClaim] = (
            set()
        )  # one step of the interpreter adds, discards, copies: it needs no lock
        self._lock = threading.Lock()
        self._released = threading.Condition(self._lock)
        self._is_awaited = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, operation: Operation, effect: Effect) -> HeldClaim:
        claim = HeldClaim(operation, effect, self._now)
        self._held.add(claim)
        if self._thread is None:
            self._start()
        return claim

    def release(self, claim: HeldClaim) -> None:
        self._held.discard(claim)
        if self._is_awaited:
            with self._released:
                self._released.notify_all()

    def wait_until_idle(self, timeout: timedelta) -> None:
        """Let calls in flight record how they ended; give up after `timeout`."""
        with self._released:
            self._is_awaited = True  # before looking: whoever releases later sees it
            self._released.wait_for(lambda: not self._held, timeout.total_seconds())
            self._is_awaited = False

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="semel-heartbeat", daemon=True)
                self._thread.start()

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None:
            thread.join()
        self._stop.clear()

    def _beat(self) -> None:
        stop = self._stop
        while not stop.wait(self._lease.total_seconds() / 6):
            for claim in self._due():
                self._renew(claim)

    def _due(self) -> list[HeldClaim]:
        soon = self._now() + self._lease * 2 / 3
        return [claim for claim in self._held.copy() if not claim.is_lost and claim.ends_at <= soon]

    def _renew(self, claim: HeldClaim) -> None:
        try:
            outcome = self._submit(lifecycle.renew(claim.operation, now=self._now(), lease=self._lease))
        except StoreError:
            return  # the next beat tries again; if the lease runs out first, the claim is lost by itself
        if outcome.applied and outcome.operation is not None:
            claim.operation = outcome.operation
        else:
            claim.is_lost = True
