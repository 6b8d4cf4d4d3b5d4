"""One call of a persisted turn, from its place in the log to what the model is told.

What an operation holds is told from the operation, everything else from the log, so that every life of the run
tells the same. In this order:

1. Answered already: told again. If the program no longer fits what is recorded, it is refused.
2. It cannot be made (no such tool, arguments that it does not take): recorded, told.
3. It only reads, or is a sub-agent: made, its answer recorded.
4. It could be an earlier one in other words, of which the model was told that nobody knows: held back. It never
   runs. The earlier one is settled first, by evidence or by a person, and answers it. That tells the model what
   became of it, so that what it asks for after that is meant.
5. It has an effect: the guard makes it. A doubt stops the run, or is told where the rules say so.
"""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple

from semel import keys, lifecycle, values
from semel.agent import advice
from semel.agent.fits import difference
from semel.agent.life import Life
from semel.agent.likeness import Likeness, likeness
from semel.agent.log import (
    DELEGATED,
    GIVEN_UP,
    HELD,
    READ,
    REFUSED,
    SERVED,
    UNKNOWN,
    Answered,
    changed,
)
from semel.agent.steps import Course, Delegate, Do, Make
from semel.agent.subagents import SubAgent
from semel.agent.turns import ToolCall
from semel.engine.run import RunCore
from semel.engine.tool import Tool
from semel.engine.verdicts import describe
from semel.errors import (
    ClaimHeld,
    ClaimLost,
    Compensated,
    KeyReused,
    NotSent,
    OutcomeUnknown,
    PausedForPerson,
    PreviouslyFailed,
    Reaped,
    Rejected,
    ResultLost,
    SemelError,
    Unencodable,
    UsageError,
)
from semel.model import Atomic, Operation, Safe, State

BY: Final = "the agent loop"


class Answer(NamedTuple):
    content: Any


