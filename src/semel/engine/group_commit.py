"""Callers in flight at the same time share one flush.

Whoever has the turn writes everything that has queued up meanwhile in one transaction, wakes those whose writes
these were, and hands the turn to one that has come since. A lone sync caller writes in its own thread, without
a hop; an async caller hands over to one writer thread, so that the loop never waits for a disk.

The queue has an end. Past `QUEUE_MAX` new claims (and a model's new turns) wait for room before they are queued, a
thread by blocking, a task by awaiting; if that takes `ROOM_SECONDS_MAX`, they are told that nothing was recorded,
and so nothing is sent. Whatever says what became of an effect never waits for room, and is written first: there
is at most one such write for each effect in flight, and a claim that is let in later must not keep it from the
record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from semel.engine.room import Room
from semel.errors import CommitInDoubt, StoreError, StoreUnavailable, WriteRefused
from semel.model import Append, Event, Insert, Move, Write
from semel.ports import Outcome

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

BATCH_MAX: Final = 256  # writes a transaction: past this a flush is no longer the cost
QUEUE_MAX: Final = (
    4 * BATCH_MAX
)  # a store that works empties it in a blink; one that hangs must not fill the memory
ROOM_SECONDS_MAX: Final = 30.0  # a default lease: a claim that would wait longer is better made anew

Apply = Callable[[Sequence[Write]], list[Outcome]]


class Ticket:
    """One write on its way: where its outcome or its error arrives."""

    __slots__ = ("error", "future", "gate", "is_done", "leads", "outcome", "write")

    def __init__(self, write: Write, future: asyncio.Future[Outcome] | None = None) -> None:
        self.write = write
        self.future = future
        self.gate: threading.Lock | None = None  # closed while a thread waits for this ticket
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self.leads = False  # the turn belongs to whoever made this ticket

    def result(self) -> Outcome:
        if self.error is not None:
            raise self.error
        assert self.outcome is not None, "a ticket is read only once it is done"
        return self.outcome


class GroupCommit:
    def __init__(
        self, apply: Apply, *, queue_max: int = QUEUE_MAX, room_seconds_max: float = ROOM_SECONDS_MAX
    ) -> None:
        self._apply = apply
        self._queue_max = queue_max
        self._room_seconds_max = room_seconds_max
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        self._room = Room(self._queue_max)
        self._owed: deque[Ticket] = deque()
        self._new: deque[Ticket] = deque()  # each holds a place in the room
        self._is_turn_taken = False
        self._lock = threading.Lock()  # of the three above; held for moments
        self._starting = threading.Lock()
        self._writer: ThreadPoolExecutor | None = None

    @property
    def queued(self) -> int:
        """Writes that wait for their transaction."""
        return len(self._owed) + len(self._new)

    # -------------------------------------------------------------- sync callers

    def submit(self, write: Write) -> Outcome:
        """Write, alone or with whoever else is waiting. Raises what the store raises."""
        is_alone = False
        try:
            with self._lock:
                is_alone = not (self._is_turn_taken or self._owed or self._new)
                if is_alone:
                    self._is_turn_taken = True
            if is_alone:
                return _written_alone(self._apply, write)
        finally:  # an interruption at any point must not keep the turn
            if is_alone:
                self._hand_on()
        return self._submit_with_others(write)

    def _submit_with_others(self, write: Write) -> Outcome:
        ticket, is_new = Ticket(write), _is_new(write)
        if is_new and not self._room.take(wait_seconds=self._room_seconds_max):
            raise self._no_room()
        ticket.gate = threading.Lock()
        ticket.gate.acquire()
        try:
            if not self._queue(ticket, is_new):
                self._wait(ticket)
            while (
                not ticket.is_done
            ):  # the turn is ours; ends: each round takes at least one, ours in its turn
                self._write_some()
        finally:
            if ticket.leads:
                self._hand_on()
        return ticket.result()

    def _wait(self, ticket: Ticket) -> None:
        """Until the write is done, or the turn is ours."""
        assert ticket.gate is not None
        try:
            ticket.gate.acquire()
        except BaseException:  # interrupted; the write is on its way all the same, and others see to it
            with self._lock:
                ticket.gate = None
            raise

    # -------------------------------------------------------------- async callers

    def enqueue(
        self,
        write: Write,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Outcome] | None = None,
    ) -> asyncio.Future[Outcome] | None:
        """Queue the write at once, before any other task of the loop runs; the future tells the outcome.

        None, and nothing is queued, if there is no room: `wait_for_room`, then `enqueue_in_room`.
        """
        is_new = _is_new(write)
        if is_new and not self._room.take_now():
            return None
        if future is None:
            future = loop.create_future()
        if self._queue(Ticket(write, future), is_new):
            self._call_writer()
        return future

    async def wait_for_room(self) -> None:
        """Until there is a place, which the caller then has. Can be cancelled: nothing is queued yet."""
        if not await self._room.take_async(wait_seconds=self._room_seconds_max):
            raise self._no_room()

    def enqueue_in_room(self, write: Write, future: asyncio.Future[Outcome]) -> asyncio.Future[Outcome]:
        """For whoever has a place. At once, likewise."""
        if self._queue(Ticket(write, future), _is_new(write)):
            self._call_writer()
        return future

    def close(self) -> None:
        if self._writer is not None:
            self._writer.shutdown(wait=True)
            self._writer = None

    def _call_writer(self) -> None:
        try:
            self._writer_thread().submit(self._write_all)
        except RuntimeError as problem:  # closed, or no thread to be had
            self._turn_away(problem)

    def _writer_thread(self) -> ThreadPoolExecutor:
        with self._starting:
            if self._writer is None:
                from concurrent.futures import ThreadPoolExecutor  # slow to import, only for async callers

                self._writer = ThreadPoolExecutor(1, thread_name_prefix="semel-writer")
            return self._writer

    def _write_all(self) -> None:
        try:
            while self.queued:
                self._write_some()
        finally:
            self._hand_on()

    def _turn_away(self, problem: BaseException) -> None:
        """Nobody can write for the tasks that wait: they are told so, and the threads go on by themselves."""
        error = StoreUnavailable(f"The store takes no writes: {problem}. Nothing was recorded.")
        error.__cause__ = problem
        with self._lock:
            tickets = [ticket for ticket in (*self._owed, *self._new) if ticket.gate is None]
            places = sum(ticket.gate is None for ticket in self._new)
            self._owed = deque(ticket for ticket in self._owed if ticket.gate is not None)
            self._new = deque(ticket for ticket in self._new if ticket.gate is not None)
        self._room.give_back(places)
        for ticket in tickets:
            ticket.error, ticket.is_done = error, True
        _tell_loops(tickets)
        self._hand_on()

    # -------------------------------------------------------------- the turn

    def _queue(self, ticket: Ticket, is_new: bool) -> bool:
        """True if the turn was free and is the caller's now."""
        with self._lock:
            (self._new if is_new else self._owed).append(ticket)
            if not self._is_turn_taken:
                self._is_turn_taken = ticket.leads = True
            return ticket.leads

    def _hand_on(self) -> None:
        """The turn goes to a thread that waits, to the writer if only tasks do, or is free."""
        with self._lock:
            if not self._owed and not self._new:
                self._is_turn_taken = False
                return
            next_up = (self._owed or self._new)[0]
            if next_up.gate is not None:
                next_up.leads = True
                next_up.gate.release()
                return
        self._call_writer()

    def _take_batch(self) -> list[Ticket]:
        with self._lock:
            batch = [self._owed.popleft() for _ in range(min(len(self._owed), BATCH_MAX))]
            new = min(len(self._new), BATCH_MAX - len(batch))
            batch += [self._new.popleft() for _ in range(new)]
        if new:
            self._room.give_back(new)
        return batch

    def _write_some(self) -> None:
        batch = self._take_batch()
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
            self._tell(batch)

    def _tell(self, batch: Sequence[Ticket]) -> None:
        tasks = []
        with self._lock:
            for ticket in batch:
                ticket.is_done = True
                if ticket.future is not None:
                    tasks.append(ticket)
                elif ticket.gate is not None and not ticket.leads:
                    ticket.gate.release()
        if tasks:
            _tell_loops(tasks)

    def _no_room(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._queue_max} writes have been waiting for the store, and none was taken for "
            f"{self._room_seconds_max:g} s. Nothing was recorded, nothing was sent. Call again later."
        )


def _is_new(write: Write) -> bool:
    """Whether it begins something, rather than saying what became of it."""
    if isinstance(write, Move):
        return write.event is Event.CLAIMED or write.event is Event.RESENT
    return isinstance(write, Insert | Append)


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
