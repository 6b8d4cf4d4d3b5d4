"""L1, hash of the arguments: the provider gets a key made from what the model wrote.

What it does: starts again like L0, but every request carries a key, the hash of tool and arguments.
What it seals: repeats with identical arguments, in whatever field order, at a provider that honours keys.
What breaks it: a model that words its call differently the second time (dollars for cents, another subject
line) makes a new key, and the provider rightly sees a new request. And two equal calls that are both meant
have one key: the second is swallowed without a word.
"""

from __future__ import annotations

import hashlib
import json
from itertools import count
from pathlib import Path

from semel.lab.client import World
from semel.lab.injector import Checkpoint
from semel.lab.model import Window
from semel.lab.scenario import answered, opening, said
from semel.lab.wire import ToolCall


def run(world: World, folder: Path, checkpoint: Checkpoint) -> None:
    messages, steps = opening(), count(1)
    while (turn := world.model.next_turn(messages)).calls:  # ends with the script
        messages.append(said(turn))
        for call in turn.calls:
            step = next(steps)
            checkpoint(Window.W1, step)
            checkpoint(Window.W2, step)  # the same gap: no intent is written down
            answer = world.provider.perform(call.name, call.arguments, key=key_of(call))
            checkpoint(Window.W3, step)
            checkpoint(Window.W4, step)  # the same gap: no completion is recorded
            messages.append(answered(call, answer))


def key_of(call: ToolCall) -> str:
    """Canonical as to field order, and as to nothing else: 25000 cents and 250 dollars differ."""
    canonical = json.dumps([call.name, dict(call.arguments)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
