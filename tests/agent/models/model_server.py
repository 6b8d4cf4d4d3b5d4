"""A model provider on loopback: answers from a list, keeps every request, and is as strict as the real ones.

It is its own judge of a request: calls and results must pair under ids that are there once in the transcript,
and arguments must be JSON. What it would not take it answers with a 400, and no answer is used up.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Judge = Callable[[Mapping[str, Any]], str | None]  # what is wrong with a request, if anything


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer: a body, or the events of a stream.

    `drop`: the connection breaks once all this was sent; otherwise the answer ends as HTTP wants it.
    `hold`: nothing is sent before the server stops.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    events: Sequence[bytes] | None = None
    drop: bool = False
    hold: bool = False


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is what some tests are about; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class ModelServer:
    """`requests` holds all that arrived, the refused ones too."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.judges: dict[str, Judge] = {}
        self._answers: deque[Callable[[bool], Answer]] = deque()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._http = _Http(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def will_answer(self, *answers: Answer | Callable[[bool], Answer]) -> None:
        """What is said next. A function is told whether a stream was asked for."""
        for answer in answers:
            self._answers.append(answer if callable(answer) else lambda _, fixed=answer: fixed)

    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    @contextmanager
    def running(self) -> Iterator[ModelServer]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.stop_listening()
            thread.join()

    def stop_listening(self) -> None:
        """Whoever connects from now on is refused."""
        self._stopped.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            judge = self.judges.get(request.path)
            problem = judge(request.body) if judge is not None else f"nothing is at {request.path}"
            if problem is not None:
                return Answer(
                    status=400, body={"error": {"type": "invalid_request_error", "message": problem}}
                )
            if not self._answers:
                return Answer(status=400, body={"error": {"message": "the server was asked once too often"}})
            return self._answers.popleft()(bool(request.body.get("stream")))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = server.answer(Request(self.path, dict(self.headers), body))
                if answer.hold:
                    server._stopped.wait()
                if answer.events is None:
                    self._say(answer)
                else:
                    self._stream(answer)
                if answer.drop:
                    self.close_connection = True

            def _say(self, answer: Answer) -> None:
                text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
                kind = "text/html" if isinstance(answer.body, str) else "application/json"
                self._begin(answer, {"content-type": kind, "content-length": str(len(text.encode()))})
                self.wfile.write(text.encode()[:-1] if answer.drop else text.encode())

            def _stream(self, answer: Answer) -> None:
                self._begin(answer, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
                for event in answer.events or ():
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
                    self.wfile.flush()
                if not answer.drop:
                    self.wfile.write(b"0\r\n\r\n")

            def _begin(self, answer: Answer, headers: Mapping[str, str]) -> None:
                self.send_response(answer.status)
                for name, value in {**headers, **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """The tests say what they saw."""

        return Handler


def unpaired(calls: Sequence[str], results: Sequence[str]) -> str | None:
    """What is wrong with a turn's ids and those of its results, together with all before them."""
    if problem := next((f"a call has the id {i!r}" for i in calls if not isinstance(i, str) or not i), None):
        return problem
    if repeated := [name for name, times in Counter(calls).items() if times > 1]:
        return f"ids are not unique: {repeated}"
    if list(calls) != list(results):
        return f"calls {list(calls)} are answered by results for {list(results)}"
    return None
