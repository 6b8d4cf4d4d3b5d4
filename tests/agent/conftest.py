"""The workbench of the core's tests (processes that really die, a ledger they cannot forge) serves here too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "core"))

from office import Office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Callable[..., Office]]:
    """Offices on the test's own folder (or another), as another process would open them."""
    with ExitStack() as stack:

        def opened(folder: Path = tmp_path, **options: Any) -> Office:
            folder.mkdir(exist_ok=True)
            made = Office(folder, **options)
            stack.callback(made.guard.close)
            return made

        yield opened
