"""One worker process of the many-workers test: `python worker.py URL FOLDER SEED INTENTS RISK HOW`.

It delivers every intent to the guard, in an order of its own, until each is done. At each checkpoint it kills
itself with probability RISK, and says where in the file `deaths`. HOW is `careful`, or `careless`: then whatever
is in doubt is simply done again, which the test must notice.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel
from semel import decide as decisions

NO_TIME = timedelta(0)
LEASE = timedelta(seconds=10)
WAIT = timedelta(seconds=1)


class Ledger:
    """What the provider saw: a line an effect, `tool key`, appended whole."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.path.touch()

    def enter(self, call: semel.Call) -> None:
        append(self.path, f"{call.tool} {call.key}")

    def lines(self) -> list[tuple[str, str]]:
        parts = (line.split() for line in self.path.read_text().splitlines())
        return [(tool, key) for tool, key in parts]

    def find(self, call: semel.Call) -> semel.Evidence:
        is_there = (call.tool, call.key) in self.lines()
        return semel.Found(call.arguments["order"], key=call.key) if is_there else semel.Absent()


def append(path: Path, line: str) -> None:
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def register(guard: semel.Guard, ledger: Ledger) -> list[semel.Tool]:
    """One tool of each kind."""

    @guard.tool(effect=semel.Unsafe(lookup=ledger.find, lookup_lag=NO_TIME, request_deadline=NO_TIME))
    def charge(order: int, *, call: semel.Call) -> int:
        ledger.enter(call)
        return order

    @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=1)))
    def notify(order: int, *, call: semel.Call) -> int:
        ledger.enter(call)
        return order

    @guard.tool(effect=semel.Atomic())
    def grant(order: int, *, tx: Any) -> int:
        tx.execute("INSERT INTO grants (customer) VALUES (%s)", (order,))
        return order

    return [charge, notify, grant]


def deliver(guard: semel.Guard, tools: list[semel.Tool], order: int) -> bool:
    """Whether it is done; if not, it is to be delivered again."""
    try:
        with guard.run(f"order:{order}") as run:
            for tool in tools:
                assert run.call(tool, order=order) == order
    except (semel.StoreError, semel.ClaimHeld, semel.NotSent, semel.OutcomeUnknown):
        return False
    return True


def perhaps_die(chances: random.Random, risk: float, deaths: Path, place: str, key: str) -> None:
    if chances.random() < risk:
        append(deaths, place)
        os.kill(os.getpid(), signal.SIGKILL)


def do_it_again(*seen: Any, **known: Any) -> decisions.Action:
    """Broken on purpose: in doubt means it did not happen."""
    action = decisions.decide(*seen, **known)
    return decisions.Settle(semel.Absent()) if isinstance(action, decisions.Lookup) else action


def main(url: str, folder: Path, seed: int, intents: int, risk: float, decide: Any) -> None:
    chances = random.Random(seed)
    waiting = list(range(intents))
    chances.shuffle(waiting)
    checkpoint = functools.partial(perhaps_die, chances, risk, folder / "deaths")
    guard = semel.open(url, lease=LEASE, wait=WAIT, checkpoint=checkpoint, decide=decide)
    tools = register(guard, Ledger(folder))
    while waiting:  # ends when all are done, or the test's patience is
        order = waiting.pop(0)
        if not deliver(guard, tools, order):
            waiting.append(order)
    guard.close()


if __name__ == "__main__":
    _, url, folder, seed, intents, risk, how = sys.argv
    try:
        main(
            url,
            Path(folder),
            int(seed),
            int(intents),
            float(risk),
            decisions.decide if how == "careful" else do_it_again,
        )
    except semel.StoreUnavailable as unavailable:
        sys.exit(f"try again: {unavailable}")
