"""One run of the matrix as a page: what it concluded, the heat map, the cells behind each field."""

from __future__ import annotations

from typing import Any, Final

from semel.lab import ladder
from semel.lab.headline import (
    Headline,
    cells_behind,
    command,
    conclusion,
    differing,
    headlines,
    name_of,
    processes_killed,
)
from semel.lab.model import LEVELS, Cell, Control, Matrix, ModelKind, ProviderKind, Verdict, Window
from semel.lab.page import page

WINDOWS: Final = {
    Window.W1: ("picked, not written", "The model has picked a tool; the runtime has not written it down."),
    Window.W2: ("written, not sent", "The intent is recorded; the tool has not changed the world."),
    Window.W3: ("happened, not known", "The tool has changed the world, and nobody here knows."),
    Window.W4: ("recorded, not told", "The completion is recorded; the model has not been told."),
}
PROVIDERS: Final = {
    ProviderKind.HONOURS_KEYS: "A second request under the same key gets the first one’s answer.",
    ProviderKind.HAS_LOOKUP: "Ignores keys, but can be asked what it did.",
    ProviderKind.BLIND: "Ignores keys and cannot be asked.",
}
MODELS: Final = {
    ModelKind.REPEATS: "Asked again, the model writes the same arguments.",
    ModelKind.REWORDS: "Asked again, it writes them in another order, and dollars for cents.",
}
VERDICTS: Final = {
    Verdict.OK: "Every intent took effect once, or a person was asked and had to be.",
    Verdict.FALSE_ASK: "A person was asked although the machine could have known.",
    Verdict.STUCK: "No way forward without a developer.",
    Verdict.LOST: "An intent took no effect.",
    Verdict.DUPLICATE: "An intent took effect more than once.",
    Verdict.UNKNOWN: "The judge itself broke; never to be read as OK.",
}
ASKED: Final = "A person had to answer: the provider has neither key nor lookup, so no machine could know."
SKIPPED: Final = "Not run, because a part is missing here. It has no verdict and no colour."


def render(matrix: Matrix) -> str:
    """The whole page. It asks for nothing beyond itself."""
    return page("report.html", _payload(matrix))


def _payload(matrix: Matrix) -> dict[str, Any]:
    return {
        "holds": matrix.holds,
        "conclusion": conclusion(matrix),
        "command": command(matrix),
        "figures": _figures(matrix),
        "differing": [_cell(cell) for cell in differing(matrix)],
        "cells": [_cell(cell) for cell in matrix.cells],
        "levels": [_level(matrix, level) for level in LEVELS],
        "controls": [_control(control) for control in matrix.controls],
        "windows": [
            {"name": window, "meaning": short, "meaning_long": long}
            for window, (short, long) in WINDOWS.items()
        ],
        "steps": [{"step": step, "tool": tool} for step, tool in ladder.TOOLS.items()],
        "providers": [{"name": kind, "meaning": meaning} for kind, meaning in PROVIDERS.items()],
        "models": [{"name": kind, "meaning": meaning} for kind, meaning in MODELS.items()],
        "verdicts": [{"name": verdict.name, "meaning": meaning} for verdict, meaning in VERDICTS.items()],
        "asked_meaning": ASKED,
        "skipped_meaning": SKIPPED,
    }


def _figures(matrix: Matrix) -> list[tuple[str, str]]:
    return [
        ("real processes killed", str(processes_killed(matrix))),
        ("controls caught", f"{sum(c.caught for c in matrix.controls)} of {len(matrix.controls)}"),
        ("times a person was asked", str(sum(cell.asks for cell in matrix.cells))),
        ("seconds", f"{matrix.seconds:.1f}"),
        ("seed", str(matrix.seed)),
        ("store", matrix.store),
    ]


def _level(matrix: Matrix, level: int) -> dict[str, Any]:
    return {
        "level": level,
        "title": ladder.TITLES[level],
        "meaning": ladder.MEANINGS[level],
        "headlines": [_headline(matrix, line) for line in headlines(matrix) if line.level == level],
    }


def _headline(matrix: Matrix, headline: Headline) -> dict[str, Any]:
    behind = cells_behind(matrix, headline.level, headline.window)
    return {
        "window": headline.window,
        "worst": None if headline.worst is None else headline.worst.name,
        "count": headline.count,
        "ran": headline.ran,
        "asked": headline.asked,
        "unexpected": sum(not cell.is_as_predicted for cell in behind),
        "skipped": sum(cell.skipped is not None for cell in behind),
        "ran_nothing": "skipped:" if headline.skipped else "not run",
        "why": "; ".join(headline.skipped),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "name": name_of(cell.at),
        "level": cell.at.level,
        "window": cell.at.window,
        "step": cell.at.step,
        "provider": cell.at.provider,
        "model": cell.at.model,
        "verdict": None if cell.verdict is None else cell.verdict.name,
        "predicted": None if cell.predicted is None else cell.predicted.name,
        "as_predicted": cell.is_as_predicted,
        "duplicates": cell.duplicates,
        "lost": cell.lost,
        "stuck": cell.stuck,
        "asks": cell.asks,
        "false_asks": cell.false_asks,
        "redundant_model_calls": cell.redundant_model_calls,
        "requests": cell.requests,
        "recovery_seconds": cell.recovery_seconds,
        "skipped": cell.skipped,
        "trace": cell.trace,
    }


def _control(control: Control) -> dict[str, Any]:
    return {"name": control.name, "caught": control.caught, "verdict": control.verdict.name}
