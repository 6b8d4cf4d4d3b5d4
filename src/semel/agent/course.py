"""The loop: claim the run, read its log, and take one turn after the other, each recorded before its calls run.

Nothing that a life needs lives anywhere but in the log and the operations. A life that begins where another one
was killed replays what is recorded, gives what is in doubt to the guard, and goes on from there.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from semel.agent.budget import Budget, Spent, ensure_left
from semel.agent.calls import Call
from semel.agent.claim import RunClaim, held_by_another, try_to_claim
from semel.agent.life import Life, core_of
from semel.agent.log import HELD, INPUT, TURN, UNKNOWN, RunLog, changed
from semel.agent.names import stable_id
from semel.agent.record import RecordedTurn, plain, recorded_turn, said
from semel.agent.steps import Ask, Course, Do, Pause, Step, Together, values_of
from semel.agent.stop import Stop
from semel.agent.turns import Message, OnText, Turn
from semel.engine.names import require_name
from semel.engine.run import RunCore
from semel.errors import StoreError, UsageError
from semel.model import Operation, State

if TYPE_CHECKING:
    from semel.agent.agent import Agent

POLL_FIRST_SECONDS: Final = 0.005
POLL_MOST_SECONDS: Final = 0.25
RETRY_FIRST_SECONDS: Final = 1.0  # before a model that does not say how long is asked again
RETRY_MOST_SECONDS: Final = 30.0
REST_MOST_SECONDS: Final = (
    600.0  # a provider that asks for more is not sat out: the caller is told, and may go on later
)
LISTEN_SECONDS: Final = 0.25  # how soon a rest hears that it is to stop


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A run that has come to its end.

    `text`         the model's last words
    `transcript`   who said what: see `semel.agent.turns`
    `turns`        of the model, over all lives
    `tokens`       of input and output, over all lives, as far as the model tells
    `model_calls`  how often this call asked the model: 0 where everything was recorded
    """

    run_id: str
    text: str
    transcript: list[Message]
    turns: int
    tokens: int
    model_calls: int


