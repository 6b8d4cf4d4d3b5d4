"""`semel doubts`, `semel show`, `semel resolve`: what is in doubt, and a person's answer to it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import semel
from semel.model import Operation, Resolution

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DONE: Final = 0
NOTHING_SUCH: Final = 1

RESOLVE_HELP: Final = """\
Say what happened to an operation that is UNKNOWN, once you have looked at the provider's own books.
The answer is recorded with who gave it and why. An operation whose owner is alive takes no answer.
Look only once no request can land any more (the tool's request_deadline, a minute unless declared, after the
last one): --run-it is asked again if it was said earlier, --give-up is refused until a minute after the last one
(the tool's own request_deadline is not known here), --happened is taken as it is.
"""
DOUBTS_HELP: Final = """\
List every operation that is UNKNOWN. A claim whose owner is gone is in doubt, too, and is recorded as such first.
"""
EXAMPLE: Final = """\
example:
  semel doubts --store sqlite:///agent.db
  semel resolve KEY --store sqlite:///agent.db --happened '{"id": "ch_1"}' --by ann --why "in the dashboard"
"""


def add_to(commands: Commands) -> None:
    _add(commands, "doubts", "list every operation that is UNKNOWN", doubts, description=DOUBTS_HELP)
    show = _add(commands, "show", "one operation and its history", show_one)
    show.add_argument("key", metavar="KEY", help="the operation's key, 64 hex characters")
    answer = _add(commands, "resolve", "a person's answer to UNKNOWN", resolve, description=RESOLVE_HELP)
    answer.add_argument("key", metavar="KEY", help="the operation's key, 64 hex characters")
    choice = answer.add_mutually_exclusive_group(required=True)
    choice.add_argument("--happened", type=_json, metavar="JSON", help="it happened, with this result")
    choice.add_argument("--run-it", action="store_true", help="it did not happen; run it on the next call")
    choice.add_argument("--give-up", action="store_true", help="it did not happen, and shall not")
    answer.add_argument("--by", required=True, metavar="NAME", help="who says so")
    answer.add_argument("--why", required=True, metavar="TEXT", help="how they know")
    answer.add_argument("--fingerprint", help="as shown to you: refused if the call was another one")
    answer.add_argument("--attempt", type=int, help="as shown to you: refused if another has begun since")


def _add(
    commands: Commands,
    name: str,
    what: str,
    call: Callable[[argparse.Namespace], int],
    *,
    description: str | None = None,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=what,
        description=description or what,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--store", required=True, metavar="URL", help="sqlite:///agent.db or postgresql://…")
    parser.add_argument("--namespace", default="", help="the guard's namespace, if it has one")
    parser.set_defaults(call=call)
    return parser


def doubts(arguments: argparse.Namespace) -> int:
    with _guard(arguments) as guard:
        guard.recover()  # a claim whose owner is gone is in doubt, too
        found = guard.in_doubt()
        for operation in found:
            print(_line(operation))
        print(f"{len(found)} in doubt" if found else "nothing is in doubt")
        return DONE


def show_one(arguments: argparse.Namespace) -> int:
    with _guard(arguments) as guard:
        operation = guard.read(arguments.key)
        if operation is None:
            print(f"semel: no operation has the key {arguments.key}", file=sys.stderr)
            return NOTHING_SUCH
        print(_line(operation))
        for name in ("result", "error"):
            if (value := getattr(operation, name)) is not None:
                print(f"  {name} {value}")
        for entry in guard.history(arguments.key):
            who = f" by {entry.by}" if entry.by else ""
            why = f": {entry.why}" if entry.why else ""
            print(f"  {entry.at:%Y-%m-%d %H:%M:%S} {entry.event} → {entry.to_state}{who}{why}")
        return DONE


def resolve(arguments: argparse.Namespace) -> int:
    with _guard(arguments) as guard:
        operation = guard.resolve(
            arguments.key,
            _answer(arguments),
            by=arguments.by,
            why=arguments.why,
            fingerprint=arguments.fingerprint,
            attempt=arguments.attempt,
        )
        print(_line(operation))
        return DONE


def _answer(arguments: argparse.Namespace) -> Resolution:
    if arguments.run_it:
        return semel.RunIt()
    return semel.GiveUp() if arguments.give_up else semel.ItHappened(arguments.happened.value)


def _line(operation: Operation) -> str:
    return (
        f"{operation.key} {operation.state} {operation.tool} run={operation.run_id!r} step={operation.step!r} "
        f"attempt={operation.fence} fingerprint={operation.fingerprint} arguments={operation.arguments}"
    )


class _Given:
    """A result, which may be null: given is not the same as null."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _json(text: str) -> _Given:
    try:
        return _Given(json.loads(text))
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {wrong}") from wrong


@contextmanager
def _guard(arguments: argparse.Namespace) -> Iterator[semel.Guard]:
    """Only on a store that exists: a question must not create one."""
    if semel.connect.schema_status(arguments.store).version == 0:
        raise semel.UsageError(f"{arguments.store} holds none of Semel's records. Nothing was changed.")
    with semel.open(arguments.store, namespace=arguments.namespace) as guard:
        yield guard
