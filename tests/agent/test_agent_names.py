"""The front of `semel.agent`: its names and their words."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import semel
from semel import agent

ALIASES = {"Message", "OnText"}  # told where they are defined
ERRORS = [
    kind
    for kind in (getattr(agent, name) for name in agent.__all__)
    if isinstance(kind, type) and issubclass(kind, BaseException)
]


@pytest.mark.parametrize("name", sorted(set(agent.__all__) - ALIASES))
def test_each_public_name_says_what_it_is(name):
    words = getattr(agent, name).__doc__ or ""
    assert words.strip()
    assert not words.startswith(f"{name}("), (
        "that is the signature, which `dataclass` writes when nobody does"
    )


def test_the_list_of_names_is_sorted_whole_and_without_repetition():
    assert agent.__all__ == sorted(set(agent.__all__), key=lambda name: (name[0].islower(), name))


@pytest.mark.parametrize("name", ["run", "run_async", "cancel", "fork", "as_tool"])
def test_each_verb_of_an_agent_says_what_it_does(name):
    assert getattr(agent.Agent, name).__doc__


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_each_error_is_one_of_ours_says_what_it_means_for_the_effect_and_pickles(kind):
    error = kind("words")
    assert isinstance(error, semel.SemelError)
    assert error.outcome in ("did_not_happen", "unknown")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, "words", vars(error))


def test_who_only_guards_does_not_import_the_agent_and_the_sync_agent_not_asyncio():
    code = (
        "import sys, semel; assert 'semel.agent' not in sys.modules;"
        "import semel.agent; assert 'asyncio' not in sys.modules, 'slow to import'"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
