"""One process of the program, from its start to its end. It is a fork of the nursery (see `lab.nursery`).

What it leaves for the lab lies beside the run's folder, never in it: what it said, and how it ended. Its exit
status is 0 if the program returned, and minus 9 if it was killed.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from semel import connect
from semel.errors import OutcomeUnknown, PausedForPerson, UsageError
from semel.lab.model import Window
from semel.lab.own.model import Gap, SeenBy
from semel.lab.own.provider import Provider
from semel.lab.own.watch import GuardWatch, Killer, LedgerWatch, Observer, Tracer

SAID: Final = "said.txt"
ENDED: Final = "ended.pickle"
TRACE: Final = "trace.jsonl"
CAUSES_MAX: Final = 100  # errors in a tree of causes


class Paused(NamedTuple):
    """It stopped for a person."""

    pause: PausedForPerson


class Later(NamedTuple):
    """It said itself when it can go on."""

    seconds: float


class Broke(NamedTuple):
    """It raised something else."""


Ended: TypeAlias = Paused | Later | Broke


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    """What a child is sent to do. Pickles without importing anything of the program.

    `folder`    the run's own; `notes` is this process's, for the lab
    `gap`       where it is to be killed; None: to go on to the end
    `pause`     what the person is asked, if `target` is the one who answers
    `is_traced` whether the gaps it passes are written down
    """

    target: str
    cell: str
    folder: Path
    home: Path
    notes: Path
    environment: Mapping[str, str]
    provider: Provider
    effects: Path | None = None
    gap: Gap | None = None
    pause: PausedForPerson | None = None
    is_traced: bool = False


class NoProgram(UsageError):
    """The target names nothing that can be called."""


def live(errand: Errand) -> None:
    """What happens in the child. Ends it if the program raises; returns if the program did."""
    _settle_in(errand)
    try:
        tell_end = _watch(errand)
        arguments = () if errand.pause is None else (errand.pause,)
        _call(callable_of(errand.target), *arguments)
        tell_end()
        _close_down()
        tell_end()  # of what a thread did that nobody had waited for
    except BaseException as error:
        _tell(error)
        (errand.notes / ENDED).write_bytes(pickle.dumps(_ended_by(error)))
        os._exit(1)


def callable_of(target: str) -> Callable[..., Any]:
    """Raises `NoProgram` if the name leads nowhere; what the module raises when it is imported stays what it is."""
    module, _, name = target.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        raise NoProgram(f"No module named {missing.name!r} is found from the lab's folder.") from missing
    for part in name.split("."):
        if not hasattr(found, part):
            raise NoProgram(f"{target}: there is no {part!r}.")
        found = getattr(found, part)
    if not callable(found):
        raise NoProgram(f"{target} is {found!r}, which cannot be called.")
    return found  # type: ignore[no-any-return]


def _tell(error: BaseException) -> None:
    """With the way there, unless it would lead through the lab alone."""
    if isinstance(error, NoProgram):
        print(error, file=sys.stderr)
    else:
        traceback.print_exc()
    sys.stderr.flush()


def _settle_in(errand: Errand) -> None:
    said = os.open(errand.notes / SAID, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for theirs, ours in ((0, nothing), (1, said), (2, said)):
        os.dup2(ours, theirs)
    os.chdir(errand.folder)
    os.environ.update(errand.environment)
    places = [str(errand.home / place) for place in sys.path]  # a relative one meant the lab's own folder
    sys.path[:] = places if str(errand.home) in places else [str(errand.home), *places]


def _watch(errand: Errand) -> Callable[[], None]:
    """Set up whoever is to see the gaps; what to call, once or more, when the program has returned."""
    observe = _observer_of(errand)
    gap = errand.gap
    if gap is not None and gap.seen_by is SeenBy.PROVIDER:
        errand.provider.arm(errand.cell, gap.window, gap.passing)
        if gap.window is Window.W4:
            return lambda: errand.provider.returned(errand.cell)
        return lambda: None
    if observe is None:
        return lambda: None
    connect.watch_guards(GuardWatch(observe))
    if errand.effects is None or (gap is not None and gap.seen_by is not SeenBy.LEDGER):
        return lambda: None
    ledger = LedgerWatch(errand.effects, observe)
    ledger.install()
    return ledger.returned


def _observer_of(errand: Errand) -> Observer | None:
    if errand.gap is not None:
        return Killer(errand.gap)
    return Tracer(errand.notes / TRACE) if errand.is_traced else None


def _call(program: Callable[..., Any], *arguments: Any) -> None:
    try:
        returned = program(*arguments)
        if inspect.isawaitable(returned):
            asyncio.run(_awaited(returned))
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _close_down() -> None:
    """As an interpreter does at its own end: wait for threads, then whoever asked to be told.

    Both have no public name; the standard library's own forked children do the same.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _ended_by(error: BaseException) -> Ended:
    """A pause and a time to come back count wherever they stand among the causes: frameworks wrap errors."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, PausedForPerson):
            return Paused(cause)
    for cause in causes:
        if isinstance(cause, OutcomeUnknown) and cause.retry_after is not None:
            return Later(cause.retry_after.total_seconds())
    return Broke()


def _causes(error: BaseException) -> Iterator[BaseException]:
    waiting = [error]
    for _ in range(CAUSES_MAX):
        if not waiting:
            return
        current = waiting.pop(0)
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        waiting.extend(cause for cause in (current.__cause__, current.__context__) if cause is not None)
