"""Virtual environments for packages that must not meet: each its own, made when first needed and kept.

An environment's folder holds `installed.txt`, the packages as pip was given them. It is written last, so that one
whose making was interrupted is made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

INSTALL_SECONDS_MAX: Final = 600.0  # a minute or two on a slow line


class NotInstalled(Exception):
    """The text says why."""


def cache_folder(name: str) -> Path:
    """Kept between runs, as an install takes minutes."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "semel" / name


def python_with(packages: Sequence[str], home: Path) -> Path:
    """The Python of the environment in `home`, made if these packages are not in it. Raises `NotInstalled`."""
    ready, wanted = home / "installed.txt", "\n".join(packages)
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        _install(packages, home)
        ready.write_text(wanted, encoding="utf-8")
    return home / "bin" / "python"


def _install(packages: Sequence[str], home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(home)], [*pip, *packages]):
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
            raise NotInstalled(f"could not be installed: {problem}") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["pip said nothing"]
            raise NotInstalled(f"could not be installed: {said[-1][:300]}")
