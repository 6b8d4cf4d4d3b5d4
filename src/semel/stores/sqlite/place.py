"""Where a database file may lie: on a local, writable disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from semel.errors import UsageError

# File systems whose locks and shared memory do not hold across hosts (sqlite.org/wal.html, "All processes
# using a database must be on the same host"; sqlite.org/howtocorrupt.html, section 2.1).
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "glusterfs", "ocfs2", "gfs2"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "davfs"}
    | {"fuse.juicefs", "fuse.davfs", "fuse.gvfsd-fuse", "ncpfs", "beegfs", "vboxsf", "prl_fs"}
)

_OCTAL: Final = re.compile(r"\\([0-7]{3})")  # how mountinfo writes a space, tab, newline or backslash


def check_place(path: Path, *, mounts: str | None = None) -> None:
    """Raise `UsageError` if no database can be kept there. `mounts`: the text of /proc/self/mountinfo."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory. Nothing was opened. Name a file in it.")
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"The folder {folder} does not exist. Nothing was opened. Create it first.")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"The folder {folder} is not writable. Nothing was opened. Choose another.")
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"{path} is read-only. Nothing was opened. Make it writable or choose another.")
    kind = file_system_of(path.resolve().parent, _mounts() if mounts is None else mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise UsageError(
            f"{folder} is on a network file system ({kind}), where SQLite's locks do not hold. Nothing was "
            "opened. Use a local disk, or PostgreSQL for workers on several hosts."
        )


def memory_folder() -> str | None:
    """A file system in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def file_system_of(folder: Path, mounts: str) -> str | None:
    """The type of the file system that holds `folder`, by the deepest, latest mount point above it."""
    best, kind = -1, None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount_point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        if len(mount_point) >= best and folder.is_relative_to(mount_point):
            best, kind = len(mount_point), after.split(" ")[0]
    return kind


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: the file system's type is not known, and the file is taken as local
