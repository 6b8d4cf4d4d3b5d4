"""`semel db`: the schema of a store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final, TypeAlias

from semel import connect
from semel.errors import SemelError
from semel.ports import SchemaStatus

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

IS_CURRENT: Final = 0
IS_NOT_CURRENT: Final = 1
COULD_NOT_TELL: Final = 2
AS_WRITTEN: Final = argparse.RawDescriptionHelpFormatter

DB_HELP: Final = """\
The tables of a store, and whether they are those this version needs.

A guard brings them up to date by itself when it opens a store. Where its role in PostgreSQL may not create tables,
run `semel db migrate` with one that may, before you deploy; the guard then opens with migrations="require".
"""
EXIT_STATUS: Final = """\
exit status: 0 if the tables are up to date, 1 if they are not, 2 if that could not be told
example:
  semel db status --store postgresql://agent@db.internal/agents
"""


def add_to(commands: Commands) -> None:
    db = commands.add_parser(
        "db", help="the schema of a store", description=DB_HELP, formatter_class=AS_WRITTEN
    )
    verbs = db.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_verb(verbs, "status", "say what schema the tables are at; changes nothing", status)
    _add_verb(verbs, "migrate", "bring the tables up to date; safe beside others that do", migrate)


def _add_verb(verbs: Commands, name: str, what: str, call: Callable[[argparse.Namespace], int]) -> None:
    parser = verbs.add_parser(
        name, help=what, description=what, epilog=EXIT_STATUS, formatter_class=AS_WRITTEN
    )
    parser.add_argument("--store", required=True, metavar="URL", help="sqlite:///agent.db or postgresql://…")
    parser.set_defaults(call=call)


def status(arguments: argparse.Namespace) -> int:
    return _tell(lambda: connect.schema_status(arguments.store))


def migrate(arguments: argparse.Namespace) -> int:
    return _tell(lambda: connect.migrate_schema(arguments.store))


def _tell(ask: Callable[[], SchemaStatus]) -> int:
    try:
        found = ask()
    except SemelError as problem:
        print(f"semel: {problem}", file=sys.stderr)
        return COULD_NOT_TELL
    print(f"schema {found.version} of {found.newest}: {_in_words(found)}")
    return IS_CURRENT if found.version == found.newest else IS_NOT_CURRENT


def _in_words(found: SchemaStatus) -> str:
    if found.version == found.newest:
        return "up to date"
    if found.version > found.newest:
        return "made by a newer Semel; upgrade this one"
    return "none of Semel's tables yet; migrate" if found.version == 0 else "behind; migrate"
