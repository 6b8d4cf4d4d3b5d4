"""What the tests of the core share: a provider with a ledger of its own, tools on it, processes that really die.

The ledger is a file that every process appends whole lines to, so it survives any kill; what stands in it
happened, whatever the guard's record says.
"""

from __future__ import annotations

import asyncio
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import semel
from semel.engine.tool import Tool
from semel.ports import no_checkpoint

NO_TIME = timedelta(0)
PATIENCE_SECONDS = 20.0  # far above anything seen; a test that passes it waits for what never comes
ENGINES = ("sync", "async")
WINDOWS = ("claiming", "claimed", "effect_done", "completed")

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "asyncio", "semel.stores.sqlite.store", "semel.engine.aio"])


# ------------------------------------------------------------------ the provider


class Ledger:
    """The provider's own list of what was done, one line a request that took effect."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.jsonl"

    def enter(self, tool: str, key: str = "", **details: Any) -> None:
        line = json.dumps({"tool": tool, "key": key, "pid": os.getpid()} | details) + "\n"
        file = os.open(self._path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def lines(self, tool: str | None = None) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        entries = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [entry for entry in entries if tool in (None, entry["tool"])]

    def keys(self, tool: str | None = None) -> list[str]:
        return [entry["key"] for entry in self.lines(tool)]

    def find(self, call: semel.Call) -> semel.Evidence:
        """An honest lookup without lag."""
        if call.key in self.keys(call.tool):
            return semel.Found(f"{call.tool} found", key=call.key)
        return semel.Absent()


# ------------------------------------------------------------------ tools in both colours

Hook = Callable[[semel.Call], None]


def nothing(call: semel.Call) -> None:
    """Neither before nor after."""


def as_async(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return awaited


def register(guard: semel.Guard, engine: str, fn: Callable[..., Any], **options: Any) -> Tool:
    is_plain = engine == "sync" or isinstance(options["effect"], semel.Atomic)
    return guard.tool(**options)(fn if is_plain else as_async(fn))


def call(guard: semel.Guard, engine: str, run_id: str, tool: Tool, **arguments: Any) -> Any:
    """The first call of the run."""
    if engine == "sync":
        with guard.run(run_id) as run:
            return run.call(tool, **arguments)

    async def enter() -> Any:
        async with guard.run(run_id) as run:
            return await run.call(tool, **arguments)

    return asyncio.run(enter())


class Desk:
    """One process's guard on the database in a folder, with a tool of each kind that writes to the ledger.

    `charge` goes to a provider that honours keys: one key, one effect, however many lines.
    `mail` can be looked up, without lag. `letter` cannot. `grant` is atomic and counts in the database.
    """

    def __init__(
        self,
        folder: Path,
        engine: str = "sync",
        *,
        before: Hook = nothing,
        after: Hook = nothing,
        **options: Any,
    ) -> None:
        """`before` and `after`: what else the tools that write to the ledger do, around doing it."""
        self.ledger = Ledger(folder)
        self.engine = engine
        self._before, self._after = before, after
        options.setdefault("wait", NO_TIME)
        options.setdefault("checkpoint", no_checkpoint)
        self.guard = semel.open(f"sqlite:///{folder}/agent.db", **options)
        honest = semel.Unsafe(lookup=self.ledger.find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
        kinds: dict[str, Any] = {
            "charge": semel.Idempotent(key_ttl=timedelta(days=1)),
            "mail": honest,
            "letter": semel.Unsafe(request_deadline=NO_TIME),
        }
        self.tools = {name: self._register(name, effect) for name, effect in kinds.items()}
        self.tools["grant"] = register(self.guard, engine, grant, effect=semel.Atomic())

    def _register(self, name: str, effect: Any) -> Tool:
        def tool(to: str = "ann", *, call: semel.Call) -> str:
            self._before(call)
            self.ledger.enter(name, call.key, to=to)
            self._after(call)
            return f"{name} done"

        return register(self.guard, self.engine, tool, effect=effect, name=name)

    def call(self, name: str, run_id: str = "run", **arguments: Any) -> Any:
        return call(self.guard, self.engine, run_id, self.tools[name], **arguments)

    def effects(self, name: str) -> int:
        """How often it really happened."""
        if name == "grant":
            with self.guard.store.transaction() as transaction:
                transaction.handle.execute("CREATE TABLE IF NOT EXISTS grants (customer TEXT)")
                (count,) = transaction.handle.execute("SELECT count(*) FROM grants").fetchone()
                return int(count)
        keys = self.ledger.keys(name)
        return len(set(keys)) if name == "charge" else len(keys)

    def operation(self, run_id: str = "run") -> semel.Operation:
        (operation,) = self.guard.store.read_run(self.guard.namespace, run_id)
        return operation


def grant(to: str = "ann", *, tx: Any) -> str:
    tx.execute("CREATE TABLE IF NOT EXISTS grants (customer TEXT)")
    tx.execute("INSERT INTO grants VALUES (?)", (to,))
    return "grant done"


# ------------------------------------------------------------------ processes


def kill_at(place: str, *, nth: int = 1) -> Callable[[str, str], None]:
    """A checkpoint at which the process ends its own life by SIGKILL, the nth time it comes there."""
    seen = 0

    def checkpoint(here: str, key: str) -> None:
        nonlocal seen
        seen += here == place
        if here == place and seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return checkpoint


class Child:
    """A process of its own that runs one function of a test module. None outlives its test."""

    started: ClassVar[list[Child]] = []

    def __init__(self, fn: Callable[..., Any], *args: Any) -> None:
        self._reader, writer = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=_live, args=(writer, fn, args), daemon=True)
        self._process.start()
        writer.close()
        Child.started.append(self)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def result(self) -> Any:
        """What the function returned; what it raised is raised here."""
        assert self._reader.poll(PATIENCE_SECONDS), "the child said nothing"
        is_error, value = self._reader.recv()
        self._process.join(PATIENCE_SECONDS)
        if is_error:
            raise value
        return value

    def assert_killed(self) -> None:
        self._process.join(PATIENCE_SECONDS)
        assert self._process.exitcode == -signal.SIGKILL, "the window was never reached"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.assert_killed()

    @classmethod
    def end_all(cls) -> None:
        while cls.started:
            child = cls.started.pop()
            child._process.kill()  # nothing, if it has ended
            child._process.join(PATIENCE_SECONDS)
            child._process.close()

    def wait_until_stopped(self) -> None:
        wait_until(lambda: _process_state(self.pid) == "T")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def kill(fn: Callable[..., Any], *args: Any) -> None:
    """Run in a child, which must die by SIGKILL."""
    Child(fn, *args).assert_killed()


def stop_myself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_until(is_so: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Bounded polling, for what no pipe can tell."""
    ends_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends_at, "it never came to be so"
        time.sleep(0.002)


def _process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _live(writer: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        said = (False, fn(*args))
    except BaseException as error:
        said = (True, error)
    writer.send(said)
    writer.close()


def run_program(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints when it runs this; it must end well."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
