"""Where a PostgreSQL database is, and how it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semel.errors import StoreUnavailable, UsageError

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CONNECTING: Final[Mapping[str, Any]] = {  # each holds unless the URL says otherwise
    "application_name": "semel",
    "connect_timeout": 5,  # seconds
    "tcp_user_timeout": 10_000,  # milliseconds without an acknowledgement: a host that is gone, not a slow one
    "keepalives_idle": 30,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


def conninfo_of(url: str) -> str:
    try:
        return make_conninfo("", **dict(CONNECTING) | conninfo_to_dict(url))
    except psycopg.Error as problem:
        raise UsageError(
            f"The PostgreSQL URL cannot be read: {problem}. Nothing was opened. It looks like "
            "postgresql://user@host:5432/database."
        ) from None


def shown(conninfo: str) -> str:
    """Where it leads, without the password."""
    place = conninfo_to_dict(conninfo)
    host = place.get("host") or place.get("hostaddr") or "localhost"
    port = f":{place['port']}" if place.get("port") else ""
    return f"postgresql://{host}{port}/{place.get('dbname') or place.get('user') or ''}"


def connect(conninfo: str) -> Connection:
    """In autocommit mode; prepares nothing on the server. Raises `StoreUnavailable`."""
    try:
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as problem:
        raise StoreUnavailable(
            f"Cannot connect to {shown(conninfo)}: {' '.join(str(problem).split())}. Nothing was recorded, "
            "nothing was sent. Check that the server is up, and the URL."
        ) from problem
