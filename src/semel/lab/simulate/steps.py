"""How a simulated process carries out what a course yields: later, and not always.

It dies, pauses and goes on; its store fails; its request is refused, delayed, lost, repeated, answered late or not
at all; its lookup lags, fails or talks nonsense. Each step may deviate in one of the ways that its table lists.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from semel.engine.course import Apply, Look, Pause, Perform, Raised, Read, Returned, Step
from semel.engine.verdicts import as_evidence, failed_lookup
from semel.errors import ClaimLost, CommitInDoubt, NotSent, Rejected, StoreError, StoreUnavailable
from semel.lab.mutants.mutant import Attempt
from semel.lab.simulate.provider import Done
from semel.lab.simulate.setting import BAD_SPELLS, LEASE_MS, Untrue
from semel.model import Found, Inconclusive, Insert, Move, Operation, Write
from semel.ports import Outcome

if TYPE_CHECKING:
    from semel.lab.simulate.process import Process

LATENCY_MS: Final = 20
TIMEOUT_MS: Final = 300  # how long a client waits for an answer
OVERSLEEP: Final = 2  # a pause may last longer than asked for, and costs fewer events
SLEEP_LEAST_MS: Final = 50
BAD_SPELL_MS: Final = 5_000  # how long a lookup may be of no use to anybody
ANOTHERS_ROW: Final = Found({"effect": 0}, key="0" * 64)

PAUSES: Final = {"pauses": 850, "pauses past its lease": 2_500, "pauses for long": 9_000}
WRITE: Final = (
    "dies",
    "dies afterwards",
    *PAUSES,
    "finds the store down",
    "loses the acknowledgement",
    "loses the write",
)
READ: Final = ("dies", *PAUSES, "finds the store down")
SEND: Final = (
    "dies",
    "is the last thing it does",
    *PAUSES,
    "is not sent: the connection is refused",
    "is lost",
    "is held up",
    "is held up for long",
    "is done, and its answer is lost",
    "is done, and answered 503",
    "is refused",
    "is answered late",
    "lands late, and is waited for",
    "is repeated by the network",
)
LOOK: Final = (
    "dies",
    *PAUSES,
    *BAD_SPELLS,
    "waits long for the lookup",
)
SHOWS: Final = ("shows late", "shows very late")


class Driver(Protocol):
    """Who takes the turns: of a call, or of a sweep."""

    name: str

    def go_on(self, answer: Any) -> None: ...

    def throw(self, problem: StoreError) -> None: ...


class Steps:
    """The hands of one process. `driver` is told what came of each step."""

    def __init__(self, process: Process, driver: Driver) -> None:
        self._process = process
        self._driver = driver
        self._world = process.world
        self._name = driver.name

    def take(self, step: Step) -> None:
        match step:
            case Apply(write):
                self._process.later(2 + self._process.number, self._write, write)
            case Read(key):
                self._process.later(1, self._read, key)
            case Pause(seconds):
                self._process.later(
                    max(int(seconds * 1000 * OVERSLEEP), SLEEP_LEAST_MS), self._driver.go_on, None
                )
            case Perform():
                self._process.later(1, self._send, step)
            case Look(operation):
                self._process.later(1, self._look, operation)

    def _write(self, write: Write) -> None:
        way = self._world.deviates(self._name, "write", WRITE)
        match way:
            case "":
                self._driver.go_on(self._applied(write))
            case "dies":
                self._process.die()
            case "dies afterwards":
                self._applied(write)
                self._process.die()
            case "finds the store down":
                self._driver.throw(StoreUnavailable("the store is down"))
            case "loses the acknowledgement":
                self._applied(write)
                self._driver.throw(CommitInDoubt("the acknowledgement of the write is lost"))
            case "loses the write":
                self._driver.throw(CommitInDoubt("the write is lost, with its acknowledgement"))
            case _:
                self._pause(way, lambda: self._driver.go_on(self._applied(write)))

    def _applied(self, write: Write) -> Outcome:
        (outcome,) = self._process.core.store.apply([write])
        if self._world.is_told:
            self._world.tell(self._name, _described(write, outcome))
        return outcome

    def _read(self, key: str) -> None:
        way = self._world.deviates(self._name, "read", READ)
        match way:
            case "":
                self._driver.go_on(self._process.core.store.read(key))
            case "dies":
                self._process.die()
            case "finds the store down":
                self._driver.throw(StoreUnavailable("the store is down"))
            case _:
                self._pause(way, lambda: self._driver.go_on(self._process.core.store.read(key)))

    def _pause(self, way: str, then: Callable[..., None], *arguments: Any) -> None:
        self._world.tell(self._name, way)
        self._process.pause(PAUSES[way])
        self._process.later(0, then, *arguments)

    # -------------------------------------------------------------- the effect

    def _send(self, step: Perform) -> None:
        way = self._world.deviates(self._name, "send", SEND)
        if way in PAUSES:
            self._pause(way, self._send, step)
        elif way == "dies":
            self._process.die()
        else:
            self._send_now(step, way)

    def _send_now(self, step: Perform, way: str) -> None:
        """The check of the claim and the sending are one: what gets between them is past the deadline."""
        world, setting = self._world, self._world.setting
        try:
            step.claim.ensure_held()
        except ClaimLost as lost:
            world.tell(self._name, "finds its claim lapsed and sends nothing")
            self._driver.go_on(Raised(lost))
            return
        operation = step.claim.operation
        world.tell(self._name, "sends request %s%s", operation.fence, f", which {way}" if way else "")
        at_last = setting.request_deadline_ms - 1
        if setting.untrue is Untrue.REQUEST_DEADLINE:
            at_last = 3 * setting.request_deadline_ms + 1_000
        match way:
            case "":
                self._request(operation, LATENCY_MS, answered_after=LATENCY_MS)
            case "is the last thing it does":
                self._request(operation, LATENCY_MS)
                self._process.die()
            case "is not sent: the connection is refused":
                self._fail(LATENCY_MS, NotSent("connection refused"))
            case "is lost":
                self._fail(TIMEOUT_MS, TimeoutError("no answer"))
            case "is held up":
                self._request(operation, min(TIMEOUT_MS + LATENCY_MS, at_last))
                self._fail(TIMEOUT_MS, TimeoutError("no answer"))
            case "is held up for long":
                self._request(operation, at_last)
                self._fail(TIMEOUT_MS, TimeoutError("no answer"))
            case "is done, and its answer is lost":
                self._request(operation, LATENCY_MS)
                self._fail(TIMEOUT_MS, TimeoutError("no answer"))
            case "is done, and answered 503":
                self._request(operation, LATENCY_MS)
                self._fail(2 * LATENCY_MS, ConnectionError("503"))
            case "is refused":
                self._be_refused(operation)
            case "is answered late":
                self._request(operation, LATENCY_MS, answered_after=3 * LEASE_MS)
            case "lands late, and is waited for":
                self._request(operation, at_last, answered_after=LATENCY_MS)
            case "is repeated by the network":
                self._request(operation, LATENCY_MS, answered_after=LATENCY_MS)
                if setting.honours_keys:  # elsewhere no guard could help
                    self._request(operation, at_last)

    def _request(self, operation: Operation, lands_after: int, *, answered_after: int | None = None) -> None:
        """The effect happens whatever becomes of its sender; an answer goes to the life that asked."""
        event = self._world.event_of[operation.key, operation.fingerprint]
        landing = (event, self._key(operation), answered_after, self._process.life)
        self._world.after(lands_after, self._land, *landing)

    def _land(self, event: str, key: str, answered_after: int | None, life: int) -> None:
        world = self._world
        done = world.provider.receive(event, key, world.time_ms, shows_after_ms=self._shows_after())
        world.tell("provider", "takes it of %s: effect %s of event %s", self._name, done.number, event)
        if answered_after is not None:
            self._process.later(answered_after, self._be_answered, done, life=life)

    def _shows_after(self) -> int:
        setting = self._world.setting
        lag = setting.lookup_lag_ms
        if setting.untrue is Untrue.LOOKUP_LAG:
            return 3 * lag + 1_000
        way = self._world.deviates("provider", "shows", SHOWS, times=4)
        return {"": 0, "shows late": lag // 2, "shows very late": max(lag - 1, 0)}[way]

    def _be_answered(self, done: Done) -> None:
        self._world.tell(self._name, "is answered: effect %s", done.number)
        self._process.answered_with = done
        self._driver.go_on(Returned({"effect": done.number}))

    def _be_refused(self, operation: Operation) -> None:
        self._world.provider.rejected.add(self._world.event_of[operation.key, operation.fingerprint])
        self._fail(2 * LATENCY_MS, Rejected("402"))

    def _fail(self, after_ms: int, error: Exception) -> None:
        self._process.later(after_ms, lambda: self._driver.go_on(Raised(self._world.mutant.hears(error))))

    def _key(self, operation: Operation) -> str:
        return self._world.mutant.names(Attempt(operation.key, operation.fence, operation.arguments))

    # -------------------------------------------------------------- the lookup

    def _look(self, operation: Operation) -> None:
        way = self._world.deviates(self._name, "look", LOOK, times=3)
        if way in PAUSES:
            self._pause(way, self._look_now, operation, "")
        elif way == "dies":
            self._process.die()
        else:
            self._look_now(operation, way)

    def _look_now(self, operation: Operation, way: str) -> None:
        world = self._world
        if not way and world.time_ms < BAD_SPELL_MS:
            way = world.setting.lookup_is
        found: Any = world.provider.find(self._key(operation), world.time_ms)
        match way:
            case "cannot reach the lookup":
                world.tell(self._name, way)
                self._process.later(LATENCY_MS, self._driver.go_on, failed_lookup(ConnectionError("down")))
                return
            case "is told: processing":
                found = Inconclusive("processing", retry_after=timedelta(milliseconds=200))
            case "is told None":
                found = None
            case "is shown another's row":
                found = ANOTHERS_ROW
        read = world.mutant.read(found, asked_for=self._key(operation), key=operation.key)
        evidence = as_evidence(read, operation.key)
        if isinstance(evidence, Inconclusive) and evidence.retry_after is None:
            world.baffled.add(operation.key)
        world.tell(self._name, "asks the provider and is told: %s", found)
        self._process.later(
            LEASE_MS if way == "waits long for the lookup" else LATENCY_MS, self._driver.go_on, evidence
        )


def _described(write: Write, outcome: Outcome) -> str:
    record = outcome.operation
    there = "" if record is None else f"; the record says {record.state}, attempt {record.fence}"
    match write:
        case Insert():
            what = "claims" if outcome.applied else "claims in vain"
        case Move(event=event):
            what = f"writes: {event}" if outcome.applied else f"writes in vain: {event}"
        case _:
            what = "notes a divergence"
    return what + there
