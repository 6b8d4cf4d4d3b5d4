"""A run of the lab for other programs: one JSON object, and one CSV row a cell.

The names of the fields are a promise: add to them, do not rename them.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, Final

from semel.lab.model import Cell, Control, Matrix

CELL_FIELDS: Final = (
    "level",
    "window",
    "step",
    "provider",
    "model",
    "killed_by_signal",
    "duplicates",
    "lost",
    "stuck",
    "asks",
    "false_asks",
    "recovery_seconds",
    "redundant_model_calls",
    "requests",
    "verdict",
    "skipped",
)


def to_json(matrix: Matrix) -> str:
    run = {
        "seed": matrix.seed,
        "cells": [row_of(cell) for cell in matrix.cells],
        "controls": [_control(control) for control in matrix.controls],
        "seconds": round(matrix.seconds, 3),
    }
    return json.dumps(run, indent=2)


def write_json(matrix: Matrix, file: Path) -> None:
    file.write_text(to_json(matrix) + "\n", encoding="utf-8")


def write_csv(matrix: Matrix, file: Path) -> None:
    """A field that does not apply (the verdict of a skipped cell) is empty."""
    with file.open("w", encoding="utf-8", newline="") as rows:
        writer = csv.DictWriter(rows, CELL_FIELDS)
        writer.writeheader()
        writer.writerows(map(row_of, matrix.cells))


def row_of(cell: Cell) -> dict[str, Any]:
    """The cell under the names of `CELL_FIELDS`, in that order. A verdict is written as its name."""
    special = {
        "verdict": None if cell.verdict is None else cell.verdict.name,
        "recovery_seconds": None if cell.recovery_seconds is None else round(cell.recovery_seconds, 4),
    }
    return {name: special[name] if name in special else _plain(cell, name) for name in CELL_FIELDS}


def _plain(cell: Cell, name: str) -> Any:
    return getattr(cell, name) if hasattr(cell, name) else getattr(cell.at, name)


def _control(control: Control) -> dict[str, Any]:
    return {"name": control.name, "caught": control.caught, "verdict": control.verdict.name}
