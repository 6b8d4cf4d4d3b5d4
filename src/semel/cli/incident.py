"""`semel lab incident`: one incident, sixty crashes, three agents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

HELP: Final = """\
One incident of fifteen tool calls (some only read, some may be repeated by nature, some have a provider that
honours keys, one is atomic, some have a provider that can do nothing), killed for real in each of the four windows
of each call, under a naive agent, one with checkpoints, and one with Semel.

Exit status: 0 if Semel is OK at every point and the two unguarded agents are caught, else 1.
"""


def add_to(experiments: Commands, folder_to_write: Callable[[str], Path]) -> None:
    parser = experiments.add_parser(
        "incident",
        help="one incident, sixty crashes, three agents",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=folder_to_write, metavar="DIR", help="write report.html and incident.json")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=incident)


def incident(arguments: argparse.Namespace) -> int:
    """Run it; 0 if it holds."""
    from semel.lab.incident import experiment, report

    found = experiment.run(on_row=lambda name: print(f"killing {name} …", file=sys.stderr))
    if arguments.out is not None:
        (arguments.out / "report.html").write_text(report.page(found), encoding="utf-8")
        (arguments.out / "incident.json").write_text(report.to_json(found) + "\n", encoding="utf-8")
    for line in [report.to_json(found)] if arguments.json else report.lines(found):
        print(line)
    return 0 if found.holds else 1
