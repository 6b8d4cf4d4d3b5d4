"""The agent: a model, tools, a guard. What a program holds in its hands.

    agent = Agent(model, [charge, send_email], guard)
    ended = agent.run("Renew sub_42.", run_id="renewal:sub_42:2026-12")        # or: await agent.run_async(...)

Killed anywhere and started again under the same run id, it ends in the transcript of a run that was never
disturbed: recorded turns without asking the model, recorded results without any effect.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any

from semel.agent import sync
from semel.agent.budget import Budget
from semel.agent.course import Ended, RunCourse
from semel.agent.fork import fork
from semel.agent.life import OnNotDone, OnUnknown, Passing, Rules, core_of, pass_by
from semel.agent.specs import spec_of
from semel.agent.steps import Step
from semel.agent.stop import Stop
from semel.agent.subagents import SubAgent
from semel.agent.turns import AsyncModel, Model, OnText, ToolSpec
from semel.engine.guard import Guard
from semel.engine.tool import Tool
from semel.errors import UsageError

Tools = Mapping[str, Tool | SubAgent] | Iterable[Tool | SubAgent]


class Agent:
    """A model with tools, on a guard. Runs any number of runs, in any number of threads and tasks."""

    def __init__(
        self,
        model: Model | AsyncModel,
        tools: Tools,
        guard: Guard,
        *,
        budget: Budget | None = None,
        on_unknown: OnUnknown | Mapping[str, OnUnknown] = "pause",
        on_not_done: OnNotDone = "tell",
        calls_at_once: int = 8,
        model_tries: int = 1,
        wait: timedelta | None = None,
        checkpoint: Passing = pass_by,
    ) -> None:
        """
        `tools`          made by `guard.tool(...)`, or other agents' `as_tool(...)`; a mapping renames them.
        `budget`         what a run may spend; a thousand turns if nothing is said.
        `on_unknown`     what a call in doubt means, for all tools or by name. "pause": the run stops, and goes on
                         once it is settled. "tell": the model hears that nobody knows, and goes on; what could be
                         the same call in other words is then held back until it is known.
        `on_not_done`    what a call means that certainly did not happen and may be tried again. "tell": the model
                         hears it, and that intent has ended. "stop": the error is raised, and a resumed run
                         tries again.
        `calls_at_once`  how many calls of one turn run at the same time; plain tools then run in threads. 1: one
                         after the other, and one that stops the run keeps those behind it from starting.
        `model_tries`    how often one turn is asked for, where the model's failure says that it can help.
        `wait`           how long to wait for another process that is at work on the run; the guard's own if None.
        """
        _require(calls_at_once=calls_at_once, model_tries=model_tries)
        self.model = model
        self.guard = guard
        self.tools = _by_name(tools)
        self.specs: tuple[ToolSpec, ...] = tuple(_spec(tool, name) for name, tool in self.tools.items())
        self.rules = Rules(
            on_unknown=on_unknown,
            on_not_done=on_not_done,
            calls_at_once=calls_at_once,
            model_tries=model_tries,
        )
        self.wait = core_of(guard).wait if wait is None else wait
        self.checkpoint = checkpoint
        self._budget = budget or Budget()
        self._at_work: dict[str, set[Stop]] = {}
        self._lock = threading.Lock()
        _check_rules(self.rules, self.tools)

    # -------------------------------------------------------------- running

    def run(
        self, opening: str, *, run_id: str, on_text: OnText | None = None, budget: Budget | None = None
    ) -> Ended:
        """Run to the end, or go on from where the log ends.

        `run_id`   names the business event. Two processes given the same one do not both run it.
        `on_text`  hears the model's text as it arrives (never that of recorded turns). A turn is recorded only
                   when it is whole: of one that breaks off, and is asked for again, both beginnings are heard.
        `budget`   instead of the agent's own.
        Raises what has to be settled first, and leaves a run that can be resumed: `PausedForPerson`,
        `OutcomeUnknown`, `StoreError`, `RunStopped`, `RunHeld`, `RunTakenOver`, `ProgramChanged`, and whatever the
        model raises.
        """
        self.ensure_sync()
        with self._working_on(run_id) as stop:
            ended: Ended = sync.drive(self.course(opening, run_id, stop=stop, on_text=on_text, budget=budget))
            return ended

    async def run_async(
        self, opening: str, *, run_id: str, on_text: OnText | None = None, budget: Budget | None = None
    ) -> Ended:
        """As `run`. Models and tools of either colour; plain ones run in threads."""
        from semel.agent import aio  # imports asyncio, which is slow, only for async callers

        with self._working_on(run_id) as stop:
            ended: Ended = await aio.drive(
                self.course(opening, run_id, stop=stop, on_text=on_text, budget=budget)
            )
            return ended

    def cancel(self, run_id: str) -> bool:
        """Ask a run of this agent, in this process, to stop; whether there is one. From any thread.

        It raises `RunCancelled` at its next step: what is under way ends first and is recorded. Start it again
        to go on. (An async run can be cancelled as a task, too: then the model and the tools are broken off.)
        """
        with self._lock:
            stops = list(self._at_work.get(run_id, ()))
        for stop in stops:
            stop.ask()
        return bool(stops)

    # -------------------------------------------------------------- more than one run

    def fork(self, run_id: str, new_run_id: str, *, upto: int | None = None) -> None:
        """Start a new run from the beginning of an old one: its opening and first `upto` turns, with their answers.

        They are copied as history: nothing runs again for them. What follows is the new run's own: other turns,
        other intents, other keys. `agent.run(opening, run_id=new_run_id)` goes on with it.
        `upto`  all turns whose calls are all answered, if None.
        Raises `UsageError` if the old run does not go that far, or if the new one has begun with something else.
        """
        fork(self, run_id, new_run_id, upto=upto)

    def as_tool(self, name: str, description: str) -> SubAgent:
        """This agent as a tool of another. Its runs are named by the place of the call in the other's run."""
        if not name or not description:
            raise UsageError("A sub-agent needs a name and a description: the model goes by them.")
        return SubAgent(name, description, self)

    def course(
        self,
        opening: str,
        run_id: str,
        *,
        stop: Stop,
        on_text: OnText | None = None,
        budget: Budget | None = None,
        claims_run: bool = True,
    ) -> Generator[Step, Any, Ended]:
        """One life of a run as what is to be done, for `sync` and `aio` to carry out.

        `claims_run=False` leaves it to the log which of two processes' turns counts: both may ask the model.
        """
        return RunCourse(
            self,
            opening,
            run_id,
            stop=stop,
            budget=budget or self._budget,
            on_text=on_text,
            claims_run=claims_run,
        ).steps()

    # -------------------------------------------------------------- small

    @contextmanager
    def _working_on(self, run_id: str) -> Iterator[Stop]:
        stop = Stop(run_id)
        with self._lock:
            self._at_work.setdefault(run_id, set()).add(stop)
        try:
            yield stop
        finally:
            with self._lock:
                self._at_work[run_id].discard(stop)
                if not self._at_work[run_id]:
                    del self._at_work[run_id]

    def ensure_sync(self) -> None:
        """Whatever is the program's fault is found before the model is asked and a turn is persisted."""
        if iscoroutinefunction(self.model.next_turn):
            raise UsageError(
                "The model is async, and this loop is not. Nothing was recorded. Await run_async."
            )
        for name, tool in self.tools.items():
            if isinstance(tool, SubAgent):
                tool.agent.ensure_sync()
            elif tool.is_async:
                raise UsageError(
                    f"The tool {name!r}: {tool.name} is async, and this loop is not. Nothing was recorded. Await "
                    "run_async."
                )


