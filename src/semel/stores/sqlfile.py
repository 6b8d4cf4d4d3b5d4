"""SQL kept as SQL: named statements and numbered migrations in `.sql` files beside their store.

`-- name: move` begins a statement, `-- fragment: columns` a text that `{columns}` stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_HEAD: Final = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)


def load_statements(path: Path) -> Mapping[str, str]:
    """Statements by name, fragments filled in."""
    _, *pieces = _HEAD.split(path.read_text(encoding="utf-8"))
    fragments: dict[str, str] = {}
    statements: dict[str, str] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        (fragments if kind == "fragment" else statements)[name] = body.strip().removesuffix(";")
    return {name: _fill(text, fragments) for name, text in statements.items()}


def load_migrations(folder: Path) -> list[tuple[int, str]]:
    """(number, SQL) in order. The number is the file's first four digits."""
    return [(int(path.name[:4]), path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.sql"))]


def _fill(text: str, fragments: Mapping[str, str]) -> str:
    for name, body in fragments.items():
        text = text.replace("{" + name + "}", body)
    return text
