"""The command line: parse, call, print. No logic lives here.

One file a command. Each has `add_to(commands)`, which adds its parser and sets `call`: a function that
takes the parsed arguments and returns the exit status.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from semel.cli import bench, db, doubts, lab
from semel.errors import SemelError

COMMANDS: Final = (lab, doubts, db, bench)
REFUSED: Final = 2
INTERRUPTED: Final = 130  # as shells have it: 128 + SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    try:
        return int(parsed.call(parsed))
    except SemelError as problem:
        print(f"semel: {problem}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("semel: interrupted", file=sys.stderr)
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    semel = argparse.ArgumentParser(
        prog="semel", description="One intent, one effect: a guard for the tools of AI agents."
    )
    semel.add_argument("--version", action="version", version=f"semel {version('semel')}")
    commands = semel.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return semel


if __name__ == "__main__":
    sys.exit(main())
