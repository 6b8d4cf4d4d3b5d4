"""The tables, brought up to date by numbered migrations, each whole or not at all.

Two processes that start at once take turns at the lock of `semel_schema`, which ends with its transaction: no
advisory lock, nothing that a transaction pooler would leave with somebody else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, TypeAlias

from psycopg import errors

from semel.errors import StoreUnavailable, UsageError
from semel.ports import SchemaStatus
from semel.stores.postgres.place import Connection, connect, conninfo_of
from semel.stores.sqlfile import load_migrations

Migrations: TypeAlias = Literal["apply", "require"]

_MIGRATIONS: Final = load_migrations(Path(__file__).parent / "migrations")
_NEWEST: Final = _MIGRATIONS[-1][0]
_RACES_MAX: Final = (
    5  # CREATE TABLE IF NOT EXISTS can lose against another one, and then finds the table there
)


def prepare_schema(connection: Connection, *, migrations: Migrations) -> None:
    """Bring the tables to our newest schema, or say why not. The connection is in autocommit mode."""
    _require_utf8(connection)
    status = read_status(connection)
    _refuse_newer(status)
    if status.version == _NEWEST:
        return
    if migrations == "require":
        raise UsageError(
            f"The database's tables are at schema {status.version}, and this Semel needs {_NEWEST}. Nothing was "
            "changed. Run `semel db migrate --store URL` first, with a role that may create tables."
        )
    migrate(connection)


def status_at(url: str) -> SchemaStatus:
    with connect(conninfo_of(url)) as connection:
        return read_status(connection)


def migrate_at(url: str) -> SchemaStatus:
    with connect(conninfo_of(url)) as connection:
        _require_utf8(connection)
        _refuse_newer(read_status(connection))
        return migrate(connection)


def read_status(connection: Connection) -> SchemaStatus:
    found = connection.execute("SELECT to_regclass('semel_schema') IS NOT NULL").fetchone()
    version = 0 if found is None or not found[0] else _read_version(connection)
    return SchemaStatus(version=version, newest=_NEWEST)


def migrate(connection: Connection) -> SchemaStatus:
    """What is missing, one transaction a migration."""
    try:
        _create_ledger(connection)
        for number, script in _MIGRATIONS:
            _migrate_once(connection, number, script)
    except errors.InsufficientPrivilege as problem:
        raise UsageError(
            f"This role may not create Semel's tables ({problem.diag.message_primary}). Nothing was changed by "
            "it. Run `semel db migrate --store URL` with one that may."
        ) from problem
    return read_status(connection)


def _create_ledger(connection: Connection) -> None:
    for _ in range(_RACES_MAX):
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS semel_schema (version integer NOT NULL PRIMARY KEY, "
                "applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            )
        except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
            continue
        return
    raise StoreUnavailable("Others keep creating Semel's tables. Nothing was changed. Open it again.")


def _migrate_once(connection: Connection, number: int, script: str) -> None:
    with connection.transaction():
        connection.execute("LOCK TABLE semel_schema IN ACCESS EXCLUSIVE MODE")
        if _read_version(connection) >= number:
            return
        connection.execute(script.encode())
        connection.execute("INSERT INTO semel_schema (version) VALUES (%s)", (number,))


def _read_version(connection: Connection) -> int:
    row = connection.execute("SELECT coalesce(max(version), 0) FROM semel_schema").fetchone()
    assert row is not None, "an aggregate gives one row"
    return int(row[0])


def _refuse_newer(status: SchemaStatus) -> None:
    if status.version > status.newest:
        raise UsageError(
            f"The database was prepared by a newer Semel (schema {status.version}, this one knows "
            f"{status.newest}). Nothing was changed. Upgrade Semel."
        )


def _require_utf8(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise UsageError(
            f"The database's encoding is {encoding}, which cannot hold all text. Nothing was changed. Use a "
            "database with ENCODING 'UTF8'."
        )
