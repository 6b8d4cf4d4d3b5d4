"""What an error of the driver proves about the write that met it.

An answer of severity ERROR proves that the transaction was rolled back. A connection that is gone proves
nothing about a statement that was on its way: it may have been carried out, and the answer lost.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus

from semel.errors import (
    CommitInDoubt,
    StoreError,
    StoreUnavailable,
    TransactionConflict,
    UsageError,
    WriteRefused,
)

CONFLICTS: Final = (errors.SerializationFailure, errors.DeadlockDetected)
NEVER_TAKEN: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
    errors.ProgramLimitExceeded,
    UnicodeEncodeError,
)


class explained:  # noqa: N801  (read as a verb: `with explained(...)`)
    """The driver's errors in our own words. `commits`: what runs in the block ends its own transaction."""

    __slots__ = ("_commits", "_connection")

    def __init__(self, connection: psycopg.Connection[Any], *, commits: bool) -> None:
        self._connection = connection
        self._commits = commits

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        if isinstance(problem, psycopg.Error | UnicodeEncodeError):
            raise explain(problem, self._connection, commits=self._commits) from problem


def explain(
    problem: psycopg.Error | UnicodeEncodeError, connection: psycopg.Connection[Any], *, commits: bool
) -> StoreError | UsageError:
    if is_lost(connection, problem):
        if commits:
            return CommitInDoubt(
                f"The connection was lost with the answer ({_text(problem)}). It may or may not be recorded."
            )
        return StoreUnavailable(f"The connection was lost ({_text(problem)}). Nothing was recorded.")
    if isinstance(problem, CONFLICTS):
        return TransactionConflict(
            f"The database rolled the transaction back ({_text(problem)}). Nothing was recorded. Run it again, "
            "whole."
        )
    if isinstance(problem, NEVER_TAKEN):
        return WriteRefused(f"The store cannot hold this: {_text(problem)}. Nothing was recorded.")
    if isinstance(problem, errors.InFailedSqlTransaction):
        return given_up()
    return StoreUnavailable(f"The store takes no writes: {_text(problem)}. Nothing was recorded.")


def given_up() -> UsageError:
    return UsageError(
        "The tool caught an error of the database and went on, but PostgreSQL had given the transaction up with "
        "it. Nothing happened. Put a SAVEPOINT before a statement that may fail, and go back to it."
    )


def is_lost(connection: psycopg.Connection[Any], problem: BaseException) -> bool:
    """The connection is gone, or the server's last words say that it is about to be."""
    if connection.closed or connection.pgconn.status != ConnStatus.OK:
        return True
    if not isinstance(problem, psycopg.Error):
        return False
    return problem.diag.severity_nonlocalized in ("FATAL", "PANIC")


def must_reconnect(problem: BaseException | None) -> bool:
    """This server takes no writes any more (it was demoted); the next connection may lead to one that does."""
    return isinstance(problem, errors.ReadOnlySqlTransaction)


def _text(problem: BaseException) -> str:
    return " ".join(str(problem).split())
