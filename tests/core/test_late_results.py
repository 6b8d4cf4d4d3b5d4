"""A worker returns under a key that another has resent meanwhile: one effect, if the provider kept its word."""

from __future__ import annotations

from datetime import timedelta

import pytest
from workbench import call

import semel

HOUR = timedelta(hours=1)
KEY = semel.Idempotent(key_ttl=24 * HOUR)


def overtaken(open_guard, clock, *, answers: list[str]):
    """The first attempt outlives its lease, and the second is made while it is still at work."""
    first, second = open_guard(lease=HOUR), open_guard(lease=HOUR)
    take_over = second.tool(effect=KEY, name="charge")(lambda: answers[1])

    def charge():
        clock.advance(2 * HOUR)
        call(second, "sync", "run", take_over)
        return answers[0]

    assert call(first, "sync", "run", first.tool(effect=KEY)(charge)) == answers[0]
    (operation,) = first.store.read_run("", "run")
    assert (operation.state, operation.fence) == (semel.State.COMMITTED, 2)
    return first, operation


def test_one_key_and_two_results_are_told_as_a_divergence_and_the_record_stays(open_guard, clock):
    guard, operation = overtaken(open_guard, clock, answers=["ch_1", "ch_2"])
    (entry,) = guard.divergences()
    assert (entry.key, entry.fence) == (operation.key, 1)
    assert "perhaps the provider did not honour the key" in entry.why
    assert operation.result == '"ch_2"'


@pytest.mark.parametrize("answer", ["ch_1", ""])
def test_one_key_and_one_result_are_one_effect(open_guard, clock, answer):
    guard, _ = overtaken(open_guard, clock, answers=[answer, answer])
    assert guard.divergences() == []
