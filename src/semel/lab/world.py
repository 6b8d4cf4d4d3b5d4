"""Everything outside the agent, as one process of its own: provider, model and person, over HTTP.

A process of its own, so that what it knows survives the agent's death and an effect is what the provider
saw. Every cell has its own namespace, begun by `PUT /cells/<id>` with its `Settings`:

    POST /cells/<id>/model             {messages}               the next turn
    POST /cells/<id>/provider/<tool>   {arguments, reference}   the effect; headers Idempotency-Key, Lands-By
    GET  /cells/<id>/provider/<tool>?reference=…                the lookup, where the provider has one
    POST /cells/<id>/person            {tool, reference, arguments}   looks into the books; recorded
    GET  /cells/<id>/ledger            the real effects         for the oracle
    GET  /cells/<id>/counters          what was asked of whom   for the oracle
    POST /cells/<id>/release           held requests land now   for the lab
    POST /cells/<id>/catch-up          the lookup lags no more  for the lab

The process ends when its standard input closes, so it cannot outlive the lab that started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from semel.lab.provider import NoReply, Provider, Reply, Request, struck
from semel.lab.scenario import PLANS, BadArguments, turn_asked_for
from semel.lab.scripted_model import ScriptedModel
from semel.lab.wire import Ask, Counters, Effect, Part, Settings

STOP_SECONDS_MAX: Final = 5.0


@contextmanager
def running() -> Iterator[str]:
    """Start a world; yield its address, `host:port`; end it."""
    command = [sys.executable, "-m", "semel.lab.world"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError("the world did not start; its error is above")
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.stdin.close()
            _see_it_end(process)


def _see_it_end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()


def serve() -> None:
    """The world's own process: print the port, answer until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the lab, which then closes our input
    server = _Server(("127.0.0.1", 0), _Connection)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)  # threads may sit in open connections; nothing here is worth flushing


@dataclass(slots=True)
class Scene:
    """What surrounds the agent in one cell."""

    provider: Provider
    model: ScriptedModel
    asks: list[Ask] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """An HTTP request, taken apart."""

    method: str
    cell_id: str
    part: str  # model, provider, person, …; empty: the cell itself
    tool: str
    query: Mapping[str, list[str]]
    key: str | None
    lands_by: float | None
    body: Mapping[str, Any]


Route: TypeAlias = Callable[[Scene, Incoming], Reply | NoReply]


def _model(scene: Scene, incoming: Incoming) -> Reply | NoReply:
    messages = incoming.body["messages"]
    fault = scene.provider.next_strike(Part.MODEL, f"turn {turn_asked_for(messages)}")
    return struck(_ok(scene.model.next_turn(messages).to_json()), fault)


def _effect(scene: Scene, incoming: Incoming) -> Reply | NoReply:
    request = Request(
        tool=incoming.tool,
        arguments=incoming.body["arguments"],
        key=incoming.key,
        reference=incoming.body.get("reference"),
        lands_by=incoming.lands_by,
    )
    return scene.provider.receive(request)


def _lookup(scene: Scene, incoming: Incoming) -> Reply | NoReply:
    if not scene.provider.can_be_asked:
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, "no such thing: this provider has no lookup")
    found = _all(scene.provider.find(incoming.tool, incoming.query["reference"][0]))
    return struck(_ok(found), scene.provider.next_strike(Part.LOOKUP, incoming.tool))


def _person(scene: Scene, incoming: Incoming) -> Reply:
    tool, reference = incoming.body["tool"], incoming.body.get("reference")
    effect = scene.provider.in_the_books(tool, reference, incoming.body.get("arguments"))
    scene.asks.append(Ask(tool=tool, reference=reference, found=effect is not None))
    return _ok(_found(effect))


def _ledger(scene: Scene, incoming: Incoming) -> Reply:
    return _ok(_all(scene.provider.effects()))


