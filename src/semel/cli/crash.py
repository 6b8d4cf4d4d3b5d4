"""`semel lab crash`: your own agent in the crash lab."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from semel.lab.model import ProviderKind, Window

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

HELP: Final = """\
Run your own program, kill it with SIGKILL at every gap of its tool calls, start it again, and tell what happened
twice, never, or got stuck, per tool and window, compared with a run that nobody killed.

The program is a callable without arguments that does one whole run of your agent; called again in a fresh
process it resumes. Each run has an empty folder of its own as working directory. The tools send to the address
in SEMEL_LAB_PROVIDER (or in a variable of yours: --env BILLING_URL={provider}), or write a JSON line an effect
into the file that --effects names. Guards opened with semel.open are killed at their own checkpoints, W1 to W4;
every request to the provider, and every line of that file, has W2 to W4 besides.

Exit status: 0 if nothing happened twice, never, or got stuck, else 1.
"""
EXAMPLE: Final = """\
example:
  semel lab crash my_agent:run --env BILLING_URL={provider} --identity customer,period --out lab-out
"""


def add_to(experiments: Commands, folder_to_write: Callable[[str], Path]) -> None:
    parser = experiments.add_parser(
        "crash",
        help="your own agent, killed at every gap",
        description=HELP,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("target", metavar="MODULE:CALLABLE", help="one whole run of your agent; found from this folder, too")
    add("--windows", type=_windows, default=tuple(Window), metavar="W2,W3", help="only at these gaps")
    add("--gap", action="append", default=[], metavar="NAME", help="only this gap, as a report names it")
    add("--env", action="append", default=[], type=_variable, metavar="NAME=VALUE", help=_ENV)
    add(
        "--provider",
        choices=[k.value for k in ProviderKind],
        default=ProviderKind.HONOURS_KEYS.value,
        help=_KIND,
    )
    add("--effects", metavar="FILE", help="where your tools write a JSON line an effect, in the run's folder")
    add(
        "--identity",
        type=_fields,
        default=(),
        metavar="FIELD,FIELD",
        help="what names an effect, besides its tool",
    )
    add("--resolver", metavar="MODULE:CALLABLE", help="plays the person: is given the PausedForPerson")
    add(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE",
        help="import once, to start faster; repeatable",
    )
    add("--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="for one process (60)")
    add("--patience", type=_seconds, default=120.0, metavar="SECONDS", help=_PATIENCE)
    add("--out", type=folder_to_write, metavar="DIR", help="write report.html and crash.json")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(call=crash)


_ENV: Final = "for the program; {provider}, {folder}, {cell} and {home} are filled in; repeatable"
_KIND: Final = "what the recording provider can do (honours-keys; it can be asked, too, unless it is blind)"
_PATIENCE: Final = "for a program that says itself when it can go on (120)"


def crash(arguments: argparse.Namespace) -> int:
    from semel.lab.own import campaign
    from semel.lab.own.model import Program
    from semel.lab.own.report import GAP, Report

    program = Program(
        target=arguments.target,
        home=Path.cwd(),
        environment=dict(arguments.env),
        provider=ProviderKind(arguments.provider),
        effects=arguments.effects,
        identity=arguments.identity,
        resolver=arguments.resolver,
        preload=tuple(arguments.preload),
        seconds_max=arguments.timeout,
        patience_seconds=arguments.patience,
    )
    found = campaign.run(
        program,
        windows=arguments.windows,
        only=arguments.gap,
        on_plan=lambda gaps: print(f"{len(gaps)} gaps; a process is killed at each …", file=sys.stderr),
    )
    report = Report(campaign=found, again=f"{_command(arguments)} --gap {GAP}")
    for line in [report.to_json()] if arguments.json else report.lines():
        print(line)
    if arguments.out is not None:
        (arguments.out / "report.html").write_text(report.to_html(), encoding="utf-8")
        (arguments.out / "crash.json").write_text(report.to_json() + "\n", encoding="utf-8")
    return 0 if report.holds else 1


def _command(arguments: argparse.Namespace) -> str:
    """The same again, without what chooses gaps and forms."""
    words = ["semel", "lab", "crash", arguments.target]
    for name, value in arguments.env:
        words += ["--env", f"{name}={value}"]
    if arguments.provider != ProviderKind.HONOURS_KEYS:
        words += ["--provider", arguments.provider]
    if arguments.effects is not None:
        words += ["--effects", arguments.effects]
    if arguments.identity:
        words += ["--identity", ",".join(arguments.identity)]
    if arguments.resolver is not None:
        words += ["--resolver", arguments.resolver]
    return shlex.join(words)


def _windows(text: str) -> tuple[Window, ...]:
    try:
        chosen: Sequence[Window] = [Window(name.strip()) for name in text.split(",")]
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(f"{wrong}; there are {', '.join(Window)}") from None
    return tuple(chosen)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _fields(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
