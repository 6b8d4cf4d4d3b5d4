"""The simulated provider: what it did, what it remembers of keys, what its lookup shows and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from semel.lab.simulate.setting import Setting, Untrue
from semel.model import Absent, Found, Inconclusive


@dataclass(frozen=True, slots=True)
class Done:
    """One effect. Times are milliseconds."""

    number: int
    event: str
    key: str
    at_ms: int
    shows_at_ms: int


class Provider:
    def __init__(self, setting: Setting) -> None:
        self.ledger: list[Done] = []
        self.rejected: set[str] = set()  # the events that it said no to
        self._remembered: dict[str, Done] = {}
        self._honours_keys = setting.honours_keys
        is_forgetful = setting.untrue is Untrue.KEY_TTL
        self._memory_ms = setting.key_ttl_ms // 20 if is_forgetful else setting.key_ttl_ms

    def receive(self, event: str, key: str, at_ms: int, *, shows_after_ms: int) -> Done:
        """Carry out a request, or give the answer of the one that it repeats."""
        before = self._remembered.get(key) if self._honours_keys else None
        if before is not None and at_ms < before.at_ms + self._memory_ms:
            return before
        done = Done(len(self.ledger) + 1, event, key, at_ms, at_ms + shows_after_ms)
        self.ledger.append(done)
        self._remembered[key] = done
        return done

    def find(self, key: str, at_ms: int) -> Any:
        """An honest lookup, as its author would write it."""
        rows = [done for done in self.ledger if done.key == key and done.shows_at_ms <= at_ms]
        if len(rows) > 1:
            return Inconclusive("two rows")
        return Found({"effect": rows[0].number}, key=key) if rows else Absent()

    def of_event(self, event: str) -> list[Done]:
        return [done for done in self.ledger if done.event == event]