class Call:
    """`name`: where it stands, for checkpoints ("3/0"). `is_past`: a later turn is recorded, so it was answered."""

    def __init__(
        self, life: Life, call: ToolCall, *, step: str, call_id: str, name: str, is_past: bool
    ) -> None:
        self._life = life
        self._call = call
        self._step = step
        self._call_id = call_id
        self._name = name
        self._is_past = is_past
        self._key = life.key_of(step, call_id)
        self._tool = life.tools.get(call.name)
        self._arguments: dict[str, Any] = {}
        self._problem = self._cannot_be_made()

    @property
    def _has_effect(self) -> bool:
        return isinstance(self._tool, Tool) and not isinstance(self._tool.effect, Safe) and not self._problem

    def _cannot_be_made(self) -> str | None:
        """The model's mistakes are for the model to hear of."""
        if self._tool is None:
            return f"there is no tool named {self._call.name!r}"
        try:
            self._arguments = self._tool.bind((), copy.deepcopy(dict(self._call.arguments)))
            values.canonical(self._arguments)
        except UsageError as wrong:
            return str(wrong)
        return self._has_no_identity()

    def _has_no_identity(self) -> str | None:
        """A function given as `once_per` may not be made for whatever a model comes up with."""
        if not isinstance(self._tool, Tool):
            return None
        try:
            values.canonical(list(self._tool.business_identity(self._arguments) or ()))
        except Exception as wrong:
            return (
                f"{self._call.name} cannot be told from others with these arguments ({describe(wrong)}). Nothing "
                "was sent."
            )
        return None

    # -------------------------------------------------------------- what is known of it already

    def known(self) -> Answer | None:
        """What was told before; None if there is something to do. Raises `ProgramChanged`."""
        operation = self._life.operations.get(self._key)
        recorded = self._life.log.recorded_answer(self._step, self._call_id)
        if recorded is not None:
            return self._told_before(recorded, operation)
        if operation is None:
            self._ensure_may_be_unknown()
            return None
        self._ensure_fits(operation)
        is_told = operation.state in lifecycle.TERMINAL and operation.reaped_at is None
        if not is_told or self._life.run.is_undone(self._key):
            return None  # for the guard to say
        return Answer(advice.content_of(operation))

    def _told_before(self, recorded: Answered, operation: Operation | None) -> Answer | None:
        if recorded.how == READ and self._has_effect:
            raise changed(
                f"Run {self._life.run_id!r} recorded an answer of {self._call.name}, which only read then and "
                "would have an effect now"
            )
        if recorded.how not in (UNKNOWN, HELD):
            return Answer(recorded.answer)
        content, key = recorded.answer
        is_open = operation is not None and (operation.key, operation.state) == (key, State.PENDING)
        return None if is_open and recorded.how == UNKNOWN else Answer(content)

    def _ensure_may_be_unknown(self) -> None:
        """Of an answered call something is recorded: here, or of the first intent of its business event."""
        tool, identity = self._tool, None
        if isinstance(tool, Tool) and self._problem is None:
            identity = tool.business_identity(self._arguments)
        if self._is_past and identity is None:
            raise changed(
                f"Run {self._life.run_id!r}, turn {self._step}, call {self._call_id!r}: {self._call.name} was "
                "answered, and nothing is recorded of it"
            )

    def _ensure_fits(self, operation: Operation) -> None:
        found = difference(operation, self._tool, self._call.name, self._arguments, self._problem)
        if found is not None:
            raise changed(
                f"Run {self._life.run_id!r}, turn {self._step}, call {self._call_id!r}: {found}; the record "
                f"says {operation.state}"
            )

    # -------------------------------------------------------------- making it

    def course(self) -> Course:
        """Ends with what the model is told."""
        self._life.ensure_may_go_on()
        self._life.checkpoint("calling", self._name)
        content = yield from self._answer()
        self._life.checkpoint("called", self._name)
        return content

    def _answer(self) -> Course:
        tool = self._tool
        if tool is None or self._problem is not None:
            return (yield self._record(REFUSED, advice.did_not_happen(self._problem)))
        if isinstance(tool, SubAgent):
            return (yield from self._delegate(tool))
        if isinstance(tool.effect, Safe):
            return (yield from self._read(tool))
        recorded = self._life.log.recorded_answer(self._step, self._call_id)
        if recorded is not None:
            return (yield from self._run_what_was_cleared(tool, recorded))
        earlier = yield Do(lambda: self._earlier_told_as_unknown(tool))
        if earlier is not None:
            return (yield from self._hold_back(tool, earlier))
        return (yield from self._cause(tool))

    def _record(self, how: str, content: Any) -> Do:
        return Do(lambda: self._life.log.record_answer(self._step, self._call_id, how, content))

    def _make(self, tool: Tool) -> Make:
        return Make(self._life.run, tool, self._arguments, self._step, self._call_id)

    def _delegate(self, tool: SubAgent) -> Course:
        run_id = self._life.sub_run_id(self._step, self._call_id)
        words = yield Delegate(tool.agent, self._arguments["task"], run_id, self._life.stop)
        return (yield self._record(DELEGATED, words))

    def _read(self, tool: Tool) -> Course:
        try:
            value = yield self._make(tool)
            encoded = values.encode([value])  # as deep as it will lie in the log
        except Exception as error:
            content = self._told_if_nothing_happened(error)
            return (yield self._record(READ, content))
        (kept,) = values.decode(encoded)
        return (yield self._record(READ, kept))

    def _told_if_nothing_happened(self, error: Exception) -> Any:
        """Of a tool whose error leaves no effect. Raises it where it is not for the model to hear."""
        if isinstance(error, Rejected | Unencodable):
            return advice.nothing_happened(error)
        is_ours = isinstance(error, ClaimLost) or not isinstance(error, NotSent)
        if self._life.rules.on_not_done == "stop" or (isinstance(error, SemelError) and is_ours):
            raise error
        return advice.nothing_happened(error)

    # -------------------------------------------------------------- with an effect

    def _cause(self, tool: Tool) -> Course:
        try:
            value = yield self._make(tool)
        except ResultLost:
            return advice.happened_without_result()
        except KeyReused as reused:
            operation = yield Do(lambda: self._life.guard.read(self._key))
            if operation is not None:
                self._ensure_fits(operation)
            raise reused
        except (Rejected, PreviouslyFailed) as refused:
            return (yield from self._refused(refused))
        except Compensated as undone:
            if not (yield Do(self._is_served_by_another)):
                raise
            return (yield self._record(SERVED, advice.did_not_happen(str(undone))))
        except Reaped as stale:
            if stale.key == self._key:  # this run's own record: no transcript can be told any more
                raise
            return (yield self._record(SERVED, advice.past_retention()))
        except ClaimLost:
            raise
        except NotSent as not_sent:
            if isinstance(tool.effect, Atomic) and not_sent.key in (None, self._key):
                return (yield self._record(GIVEN_UP, self._told_if_nothing_happened(not_sent)))
            return (yield from self._give_up(not_sent))
        except (OutcomeUnknown, PausedForPerson) as doubt:
            return (yield from self._tell_of_doubt(tool, doubt))
        except Exception as error:
            if not isinstance(tool.effect, Atomic):
                raise
            return (yield self._record(GIVEN_UP, self._told_if_nothing_happened(error)))
        return (yield from self._served(tool, advice.as_recorded(value)))

    def _is_served_by_another(self) -> bool:
        """Whether neither this call nor its run was undone, so that only the business event can have been."""
        guard, run_id = self._life.guard, self._life.run_id
        return guard.read(self._key) is None and guard.read(keys.saga_key(guard.namespace, run_id)) is None

    def _refused(self, refused: SemelError) -> Course:
        operation = yield Do(lambda: self._life.guard.read(refused.key or self._key))
        if operation is None:
            return advice.did_not_happen(str(refused))
        content = advice.content_of(operation)
        return content if operation.key == self._key else (yield self._record(SERVED, content))

    def _served(self, tool: Tool, content: Any) -> Course:
        """Where the first intent of a business event gave the answer (`once_per`), no operation holds it for this
        one."""
        if tool.business_identity(self._arguments) is None:
            return content
        operation = yield Do(lambda: self._life.guard.read(self._key))
        return content if operation is not None else (yield self._record(SERVED, content))

    def _give_up(self, not_sent: NotSent) -> Course:
        """The model may ask for it anew; so this intent has to end first, or it would run beside the new one when
        the run is resumed. Both are written together."""
        operation = yield Do(lambda: self._life.guard.read(self._key))
        if (  # none under this key: it is another run's (`once_per`), and that one's to try again
            self._life.rules.on_not_done == "stop"
            or operation is None
            or operation.state is not State.PENDING
        ):
            raise not_sent
        content = advice.nothing_happened(not_sent)
        now = self._life.guard.store.now()
        end = lifecycle.abandon(operation, by=BY, why=describe(not_sent), now=now)
        log = self._life.log
        return (
            yield Do(lambda: log.record_answer(self._step, self._call_id, GIVEN_UP, content, beside=(end,)))
        )

    def _tell_of_doubt(self, tool: Tool, doubt: OutcomeUnknown | PausedForPerson) -> Course:
        """Only what the record calls UNKNOWN is told; not what a live owner is at work on."""
        if isinstance(doubt, ClaimHeld) or self._life.rules.when_unknown(self._call.name) == "pause":
            raise doubt
        operation = yield Do(lambda: self._life.guard.read(doubt.key or self._key))
        if operation is None or operation.state is not State.UNKNOWN:
            raise doubt
        content, _ = yield self._record(UNKNOWN, [advice.unknown(self._call.name), operation.key])
        return content

    def _run_what_was_cleared(self, tool: Tool, recorded: Answered) -> Course:
        """The model was told that nobody knew, and then evidence or a person said "run it": that is not lost. What
        the model was told stays as it is."""
        try:
            yield self._make(tool)
        except SemelError as error:
            if error.outcome == "unknown":
                raise
        return recorded.answer[0]

    # -------------------------------------------------------------- held back

    def _earlier_told_as_unknown(self, tool: Tool) -> Operation | None:
        """One of an earlier turn that this call could repeat. (Two equal calls of one turn are both meant.)

        It may have been settled since; the model did not know that when it asked for this.
        """
        for key in self._life.told_unknown:
            operation = self._life.guard.read(key)
            if operation is None or operation.tool != tool.name:
                continue
            if likeness(values.decode(operation.arguments), self._arguments) is not Likeness.DIFFERENT:
                return operation
        return None

    def _hold_back(self, tool: Tool, earlier: Operation) -> Course:
        try:
            if earlier.reaped_at is None:  # else it has ended, and its arguments are deleted
                yield self._make_earlier(tool, earlier)
        except (OutcomeUnknown, PausedForPerson) as doubt:
            raise self._shown_to_person(doubt, earlier) from doubt
        except (Rejected, PreviouslyFailed, ResultLost, Reaped):
            pass  # it has ended; the record says how
        ended = yield Do(lambda: self._life.guard.read(earlier.key))
        is_same = likeness(values.decode(earlier.arguments), self._arguments) is Likeness.SAME
        is_told = is_same and ended.reaped_at is None
        content = advice.content_of(ended) if is_told else advice.held_back(ended)
        content, _ = yield self._record(HELD, [content, earlier.key])
        return content

    def _make_earlier(self, tool: Tool, earlier: Operation) -> Make:
        run = RunCore(self._life.run.core, earlier.run_id)
        return Make(run, tool, values.decode(earlier.arguments), earlier.step, earlier.call_id)

    def _shown_to_person(
        self, doubt: OutcomeUnknown | PausedForPerson, earlier: Operation
    ) -> OutcomeUnknown | PausedForPerson:
        text = (
            f"Held back: {advice.call_shown(self._call.name, self._arguments)} could be the same as "
            f"{advice.shown(earlier)}, which is in doubt. It was not sent; what becomes of that one answers "
            f"it. {doubt}"
        )
        if isinstance(doubt, PausedForPerson):
            return PausedForPerson(text, key=doubt.key, fingerprint=doubt.fingerprint, attempt=doubt.attempt)
        return OutcomeUnknown(text, key=doubt.key, retry_after=doubt.retry_after)
