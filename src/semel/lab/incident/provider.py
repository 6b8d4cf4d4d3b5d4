"""What the incident's tools act on, and the person on call: in the lab's process, behind HTTP, with its own ledger.

It speaks the part of the world's language that an agent needs, so that `client.World` is its client.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from semel.lab.incident.plan import Nature, intent, of_tool
from semel.lab.wire import Arguments, Ask, Effect


@dataclass(slots=True)
class Books:
    """One cell: what happened, and what a person was asked."""

    effects: list[Effect] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def perform(self, tool: str, arguments: Arguments, key: str | None) -> dict[str, Any]:
        nature = of_tool(tool).nature
        if nature is Nature.READS:
            return {"status": "read"}
        if nature is Nature.KEYED and key is not None and key in self.answers:
            return self.answers[key]
        effect = Effect(
            sequence=len(self.effects) + 1,
            tool=tool,
            intent=intent(tool, arguments),
            arguments=arguments,
            key=key,
        )
        self.effects.append(effect)
        answer = {"id": f"{tool}_{effect.sequence}", "status": "done"}
        if key is not None:
            self.answers[key] = answer
        return answer

    def ask(self, tool: str, arguments: Arguments) -> Effect | None:
        """A person looks into the books, and it is written down that they were asked."""
        meant = intent(tool, arguments)
        found = next((effect for effect in self.effects if effect.intent == meant), None)
        self.asks.append(Ask(tool=tool, reference=None, found=found is not None))
        return found


class Provider(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self._books: dict[str, Books] = {}
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def books(self, cell_id: str) -> Books:
        with self._lock:
            return self._books.setdefault(cell_id, Books())

    def answer(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        _, _, cell_id, part, *rest = path.split("/")
        books = self.books(cell_id)
        with self._lock:
            if part == "person":
                found = books.ask(body["tool"], body["arguments"])
                return {"effect": None if found is None else found.to_json()}
            return books.perform(rest[0], body["arguments"], key)

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed drops its connection: that is the lab at work, not an error."""


@contextmanager
def serving() -> Iterator[Provider]:
    with Provider() as provider:
        thread = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield provider
        finally:
            provider.shutdown()
            thread.join()


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Provider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        payload = json.dumps(
            self.server.answer(self.path, body, self.headers.get("Idempotency-Key"))
        ).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  named so by http.server
        """Silent: the ledger says it better."""
