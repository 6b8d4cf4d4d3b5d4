"""The loss of power, as far as a database file can tell: every byte that was not flushed is gone.

A killed process loses nothing that it has written: the kernel keeps it. To lose what a power cut would, each flush
of SQLite's is recorded: before it is carried out the file's bytes are read, and once it has been they are put
beside the folder. After the kill `lose_unflushed` puts every file back to its last flushed bytes.

The flushes are SQLite's own `xSync` calls, in the very library that the `sqlite3` module uses: its table of file
methods is copied and one entry replaced, through ctypes, so that no compiler is needed. Where that library cannot
be reached (it is part of the interpreter, its symbols hidden), `NotRecordable` says so.

Bytes are read through SQLite's own file, never through one of ours: to close a second descriptor of a file gives
up the process's locks on it (sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

SECTOR: Final = 512  # what a disk writes whole or not at all
VOLATILE: Final = "-shm"  # shared memory: gone with the power, and made anew
_DELETED: Final = ".deleted"  # marks a deletion that no flush has carried yet
_SEEN: Final = ".seen"  # marks a file of SQLite's; without it the folder's other files would be taken for one
_IOERR_FSYNC: Final = sqlite3.SQLITE_IOERR | (4 << 8)
_IOERR_SHORT_READ: Final = sqlite3.SQLITE_IOERR | (2 << 8)

Keeps: TypeAlias = Callable[[str, int], bool]


class NotRecordable(Exception):
    """This interpreter's SQLite cannot be reached, so its flushes cannot be recorded."""


@contextmanager
def recording(folder: Path) -> Iterator[None]:
    """Record the flushes of every database that this process opens in `folder`.

    Enter it before the store is opened. What lies there already, and has no record, counts as flushed.
    Several processes may record one folder at once. Raises `NotRecordable`.
    """
    flushes = _Flushes(folder)
    flushes.begin()
    vfs = _vfs()
    original = vfs.xOpen, vfs.xDelete
    vfs.xOpen = _opening(flushes, XOpen(vfs.xOpen))
    vfs.xDelete = _deleting(flushes, XDelete(vfs.xDelete))
    try:
        _require_reached(flushes)
        yield
    finally:
        vfs.xOpen, vfs.xDelete = original


def lose_unflushed(folder: Path, *, keeps: Keeps | None = None) -> None:
    """Cut the power, once every process that had it open is dead: files go back to their last flushed bytes.

    A file that was never flushed is gone. `keeps(name, sector)` says of each unflushed sector of 512 bytes whether
    it reached the disk all the same: no order holds among them. None did unless it is given.
    """
    flushes = _Flushes(folder)
    for name in flushes.names():
        file, flushed = folder / name, flushes.of(name)
        there = file.read_bytes() if file.exists() else b""
        left = flushed if keeps is None else _mixed(name, flushed or b"", there, keeps)
        (folder / (name + VOLATILE)).unlink(missing_ok=True)
        if left:
            file.write_bytes(left)
        else:
            file.unlink(missing_ok=True)


def flushed_folder(folder: Path) -> Path:
    """Beside the folder: what is in it is the store's."""
    return folder.with_name(folder.name + ".flushed")


