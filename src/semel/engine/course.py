"""The loop of one guarded call: read the record, decide, do one thing, repeat.

The loop is a generator. It yields what is to be done in the world (`Apply`, `Read`, `Perform`, `Look`,
`Pause`) and is sent what came of it; the sync and the async engine only carry that out, so there is one loop
and no second opinion.

Where it is dangerous:

- **After `Perform` the effect may stand.** Whatever breaks from there on (store down, result that cannot be
  recorded, cancellation) must never lead back to `Perform` on that account; the record stays INVOKED or
  becomes UNKNOWN.
- **A claim whose acknowledgement was lost** is read back by owner token; tokens are unique per claim, so two
  callers of one process cannot both take it for theirs.
- **A worker that was fenced out** reports what it knows (`_report_late`); it overwrites nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from semel import actions, keys, lifecycle, values
from semel.decide import decide_late_result, quiet_at
from semel.engine import refusals
from semel.engine.claims import HeldClaim
from semel.engine.core import Core
from semel.engine.tool import Tool
from semel.engine.verdicts import describe, event_of
from semel.errors import (
    CommitInDoubt,
    NotExecuted,
    Rejected,
    StoreError,
    StoreVanished,
    WriteRefused,
)
from semel.model import (
    Absent,
    Answer,
    Event,
    Evidence,
    Found,
    Idempotent,
    Insert,
    Intent,
    Move,
    Note,
    Operation,
    State,
    Unsafe,
    Write,
)
from semel.ports import Outcome

TURNS_MAX: Final = 100  # a call needs about five; a hundred means that two parties undo each other's moves
POLL_FIRST_SECONDS: Final = 0.005
POLL_MOST_SECONDS: Final = 0.25
RETRY_MOST_SECONDS: Final = 1.0


# The steps. Tuples rather than dataclasses: they are never compared, and the classes are made at every import.


class Apply(NamedTuple):
    """Answered by an `Outcome`."""

    write: Write


class Read(NamedTuple):
    """Answered by the operation, or None."""

    key: str


class Perform(NamedTuple):
    """Cause the effect. Answered by `Returned` or `Raised`."""

    claim: HeldClaim
    arguments: Mapping[str, Any] | None


class Look(NamedTuple):
    """Ask the provider. Answered by `Evidence`."""

    operation: Operation


class Pause(NamedTuple):
    seconds: float


class Returned(NamedTuple):
    value: Any


class Raised(NamedTuple):
    error: BaseException


Step: TypeAlias = Apply | Read | Perform | Look | Pause
Turns: TypeAlias = Generator[Step, Any, Any]


class _Done(NamedTuple):
    value: Any


class Course:
    """One call of one tool for one intent. Use once."""

    def __init__(
        self,
        core: Core,
        tool: Tool,
        intent: Intent,
        arguments: Mapping[str, Any],
        recorded: Operation | None = None,
    ) -> None:
        """`recorded`: the operation, if the run has already read it in a terminal state."""
        self.core = core
        self.tool = tool
        self._intent = intent
        self._arguments: Mapping[str, Any] | None = arguments
        self._fingerprint = intent.fingerprint
        self._operation = recorded
        self._claim: HeldClaim | None = None
        self._answer: Answer | None = None
        self._failure: Exception | None = None
        self._attempts = 0
        self._decided_at: datetime  # when the turn began
        self._gives_up_at = time.monotonic() + core.wait.total_seconds()
        self._poll_seconds = POLL_FIRST_SECONDS

    def turns(self) -> Turns:
        """Ends with the result, or raises what the caller has to know."""
        try:
            for _ in range(TURNS_MAX):
                done = yield from self._take(self._decide())
                if done is not None:
                    return done.value
            raise refusals.too_many_turns(self._known(), TURNS_MAX)
        finally:
            if self._claim is not None:
                self.core.heartbeat.release(self._claim)

    def _decide(self) -> actions.Action:
        operation = self._operation
        self._decided_at = self.core.store.now()
        return self.core.decide(
            operation,
            self.tool.effect,
            self._answer,
            self._decided_at,
            fingerprint=self._fingerprint,
            held_fence=None if self._claim is None else self._claim.operation.fence,
            owner_is_gone=self._owner_is_gone(operation),
        )

    def _owner_is_gone(self, operation: Operation | None) -> bool:
        if self._claim is not None or operation is None or operation.state is not State.INVOKED:
            return False
        return operation.owner is not None and self.core.owners.is_gone(operation.owner)

    def _take(self, action: actions.Action) -> Generator[Step, Any, _Done | None]:
        match action:
            case actions.Replay():
                yield from self._require_not_undone()
                return _Done(refusals.recorded_result(self._known()))
            case actions.Claim():
                yield from self._take_claim()
            case actions.Invoke():
                return (yield from self._invoke())
            case actions.Wait():
                yield from self._wait(action)
            case actions.LeaveInDoubt(event):
                yield from self._leave_in_doubt(event)
            case actions.Lookup():
                yield from self._look_up()
            case actions.Settle(evidence):
                yield from self._settle(evidence)
            case actions.Ask(why):
                raise refusals.ask(self._known(), why, self._look_from()) from self._failure
            case actions.Refuse(reason):
                raise refusals.refuse(self._known(), reason, self._intent)
            case _:
                assert_never(action)
        return None

    def _require_not_undone(self) -> Generator[Step, Any, None]:
        """Another intent served this business event: if it was undone since, its result does not serve this one."""
        served = self._known()
        if served.key != self._intent.key and (yield Read(keys.compensation_key(served.key))) is not None:
            raise refusals.compensated(self._intent, served, "The business event")

    # -------------------------------------------------------------- claim

    def _take_claim(self) -> Generator[Step, Any, None]:
        if self._failure is not None and self._attempts >= self.tool.attempts:
            raise self._give_up()
        core, now = self.core, self._decided_at
        owner = core.owners.me()
        write: Insert | Move
        if self._operation is None:
            write = Insert(lifecycle.open_claim(self._intent, owner=owner, now=now, lease=core.lease))
            wanted = write.operation
        else:
            write = lifecycle.claim(self._operation, owner=owner, now=now, lease=core.lease)
            wanted = write.after
        core.checkpoint("claiming", wanted.key)
        outcome = yield from self._apply_claim(write, wanted)
        self._see(outcome.operation)
        if outcome.applied:
            self._claim = core.heartbeat.hold(self._known(), self.tool.effect)
            core.checkpoint("claimed", self._known().key)

    def _apply_claim(self, write: Write, wanted: Operation) -> Generator[Step, Any, Outcome]:
        """Fail closed: unless the claim is known to be ours, nothing is sent."""
        try:
            outcome: Outcome = yield Apply(write)
        except CommitInDoubt as problem:
            self.core.never_sent.add(wanted.owner or "")
            try:
                current: Operation | None = yield Read(wanted.key)
            except StoreError:
                raise refusals.claim_in_doubt(wanted) from problem
            if current is None:
                raise refusals.claim_in_doubt(wanted) from problem
            is_ours = (
                current.owner == wanted.owner and current.state is State.INVOKED
            )  # others may have moved it
            if is_ours:
                self.core.never_sent.discard(wanted.owner or "")
            return Outcome(is_ours, current)
        return outcome

    def _see(self, operation: Operation | None) -> None:
        """The record as it stands. One of another key serves the same business event and is driven instead."""
        if operation is None:
            raise refusals.record_vanished(self._intent)
        self._operation = operation
        if operation.key != self._intent.key:
            self._fingerprint = operation.fingerprint
            self._arguments = None

    # -------------------------------------------------------------- the effect, and what stands after it

    def _invoke(self) -> Generator[Step, Any, _Done | None]:
        claim = self._claim
        assert claim is not None, "decide says Invoke only to the holder of the claim"
        self._attempts += 1
        ended: Returned | Raised = yield Perform(claim, self._arguments)
        self._arguments = (
            None  # a further attempt takes them from the record: the tool may have changed these
        )
        if isinstance(ended, Returned):
            self.core.checkpoint("effect_done", claim.operation.key)
            yield from self._complete(claim, ended.value)
            self.core.checkpoint("completed", claim.operation.key)
            return _Done(ended.value)
        yield from self._fail(claim, ended.error)
        return None

    def _complete(self, claim: HeldClaim, value: Any) -> Generator[Step, Any, None]:
        result = recordable(value)
        move = lifecycle.commit(claim.operation, result=result, now=self.core.store.now())
        outcome = yield from self._record(claim, move, value)
        if not outcome.applied:
            yield from self._report_late(claim.operation, outcome.operation, move.after.result or "", value)

    def _fail(self, claim: HeldClaim, error: BaseException) -> Generator[Step, Any, None]:
        move = _move_for(claim.operation, error, self.core)
        outcome = yield from self._record(claim, move, None)
        if not outcome.applied and outcome.operation is not None:
            outcome = yield from self._report_failure_late(outcome.operation, claim.operation, error)
        self._let_go(claim)
        self._see(outcome.operation)
        if not isinstance(error, Exception) or self._known().state is State.FAILED:
            raise refusals.told(error, claim.operation.key)
        self._failure = error

    def _let_go(self, claim: HeldClaim) -> None:
        self.core.heartbeat.release(claim)
        self._claim = None

    def _record(self, claim: HeldClaim, move: Move, value: Any) -> Generator[Step, Any, Outcome]:
        """Keep trying while the lease lasts; after that nobody else is held up, and the caller is told."""
        pause, is_last_form = POLL_FIRST_SECONDS, False
        while True:  # ends when the lease does
            try:
                outcome: Outcome = yield Apply(move)
            except WriteRefused as problem:
                if move.event is not Event.COMMITTED or is_last_form:
                    raise refusals.unrecorded(claim.operation, value) from problem
                lost, is_last_form = lost_result(problem), True
                move = lifecycle.commit(claim.operation, result=lost, now=self.core.store.now())
                continue
            except StoreError as problem:
                ends_at = claim.ends_at - timedelta(seconds=pause)
                if isinstance(problem, StoreVanished) or self.core.store.now() >= ends_at:
                    raise refusals.unrecorded(claim.operation, value) from problem
            else:
                return _ours_after_all(outcome, move)
            yield Pause(pause)
            pause = min(pause * 2, RETRY_MOST_SECONDS)

    # -------------------------------------------------------------- a worker that was fenced out

    def _report_late(
        self, mine: Operation, current: Operation | None, result: str, value: Any
    ) -> Generator[Step, Any, None]:
        """The effect stands, and somebody else has moved the record meanwhile: our result is evidence."""
        for _ in range(TURNS_MAX):
            if current is None:
                raise refusals.record_vanished(self._intent)
            action = decide_late_result(current, self.tool.effect, fence=mine.fence)
            if isinstance(action, actions.Accept):
                yield from self._note_other_result(mine, current, result, value)
                return
            if isinstance(action, actions.Diverge):
                break
            move = lifecycle.report_late(current, result=result, now=self.core.store.now())
            outcome = yield from self._tell(Apply(move), mine, value)
            if outcome.applied:
                return
            current = outcome.operation
        assert current is not None
        why = f"attempt {mine.fence} returned after attempt {current.fence} was {current.state}"
        entry = lifecycle.note_divergence(current, fence=mine.fence, why=why, now=self.core.store.now())
        yield from self._tell(Apply(Note(entry)), mine, value)
        raise refusals.diverged(current, why, value)

    def _note_other_result(
        self, mine: Operation, current: Operation, result: str, value: Any
    ) -> Generator[Step, Any, None]:
        """Two attempts under one key are one effect if the provider kept its word, and then one result.

        Noted and not raised: a provider may also answer a repeated key in other words.
        """
        if current.state is not State.COMMITTED or current.fence == mine.fence or current.result == result:
            return
        why = (
            f"attempt {mine.fence} returned another result than the recorded one of attempt {current.fence}: "
            "perhaps the provider did not honour the key"
        )
        entry = lifecycle.note_divergence(current, fence=mine.fence, why=why, now=self.core.store.now())
        yield from self._tell(Apply(Note(entry)), mine, value)

    def _tell(self, step: Apply, mine: Operation, value: Any) -> Generator[Step, Any, Outcome]:
        """The result is in hand: a store that does not take it must not make the caller lose it."""
        try:
            outcome: Outcome = yield step
        except StoreError as problem:
            raise refusals.unrecorded(mine, value) from problem
        return outcome

    def _report_failure_late(
        self, current: Operation, mine: Operation, error: BaseException
    ) -> Generator[Step, Any, Outcome]:
        """ "It certainly did not happen" settles our own doubt too; anything less changes nothing."""
        is_ours = current.state is State.UNKNOWN and current.fence == mine.fence
        if not is_ours or current.earlier_in_doubt or event_of(error, current.key) is Event.LEFT_IN_DOUBT:
            return Outcome(False, current)
        outcome: Outcome = yield Apply(_move_for(current, error, self.core))
        return outcome

    # -------------------------------------------------------------- waiting, and finding out

    def _wait(self, wait: actions.Wait) -> Generator[Step, Any, None]:
        operation = self._known()
        if operation.owner in self.core.never_sent and operation.state is State.INVOKED:
            yield from self._take_back(operation)
            return
        seconds = (wait.until - self.core.store.now()).total_seconds()
        left = self._gives_up_at - time.monotonic()
        is_hopeless = (
            operation.state is not State.INVOKED and seconds > left
        )  # nobody works on it: it just takes time
        if left <= 0 or is_hopeless or self._failure is not None:
            raise refusals.not_yet(operation, wait.why, timedelta(seconds=max(seconds, 0))) from self._failure
        yield Pause(max(0.0, min(self._poll_seconds, seconds, left)))
        self._poll_seconds = min(self._poll_seconds * 2, POLL_MOST_SECONDS)
        self._see((yield Read(operation.key)))

    def _take_back(self, operation: Operation) -> Generator[Step, Any, None]:
        """A claim of this process whose acknowledgement was lost: it is known that nothing was sent."""
        error = "the acknowledgement of the claim was lost, and nothing was sent"
        move = lifecycle.not_sent(operation, error=error, now=self.core.store.now())
        self._see((yield Apply(move)).operation)
        self.core.never_sent.discard(operation.owner or "")

    def _leave_in_doubt(self, event: Event) -> Generator[Step, Any, None]:
        leave = lifecycle.IN_DOUBT[event]
        self._see((yield Apply(leave(self._known(), now=self.core.store.now()))).operation)

    def _look_up(self) -> Generator[Step, Any, None]:
        operation, asked_at = self._known(), self.core.store.now()
        evidence: Evidence = yield Look(operation)
        self._answer = Answer(evidence=evidence, asked_at=asked_at, fence=operation.fence)
        self.core.checkpoint("looked_up", operation.key)

    def _settle(self, evidence: Found | Absent) -> Generator[Step, Any, None]:
        operation = self._known()
        self._see((yield from settle(operation, evidence, self.core)).operation)
        self.core.checkpoint("settled", operation.key)

    def _look_from(self) -> datetime | None:
        """Before this instant a person who sees nothing has seen too little; None if it has passed."""
        effect = self.tool.effect
        if not isinstance(effect, Idempotent | Unsafe):
            return None
        quiet = (
            quiet_at(self._known(), effect) - effect.lookup_lag
        )  # a person looks into the books themselves
        return quiet if quiet > self._decided_at else None

    def _known(self) -> Operation:
        assert self._operation is not None, "decide says Claim, and nothing else, where there is no record"
        return self._operation

    def _give_up(self) -> BaseException:
        """Our own attempts are used up: the last failure, in the words of what it means.

        What is PENDING may still be run by the next call, so that `Rejected` would promise too much of it.
        """
        assert self._failure is not None
        is_final = isinstance(self._failure, Rejected)
        if isinstance(self._failure, NotExecuted) and not is_final and self._known().state is State.PENDING:
            return refusals.told(self._failure, self._known().key)
        error = refusals.in_doubt(self._known(), self._failure)
        error.__cause__ = self._failure
        return error


# ------------------------------------------------------------------ what evidence proves


def settle(operation: Operation, evidence: Found | Absent, core: Core) -> Generator[Apply, Any, Outcome]:
    """Write what the evidence proves of an UNKNOWN operation.

    Effects beyond the first are noted before the record is settled: dying between the two, they are found and noted
    again, and the other way round nobody would ask any more. Noted and not raised: the caller's effect stands and
    its result is known, and nothing that the caller could do undoes the other one. That is for whoever reads the
    divergences.
    """
    now = core.store.now()
    if isinstance(evidence, Found):
        if evidence.times > 1:
            yield Apply(Note(lifecycle.note_more_than_one(operation, times=evidence.times, now=now)))
        move = lifecycle.find(operation, result=recordable(evidence.result), now=now)
    else:
        move = lifecycle.find_absent(operation, now=now)
    outcome: Outcome = yield Apply(move)
    return outcome


# ------------------------------------------------------------------ small and pure


def _move_for(before: Operation, error: BaseException, core: Core) -> Move:
    move = {
        Event.REJECTED: lifecycle.reject,
        Event.NOT_SENT: lifecycle.not_sent,
        Event.LEFT_IN_DOUBT: lifecycle.leave_in_doubt,
    }[event_of(error, before.key)]
    return move(before, error=describe(error), now=core.store.now())


def _ours_after_all(outcome: Outcome, move: Move) -> Outcome:
    """An earlier try of the same move went through although its acknowledgement was lost."""
    now_there = outcome.operation
    if outcome.applied or now_there is None or now_there.state is not move.after.state:
        return outcome
    is_same = (now_there.fence, now_there.updated_at) == (move.after.fence, move.after.updated_at)
    return Outcome(is_same, now_there)


def recordable(value: Any) -> str:
    """The result as text; where it has no faithful form, the fact that it was returned."""
    try:
        return values.encode(value)
    except Exception as problem:  # whatever is wrong with it, the effect stands
        return lost_result(problem)


def lost_result(problem: BaseException) -> str:
    return values.encode({refusals.LOST: describe(problem)})
