"""L0, naive resume: after a crash, start the plan again.

What it does: nothing is written down. The conversation lives in memory, and a fresh process begins it anew.
What it seals: nothing.
What breaks it: a crash at W3 or W4 of any step, since the effect is there and will be caused again; and a
crash at *any* window of a later step, since all earlier steps run again.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

from semel.lab.client import World
from semel.lab.injector import Checkpoint
from semel.lab.model import Window
from semel.lab.scenario import answered, opening, said


def run(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    messages, steps = opening(), count(1)
    while (turn := world.model.next_turn(messages)).calls:  # ends with the script
        messages.append(said(turn))
        for call in turn.calls:
            step = next(steps)
            checkpoint(Window.W1, step)
            checkpoint(Window.W2, step)  # the same gap: no intent is written down
            answer = world.provider.perform(call.name, call.arguments)
            checkpoint(Window.W3, step)
            checkpoint(Window.W4, step)  # the same gap: no completion is recorded
            messages.append(answered(call, answer))
