"""Levels that misbehave, for the tests of the injector. A module of its own: children import it by name."""

from __future__ import annotations

import os
import threading


def returns_at_once(world, folder, checkpoint):
    """Reaches no window."""


def raises(world, folder, checkpoint):
    raise RuntimeError("cannot go on")


def raises_twice(world, folder, checkpoint):
    lives = len(list(folder.iterdir()))
    (folder / f"life-{lives}").touch()
    if lives < 2:
        raise RuntimeError("not yet")


def waits_for_ever(world, folder, checkpoint):
    threading.Event().wait()


def says_that_it_lives_and_waits_for_ever(world, folder, checkpoint):
    fifo = os.open(folder / "alive", os.O_WRONLY)  # opens when the test reads it, ends when this process does
    os.write(fifo, b"alive")
    threading.Event().wait()


def dies_by_its_own_hand(world, folder, checkpoint):
    checkpoint("W3", 1)
