"""A peer's own virtual environment, and its process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from semel.bench.peer_kinds import PeerKind
from semel.bench.places import Unavailable

SCRIPTS: Final = Path(__file__).parent / "peers"
INSTALL_SECONDS_MAX: Final = 600.0  # a minute or two on a slow line
ANSWER_SECONDS_MAX: Final = 120.0  # far above anything seen; a peer that passes it hangs


def default_folder() -> Path:
    """Kept between runs, as an install takes minutes."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "semel" / "bench-peers"


def interpreter_of(kind: PeerKind, folder: Path) -> Path:
    """Its environment's Python, made if it is not there. Raises `Unavailable`."""
    home = folder / kind.environment
    ready, wanted = home / "installed.txt", "\n".join(kind.packages)
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        _install(kind, home)
        ready.write_text(wanted, encoding="utf-8")
    return home / "bin" / "python"


def _install(kind: PeerKind, home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(home)], [*pip, *kind.packages]):
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=INSTALL_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Unavailable(f"could not be installed: {problem}") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["pip said nothing"]
            raise Unavailable(f"could not be installed: {said[-1][:300]}")


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
