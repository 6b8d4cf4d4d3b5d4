"""The recording provider as a process of its own, so that what it saw survives whatever is killed.

    http://127.0.0.1:PORT/CELL/any/path     a tool's endpoint (see `recorder`)
    /-/CELL                                 for the lab: PUT begins a run, GET gives its record
    /-/CELL/arm, /-/CELL/returned           for the lab's part of the program's process

It is the provider that sends SIGKILL, while the request is in its hands: no race with the answer. The process
ends when its standard input closes, so it cannot outlive the lab that started it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from semel.lab.model import ProviderKind, Window
from semel.lab.own.recorder import Answer, Armed, NoReply, Recorder, Reply, Request, Silence, Strike

CONTROL: Final = "-"
FORM: Final = "application/x-www-form-urlencoded"
STOP_SECONDS_MAX: Final = 5.0
CONTROL_SECONDS_MAX: Final = 30.0
SILENCE_SECONDS_MAX: Final = 60.0  # a caller that does not hang up by then has no time limit at all


@dataclass(frozen=True, slots=True)
class Provider:
    """The running provider, as the lab and the lab's part of a child speak to it. Pickles."""

    address: str  # host:port

    def url(self, cell: str) -> str:
        return f"http://{self.address}/{cell}"

    def begin(self, cell: str, kind: ProviderKind, *, is_silent: bool = False) -> None:
        self._say("PUT", f"/{CONTROL}/{cell}", {"kind": kind, "is_silent": is_silent})

    def arm(self, cell: str, window: Window, passing: int) -> None:
        """Kill this very process at the given gap."""
        self._say(
            "POST", f"/{CONTROL}/{cell}/arm", {"window": window, "passing": passing, "pid": os.getpid()}
        )

    def returned(self, cell: str) -> None:
        self._say("POST", f"/{CONTROL}/{cell}/returned", {})

    def record(self, cell: str) -> dict[str, Any]:
        return self._say("GET", f"/{CONTROL}/{cell}", None)

    def _say(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=CONTROL_SECONDS_MAX)
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode())
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            raise RuntimeError(f"the lab's provider: {text.decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(text)
        return answer


@contextmanager
def running() -> Iterator[Provider]:
    """Start a provider; end it."""
    command = [sys.executable, "-m", "semel.lab.own.provider"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError("the lab's provider did not start; its error is above")
        try:
            yield Provider(f"127.0.0.1:{port}")
        finally:
            process.stdin.close()
            _see_it_end(process)


def _see_it_end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()


# ---- in the provider's own process


def serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the lab, which then closes our input
    server = _Server(("127.0.0.1", 0), _Connection)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)  # threads may sit in open connections; nothing here is worth flushing


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], connection: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, connection)
        self._runs: dict[str, Recorder] = {}

    def answer(self, request: Request) -> Answer:
        """Never raises: what goes wrong here is said to the caller."""
        try:
            return self._route(request)
        except (KeyError, TypeError, ValueError) as wrong:
            return Reply(status=HTTPStatus.BAD_REQUEST, body={"error": repr(wrong)})
        except Exception:
            return Reply(status=HTTPStatus.INTERNAL_SERVER_ERROR, body={"error": traceback.format_exc()})

    def _route(self, request: Request) -> Answer:
        first, _, rest = request.path.strip("/").partition("/")
        if first == CONTROL:
            return self._control(request, *rest.split("/"))
        run = self._runs.get(first)
        if run is None:
            return Reply(
                status=HTTPStatus.NOT_FOUND, body={"error": f"no run of the lab is called {first!r}"}
            )
        return run.receive(_at(request, f"/{rest}"))

    def _control(self, request: Request, cell: str, what: str = "") -> Reply:
        given = request.fields
        match request.method, what:
            case "PUT", "":
                self._runs[cell] = Recorder(ProviderKind(given["kind"]), is_silent=given["is_silent"])
            case "GET", "":
                return Reply(status=HTTPStatus.OK, body=self._runs[cell].record())
            case "POST", "arm":
                strike = killer_of(given["pid"])
                armed = Armed(window=Window(given["window"]), passing=given["passing"], strike=strike)
                self._runs[cell].arm(armed)
            case "POST", "returned":
                self._runs[cell].returned()
            case _:
                raise ValueError(f"the lab says nothing like {request.method} {what}")
        return Reply(status=HTTPStatus.OK, body={})

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed drops its connection: that is the lab at work, not an error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


def killer_of(pid: int) -> Strike:
    """A strike at this very process: by a handle where the system has them, so a reused id is never hit."""
    if not hasattr(os, "pidfd_open"):
        return lambda: os.kill(pid, signal.SIGKILL)
    handle = os.pidfd_open(pid)

    def strike() -> None:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)

    return strike


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one segment
    server: _Server

    def _answer(self) -> None:
        match self.server.answer(self._incoming()):
            case Reply(status=status, body=body):
                self._send(status, json.dumps(body).encode())
            case NoReply():
                self.close_connection = True
            case Silence():
                self._wait_until_it_hangs_up()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  as http.server has it

    def _incoming(self) -> Request:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return Request(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            key=self.headers.get("Idempotency-Key"),
            fields=fields_of(body, self.headers.get_content_type()),
        )

    def _send(self, status: HTTPStatus, payload: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _wait_until_it_hangs_up(self) -> None:
        self.close_connection = True
        self.connection.settimeout(SILENCE_SECONDS_MAX)
        with suppress(OSError):
            self.connection.recv(1)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  named so by http.server
        """Silent: the record says it better."""


def fields_of(body: bytes, content_type: str) -> dict[str, Any]:
    """What was sent, by name: a JSON object or a form; anything else is one field, `body`."""
    if not body:
        return {}
    text = body.decode(errors="replace")
    try:
        parsed = json.loads(text)  # first: urllib calls whatever it posts a form
    except ValueError:
        form = dict(parse_qsl(text)) if content_type == FORM else {}
        return form or {"body": text}
    return parsed if isinstance(parsed, dict) else {"body": parsed}


def _at(request: Request, path: str) -> Request:
    return Request(
        method=request.method, path=path, query=request.query, key=request.key, fields=request.fields
    )


if __name__ == "__main__":
    serve()
