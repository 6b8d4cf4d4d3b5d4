"""The write-ahead log, kept as long as it will get.

A flush of a file that has grown waits for the file system's own journal, too, and so for what other programs
write; a flush of one that is only overwritten does not. SQLite begins the log anew at each checkpoint and
overwrites it from then on, but a fresh one grows with every commit, and each program that is the first to open
the database has a fresh one. So one that writes much fills it up once, with zeros behind its end.

That is safe while nobody else can append, so within a write transaction; what is there is left alone. Whoever
reads the log after a crash stops at the first frame whose checksum does not follow from the one before, as zeros
do not. (sqlite.org/walformat.html.)
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

CHECKPOINT_PAGES: Final = (
    2_000  # then the log begins anew; that takes two flushes, and some call waits for it
)
SPARE_PAGES: Final = 250  # of the transaction that reaches the checkpoint
FRAME_HEADER_BYTES: Final = 24


def lengthen_log(connection: sqlite3.Connection, path: Path) -> None:
    """Or leave it: it is only for speed."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error:
        return
    try:
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        frames = CHECKPOINT_PAGES + SPARE_PAGES
        _fill(Path(f"{path}-wal"), frames * (page_bytes + FRAME_HEADER_BYTES))
    except OSError:
        return
    finally:
        connection.execute("ROLLBACK")


def _fill(log: Path, length: int) -> None:
    file = os.open(log, os.O_WRONLY)
    try:
        end = os.fstat(file).st_size
        if end < length:
            os.pwrite(file, bytes(length - end), end)
            os.fsync(file)
    finally:
        os.close(file)
