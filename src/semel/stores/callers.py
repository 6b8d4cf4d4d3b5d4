"""A caller's own connection, whatever they hold it through. SQLAlchemy is recognised, and never imported."""

from __future__ import annotations

import sys
from typing import Any


def driver_connection(caller: Any) -> Any:
    """The driver's connection under an SQLAlchemy `Session` or `Connection`; anything else as it is.

    As with any statement through SQLAlchemy, pending objects are flushed first and a transaction is begun if
    none is open, so that the caller's `commit()` has something to commit.
    """
    if _is_a("sqlalchemy.orm", "Session", caller):
        caller.flush()
        caller = caller.connection()
    if _is_a("sqlalchemy.engine", "Connection", caller):
        if not caller.in_transaction():
            caller.begin()
        return caller.connection.driver_connection
    return caller


def _is_a(module: str, name: str, thing: Any) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))
