"""The crash lab in a test suite: which of the three agents does everything once, wherever it is killed?

The first two fail, and are meant to. Nothing of an agent is imported here: it is named, and each of its lives is a
fresh process.
"""

from __future__ import annotations

import pytest

HOW = {
    "env": {"BILLING_URL": "{provider}"},  # where the agent finds the lab's provider instead of the real one
    "identity": ["customer", "period", "to", "subject"],  # the model rewords the rest
    "preload": ["pydantic_ai"],
}


@pytest.mark.crash(windows=["W2", "W3"])
def test_the_naive_agent_does_everything_once(crash_lab):
    crash_lab.run("naive_agent:run", **HOW).assert_once()


@pytest.mark.crash(windows=["W2", "W3"])
def test_the_agent_with_keys_does_everything_once(crash_lab):
    crash_lab.run("keyed_agent:run", **HOW).assert_once()


@pytest.mark.crash(windows=["W2", "W3"])
def test_the_guarded_agent_does_everything_once_and_asks_nobody(crash_lab):
    report = crash_lab.run("guarded_agent:run", **HOW)
    report.assert_once()
    assert report.asked == ()
