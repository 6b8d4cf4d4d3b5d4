"""`semel lab bakeoff`: other people's guards under the same crashes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from semel.lab.bakeoff.entrants import NAMES

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

HELP: Final = """\
The lab's scenario and oracle over other people's guards, each used as its own documentation says, each in a virtual
environment of its own that is made from PyPI when it is first needed. Real processes are killed, stopped and
continued; DUPLICATE, LOST, STUCK and FALSE_ASK are all counted, so that refusing everything is no pass.

A contestant that can't be had here has a row that says why.
Exit status: 0 if Semel is OK in every run and the guards that are wrong on purpose are caught, else 1.
"""
EXAMPLE: Final = f"""\
names for --only:
  {", ".join(NAMES[:7])},
  {", ".join(NAMES[7:13])},
  {", ".join(NAMES[13:])}
examples:
  semel lab bakeoff --short                                    what needs no installation
  semel lab bakeoff --only langgraph-sync --only semel --out lab-out
"""


def add_to(experiments: Commands, folder_to_write: Callable[[str], Path]) -> None:
    parser = experiments.add_parser(
        "bakeoff",
        help="other people's guards under the same crashes",
        description=HELP,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", choices=NAMES, metavar="NAME", help="one contestant; repeatable")
    add("--short", action="store_true", help="fewer cases, and only who needs no installation")
    add("--seed", type=int, default=0, metavar="N", help="names the call ids; the same seed, the same run")
    add("--environments", type=Path, metavar="DIR", help="where the contestants' environments are kept")
    add("--out", type=folder_to_write, metavar="DIR", help="write report.html and bakeoff.json")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=bakeoff)


def bakeoff(arguments: argparse.Namespace) -> int:
    """Run it; 0 if it holds."""
    from semel.lab.bakeoff import course, export

    if not arguments.json:
        from semel.lab.bakeoff import terminal  # needs rich: said before minutes of work, not after

    found = course.run(
        only=arguments.only or (),
        short=arguments.short,
        seed=arguments.seed,
        environments=None if arguments.environments is None else arguments.environments.absolute(),
        on_entry=lambda what: print(f"running {what} …", file=sys.stderr),
    )
    if arguments.out is not None:
        from semel.lab.bakeoff import page

        (arguments.out / "report.html").write_text(page.page(found), encoding="utf-8")
        (arguments.out / "bakeoff.json").write_text(export.to_json(found) + "\n", encoding="utf-8")
    if arguments.json:
        print(export.to_json(found))
    else:
        terminal.print_table(found)
    return 0 if found.holds else 1
