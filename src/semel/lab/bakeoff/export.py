"""A bake-off for other programs: one JSON object. The names of the fields are a promise: add, do not rename."""

from __future__ import annotations

import json
from typing import Any

from semel.lab.bakeoff.model import Bakeoff, Entry, Found
from semel.lab.model import Verdict


def to_json(bakeoff: Bakeoff) -> str:
    return json.dumps(
        {
            "seed": bakeoff.seed,
            "short": bakeoff.short,
            "holds": bakeoff.holds,
            "contestants": [_contestant(entry) for entry in bakeoff.entries],
            "seconds": round(bakeoff.seconds, 3),
        },
        indent=2,
    )


def _contestant(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.entrant.name,
        "title": entry.entrant.title,
        "package": entry.entrant.package,
        "version": entry.version or None,
        "promise": entry.entrant.promise,
        "used": entry.entrant.used,
        "not_run": entry.why_not or None,
        "verdicts": {verdict.name: entry.counts[verdict] for verdict in Verdict if entry.counts[verdict]},
        "runs": [_run(found) for found in entry.runs],
    }


def _run(found: Found) -> dict[str, Any]:
    return {
        "column": found.case.column,
        "name": found.case.name,
        "provider": found.case.provider,
        "model": found.case.model,
        "signals": list(found.signals),
        "duplicates": found.duplicates,
        "lost": found.lost,
        "stuck": found.stuck,
        "asks": found.asks,
        "false_asks": found.false_asks,
        "verdict": found.verdict.name,
        "story": list(found.story),
    }
