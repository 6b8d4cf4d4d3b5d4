"""The schema of the file, and the clock that all its processes share."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final, Literal

from semel.errors import StoreUnavailable, UsageError
from semel.ports import Clock, SchemaStatus
from semel.stores.clock import BootClock, WallClock, boot_id, microseconds_since_boot
from semel.stores.sqlfile import load_migrations

_MIGRATIONS: Final = load_migrations(Path(__file__).parent / "migrations")
_NEWEST: Final = _MIGRATIONS[-1][0]

PAGE_BYTES: Final = (
    2048  # a call changes a few short rows, and each page changed is written to the log, whole
)

Existing = Literal["refuse", "adopt"]


def prepare_schema(connection: sqlite3.Connection, path: Path, *, existing: Existing) -> None:
    """Bring the file to our newest schema, or say why it is not ours to touch."""
    tables = _tables(connection, path)
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if "semel_schema" not in tables and (application_id != 0 or (tables and existing == "refuse")):
        raise UsageError(
            f"{path} holds {_what_it_holds(tables)} and none of Semel's tables. Nothing was written to it. "
            "Open another file; or, to keep the guard's records beside your own tables (which Atomic tools "
            'need), semel.open(..., existing="adopt").'
        )
    if not tables:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; nothing else can be changed
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise UsageError(f"{path} cannot use a write-ahead log (mode {mode!r}). Use a local, writable disk.")
    _migrate(connection, path)


def status_at(path: Path | None) -> SchemaStatus:
    """Reads only. A file that is not there, or a store in memory, has no tables."""
    if path is None or not path.is_file():
        return SchemaStatus(version=0, newest=_NEWEST)
    connection = sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)
    try:
        if "semel_schema" not in _tables(connection, path):
            return SchemaStatus(version=0, newest=_NEWEST)
        row = connection.execute("SELECT coalesce(max(version), 0) FROM semel_schema").fetchone()
        return SchemaStatus(version=row[0], newest=_NEWEST)
    except sqlite3.Error as problem:
        raise StoreUnavailable(f"Cannot read {path}: {problem}. Nothing was changed.") from problem
    finally:
        connection.close()


def _what_it_holds(tables: set[str]) -> str:
    return f"other tables ({', '.join(sorted(tables)[:3])})" if tables else "another program's format"


def _tables(connection: sqlite3.Connection, path: Path) -> set[str]:
    try:
        rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    except sqlite3.DatabaseError as problem:
        if isinstance(problem, sqlite3.OperationalError):
            raise
        raise UsageError(
            f"{path} is not an SQLite database ({problem}). Nothing was written to it. Name another file."
        ) from problem
    return {row[0] for row in rows if not row[0].startswith("sqlite_")}


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS semel_schema (version INTEGER NOT NULL PRIMARY KEY) STRICT"
    )
    version = connection.execute("SELECT coalesce(max(version), 0) FROM semel_schema").fetchone()[0]
    if version > _NEWEST:
        connection.execute("ROLLBACK")
        raise UsageError(
            f"{path} was written by a newer Semel (schema {version}, this one knows {_NEWEST}). Nothing was "
            "changed. Upgrade Semel."
        )
    for number, sql in _MIGRATIONS:
        if number > version:
            _execute_script(connection, sql)
            connection.execute("INSERT INTO semel_schema (version) VALUES (?)", (number,))
    connection.execute("COMMIT")


def _execute_script(connection: sqlite3.Connection, script: str) -> None:
    """Statement by statement: `executescript` would commit the transaction that makes a migration whole."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def shared_clock(connection: sqlite3.Connection) -> Clock:
    """The boot's clock, anchored by whichever process came first."""
    boot = boot_id()
    if boot is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return WallClock()
    anchor_us = time.time_ns() // 1000 - microseconds_since_boot()
    connection.execute(
        "INSERT INTO semel_clock (boot_id, anchor_us) VALUES (?, ?) ON CONFLICT DO NOTHING", (boot, anchor_us)
    )
    row = connection.execute("SELECT anchor_us FROM semel_clock WHERE boot_id = ?", (boot,)).fetchone()
    return BootClock(row[0])
