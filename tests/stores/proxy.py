"""A small TCP proxy in front of PostgreSQL that can be told when to cut the wire.

It runs in threads of the test's own process. Cutting "with the answer" means: the request was forwarded whole,
the server has answered it, and the answer is dropped with both connections; so what was asked for is done.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

CHUNK = 1 << 16


class Proxy:
    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._lock = threading.Lock()
        self._marker: bytes | None = None
        self._open: set[socket.socket] = set()
        self.cuts = 0
        self.last_request = b""
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])

    def cut_with_the_answer_to(self, marker: bytes) -> None:
        """Once: the next request that contains these bytes."""
        with self._lock:
            self._marker = marker

    def refuse(self) -> None:
        """As if the server were gone: nothing listens, and what was connected is cut."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _close(connection)
            self._open.clear()

    def accept(self) -> None:
        self._listener = self._listen(self.port)

    def close(self) -> None:
        self.refuse()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept_from, args=(listener,), daemon=True).start()
        return listener

    def _accept_from(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:  # ends when the listener is closed
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to_port))
                with self._lock:
                    self._open |= {client, server}
                wire = _Wire(self, client, server)
                threading.Thread(target=wire.carry_requests, daemon=True).start()
                threading.Thread(target=wire.carry_answers, daemon=True).start()

    def takes_the_marker(self, request: bytes) -> bool:
        with self._lock:
            self.last_request = request
            if self._marker is None or self._marker not in request:
                return False
            self._marker = None
            self.cuts += 1
            return True


class _Wire:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._is_doomed = False

    def carry_requests(self) -> None:
        with suppress(OSError):
            while request := self._client.recv(CHUNK):
                if self._proxy.takes_the_marker(request):
                    self._is_doomed = True
                self._server.sendall(request)
        _close(self._server)

    def carry_answers(self) -> None:
        with suppress(OSError):
            while answer := self._server.recv(CHUNK):
                if self._is_doomed:
                    break
                self._client.sendall(answer)
        _close(self._client)
        _close(self._server)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