def _by_name(tools: Tools) -> dict[str, Tool | SubAgent]:
    if isinstance(tools, Mapping):
        named = list(tools.items())
    else:
        named = [(getattr(tool, "name", repr(tool)), tool) for tool in tools]
    found: dict[str, Tool | SubAgent] = {}
    for name, tool in named:
        if not isinstance(tool, Tool | SubAgent):
            raise UsageError(f"The tool {name!r} is not registered with @guard.tool. Nothing was recorded.")
        if isinstance(tool, Tool) and tool.compensates is not None:
            raise UsageError(
                f"The tool {name!r} undoes {tool.compensates}: it is called by the guard alone. Nothing recorded."
            )
        if name in found:
            raise UsageError(f"Two tools are named {name!r}. Nothing was recorded.")
        found[name] = tool
    return found


def _spec(tool: Tool | SubAgent, name: str) -> ToolSpec:
    return tool.spec(name) if isinstance(tool, SubAgent) else spec_of(tool, name)


def _require(**numbers: int) -> None:
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise UsageError(f"{name}={number!r} must be a whole number, at least 1. Nothing was recorded.")


def _check_rules(rules: Rules, tools: Mapping[str, Any]) -> None:
    said = {"*": rules.on_unknown} if isinstance(rules.on_unknown, str) else dict(rules.on_unknown)
    for name, what in said.items():
        if what not in ("pause", "tell"):
            raise UsageError(f"on_unknown={what!r}: say 'pause' or 'tell'. Nothing was recorded.")
        if name != "*" and name not in tools:
            raise UsageError(f"on_unknown names {name!r}, and there is no such tool. Nothing was recorded.")
    if rules.on_not_done not in ("tell", "stop"):
        raise UsageError(f"on_not_done={rules.on_not_done!r}: say 'tell' or 'stop'. Nothing was recorded.")
