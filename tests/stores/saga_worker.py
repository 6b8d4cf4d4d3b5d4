"""One process of the tests of outbox and compensation: `python saga_worker.py URL FOLDER WHAT PLACE NTH`.

It does WHAT, and kills itself the NTH time that it comes to the checkpoint PLACE. What it does to the world is a
line in the file `ledger`. That it is ready is a line on its output; it begins with a line on its input.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel

NO_TIME = timedelta(0)
TOPICS = ("mail", "sms")
RUN = "trip"


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.path.touch()

    def enter(self, *words: object) -> None:
        file = os.open(self.path, os.O_APPEND | os.O_WRONLY)
        try:
            os.write(file, (" ".join(map(str, words)) + "\n").encode())
        finally:
            os.close(file)

    def lines(self, *what: str) -> list[list[str]]:
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [line for line in lines if not what or line[0] in what]

    def find(self, call: semel.Call) -> semel.Evidence:
        is_there = any(line[1] == call.key for line in self.lines())
        return semel.Found("found", key=call.key) if is_there else semel.Absent()


class Worker:
    def __init__(self, url: str, folder: Path, checkpoint: Callable[[str, str], None]) -> None:
        self.ledger = Ledger(folder)
        self.guard = semel.open(url, wait=timedelta(seconds=20), checkpoint=checkpoint)
        honest = semel.Unsafe(lookup=self.ledger.find, lookup_lag=NO_TIME, request_deadline=NO_TIME)

        @self.guard.tool(effect=semel.Atomic())
        def send(first: int, many: int, *, tx: Any, call: semel.Call) -> None:
            for number in range(first, first + many):
                call.enqueue(TOPICS[number % 2], number)

        @self.guard.tool(effect=honest)
        def charge(amount: int, *, call: semel.Call) -> int:
            self.ledger.enter("charge", call.key)
            return amount

        @charge.compensation(effect=honest)
        def refund(arguments: Any, result: Any, *, call: semel.Call) -> None:
            self.ledger.enter("refund", call.key)

        @self.guard.tool(effect=semel.Steps(each=honest))
        def check_out(*, call: semel.Call) -> None:
            for name in ("reserve", "capture"):
                call.step(name, self.take, name)

        self.send, self.charge, self.check_out = send, charge, check_out

    def take(self, name: str, *, call: semel.Call) -> None:
        self.ledger.enter(name, call.key)

    # -------------------------------------------------------------- what it can be told to do

    def do_send(self) -> None:
        with self.guard.run(RUN) as run:
            run.call(self.send, first=0, many=4)

    def do_send_many(self) -> None:
        with self.guard.run(RUN) as run:
            for first in range(0, 120, 6):
                run.call(self.send, first=first, many=6)

    def do_relay(self) -> None:
        self.guard.relay(self.deliver, limit=1_000)

    def do_relay_carelessly(self) -> None:
        """Broken on purpose: marks a message before it delivers it."""
        outbox = self.guard.store.outbox
        for message in outbox.read_undelivered("", limit=1_000):
            outbox.mark_delivered(message.key, at=self.guard.store.now())
            self.guard._core.checkpoint("message_marked", message.key)
            self.ledger.enter("delivered", message.key, message.topic, message.payload)

    def deliver(self, delivery: semel.Delivery) -> None:
        self.ledger.enter("delivered", delivery.key, delivery.topic, delivery.payload)

    def do_charge(self) -> None:
        with self.guard.run(RUN) as run:
            for amount in (1, 2):
                run.call(self.charge, amount=amount)

    def do_compensate(self) -> None:
        self.guard.compensate(RUN)

    def do_check_out(self) -> None:
        with self.guard.run(RUN) as run:
            run.call(self.check_out)


def kill_at(place: str, nth: int) -> Callable[[str, str], None]:
    seen = 0

    def checkpoint(here: str, key: str) -> None:
        nonlocal seen
        seen += here == place
        if here == place and seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return checkpoint


if __name__ == "__main__":
    _, url, folder, what, place, nth = sys.argv
    worker = Worker(url, Path(folder), kill_at(place, int(nth)))
    print("ready", flush=True)
    sys.stdin.readline()
    getattr(worker, f"do_{what}")()
    worker.guard.close()