class RunCourse:
    """One life of one run. Use once."""

    def __init__(
        self,
        agent: Agent,
        opening: str,
        run_id: str,
        *,
        stop: Stop,
        budget: Budget,
        on_text: OnText | None = None,
        claims_run: bool = True,
    ) -> None:
        self._claims_run = claims_run
        self._agent = agent
        self._opening = opening
        self._run_id = run_id
        self._stop = stop
        self._budget = budget
        self._on_text = None if on_text is None else self._listening(on_text)
        self._claim: RunClaim | None = None
        self._spent = Spent()
        self._seconds_before = 0.0
        self._began_at: datetime
        self._model_calls = 0

    def _listening(self, on_text: OnText) -> OnText:
        """A stop that is asked for while the model speaks breaks off the turn, which is then not recorded."""

        def listen(piece: str) -> None:
            self._stop.ensure_not_asked()
            on_text(piece)

        return listen

    # -------------------------------------------------------------- the life

    def steps(self) -> Generator[Step, Any, Ended]:
        require_name(self._run_id, "run id")
        if not isinstance(self._opening, str):
            raise UsageError(f"The opening {self._opening!r} must be a string. Nothing was recorded.")
        try:
            log = yield from self._enter()
            ended = yield from self._follow(log)
        except GeneratorExit:
            self._release(has_ended=False)
            raise
        except BaseException:
            yield from self._let_go(has_ended=False)
            raise
        yield from self._let_go(has_ended=True)
        return ended

    def _let_go(self, *, has_ended: bool) -> Course:
        try:
            yield Do(lambda: self._release(has_ended=has_ended))
        finally:
            self._release(
                has_ended=has_ended
            )  # interrupted before it was done: else it were renewed for ever

    def _release(self, *, has_ended: bool) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release(has_ended=has_ended)

    def _enter(self) -> Generator[Step, Any, RunLog]:
        """The log, to be written if the run has not ended; then it is claimed."""
        guard, run_id = self._agent.guard, self._run_id
        log: RunLog = yield Do(lambda: RunLog(guard, run_id))
        if log.has_ended:
            return self._only_read(log)
        if not self._claims_run:
            return log
        yield from self._take_claim()
        if self._claim is None:
            log = yield Do(lambda: RunLog(guard, run_id))
            if not log.has_ended:
                raise StoreError(
                    f"Run {run_id!r} has ended, and its log does not go to the end. Nothing was sent. Somebody "
                    "deleted a part of it, or the store was restored from a backup."
                )
            return self._only_read(log)
        if self._claim.fence > 1:
            log = yield Do(lambda: RunLog(guard, run_id))
        log.ensure_may_write = self._claim.ensure_held
        if (
            self._claim.fence > 1 and not log.has_ended
        ):  # it may have died between its last word and its release
            fence = self._claim.fence
            yield Do(lambda: log.mark_resumed(fence))
        return log

    def _only_read(self, log: RunLog) -> RunLog:
        def refuse() -> None:
            raise changed(f"Run {self._run_id!r} has ended, and the program now has more to record of it")

        log.ensure_may_write = refuse
        return log

    def _take_claim(self) -> Course:
        """Waits for a live owner."""
        core = core_of(self._agent.guard)
        gives_up_at = time.monotonic() + self._agent.wait.total_seconds()
        poll_seconds = POLL_FIRST_SECONDS
        while True:  # ends when the patience does
            in_the_way: Operation | None = yield Do(self._try_to_claim)
            if in_the_way is None or in_the_way.state is State.COMMITTED:
                return
            left = gives_up_at - time.monotonic()
            if left <= 0:
                raise held_by_another(core, in_the_way)
            self._stop.ensure_not_asked()
            yield Pause(min(poll_seconds, left))
            poll_seconds = min(poll_seconds * 2, POLL_MOST_SECONDS)

    def _try_to_claim(self) -> Operation | None:
        """Kept here at once: whoever is cancelled while waiting for this step still lets go of it."""
        got = try_to_claim(core_of(self._agent.guard), self._run_id)
        if isinstance(got, RunClaim):
            self._claim = got
            return None
        return got

    # -------------------------------------------------------------- the turns

    def _follow(self, log: RunLog) -> Generator[Step, Any, Ended]:
        life = yield from self._begin(log)
        messages: list[Message] = [{"role": "user", "content": (yield from self._open(life))}]
        while True:  # bounded by the budget
            turn = yield from self._turn(life, messages)
            messages.append(said(turn))
            if not turn.calls:
                return Ended(
                    run_id=self._run_id,
                    text=turn.text,
                    transcript=messages,
                    turns=self._spent.turns,
                    tokens=self._spent.tokens,
                    model_calls=self._model_calls,
                )
            messages.extend((yield from self._answers(life, turn)))

    def _begin(self, log: RunLog) -> Generator[Step, Any, Life]:
        agent, guard, run_id = self._agent, self._agent.guard, self._run_id
        self._began_at = guard.store.now()
        run = RunCore(core_of(guard), run_id)
        operations: list[Operation] = []
        if not log.is_empty:
            yield Do(run.load)
            operations = yield Do(lambda: guard.store.read_run(guard.namespace, run_id))
        return Life(
            guard=guard,
            run_id=run_id,
            log=log,
            tools=agent.tools,
            rules=agent.rules,
            stop=self._stop,
            checkpoint=agent.checkpoint,
            run=run,
            claim=self._claim,
            operations={operation.key: operation for operation in operations},
        )

    def _open(self, life: Life) -> Generator[Step, Any, str]:
        recorded = life.log.recorded(INPUT)
        if recorded is None:
            life.ensure_may_go_on()
            recorded = yield Do(lambda: life.log.record(INPUT, [self._opening]))
        if recorded != [self._opening]:
            raise changed(
                f"Run {self._run_id!r} was started with {recorded[0]!r} and is now given {self._opening!r}"
            )
        return self._opening

    def _turn(self, life: Life, messages: Sequence[Message]) -> Generator[Step, Any, Turn]:
        kept = life.log.recorded(TURN)
        is_new = kept is None
        if kept is None:
            kept = yield from self._new_turn(life, messages)
        recorded = recorded_turn(kept)
        self._spent.add(recorded.turn.usage)
        if not is_new:
            self._seconds_before = recorded.seconds
        elif self._budget.tokens is not None and recorded.turn.usage is None:
            raise UsageError(
                f"Run {self._run_id!r} has a budget of tokens, and its model does not tell how many it used. The "
                "turn is recorded. Give the run a budget of turns or time, or a model that tells."
            )
        return recorded.turn

    def _new_turn(self, life: Life, messages: Sequence[Message]) -> Generator[Step, Any, Any]:
        number = str(self._spent.turns + 1)
        life.ensure_may_go_on()
        self._spent.seconds = self._seconds()
        ensure_left(self._budget, self._spent, self._run_id)
        life.checkpoint("asking", number)
        turn, tries = yield from self._ask(life, messages)
        life.checkpoint("asked", number)
        kept = plain(RecordedTurn(turn, self._seconds(), tries))
        kept = yield Do(lambda: life.log.record(TURN, kept))
        life.checkpoint("recorded", number)
        return kept

    def _seconds(self) -> float:
        """At work, over all lives."""
        here: timedelta = self._agent.guard.store.now() - self._began_at
        return self._seconds_before + here.total_seconds()

    def _ask(self, life: Life, messages: Sequence[Message]) -> Generator[Step, Any, tuple[Turn, int]]:
        """Another try only where the rules allow it and the failure says that it can help."""
        most = self._agent.rules.model_tries
        for tries in range(1, most + 1):
            self._model_calls += 1
            shown = copy.deepcopy(list(messages))
            try:
                turn = yield Ask(self._agent.model, shown, self._agent.specs, self._on_text)
            except Exception as failure:
                rest = _rest_before(tries, failure)
                is_worth_it = getattr(failure, "retryable", False) is True and rest <= REST_MOST_SECONDS
                if not is_worth_it or tries == most:
                    failure.add_note(
                        f"Run {self._run_id!r} asked the model for this turn {tries} of {most} times."
                    )
                    raise
                yield from self._rest(life, rest)
                continue
            if not isinstance(turn, Turn):
                raise UsageError(f"The model returned {turn!r}, which is no Turn. Nothing was recorded.")
            return turn, tries
        raise AssertionError("unreachable: the last try returns or raises")

    def _rest(self, life: Life, seconds: float) -> Course:
        while seconds > 0:
            yield Pause(min(seconds, LISTEN_SECONDS))
            seconds -= LISTEN_SECONDS
            life.ensure_may_go_on()

    # -------------------------------------------------------------- a turn's calls

    def _answers(self, life: Life, turn: Turn) -> Generator[Step, Any, list[Message]]:
        step = str(self._spent.turns)
        ids = [stable_id(turn, position) for position in range(len(turn.calls))]
        is_past = life.log.is_past
        calls = [
            Call(life, call, step=step, call_id=ids[position], name=f"{step}/{position}", is_past=is_past)
            for position, call in enumerate(turn.calls)
        ]
        known = [call.known() for call in calls]
        courses = [call.course() for call, answer in zip(calls, known, strict=True) if answer is None]
        made = iter(())
        if courses:
            ended = yield Together(courses, self._agent.rules.calls_at_once)
            made = iter(values_of(ended))
        contents = [next(made) if answer is None else answer.content for answer in known]
        self._mind_what_is_unknown(life, step, ids)
        return [
            {"role": "tool", "call_id": call.id, "content": content}
            for call, content in zip(turn.calls, contents, strict=True)
        ]

    def _mind_what_is_unknown(self, life: Life, step: str, ids: Sequence[str]) -> None:
        """To the model, that is: what it was told nobody knows, and has not yet been told the end of."""
        answers = [life.log.recorded_answer(step, call_id) for call_id in ids]
        for answer in answers:
            if answer is not None and answer.how == HELD and answer.answer[1] in life.told_unknown:
                life.told_unknown.remove(answer.answer[1])
        for answer in answers:
            if answer is not None and answer.how == UNKNOWN:
                life.told_unknown.append(answer.answer[1])


def _rest_before(tries: int, failure: Exception) -> float:
    said = getattr(failure, "retry_after_seconds", None)
    if isinstance(said, int | float):
        return float(max(0.0, said))
    return float(min(RETRY_FIRST_SECONDS * 2 ** (tries - 1), RETRY_MOST_SECONDS))