def _mixed(name: str, flushed: bytes, there: bytes, keeps: Keeps) -> bytes:
    size = max(len(flushed), len(there))
    old, new = flushed.ljust(size, b"\0"), there.ljust(size, b"\0")
    sectors = (slice(at, at + SECTOR) for at in range(0, size, SECTOR))
    mixed = b"".join(
        new[sector] if old[sector] == new[sector] or keeps(name, sector.start // SECTOR) else old[sector]
        for sector in sectors
    )
    return mixed if any(mixed[len(flushed) :]) else mixed[: len(flushed)]


# ------------------------------------------------------------------ the record of flushes


class _Flushes:
    """The flushed bytes of each file, in a folder of their own, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._spellings = {str(self._folder), str(self._folder.resolve())}  # older SQLite resolves no links
        self._flushed = flushed_folder(self._folder)

    def begin(self) -> None:
        self._flushed.mkdir(exist_ok=True)
        for file in self._folder.iterdir():
            is_known = (self._flushed / (file.name + _SEEN)).exists()
            if file.is_file() and not is_known and not file.name.endswith(VOLATILE):
                shutil.copyfile(file, self._flushed / file.name)

    def name_of(self, path: int | None) -> str | None:
        """The name of the file whose path stands at this address, if it lies in the folder."""
        if path is None:
            return None  # a temporary file
        folder, name = os.path.split(os.fsdecode(ctypes.string_at(path)))
        return name if folder in self._spellings else None

    def see(self, name: str) -> None:
        (self._flushed / (name + _SEEN)).touch()

    def names(self) -> list[str]:
        return sorted(mark.name.removesuffix(_SEEN) for mark in self._flushed.glob("*" + _SEEN))

    def of(self, name: str) -> bytes | None:
        file = self._flushed / name
        return file.read_bytes() if file.exists() else None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Two processes that flush one file must not record it in the wrong order."""
        with open(self._flushed / ".turn", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def put(self, name: str, content: bytes) -> None:
        """All or nothing, whenever the process is killed. Earlier deletions are carried along."""
        for mark in self._flushed.glob("*" + _DELETED):
            self.drop(mark.name.removesuffix(_DELETED))
            mark.unlink()
        with tempfile.NamedTemporaryFile(dir=self._flushed, delete=False) as file:
            file.write(content)
        os.replace(file.name, self._flushed / name)

    def delete(self, name: str) -> None:
        """A file system's own journal is sequential: the deletion is durable with the next flush of any file."""
        (self._flushed / (name + _DELETED)).touch()

    def drop(self, name: str) -> None:
        (self._flushed / name).unlink(missing_ok=True)


def _require_reached(flushes: _Flushes) -> None:
    """A second copy of the library could be loaded beside the one that `sqlite3` uses: then nothing is seen."""
    probe = f".probe-{os.getpid()}-{threading.get_ident()}"
    connection = sqlite3.connect(flushes._folder / probe)
    try:
        connection.execute("PRAGMA user_version = 1")
    finally:
        connection.close()
        (flushes._folder / probe).unlink(missing_ok=True)
    was_seen = probe in flushes.names() and flushes.of(probe) is not None
    for name in (probe, f"{probe}-journal"):
        flushes.drop(name)
        flushes.drop(name + _SEEN)
        flushes.drop(name + _DELETED)
    if not was_seen:
        raise NotRecordable(f"{sys.executable}: the sqlite3 module does not use the SQLite that ctypes finds")


# ------------------------------------------------------------------ SQLite's tables (sqlite.org/c3ref/vfs.html)

_int, _int64, _address = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p

# Names pass through as addresses: SQLite keeps the pointer itself, which must not be to a copy of ours.
XOpen = ctypes.CFUNCTYPE(_int, _address, _address, _address, _int, _address)
XDelete = ctypes.CFUNCTYPE(_int, _address, _address, _int)
XRead = ctypes.CFUNCTYPE(_int, _address, _address, _int, _int64)
XSync = ctypes.CFUNCTYPE(_int, _address, _int)
XFileSize = ctypes.CFUNCTYPE(_int, _address, ctypes.POINTER(_int64))


class _Vfs(ctypes.Structure):
    """The head of `sqlite3_vfs`; the rest is left as it is. Functions are addresses: `ctypes` would otherwise give
    a view of the field, which changes with it."""

    _fields_ = (
        ("iVersion", _int),
        ("szOsFile", _int),
        ("mxPathname", _int),
        ("pNext", _address),
        ("zName", ctypes.c_char_p),
        ("pAppData", _address),
        ("xOpen", _address),
        ("xDelete", _address),
    )


class _FileMethods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3: a later one only adds at its end, and is not known to be copied whole."""

    _fields_ = (
        ("iVersion", _int),
        ("xClose", _address),
        ("xRead", _address),
        ("xWrite", _address),
        ("xTruncate", _address),
        ("xSync", _address),
        ("xFileSize", _address),
        ("rest", _address * 12),
    )


class _File(ctypes.Structure):
    _fields_ = (("methods", _address),)


_KEPT: Final[list[Any]] = []  # SQLite holds on to what we hand it, past the end of `recording`


def _vfs() -> Any:
    import _sqlite3

    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    try:
        find = library.sqlite3_vfs_find
    except AttributeError:
        raise NotRecordable(f"{sys.executable}: its SQLite hides its symbols") from None
    find.restype, find.argtypes = ctypes.POINTER(_Vfs), [ctypes.c_char_p]
    return find(None).contents


def _opening(flushes: _Flushes, open_file: Any) -> Any:
    def opened(vfs: int, path: int | None, file: int, flags: int, out_flags: int) -> int:
        result: int = open_file(vfs, path, file, flags, out_flags)
        name = flushes.name_of(path)
        if result == sqlite3.SQLITE_OK and name is not None:
            flushes.see(name)
            _watch(_File.from_address(file), name, flushes)
        return result

    return _address_of(XOpen(_guarded(opened)))


def _deleting(flushes: _Flushes, delete_file: Any) -> Any:
    def deleted(vfs: int, path: int | None, is_flushed: int) -> int:
        result: int = delete_file(vfs, path, is_flushed)
        name = flushes.name_of(path)
        if result == sqlite3.SQLITE_OK and name is not None:
            flushes.drop(name) if is_flushed else flushes.delete(name)
        return result

    return _address_of(XDelete(_guarded(deleted)))


def _watch(file: Any, name: str, flushes: _Flushes) -> None:
    original = _FileMethods.from_address(file.methods)
    flush = XSync(original.xSync)

    def synced(address: int, flags: int) -> int:
        with flushes.turn():
            content = _content(address, original)
            result: int = flush(address, flags)
            if result == sqlite3.SQLITE_OK:
                flushes.put(name, content)
        return result

    methods = _FileMethods.from_buffer_copy(original)
    methods.xSync = _address_of(XSync(_guarded(synced)))
    _KEPT.append(methods)
    file.methods = ctypes.addressof(methods)


def _content(address: int, methods: Any) -> bytes:
    """The whole file, as it is when it is about to be flushed."""
    size = _int64()
    _require(XFileSize(methods.xFileSize)(address, ctypes.byref(size)), sqlite3.SQLITE_OK)
    if size.value == 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    result = XRead(methods.xRead)(address, ctypes.addressof(buffer), size.value, 0)
    _require(result, sqlite3.SQLITE_OK, _IOERR_SHORT_READ)  # somebody may have cut it meanwhile
    return buffer.raw


def _require(result: int, *good: int) -> None:
    if result not in good:
        raise OSError(f"SQLite could not read its own file (error {result})")


def _guarded(method: Callable[..., int]) -> Callable[..., int]:
    """An error here must fail SQLite's call: a flush that is not recorded must not count as one."""

    def call(*arguments: Any) -> int:
        try:
            return method(*arguments)
        except BaseException:
            traceback.print_exc()
            return _IOERR_FSYNC

    return call


def _address_of(function: Any) -> int:
    _KEPT.append(function)
    address = ctypes.cast(function, _address).value
    assert address is not None
    return address
