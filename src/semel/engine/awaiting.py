"""Running what is awaitable to its end from sync code, and what is plain in a thread from async code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(what: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """In a thread of its own, to its end: for whatever runs code that is not ours.

    No future takes a `StopIteration`, and whoever awaited it would wait for ever: it is told as it would be if it
    left a coroutine.
    """
    import asyncio  # slow to import, only for async callers

    def told() -> T:
        try:
            return what(*args, **kwargs)
        except StopIteration as stop:
            raise RuntimeError(f"{type(stop).__name__} was raised: {stop}") from stop

    return await asyncio.to_thread(told)


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
