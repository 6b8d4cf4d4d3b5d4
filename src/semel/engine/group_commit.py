"""Callers in flight at the same time share one flush.

Whoever gets the turn writes everything that has queued up meanwhile in one transaction; the others find
their write done. A lone sync caller writes in its own thread, without a hop; an async caller hands over to
one writer thread, so that the loop never waits for a disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from semel.errors import CommitInDoubt, StoreError, StoreUnavailable, WriteRefused
from semel.model import Write
from semel.ports import Outcome

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

BATCH_MAX: Final = 256  # writes a transaction: past this a flush is no longer the cost

Apply = Callable[[Sequence[Write]], list[Outcome]]


class Ticket:
    """One write on its way: where its outcome or its error arrives."""

    __slots__ = ("error", "future", "is_done", "outcome", "write")

    def __init__(self, write: Write, future: asyncio.Future[Outcome] | None = None) -> None:
        self.write = write
        self.future = future
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.is_done = False

    def result(self) -> Outcome:
        if self.error is not None:
            raise self.error
        assert self.outcome is not None, "a ticket is read only once it is done"
        return self.outcome


class GroupCommit:
    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._writer: ThreadPoolExecutor | None = None
        self._is_writer_called = False

    def submit(self, write: Write) -> Outcome:
        """Write, alone or with whoever else is waiting. Raises what the store raises."""
        if not self._waiting and self._turn.acquire(blocking=False):
            try:
                return _written_alone(self._apply, write)
            finally:
                self._turn.release()
        ticket = Ticket(write)
        self._waiting.append(ticket)
        with self._turn:
            while not ticket.is_done:  # ends: each round takes at least one ticket, ours among them in turn
                self._write_some()
        return ticket.result()

    def enqueue(
        self,
        write: Write,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Outcome] | None = None,
    ) -> asyncio.Future[Outcome]:
        """Queue the write at once, before any other task of the loop runs; the future tells the outcome."""
        if future is None:
            future = loop.create_future()
        ticket = Ticket(write, future)
        self._waiting.append(ticket)
        if not self._is_writer_called:  # one that is called, and has not begun, will find this write, too
            self._call_writer(ticket)
        return future

    def close(self) -> None:
        if self._writer is not None:
            self._writer.shutdown(wait=True)
            self._writer = None

    def _writer_thread(self) -> ThreadPoolExecutor:
        with self._starting:
            if self._writer is None:
                from concurrent.futures import ThreadPoolExecutor  # slow to import, only for async callers

                self._writer = ThreadPoolExecutor(1, thread_name_prefix="semel-writer")
            return self._writer

    def _call_writer(self, ticket: Ticket) -> None:
        self._is_writer_called = True
        try:
            self._writer_thread().submit(self._write_all)
        except RuntimeError as problem:  # closed, or no thread to be had
            self._is_writer_called = False
            self._waiting.remove(ticket)
            raise StoreUnavailable(
                f"The store takes no writes: {problem}. Nothing was recorded."
            ) from problem

    def _write_all(self) -> None:
        with self._turn:
            self._is_writer_called = False  # before looking: whoever queues later calls again
            while self._waiting:
                self._write_some()

    def _write_some(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
        try:
            _write(self._apply, batch)
        except StoreError as problem:
            if isinstance(problem, WriteRefused) and len(batch) > 1:
                _write_each_alone(self._apply, batch)
            else:
                for ticket in batch:
                    ticket.error = problem
        except Exception:
            _write_each_alone(self._apply, batch)
        except BaseException:  # the leader alone was interrupted; the others must not die of it
            for ticket in batch:
                ticket.error = CommitInDoubt("The writing thread was interrupted; perhaps it is recorded.")
            raise
        finally:
            for ticket in batch:
                ticket.is_done = True
            _tell_loops(batch)


def _write(apply: Apply, batch: Sequence[Ticket]) -> None:
    for ticket, outcome in zip(batch, apply([ticket.write for ticket in batch]), strict=True):
        ticket.outcome = outcome


def _write_each_alone(apply: Apply, batch: Sequence[Ticket]) -> None:
    """One write that can never be stored must not take the others with it."""
    for ticket in batch:
        try:
            ticket.outcome = _written_alone(apply, ticket.write)
        except StoreError as problem:
            ticket.error = problem


def _written_alone(apply: Apply, write: Write) -> Outcome:
    try:
        (outcome,) = apply([write])
    except StoreError:
        raise
    except Exception as problem:
        raise WriteRefused(f"The store cannot hold this: {problem}. Nothing was recorded.") from problem
    return outcome


def _tell_loops(batch: Sequence[Ticket]) -> None:
    """One wake-up a loop, however many of its tasks wait."""
    by_loop: dict[Any, list[Ticket]] = {}
    for ticket in batch:
        if ticket.future is not None:
            by_loop.setdefault(ticket.future.get_loop(), []).append(ticket)
    for loop, tickets in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_futures, tickets)
        except RuntimeError:
            continue  # the loop was closed meanwhile; the write stands


def _settle_futures(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        future = ticket.future
        if future is None or future.done():
            continue
        if ticket.error is not None:
            future.set_exception(ticket.error)
        elif ticket.outcome is not None:
            future.set_result(ticket.outcome)
