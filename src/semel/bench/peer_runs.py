"""(e) The same step that does nothing on what a user would pick instead, each in turns with Semel."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from semel.bench.flushes import Flushes, can_trace, counted, traced, watched
from semel.bench.guarded import Guarded, guarded
from semel.bench.measure import figures, interleaved, ratio
from semel.bench.model import Row
from semel.bench.peer_kinds import KINDS, PeerKind
from semel.bench.peer_process import SCRIPTS, PeerProcess, interpreter_of
from semel.bench.places import Place, Places, Unavailable
from semel.bench.sizes import IN_FLIGHT, Sizes

WAYS: Final = ("sequential", "64 in flight")
MARKED_CALLS: Final = 9


def measure(kind: PeerKind, places: Places, sizes: Sizes, environments: Path) -> list[Row]:
    """Two rows; where it cannot be measured, the same two say why."""
    try:
        place = places.of(kind.store)
        python = interpreter_of(kind, environments)
        flushes = _count_flushes(kind, place, python)
        return _measure(kind, place, sizes, python, flushes)
    except Unavailable as problem:
        return [_row(kind, way, why_not=str(problem)) for way in WAYS]


def _measure(kind: PeerKind, place: Place, sizes: Sizes, python: Path, flushes: Flushes | None) -> list[Row]:
    with ExitStack() as stack:
        peer = stack.enter_context(_started(kind, place, [python]))
        semel = stack.enter_context(guarded(place.new_url()))
        found = interleaved(_turns(peer, semel, sizes), sizes.peer_rounds)
    parts = [peer.version, peer.setting, str(flushes or "flushes not counted: no strace here"), kind.remark]
    note = "; ".join(part for part in parts if part)
    return [_measured(kind, way, found, note, flushes) for way in WAYS]


def _turns(peer: PeerProcess, semel: Guarded, sizes: Sizes) -> dict[str, Callable[[], float]]:
    calls, concurrent = sizes.peer_calls, sizes.peer_concurrent_calls

    def asked(what: str, how_many: int) -> float:
        return float(peer.ask(do=what, calls=how_many)["seconds"]) / how_many

    ours = max(IN_FLIGHT, concurrent)
    return {
        WAYS[0]: lambda: asked("sequential", calls),
        f"Semel, {WAYS[0]}": lambda: semel.sequential(calls),
        WAYS[1]: lambda: asked("in_flight", concurrent),
        f"Semel, {WAYS[1]}": lambda: semel.in_flight_async(ours),
    }


def _measured(
    kind: PeerKind, way: str, found: dict[str, list[float]], note: str, flushes: Flushes | None
) -> Row:
    theirs, ours = found[way], found[f"Semel, {way}"]
    extra = {
        "semel_microseconds_a_call": round(statistics.median(ours) * 1e6, 2),
        "times_semel": round(ratio(theirs, ours), 2),
    }
    if flushes is not None:
        extra |= {"flushes_before_effect": flushes.before, "flushes_after_effect": flushes.after}
    return _row(kind, way, figures=figures(theirs) | extra, rounds=theirs, note=note)


def _row(kind: PeerKind, way: str, **rest: Any) -> Row:
    return Row(section="peers", name=f"{kind.title}, {way}", store=kind.store, **rest)


def _started(kind: PeerKind, place: Place, python: list[str | Path]) -> PeerProcess:
    folder = place.new_folder()
    options = {
        "folder": str(folder),
        "url": place.new_url() if kind.store == "postgres" else None,
        "in_flight": IN_FLIGHT,
    }
    return PeerProcess([*python, SCRIPTS / kind.script], options, folder / "peer.log")


def _count_flushes(kind: PeerKind, place: Place, python: Path) -> Flushes | None:
    """None where it cannot be told."""
    server = getattr(place, "server_process", None)
    if not can_trace() or (kind.store == "postgres" and not isinstance(server, int)):
        return None
    folder = place.new_folder()
    of_peer, of_server = folder / "peer.trace", folder / "server.trace"
    with ExitStack() as stack:
        if kind.store == "postgres" and isinstance(server, int):
            stack.enter_context(watched(server, of_server))
        peer = stack.enter_context(_started(kind, place, traced([python], of_peer)))
        peer.ask(do="sequential", calls=1)
        marks = peer.ask(do="marks", calls=MARKED_CALLS)["marks"]
    return counted([of_peer, of_server], marks)


def kinds_named(names: frozenset[str]) -> list[PeerKind]:
    """All, if the section itself is named."""
    return [kind for kind in KINDS if "peers" in names or kind.name in names]
