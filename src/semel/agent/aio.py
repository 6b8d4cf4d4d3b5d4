"""Carries out a course without blocking the loop: the store and plain tools in threads, calls as tasks.

Cancellation reaches the model and the tools (the guard knows what it means for a call in flight). It never
breaks off a write: that is awaited, and what was written stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from semel.agent.steps import Ask, Course, Delegate, Do, Ended, Make, Pause, Raised, Returned, Step, Together
from semel.engine.awaiting import in_thread
from semel.engine.run import CURRENT_RUN, AsyncRun


async def drive(course: Course) -> Any:
    """What the course ends with, or what it raises."""
    resume: Callable[[Any], Step] = course.send
    answer: Any = None
    try:
        while True:  # bounded by the course
            step = resume(answer)
            try:
                answer, resume = await _carry_out(step), course.send
            except BaseException as problem:
                answer, resume = problem, course.throw
    except StopIteration as end:
        return end.value
    finally:
        course.close()  # interrupted right here, between two steps, it lets go of its claim all the same


async def _carry_out(step: Step) -> Any:
    match step:
        case Do(what):
            return await _whole(what)
        case Pause(seconds):
            return await asyncio.sleep(seconds)
        case Ask():
            return await _ask(step)
        case Make():
            return await _make(step)
        case Delegate(agent, task, run_id, stop):
            return (await drive(agent.course(task, run_id, stop=stop))).text
        case Together():
            return await _follow(step)


async def _whole(what: Callable[[], Any]) -> Any:
    """Cancelled or not, it comes to its end: a write is bounded by the store's own time-out."""
    work = asyncio.ensure_future(asyncio.to_thread(what))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await _until_done([work])
        raise


async def _ask(step: Ask) -> Any:
    model, messages, specs, on_text = step
    if asyncio.iscoroutinefunction(model.next_turn):
        return await model.next_turn(messages, specs, on_text=on_text)
    return await in_thread(model.next_turn, messages, specs, on_text=on_text)


async def _make(step: Make) -> Any:
    token = CURRENT_RUN.set(step.run.inside(step.step, step.call_id))
    try:
        return await AsyncRun(step.run).call_at(
            step.tool, step.arguments, step=step.step, call_id=step.call_id
        )
    finally:
        CURRENT_RUN.reset(token)


async def _follow(together: Together) -> list[Ended]:
    if together.at_once == 1:
        ended: list[Ended] = []
        for course in together.courses:
            ended.append(await _followed(course))
            if isinstance(ended[-1], Raised):
                break  # one after the other: what stops one keeps the next from starting
        return ended
    room = asyncio.Semaphore(together.at_once)

    async def in_turn(course: Course) -> Ended:
        async with room:
            return await _followed(course)

    tasks = [asyncio.ensure_future(in_turn(course)) for course in together.courses]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await _until_done(tasks)
        raise
    return [task.result() for task in tasks]


async def _until_done(tasks: Sequence[asyncio.Future[Any]]) -> None:
    while not all(task.done() for task in tasks):  # however often we are cancelled meanwhile
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            continue


async def _followed(course: Course) -> Ended:
    """A cancelled task ends as one that raised: the loop is told once, by whoever waits for all of them."""
    try:
        return Returned(await drive(course))
    except BaseException as error:
        return Raised(error)
