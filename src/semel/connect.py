"""From a URL to a guard. The one place where stores are imported, and only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from semel import decide as decisions
from semel.engine.core import Decide
from semel.engine.guard import LEASE, WAIT, Guard
from semel.errors import UsageError
from semel.ports import Checkpoint, Store, no_checkpoint


def open_guard(
    url: str,
    *,
    namespace: str = "",
    lease: timedelta = LEASE,
    wait: timedelta = WAIT,
    checkpoint: Checkpoint = no_checkpoint,
    decide: Decide = decisions.decide,
    **store_options: Any,
) -> Guard:
    """A guard on the store that the URL names.

    `sqlite:///agent.db` (relative), `sqlite:////var/lib/agent.db` (absolute), `:memory:` (for tests).
    Store options: see the store (`durability="strict"`, `existing="adopt"`, `clock=...` for SQLite).
    Raises `UsageError` if no store can be there, `StoreUnavailable` if it does not answer.
    """
    store = open_store(url, **store_options)
    try:
        return Guard(store, namespace=namespace, lease=lease, wait=wait, checkpoint=checkpoint, decide=decide)
    except BaseException:
        store.close()
        raise


def open_store(url: str, **options: Any) -> Store:
    scheme, separator, rest = str(url).partition("://")
    if url == ":memory:":
        scheme, separator, rest = "sqlite", "://", "/:memory:"
    if not separator or scheme not in _STORES:
        known = ", ".join(f"{name}://" for name in _STORES)
        raise UsageError(f"{url!r} names no store. Nothing was opened. Known: {known} (sqlite:///agent.db).")
    try:
        return _STORES[scheme](rest, options)
    except TypeError as problem:
        raise UsageError(f"{url}: {problem}. Nothing was opened.") from problem


def _open_sqlite(rest: str, options: dict[str, Any]) -> Store:
    from semel.stores.sqlite.store import SqliteStore

    if rest in ("", "/:memory:"):
        return SqliteStore(None, **options)
    if not rest.startswith("/") or rest == "/":
        raise UsageError(
            f"sqlite://{rest} names no file. Nothing was opened. Three slashes for a path from here "
            "(sqlite:///agent.db), four for one from the root (sqlite:////var/lib/agent.db)."
        )
    return SqliteStore(Path(rest[1:]), **options)


_STORES: Final[dict[str, Callable[[str, dict[str, Any]], Store]]] = {"sqlite": _open_sqlite}
