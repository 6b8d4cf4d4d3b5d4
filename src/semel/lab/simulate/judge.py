"""The oracle of the simulator: compares what happened with what was wanted, by business event.

Where every declaration is true, no event happens twice, none is lost, nobody is stuck or asked for nothing. Where
one is broken on purpose a second effect cannot be helped; but a guard that came to hear of both must have said so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from semel.lab.model import Verdict
from semel.lab.simulate.process import Process
from semel.lab.simulate.setting import Plan, Untrue
from semel.lab.simulate.world import World
from semel.model import Event


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    why: str = ""


def judge(world: World) -> Finding:
    """The gravest finding."""
    return max(_findings(world), key=lambda finding: finding.verdict, default=Finding(Verdict.OK))


def _findings(world: World) -> Iterator[Finding]:
    is_true = world.setting.untrue is Untrue.NOTHING
    yield from _duplicates(world) if is_true else _silent_divergences(world)
    for process in world.processes:
        for position, (wanted, _) in enumerate(process.calls):
            yield from _of_call(world, process, position, wanted.event)
    for flaw in world.flaws:
        yield Finding(Verdict.STUCK, flaw)
    if is_true:
        for why in world.false_asks:
            yield Finding(Verdict.FALSE_ASK, why)


def _duplicates(world: World) -> Iterator[Finding]:
    for event in set(world.event_of.values()):
        done = world.provider.of_event(event)
        if len(done) > 1:
            yield Finding(Verdict.DUPLICATE, f"event {event} happened {len(done)} times")


def _silent_divergences(world: World) -> Iterator[Finding]:
    """Two effects of one event came back to the guard, and it told nobody.

    Not where the provider forgot a key before its time: two answers under one key are one by its own word.
    """
    if world.setting.honours_keys:
        return
    is_noted = any(note.event is Event.DIVERGED for note in world.table.notes)
    is_told = any(word == "diverged" for process in world.processes for word in process.told.values())
    for event, heard in world.heard.items():
        if len(heard) > 1 and not is_noted and not is_told:
            yield Finding(
                Verdict.DUPLICATE, f"event {event} was answered {len(heard)} times, and nobody was told"
            )


def _of_call(world: World, process: Process, position: int, event: str) -> Iterator[Finding]:
    done = world.provider.of_event(event)
    match process.told.get(position):
        case "done" if not done:
            yield Finding(Verdict.LOST, f"{process.name} was told that event {event} is done, and it is not")
        case "failed" if world.setting.plan is Plan.ONE_EVENT and event in world.provider.rejected:
            return  # a failed call does not use up its event: another may do it
        case "failed" if done and world.setting.untrue is Untrue.NOTHING:
            yield Finding(Verdict.LOST, f"{process.name} was told that event {event} failed, and it is done")
        case "failed" if event not in world.provider.rejected:
            yield Finding(Verdict.LOST, f"event {event} was given up, and nobody had refused it")
        case "refused" if world.setting.plan is not Plan.OTHER_ARGUMENTS:
            yield Finding(Verdict.LOST, f"event {event} was taken for another one and refused")
        case "diverged" if world.setting.untrue is Untrue.NOTHING:
            yield Finding(Verdict.FALSE_ASK, f"{process.name} was told of a divergence that there is not")
        case None if process.comes_back:
            yield Finding(Verdict.STUCK, f"{process.name} never came to an end with event {event}")
