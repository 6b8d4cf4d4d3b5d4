"""One self-contained page: no network, readable on a phone and in the dark.

Everything a run says enters a page as JSON inside a `<script type="application/json">`, and from there only as
text. So two things must hold, or a tool's error message could become markup: no `<` of the run reaches the
file (`_embeddable`), and the page writes with `textContent` alone.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

ROOM: Final = files("semel.lab")


def page(template: str, run: object) -> str:
    """The template of that name in this folder, with the pages' common look and the run inside it."""
    look = ROOM.joinpath("page.css").read_text(encoding="utf-8")
    text = ROOM.joinpath(template).read_text(encoding="utf-8")
    return text.replace("/*PAGE*/", look).replace("/*RUN*/", _embeddable(run))


def _embeddable(run: object) -> str:
    """JSON in which no character can end the script element or open another."""
    text = json.dumps(run, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
