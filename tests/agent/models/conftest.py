"""A provider on loopback, and models of every dialect and colour that talk to it through the real SDKs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from dialects import DIALECTS, Dialect, Face
from model_server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    provider = ModelServer()
    provider.judges = {dialect.path: dialect.problem for dialect in DIALECTS}
    with provider.running():
        yield provider


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(server: ModelServer) -> Iterator[Callable[..., Face]]:
    """Models that talk to the server."""
    with ExitStack() as stack:

        def made(dialect: Dialect, colour: str = "sync", **options: Any) -> Face:
            runner = stack.enter_context(asyncio.Runner()) if colour == "async" else None
            # The SDK's default of two retries stays on: that one request arrives is the model's doing.
            client = dialect.client(colour, server.url)
            model = dialect.classes[colour]("scripted", client=client, **{**dialect.required, **options})
            face = Face(model, client, runner)
            stack.callback(face.close)
            return face

        yield made


@pytest.fixture
def model(make: Callable[..., Face], dialect: Dialect, colour: str) -> Face:
    return make(dialect, colour)
