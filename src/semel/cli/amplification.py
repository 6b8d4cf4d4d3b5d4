"""`semel lab amplification`: what stacked retries make of one intent."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

HELP: Final = """\
Four real layers that retry (a model that asks again under a new call id, a step, a tool wrapper, an HTTP client),
three tries each, and a provider that does what it is asked and then times out: how many requests and effects come
of one intent, without Semel and with it. Counted by the provider.

Exit status: 0 if each row is what the layers multiply to, and Semel's is one effect, else 1.
"""


def add_to(experiments: Commands, folder_to_write: Callable[[str], Path]) -> None:
    parser = experiments.add_parser(
        "amplification",
        help="what stacked retries make of one intent",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", type=folder_to_write, metavar="DIR", help="write report.html and amplification.json"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=amplification)


def amplification(arguments: argparse.Namespace) -> int:
    from semel.lab.amplification import run
    from semel.lab.amplification_report import lines, to_html, to_json

    out: Path | None = arguments.out
    found = run()
    for line in [to_json(found)] if arguments.json else lines(found):
        print(line)
    if out is not None:
        (out / "report.html").write_text(to_html(found), encoding="utf-8")
        (out / "amplification.json").write_text(to_json(found) + "\n", encoding="utf-8")
    return 0 if found.holds else 1
