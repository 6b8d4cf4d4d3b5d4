"""`semel bench`: what a guarded call costs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final, TypeAlias

from semel.bench.model import STORES
from semel.bench.peer_kinds import NAMES
from semel.bench.sizes import FULL, SHORT

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

HELP: Final = """\
Measure a guarded call that does nothing beside the raw driver's floor for the same durable work, and beside
what a user would pick instead, in turns on one disk; then say whether the project's own targets hold.

The peers are installed from PyPI, each into a virtual environment of its own, the first time they are needed.
What cannot be measured here has a row that says why. A target that is missed stays visible; the exit status is
0 all the same, and something else only if the bench itself is broken.
"""
EXAMPLE: Final = """\
names for --only:
  calls    guarded calls, sequential and 64 in flight, and the raw driver's floor
  replay   replay of a committed call
  growth   claim latency with up to 5 million operations in the table (--short: 200 thousand)
  resume   resume of a run with up to 10 000 finished calls
  peers    all of: dbos-postgres, dbos-sqlite, temporal, langgraph, exactly-once, call4agents
example:
  semel bench --short --only calls --only replay --store sqlite
"""


def add_to(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench",
        help="what a guarded call costs",
        description=HELP,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = bench.add_argument
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--out", type=_file_to_write, metavar="FILE", help="write the JSON to a file, too")
    add("--short", action="store_true", help="smaller tables, fewer rounds: a minute or two")
    add("--only", action="append", choices=NAMES, metavar="NAME", help="a section, or one peer; repeatable")
    add("--store", action="append", choices=STORES, help="only this store; repeatable")
    add("--peers-dir", type=Path, metavar="DIR", help="where the peers' environments are kept")
    bench.set_defaults(call=bench_all)


def bench_all(arguments: argparse.Namespace) -> int:
    from semel.bench.report_terminal import lines
    from semel.bench.run import Selection, run

    selection = Selection(
        sizes=SHORT if arguments.short else FULL,
        only=arguments.only or (),
        stores=arguments.store or STORES,
        environments=None if arguments.peers_dir is None else arguments.peers_dir.absolute(),
    )
    report = run(selection, on_section=lambda section: print(f"measuring {section} …", file=sys.stderr))
    text = report.to_json()
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    for line in [text] if arguments.json else lines(report):
        print(line)
    return 0


def _file_to_write(text: str) -> Path:
    """Tried before anything is measured: not after minutes of work."""
    file = Path(text)
    try:
        with file.open("a", encoding="utf-8"):
            return file
    except OSError as wrong:
        raise argparse.ArgumentTypeError(f"cannot write to {text}: {wrong.strerror}") from wrong
