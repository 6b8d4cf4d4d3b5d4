"""A peer's own virtual environment, and its process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from semel.bench.peer_kinds import PeerKind
from semel.bench.places import Unavailable
from semel.testing.environments import NotInstalled, cache_folder, python_with

SCRIPTS: Final = Path(__file__).parent / "peers"
ANSWER_SECONDS_MAX: Final = 120.0  # far above anything seen; a peer that passes it hangs


def default_folder() -> Path:
    """Kept between runs, as an install takes minutes."""
    return cache_folder("bench-peers")


def interpreter_of(kind: PeerKind, folder: Path) -> Path:
    """Its environment's Python, made if it is not there. Raises `Unavailable`."""
    try:
        return python_with(kind.packages, folder / kind.environment)
    except NotInstalled as problem:
        raise Unavailable(str(problem)) from None


class PeerProcess:
    """Started, and asked line by line; see `semel.bench.peers.protocol`. Ended with all it has started."""

    def __init__(self, command: Sequence[str | Path], options: dict[str, Any], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=options["folder"],
                start_new_session=True,  # so that it can be ended as a group
            )
        try:
            found = self.ask(**options)
        except BaseException:
            self.close()
            raise
        self.version: str = found["version"]
        self.setting: str = found["setting"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Raises `Unavailable` with what the peer said of itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        too_late = threading.Timer(ANSWER_SECONDS_MAX, self._kill)
        too_late.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            too_late.cancel()
        if not line:
            raise Unavailable(f"it ended without an answer: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "cannot" in answer:
            raise Unavailable(str(answer["cannot"]))
        return answer

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"
