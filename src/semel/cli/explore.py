"""`semel lab explore` and `semel lab replay`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from semel.lab.model import ProviderKind, StoreKind

if TYPE_CHECKING:
    from semel.lab.explore.campaign import Explored, Ran
    from semel.lab.explore.controls import Caught

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

RECORDS: Final = Path("semel-runs")  # of a run that speaks against the guard, where no --out is given

EXPLORE_HELP: Final = """\
Kill a real run of Semel at every place that it passes, and its recovery at every place again; stop it and let
it go on; drop, delay, double and hold what goes over the wire; cut the power. Every run is judged by what the
provider saw. Then try guards that were broken on purpose: each has to be caught.

Exit status: 0 if no run speaks against the guard and every broken guard is caught, else 1.
"""
EXPLORE_EXAMPLE: Final = """\
example: the short form on SQLite, with the page and every run that is not OK as a file to replay
  semel lab explore --short --out lab-out
"""
REPLAY_HELP: Final = """\
Run again what `semel lab explore` wrote down, print its steps and the verdict.

Exit status: 0 if the verdict is the recorded one, else 1.
"""


def add_to(experiments: Commands, folder: Callable[[str], Path]) -> None:
    """`folder` parses the name of one to write to."""
    _add_explore_to(experiments, folder)
    parser = experiments.add_parser(
        "replay",
        help="run one recorded run again",
        description=REPLAY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="as written by explore")
    parser.set_defaults(call=replay)


def _add_explore_to(experiments: Commands, folder: Callable[[str], Path]) -> None:
    parser = experiments.add_parser(
        "explore",
        help="every crash point of Semel, and every fault there",
        description=EXPLORE_HELP,
        epilog=EXPLORE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    stores, providers = [kind.value for kind in StoreKind], [kind.value for kind in ProviderKind]
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="all single kills, a sample of the rest")
    size.add_argument("--full", action="store_true", help="everything (the default)")
    add("--store", choices=stores, default=stores[0], help="where the guard keeps its records")
    add("--provider", action="append", choices=providers, help="what the provider can do (default: each)")
    add("--seed", type=int, default=0, metavar="N", help="of the sample, and of the call ids")
    add("--out", type=folder, metavar="DIR", help="write report.html, explore.json, and the runs not OK")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=explore)


def explore(arguments: argparse.Namespace) -> int:
    """Run the campaign; 0 if it holds."""
    from semel.lab.explore import report

    found, controls = _run(arguments)
    if arguments.json:
        print(report.to_json(found))
        print(report.conclusion(found, controls), file=sys.stderr)
    else:
        print("\n".join(report.lines(found, controls)))
    _write(arguments, found, controls)
    return 0 if report.holds(found, controls) else 1


def _run(arguments: argparse.Namespace) -> tuple[Explored, tuple[Caught, ...]]:
    from semel.lab.explore.campaign import FULL, SHORT, Judge, explore, stage_for
    from semel.lab.explore.controls import try_controls
    from semel.lab.explore.plan import Plan

    store, seed = StoreKind(arguments.store), arguments.seed
    chosen = arguments.provider or list(ProviderKind)
    with stage_for(store) as stage:
        found = explore(
            stage,
            store=store,
            size=SHORT if arguments.short else FULL,
            seed=seed,
            providers=[provider for provider in ProviderKind if provider in chosen],
            on_run=_progress(arguments.json),
        )
        judge = Judge(stage, lambda provider: Plan(provider=provider, store=store, seed=seed))
        return found, try_controls(stage, judge, store=store, seed=seed)


def _progress(is_silent: bool) -> Callable[[Ran], None]:
    """A dot now and then, for someone who watches; for a log, a line every thousand runs."""
    made = 0

    def show(ran: Ran) -> None:
        nonlocal made
        made += 1
        if ran.is_bad:
            print(f"{ran.finding.verdict}: {ran.plan.name}", file=sys.stderr, flush=True)
        elif made % 50 == 0 and sys.stderr.isatty() and not is_silent:
            print(".", end="", file=sys.stderr, flush=True)
        elif made % 1000 == 0 and not is_silent:
            print(f"{made} runs", file=sys.stderr, flush=True)

    return show


def _write(arguments: argparse.Namespace, found: Explored, controls: tuple[Caught, ...]) -> None:
    from semel.lab.explore import record, report

    to_record = record.not_ok(found.runs) if arguments.out else list(found.bad)
    for number, ran in enumerate(to_record, 1):
        file = record.write(ran, (arguments.out or Path()) / RECORDS, number)
        if ran.is_bad:
            print("\n".join(["", *record.steps_of(ran)]), file=sys.stderr)
            print(f"to see it again: semel lab replay {file}", file=sys.stderr)
    if arguments.out is not None:
        shown = report.page(found, controls, command=_command(arguments))
        (arguments.out / "report.html").write_text(shown, encoding="utf-8")
        (arguments.out / "explore.json").write_text(report.to_json(found) + "\n", encoding="utf-8")


def _command(arguments: argparse.Namespace) -> str:
    words: list[Any] = ["semel", "lab", "explore", "--short" if arguments.short else "--full"]
    words += ["--store", arguments.store, "--seed", arguments.seed]
    for provider in arguments.provider or []:
        words += ["--provider", provider]
    return shlex.join(map(str, words))


def replay(arguments: argparse.Namespace) -> int:
    """Run it again; 0 if it ends as recorded."""
    from semel.lab.explore import record

    replayed = record.replay(arguments.file)
    print("\n".join(record.steps_of(replayed.again)))
    if replayed.again.finding.because:
        print(replayed.again.finding.because)
    print(f"recorded: {replayed.recorded}; now: {replayed.again.finding.verdict}")
    return 0 if replayed.is_as_recorded else 1
