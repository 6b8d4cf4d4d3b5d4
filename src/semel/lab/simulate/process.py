"""One simulated process: the third driver of a course, beside the sync and the async engine.

A life begins its plan from the start, as a program does that is started again; what it is told of a call that is in
doubt makes it call again. What can happen between two turns of a course is in `steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from semel.engine.claims import Heartbeat
from semel.engine.core import Core
from semel.engine.course import Course, Step, Turns
from semel.engine.group_commit import GroupCommit
from semel.engine.resolve import resolve
from semel.errors import (
    ClaimHeld,
    Diverged,
    IllegalTransition,
    KeyReused,
    NotExecuted,
    OutcomeUnknown,
    PausedForPerson,
    PreviouslyFailed,
    Rejected,
    ResultLost,
    StoreError,
    UsageError,
)
from semel.lab.simulate.lease import Beats, Names
from semel.lab.simulate.provider import Done
from semel.lab.simulate.setting import LEASE_MS, Kind, Wanted
from semel.lab.simulate.steps import Steps
from semel.model import Intent, ItHappened, Operation, RunIt, State
from semel.ports import Store

if TYPE_CHECKING:
    from semel.lab.simulate.world import World

LEASE: Final = timedelta(milliseconds=LEASE_MS)
WAIT: Final = timedelta(days=1)  # by the wall clock, which must not matter here
AGAIN_FIRST_MS: Final = 50
AGAIN_MOST_MS: Final = 2_000

RESTART: Final = ("late", "never")
PERSON: Final = ("at once", "late")


class Process:
    """`told` is what became of each call, by its position in the plan: it outlives the process."""

    def __init__(self, world: World, number: int, calls: tuple[tuple[Wanted, Intent], ...]) -> None:
        self.world = world
        self.number = number
        self.name = f"process {number}"
        self.calls = calls
        self.told: dict[int, str] = {}
        self.life = 0
        self.is_alive = False
        self.comes_back = True
        self.core: Core
        self.answered_with: Done | None
        self.steps = Steps(self, self)
        self._position = self._failures = self._paused_until_ms = 0

    # -------------------------------------------------------------- life

    def start(self) -> None:
        self.life += 1
        self.is_alive = True
        self._position = self._failures = self._paused_until_ms = 0
        world = self.world
        store = world.mutant.store(cast(Store, world.table))
        self.core = Core(
            store=store,
            committer=GroupCommit(store.apply),
            heartbeat=cast(Heartbeat, Beats(self)),
            owners=Names(self),
            namespace="",
            lease=LEASE,
            wait=WAIT,
            decide=world.mutant.decide,
        )
        world.tell(self.name, "starts")
        self._begin_call()

    def die(self) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        way = self.world.deviates(self.name, "restart", RESTART)
        self.comes_back = way != "never" or self.number == 0
        self.world.tell(self.name, "dies" if self.comes_back else "dies, and never comes back")
        if self.comes_back:
            self.world.after(3_000 if way == "late" else 300, self.start)

    def later(self, ms: int, what: Callable[..., None], *arguments: Any, life: int | None = None) -> None:
        """Unless it dies before (or has, where `life` is an earlier one); and not while it is paused."""
        self.world.after(ms, self._wake, life or self.life, what, arguments)

    def _wake(self, life: int, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if life != self.life or not self.is_alive:
            return
        if self.world.time_ms < self._paused_until_ms:
            self.world.after(self._paused_until_ms - self.world.time_ms, self._wake, life, what, arguments)
            return
        what(*arguments)

    def pause(self, ms: int) -> None:
        """As SIGSTOP does: the world goes on without it, its requests too."""
        self._paused_until_ms = self.world.time_ms + ms

    # -------------------------------------------------------------- the plan, call by call

    def _begin_call(self) -> None:
        if self._position == len(self.calls):
            return
        _, intent = self.calls[self._position]
        self.answered_with = None
        self._turns: Turns = Course(self.core, self.world.tool, intent, {}).turns()
        self.go_on(None)

    def go_on(self, answer: Any) -> None:
        self._resume(self._turns.send, answer)

    def throw(self, problem: StoreError) -> None:
        self.world.tell(self.name, "%s", problem)
        self._resume(self._turns.throw, problem)

    def _resume(self, resume: Callable[[Any], Step], value: Any) -> None:
        try:
            step = resume(value)
        except StopIteration:
            self._end_call("done")
        except BaseException as error:
            self._raised(error)
        else:
            self.steps.take(step)

    def _end_call(self, word: str) -> None:
        self.world.tell(self.name, "is told: %s", word)
        self._hear()
        self.told[self._position] = word
        self._position += 1
        self._failures = 0
        self.later(0, self._begin_call)

    def _hear(self) -> None:
        """A course that ends with an answer has had its chance to record it."""
        done = self.answered_with
        if done is not None:
            self.world.heard.setdefault(done.event, set()).add(done.number)

    def _raised(self, error: BaseException) -> None:
        match error:
            case PausedForPerson():
                self._ask(error)
            case Rejected() | PreviouslyFailed():
                self._end_call("failed")
            case Diverged():
                self._end_call("diverged")
            case ResultLost():
                self._end_call("done")
            case KeyReused():
                self._end_call("refused")
            case OutcomeUnknown():
                self._again(error, error.retry_after)
            case NotExecuted() | StoreError() | TimeoutError() | ConnectionError():
                self._again(error, None)
            case _:
                self.world.flaws.append(f"{self.name} met {type(error).__name__}: {error}")
                self.world.tell(self.name, "breaks: %r", error)
                self._position = len(self.calls)

    def _again(self, error: BaseException, retry_after: timedelta | None) -> None:
        self.world.tell(self.name, "will call again: %s", type(error).__name__)
        ms = min(AGAIN_FIRST_MS << min(self._failures, 10), AGAIN_MOST_MS)
        self._failures += 1
        self.later(max(ms, _ms(retry_after or timedelta(0))), self._begin_call)

    # -------------------------------------------------------------- a person

    def _ask(self, pause: PausedForPerson) -> None:
        world = self.world
        world.tell(self.name, "asks a person")
        record = world.table.read(pause.key)
        why = _why_ask_is_false(world, record)
        if why:
            world.false_asks.append(why)
        delay = {"": 200, "at once": 10, "late": 3_000}[world.deviates("person", "answer", PERSON)]
        world.after(delay, self._answer, pause, self.core, self.life)

    def _answer(self, pause: PausedForPerson, core: Core, life: int) -> None:
        """The person looks into the books now; what is still on its way is not in them."""
        world = self.world
        done = world.provider.of_event(world.event_of[pause.key, pause.fingerprint])
        answer = ItHappened({"effect": done[0].number}) if done else RunIt()
        world.tell("a person", "looks into the books and says: %s", "it happened" if done else "run it")
        try:
            resolve(
                core,
                pause.key,
                answer,
                by="person",
                why="the books",
                fingerprint=pause.fingerprint,
                attempt=pause.attempt,
            )
        except (UsageError, ClaimHeld, IllegalTransition) as problem:
            world.tell("a person", "is told: %s", type(problem).__name__)
        if self.life == life:
            self.later(0, self._begin_call)


def _why_ask_is_false(world: World, record: Operation | None) -> str:
    """Empty if nobody but a person could know; or if it was settled in this very moment."""
    setting = world.setting
    if record is None or record.state is not State.UNKNOWN:
        return ""
    if setting.kind is Kind.BLIND or record.key in world.baffled:
        return ""
    if setting.kind is not Kind.KEYS:
        return "a person was asked although the provider could have been"
    first_sent_at = record.first_sent_at or world.now_at
    remembered = timedelta(milliseconds=setting.key_ttl_ms - setting.request_deadline_ms)
    if world.now_at < first_sent_at + remembered:
        return "a person was asked although the provider still knew the key"
    return ""


def _ms(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
