"""Carries out a course in the caller's own thread; calls that are to run together in a thread each."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from typing import Any

from semel.agent.steps import Ask, Course, Delegate, Do, Ended, Make, Pause, Raised, Returned, Step, Together
from semel.engine.run import CURRENT_RUN, Run


def drive(course: Course) -> Any:
    """What the course ends with, or what it raises."""
    resume: Callable[[Any], Step] = course.send
    answer: Any = None
    try:
        while True:  # bounded by the course
            step = resume(answer)
            try:
                answer, resume = _carry_out(step), course.send
            except BaseException as problem:
                answer, resume = problem, course.throw
    except StopIteration as end:
        return end.value
    finally:
        course.close()  # interrupted right here, between two steps, it lets go of its claim all the same


def _carry_out(step: Step) -> Any:
    match step:
        case Do(what):
            return what()
        case Pause(seconds):
            return time.sleep(seconds)
        case Ask(model, messages, specs, on_text):
            return model.next_turn(messages, specs, on_text=on_text)
        case Make():
            return _make(step)
        case Delegate(agent, task, run_id, stop):
            return drive(agent.course(task, run_id, stop=stop)).text
        case Together():
            return _follow(step)


def _make(step: Make) -> Any:
    token = CURRENT_RUN.set(step.run.inside(step.step, step.call_id))
    try:
        return Run(step.run).call_at(step.tool, step.arguments, step=step.step, call_id=step.call_id)
    finally:
        CURRENT_RUN.reset(token)


def _follow(together: Together) -> list[Ended]:
    if min(together.at_once, len(together.courses)) > 1:
        return _follow_in_threads(together)
    ended: list[Ended] = []
    for course in together.courses:
        ended.append(_followed(course))
        if isinstance(ended[-1], Raised):
            break  # one after the other: what stops one keeps the next from starting
    return ended


def _follow_in_threads(together: Together) -> list[Ended]:
    from concurrent.futures import ThreadPoolExecutor  # slow to import, only for turns of several calls

    with ThreadPoolExecutor(min(together.at_once, len(together.courses)), "semel-call") as pool:
        futures = [
            pool.submit(contextvars.copy_context().run, _followed, course) for course in together.courses
        ]
        try:
            return [future.result() for future in futures]
        except BaseException:  # interrupted: calls that have begun come to their end, no further one begins
            for future in futures:
                future.cancel()
            raise


def _followed(course: Course) -> Ended:
    try:
        return Returned(drive(course))
    except BaseException as error:
        return Raised(error)
