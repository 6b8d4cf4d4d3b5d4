"""A simulated process's claims: how they are renewed, and how others know whether it lives."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from semel import lifecycle
from semel.engine.claims import HeldClaim
from semel.model import Effect, Operation

if TYPE_CHECKING:
    from semel.lab.simulate.process import Process

BEAT: Final = ("misses a beat",)


class Beats:
    """`semel.engine.claims.Heartbeat`, under the virtual clock: renewed after a third of each lease."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._held: set[HeldClaim] = set()

    def hold(self, operation: Operation, effect: Effect) -> HeldClaim:
        claim = HeldClaim(operation, effect, self._process.world.table.now)
        self._held.add(claim)
        self._beat_later(claim)
        return claim

    def release(self, claim: HeldClaim) -> None:
        self._held.discard(claim)

    def _beat_later(self, claim: HeldClaim) -> None:
        lease_ms = int(self._process.core.lease.total_seconds() * 1000)
        self._process.later(lease_ms // 3, self._beat, claim)

    def _beat(self, claim: HeldClaim) -> None:
        process = self._process
        if claim not in self._held or claim.is_lost:
            return
        if not process.world.deviates(process.name, "beat", BEAT):
            now = process.world.table.now()
            move = lifecycle.renew(claim.operation, now=now, lease=process.core.lease)
            (outcome,) = process.core.store.apply([move])
            if outcome.applied and outcome.operation is not None:
                claim.operation = outcome.operation
            else:
                claim.is_lost = True
        self._beat_later(claim)


class Names:
    """`semel.ports.Owners`: a token reads process.life.number. Only on one host the dead are known."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._life = process.life
        self._numbers = itertools.count(1)

    def me(self) -> str:
        return f"{self._process.number}.{self._life}.{next(self._numbers)}"

    def is_gone(self, owner: str) -> bool:
        number, life, _ = map(int, owner.split("."))
        world = self._process.world
        if number != self._process.number and not world.setting.is_one_host:
            return False
        other = world.processes[number]
        return other.life != life or not other.is_alive
