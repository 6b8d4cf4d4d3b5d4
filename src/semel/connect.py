"""From a URL to a guard. The one place where stores are imported, and only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from semel.decide import decide as decide_soundly
from semel.engine.core import Decide
from semel.engine.guard import LEASE, WAIT, Guard
from semel.errors import UsageError
from semel.ports import Checkpoint, SchemaStatus, Store, no_checkpoint

Watch: TypeAlias = Callable[[Store], Checkpoint]
_watch: Watch | None = None


def open_guard(
    url: str,
    *,
    namespace: str = "",
    lease: timedelta = LEASE,
    wait: timedelta = WAIT,
    checkpoint: Checkpoint = no_checkpoint,
    decide: Decide = decide_soundly,
    **store_options: Any,
) -> Guard:
    """A guard on the store that the URL names.

    `sqlite:///agent.db` (relative), `sqlite:////var/lib/agent.db` (absolute), `:memory:` (for tests),
    `postgresql://user@host/database` (anything libpq takes; needs `pip install 'semel[postgres]'`).
    Store options: see the store (`durability="strict"` for both; `existing="adopt"`, `clock=...` for SQLite;
    `isolation=...`, `migrations="require"`, ... for PostgreSQL).
    Raises `UsageError` if no store can be there, `StoreUnavailable` if it does not answer.
    """
    store = open_store(url, **store_options)
    try:
        watched = _watched(store, checkpoint)
        return Guard(store, namespace=namespace, lease=lease, wait=wait, checkpoint=watched, decide=decide)
    except BaseException:
        store.close()
        raise


def watch_guards(watch: Watch | None) -> None:
    """Pass by every checkpoint of each guard that this process opens from now on. None ends it.

    For the crash lab, which kills programs that know nothing of it: in a process of its own it calls this before
    the program is imported. No environment variable or file does the same, so nothing outside a process can.
    """
    global _watch
    _watch = watch


def _watched(store: Store, checkpoint: Checkpoint) -> Checkpoint:
    if _watch is None:
        return checkpoint
    pass_by = _watch(store)

    def both(place: str, key: str) -> None:
        checkpoint(place, key)
        pass_by(place, key)

    return both


def open_store(url: str, **options: Any) -> Store:
    kind = _kind_of(url)
    try:
        return kind.open(url, options)
    except TypeError as problem:
        said = str(problem).partition("() ")[2] or str(problem)  # whose constructor it was is no matter
        raise UsageError(f"{_scheme_of(url)}://…: {said}. Nothing was opened.") from problem


def schema_status(url: str) -> SchemaStatus:
    """What schema the store's tables are at. Changes nothing."""
    return _kind_of(url).schema_status(url)


def migrate_schema(url: str) -> SchemaStatus:
    """Bring the store's tables up to date; safe beside others that do the same."""
    return _kind_of(url).migrate_schema(url)


class _Kind(NamedTuple):
    open: Callable[[str, dict[str, Any]], Store]
    schema_status: Callable[[str], SchemaStatus]
    migrate_schema: Callable[[str], SchemaStatus]


def _kind_of(url: str) -> _Kind:
    kind = _KINDS.get(_scheme_of(url))
    if kind is None:
        known = ", ".join(f"{name}://" for name in _KINDS)
        scheme = _scheme_of(url)
        raise UsageError(  # a URL may hold a password: only its beginning is repeated
            f"{f'{scheme}://…' if scheme else repr(url)} names no store. Nothing was opened. Known: {known} "
            "(sqlite:///agent.db, postgresql://user@host/database)."
        )
    return kind


def _scheme_of(url: str) -> str:
    if url == ":memory:":
        return "sqlite"
    scheme, separator, _ = str(url).partition("://")
    return scheme if separator else ""


# ------------------------------------------------------------------ sqlite


def _open_sqlite(url: str, options: dict[str, Any]) -> Store:
    from semel.stores.sqlite.store import SqliteStore

    return SqliteStore(_sqlite_path(url), **options)


def _sqlite_status(url: str) -> SchemaStatus:
    from semel.stores.sqlite.schema import status_at

    return status_at(_sqlite_path(url))


def _migrate_sqlite(url: str) -> SchemaStatus:
    _open_sqlite(url, {}).close()
    return _sqlite_status(url)


def _sqlite_path(url: str) -> Path | None:
    rest = "" if url == ":memory:" else str(url).partition("://")[2]
    if rest in ("", "/:memory:"):
        return None
    if not rest.startswith("/") or rest == "/":
        raise UsageError(
            f"sqlite://{rest} names no file. Nothing was opened. Three slashes for a path from here "
            "(sqlite:///agent.db), four for one from the root (sqlite:////var/lib/agent.db)."
        )
    return Path(rest[1:])


# ------------------------------------------------------------------ postgresql


def _open_postgres(url: str, options: dict[str, Any]) -> Store:
    _require_psycopg()
    from semel.stores.postgres.store import PostgresStore

    return PostgresStore(url, **options)


def _postgres_status(url: str) -> SchemaStatus:
    _require_psycopg()
    from semel.stores.postgres.schema import status_at

    return status_at(url)


def _migrate_postgres(url: str) -> SchemaStatus:
    _require_psycopg()
    from semel.stores.postgres.schema import migrate_at

    return migrate_at(url)


def _require_psycopg() -> None:
    try:
        import psycopg  # noqa: F401  (the one place where it is missed politely)
    except ImportError as problem:
        raise UsageError(
            f"PostgreSQL needs psycopg, which cannot be imported ({problem}). Nothing was opened. "
            "Run: pip install 'semel[postgres]'"
        ) from problem


_SQLITE: Final = _Kind(_open_sqlite, _sqlite_status, _migrate_sqlite)
_POSTGRES: Final = _Kind(_open_postgres, _postgres_status, _migrate_postgres)
_KINDS: Final[Mapping[str, _Kind]] = {"sqlite": _SQLITE, "postgresql": _POSTGRES, "postgres": _POSTGRES}
