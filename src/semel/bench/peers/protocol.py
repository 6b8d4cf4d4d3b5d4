"""How the bench talks to a peer: lines of JSON, one answer a request.

The first request is the options (`folder`, `url`, `in_flight`); it is answered by `{"version", "setting"}`, or
by `{"cannot": why}`. Then `{"do": "sequential" | "in_flight", "calls": n}` is answered by `{"seconds": s}`, and
`{"do": "marks", "calls": n}` by `{"marks": [[begun, effect, ended], ...]}` in seconds since 1970.
End of input ends the peer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol


class CannotRun(Exception):
    """The text says why."""


class Peer(Protocol):
    """`sequential` and `in_flight` return seconds for all of the calls together.

    One that has started something besides may have a `close`.
    """

    version: str
    setting: str

    def sequential(self, calls: int) -> float: ...

    def in_flight(self, calls: int) -> float: ...


EFFECTS: list[float] = []  # when the step's body ran


def effect() -> None:
    """The body of every peer's step."""
    EFFECTS.append(time.time())


def serve(start: Callable[[dict[str, Any]], Peer]) -> None:
    peer: Peer | None = None
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints must not get between the answers

    def answer(**found: Any) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    try:
        peer = start(json.loads(sys.stdin.readline()))
        answer(version=peer.version, setting=peer.setting)
        for line in sys.stdin:
            answer(**_carry_out(peer, json.loads(line)))
    except CannotRun as why:
        answer(cannot=str(why))
    except Exception as problem:
        answer(cannot=f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
    if peer is not None and hasattr(peer, "close"):
        peer.close()
    os._exit(0)  # a package's threads shall not keep it


def _carry_out(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    calls = request["calls"]
    if request["do"] == "sequential":
        return {"seconds": peer.sequential(calls)}
    if request["do"] == "in_flight":
        return {"seconds": peer.in_flight(calls)}
    marks = []
    for _ in range(calls):
        EFFECTS.clear()
        begun = time.time()
        peer.sequential(1)
        marks.append([begun, EFFECTS[0], time.time()])
    return {"marks": marks}


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
