"""The whole bench: what was asked for, section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from semel.bench import calls, growth, peer_runs, places, replay, resume, targets
from semel.bench.model import SECTIONS, STORES, Report, Row
from semel.bench.peer_kinds import PeerKind
from semel.bench.peer_process import default_folder
from semel.bench.places import Place, Places, Unavailable
from semel.bench.sizes import FULL, Sizes

Measure: TypeAlias = Callable[[Place, Sizes], list[Row]]
OnRow: TypeAlias = Callable[[str], None]

OF_STORES: Final[dict[str, Measure]] = {
    "calls": calls.measure,
    "replay": replay.measure,
    "growth": growth.measure,
    "resume": resume.measure,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """`only`: sections, or peers by name; everything if there are none."""

    sizes: Sizes = FULL
    only: Sequence[str] = ()
    stores: Sequence[str] = STORES
    environments: Path | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.only or SECTIONS)

    @property
    def peers(self) -> list[PeerKind]:
        return [kind for kind in peer_runs.kinds_named(self.names) if kind.store in self.stores]


def run(selection: Selection, *, on_section: OnRow = lambda _: None) -> Report:
    """What cannot be measured here has rows that say why; only a bench that is broken raises."""
    rows: list[Row] = []
    with places.opened() as here:
        for section, measure in OF_STORES.items():
            for store in selection.stores if section in selection.names else ():
                on_section(f"{section}, {store}")
                rows += _measured(section, store, measure, here, selection.sizes)
        environments = selection.environments or default_folder()
        for kind in selection.peers:
            on_section(f"peers, {kind.name}")
            rows += peer_runs.measure(kind, here, selection.sizes, environments)
        return Report(
            targets=targets.judge(rows, selection.sizes), rows=rows, machine=places.machine(here.folder)
        )


def _measured(section: str, store: str, measure: Measure, here: Places, sizes: Sizes) -> list[Row]:
    try:
        return measure(here.of(store), sizes)
    except Unavailable as problem:
        return [Row(section=section, name=section, store=store, why_not=str(problem))]
