"""One real world process for a module's tests; a cell of its own for each test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from semel.lab import world
from semel.lab.client import World
from semel.lab.wire import Settings


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with world.running() as address:
        yield address


@pytest.fixture
def begin(address: str, request: pytest.FixtureRequest) -> Callable[[Settings], World]:
    """Begin the test's own cell with these settings."""

    def begin(settings: Settings) -> World:
        cell = World(address=address, cell_id=re.sub(r"[^\w-]+", "-", request.node.name))
        cell.prepare(settings)
        return cell

    return begin
