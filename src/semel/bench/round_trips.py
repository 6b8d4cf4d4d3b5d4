"""Counting round trips to a server from outside: a relay on the loopback address that notes when the client
speaks after the server has. It knows nothing of the driver, and so cannot be fooled by it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

CHUNK: Final = 1 << 16


class CountingRelay:
    """`url` leads to the same database through the relay."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()
        self.count = 0
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, name="semel-relay", daemon=True).start()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:  # ends when the listener is closed
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, server]
            threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        last = server
        with contextlib.suppress(OSError, ValueError):
            while True:  # ends when either side hangs up
                for side in select.select([client, server], [], [])[0]:
                    sent = side.recv(CHUNK)
                    if not sent:
                        client.close()
                        server.close()
                        return
                    self.count += side is client and last is server
                    last = side
                    (server if side is client else client).sendall(sent)
