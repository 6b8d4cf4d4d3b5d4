"""The workbench of the core's tests (processes that really die, a ledger they cannot forge) serves here too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "core"))

from bureau import COLOURS, Bureau
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


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bureau(tmp_path: Path, colour: str) -> Iterator[Callable[..., Bureau]]:
    """Bureaus on the test's own folder, as another process would open them."""
    with ExitStack() as stack:

        def opened(**options: Any) -> Bureau:
            made = Bureau(tmp_path, colour, **options)
            stack.callback(made.guard.close)
            return made

        yield opened
