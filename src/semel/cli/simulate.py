"""`semel lab simulate`: whole worlds from seeds, under a virtual clock."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

SIMULATE_HELP: Final = """\
Drive the engine's own code through worlds drawn from seeds: a virtual clock, network, store, provider and person;
processes that crash, pause and come back late. What fails is shrunk to the few deviations that it takes, and told
step by step. Guards broken on purpose run beside it, each until it is caught.

With --seeds 1 the one world is told, and no control is run.
Exit status: 0 if nothing is found for Semel and every guard broken on purpose is caught, else 1.
"""
SIMULATE_EXAMPLE: Final = """\
examples: a hundred thousand worlds; then one of them, step by step; then the same one with a broken guard
  semel lab simulate --seeds 100000 --out lab-out
  semel lab simulate --seed 41 --seeds 1
  semel lab simulate --seed 41 --seeds 1 --control "takes any error for final"
"""


def add_to(experiments: Commands, folder_to_write: Callable[[str], Path]) -> None:
    parser = experiments.add_parser(
        "simulate",
        help="hundreds of thousands of simulated worlds",
        description=SIMULATE_HELP,
        epilog=SIMULATE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=_at_least_one, default=10_000, metavar="N", help="how many worlds (default: 10000)")
    add("--seed", type=int, default=0, metavar="S", help="the first of them (default: 0)")
    add("--control", action="append", metavar="NAME", help="run this guard broken on purpose, and no other")
    add("--out", type=folder_to_write, metavar="DIR", help="write report.html, and each violation in a file")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=simulate)


def simulate(arguments: argparse.Namespace) -> int:
    """0 if nothing is found and every control is caught."""
    names = _names(arguments.control)
    if arguments.seeds == 1 and not arguments.json and arguments.out is None:
        return _tell(arguments.seed, names)
    from semel.lab.simulate import campaign, report
    from semel.lab.simulate.setting import Kind

    found = campaign.simulate(
        arguments.seeds,
        first_seed=arguments.seed,
        names=names,
        kinds=len(Kind) if arguments.out is not None else 1,
        on_progress=_show_progress if sys.stderr.isatty() else lambda done, of: None,
    )
    if arguments.json:
        print(json.dumps(found.to_json()))
    else:
        print(*report.lines_of(found), sep="\n")
    if arguments.out is not None:
        report.write(found, arguments.out)
    return 0 if found.holds else 1


def _tell(seed: int, names: tuple[str, ...]) -> int:
    """The world of one seed, with the sound guard or the one control that was named."""
    from semel.lab.mutants import SOUND
    from semel.lab.simulate import report, search

    guard = names[0] if len(names) == 1 else SOUND.name
    case = search.case_of(guard, seed)
    print(*search.story(case), sep="\n")
    failure = next(search.failures(guard, [seed]), None)
    if failure is None:
        return 0
    smallest = search.shrink(failure)
    print("", report.title_of(smallest), *search.story(smallest.case), sep="\n")
    return 1


def _names(given: list[str] | None) -> tuple[str, ...]:
    from semel.errors import UsageError
    from semel.lab.mutants import BY_NAME

    for name in given or ():
        if name not in BY_NAME:
            raise UsageError(f"There is no control {name!r}. There are: {', '.join(BY_NAME)}.")
    return tuple(given or BY_NAME)


def _show_progress(done: int, of: int) -> None:
    print(f"\r{100 * done // of:3} %", end="" if done < of else "\r", file=sys.stderr, flush=True)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of worlds")
    return int(text)
