"""Running something awaitable to its end from sync code."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any


def run_to_end(awaitable: Awaitable[Any]) -> Any:
    """In this thread; in one of its own if a loop is already running here."""
    import asyncio  # slow to import, only for async callers
    from concurrent.futures import ThreadPoolExecutor

    async def wait() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, wait()).result()
