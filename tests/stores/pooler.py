"""PgBouncer in transaction mode: each transaction of a client runs in whatever session is free.

Two server sessions for all clients, so that what is left in a session is found by somebody else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from semel.testing.postgres_server import ORDINARY_USER, free_port

STARTS_WITHIN_SECONDS = 20


class Pooler:
    def __init__(self, server_url: str) -> None:
        program = find_pooler()
        place = urlsplit(server_url)
        self.port = free_port()
        self._user = place.username or "postgres"
        self._folder = Path(tempfile.mkdtemp(prefix="semel-pgbouncer-", dir="/tmp"))
        password = f" password={place.password}" if place.password else ""
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host={place.hostname} port={place.port or 5432} user={self._user}{password}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\nserver_lifetime = 60\n"
        )
        as_user = ["-u", ORDINARY_USER] if os.geteuid() == 0 else []
        self._folder.chmod(0o755)
        self._process = subprocess.Popen(
            [program, *as_user, settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until_ready()

    def url_of(self, database_url: str) -> str:
        """The same database, through the pooler."""
        return urlsplit(database_url)._replace(netloc=f"{self._user}@127.0.0.1:{self.port}").geturl()

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        ends_at = time.monotonic() + STARTS_WITHIN_SECONDS
        while True:
            try:
                psycopg.connect(self.url_of("postgresql://x/postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, "pgbouncer ended"
                assert time.monotonic() < ends_at, "pgbouncer does not answer"
                time.sleep(0.02)  # the pause between two polls


def find_pooler() -> str:
    """PgBouncer, installed from Debian's packages if it can be; else the test is skipped, and says so."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = "apt-get update -qq; apt-get install -y -qq --no-install-recommends pgbouncer"
        subprocess.run(["sh", "-c", command], check=False, capture_output=True, timeout=100)
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("NOT TESTED BEHIND A POOLER: pgbouncer is not installed and could not be")
    return program
