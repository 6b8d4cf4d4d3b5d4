"""A warmed process whose children are forks, so that a life costs a fork and not the start of an interpreter.

It has one thread, which makes forking it safe whatever the lab's own threads do. (The standard library's
forkserver does the same, but there is only one for a whole program: whoever starts it first decides what
it has imported, and every child runs the program's main script again.)

For each life there are two forks: the *watcher*, which is the parent of the *child* and so the only one
that may kill it by its id and see how it ended. The lab holds a connection to the watcher. If that closes,
because the lab has had enough or is itself dead, the watcher kills the child: nothing is left behind.

What is to be lived comes pickled, by the name of its function. Unpickling imports its module, in the
nursery itself: so the first life of a level warms the nursery for all others.
"""

from __future__ import annotations

import atexit
import encodings.idna  # noqa: F401  else every child imports it for its first connection
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Final, TypeAlias

ENOUGH: Final = b"enough"
STDERR: Final = 2

Life: TypeAlias = Callable[[], None]


class NotBorn(Exception):
    """The child could not be started; the message is the nursery's traceback."""


class Child:
    """One life, seen from the lab."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def exitcode(self, seconds_max: float) -> int | None:
        """Wait for the end; as in `subprocess`, minus n is signal n. None: it had to be ended."""
        ended_by_itself = self._connection.poll(seconds_max)
        if not ended_by_itself:
            self.end()
        exitcode = self._connection.recv()
        self._connection.close()
        if isinstance(exitcode, str):
            raise NotBorn(exitcode)
        return int(exitcode) if ended_by_itself else None

    def end(self) -> None:
        """Have it killed. It may have ended by itself a moment ago; then nothing happens."""
        with suppress(OSError):
            self._connection.send_bytes(ENOUGH)


class Nursery:
    """The warmed process, seen from the lab. It starts with its first use and ends with `close`, or with the lab.

    `python`  another environment's interpreter, of the same version. It finds its modules as `environment`, its
              variables, say, and not where the lab does.
    `cwd`     the folder it works in.
    """

    def __init__(
        self,
        *,
        python: str | Path = sys.executable,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._python = python
        self._environment = environment
        self._cwd = cwd
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def warm(self, modules: Iterable[str]) -> None:
        """Start now, with these imported. If it runs already, they are imported at their first use."""
        with self._lock:
            if self._control is None:
                self._control, self._process = self._start(modules)

    def bear(self, life: Life) -> Child:
        """Start a child that runs `life` and ends: with 0, or with 1 if it raises."""
        self.warm(())
        assert self._control is not None
        ours, theirs = Pipe()
        with theirs:
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
        ours.send(sys.path if self._environment is None else None)
        ours.send_bytes(pickle.dumps(life))
        return Child(ours)

    def close(self) -> None:
        """Children that live go on."""
        with self._lock:
            if self._control is not None and self._process is not None:
                self._control.close()
                self._process.wait()
        atexit.unregister(self.close)

    def _start(self, modules: Iterable[str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        control, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [self._python, "-m", "semel.lab.nursery", str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
                pass_fds=[theirs.fileno()],
                env=self._environment,
                cwd=self._cwd,
            )
        atexit.register(self.close)
        return control, process


# ---- in the nursery's own process


def main(control_fd: str, *modules: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the lab, which then ends us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers need no burial
    for name in modules:
        with suppress(ImportError):  # whoever needs it will say so
            import_module(name)
    with socket.socket(fileno=int(control_fd)) as control:
        while (connection := _next(control)) is not None:
            with connection:
                _receive(connection, control)


def _next(control: socket.socket) -> Connection | None:
    """The next child's connection. None: the lab has ended."""
    _, fds, _, _ = socket.recv_fds(control, 1, 1)
    return Connection(fds[0]) if fds else None


def _receive(connection: Connection, control: socket.socket) -> None:
    try:
        if (path := connection.recv()) is not None:
            sys.path[:] = path
        life = pickle.loads(connection.recv_bytes())
    except Exception:
        connection.send(traceback.format_exc())
        return
    if os.fork() == 0:
        control.close()
        _watch(connection, life)
        os._exit(0)


def _watch(connection: Connection, life: Life) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ended, end = os.pipe()  # the child holds the other end for as long as it lives
    if (pid := os.fork()) == 0:
        connection.close()
        _live(life)
    os.close(end)
    if connection in wait([connection, ended]):
        os.kill(pid, signal.SIGKILL)  # it is our child and not yet buried: the id is its own
    _, status = os.waitpid(pid, 0)
    connection.send(os.waitstatus_to_exitcode(status))


def _live(life: Life) -> None:
    """Never returns: what is above on the stack belongs to the nursery."""
    exitcode = 1
    try:
        life()
        exitcode = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exitcode)


if __name__ == "__main__":
    main(*sys.argv[1:])