def _counters(scene: Scene, incoming: Incoming) -> Reply:
    counters = Counters(
        requests=scene.provider.requests,
        lookups=scene.provider.lookups,
        model_calls=scene.model.calls_by_turn(),
        asks=tuple(scene.asks),
    )
    return _ok(asdict(counters))


def _release(scene: Scene, incoming: Incoming) -> Reply:
    scene.provider.release_held()
    return _ok({})


def _catch_up(scene: Scene, incoming: Incoming) -> Reply:
    scene.provider.catch_up()
    return _ok({})


def _about(scene: Scene, incoming: Incoming) -> Reply:
    return _ok({"provider": scene.provider.kind})


ROUTES: Final[Mapping[tuple[str, str], Route]] = {
    ("POST", "model"): _model,
    ("POST", "provider"): _effect,
    ("GET", "provider"): _lookup,
    ("POST", "person"): _person,
    ("GET", "ledger"): _ledger,
    ("GET", "counters"): _counters,
    ("POST", "release"): _release,
    ("POST", "catch-up"): _catch_up,
    ("GET", "about"): _about,
}


def _ok(body: dict[str, Any]) -> Reply:
    return Reply(status=HTTPStatus.OK, body=body)


def _error(status: HTTPStatus, why: str) -> Reply:
    return Reply(status=status, body={"error": why})


def _found(effect: Effect | None) -> dict[str, Any]:
    return {"effect": None if effect is None else effect.to_json()}


def _all(effects: Sequence[Effect]) -> dict[str, Any]:
    return {"effects": [effect.to_json() for effect in effects]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], connection: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, connection)
        self._scenes: dict[str, Scene] = {}

    def answer(self, incoming: Incoming) -> Reply | NoReply:
        """Never raises: what goes wrong here is said to the caller."""
        try:
            return self._route(incoming)
        except BadArguments as wrong:
            return _error(HTTPStatus.UNPROCESSABLE_ENTITY, str(wrong))
        except (KeyError, TypeError, ValueError) as wrong:
            return _error(HTTPStatus.BAD_REQUEST, repr(wrong))
        except Exception:
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, traceback.format_exc())

    def _route(self, incoming: Incoming) -> Reply | NoReply:
        if (incoming.method, incoming.part) == ("PUT", ""):
            return self._begin(incoming.cell_id, Settings.from_json(incoming.body))
        scene = self._scenes.get(incoming.cell_id)
        route = ROUTES.get((incoming.method, incoming.part))
        if scene is None or route is None:
            return _error(HTTPStatus.NOT_FOUND, "no such cell" if scene is None else "no such thing")
        return route(scene, incoming)

    def _begin(self, cell_id: str, settings: Settings) -> Reply:
        if settings.plan not in PLANS:
            raise ValueError(f"no plan {settings.plan!r}; there are {sorted(PLANS)}")
        self._scenes[cell_id] = Scene(Provider(settings), ScriptedModel(cell_id, settings))
        return _ok({})

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed drops its connection: that is the lab at work, not an error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one segment
    server: _Server

    def _answer(self) -> None:
        match self.server.answer(self._incoming()):
            case Reply() as reply:
                self._send(reply)
            case NoReply():
                self.close_connection = True

    do_GET = do_POST = do_PUT = _answer  # noqa: N815  the names http.server looks for

    def _incoming(self) -> Incoming:
        url = urlsplit(self.path)
        _, _, cell_id, part, tool, *_ = [*url.path.split("/"), "", "", "", ""]
        return Incoming(
            method=self.command,
            cell_id=cell_id,
            part=part,
            tool=tool,
            query=parse_qs(url.query),
            key=self.headers.get("Idempotency-Key"),
            lands_by=_seconds(self.headers.get("Lands-By")),
            body=json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}"),
        )

    def _send(self, reply: Reply) -> None:
        if reply.delay_ms:
            time.sleep(reply.delay_ms / 1000)
        payload = json.dumps(reply.body).encode()
        for _ in range(reply.copies):
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  named so by http.server
        """Silent: the ledger and the counters say it better."""


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


if __name__ == "__main__":
    serve()
