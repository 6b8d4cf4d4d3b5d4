"""An agent as a tool of another: its run is named by the place of the call, and resumes with it."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest
from bureau import OPENING, RUN_ID, Bureau, Counted, Meeting, answers, pick, say
from workbench import Ledger, kill

import semel
from semel.agent import Budget, BudgetSpent, ProgramChanged, RunCancelled, ScriptedModel
from semel.agent.names import sub_run_id

PARENT = [say(pick("clerk", "1", task="Write to ann."), pick("charge", "2", to="bob")), say(text="all done")]
CLERK = [say(pick("send", to="ann")), say(text="written")]


def with_clerk(mine, clerk=None, parent=None, **options):
    """The parent's agent; `clerk` is a model."""
    below = mine.agent(clerk or Counted(CLERK), tools=[mine.tools["send"]], **options)
    tools = [below.as_tool("clerk", "Writes letters."), mine.tools["charge"]]
    return mine.agent(parent or Counted(PARENT), tools=tools)


def test_a_sub_agents_last_words_are_what_the_parent_is_told(bureau):
    mine = bureau()
    ended = mine.run(with_clerk(mine))
    assert answers(ended) == ["written", "charge bob"]
    assert ended.text == "all done"


def test_its_model_is_told_of_it_as_of_any_tool(bureau):
    mine, model = bureau(), Counted(PARENT)
    mine.run(with_clerk(mine, parent=model))
    spec = model.specs[0]
    assert (spec.name, spec.description) == ("clerk", "Writes letters.")
    assert spec.parameters["required"] == ["task"]


def test_an_ended_sub_agent_is_not_asked_again(bureau):
    mine = bureau()
    first = mine.run(with_clerk(mine))
    clerk = Counted(())
    assert mine.run(with_clerk(mine, clerk)).transcript == first.transcript
    assert clerk.shown == []


def test_its_run_is_named_by_the_place_of_the_call_so_two_calls_are_two_runs(bureau):
    mine = bureau()
    calls = [pick("clerk", "1", task="Write."), pick("clerk", "2", task="Write.")]
    mine.run(with_clerk(mine, parent=Counted([say(*calls), say(pick("clerk", "1", task="Write."))])))
    assert mine.sent() == ["ann"] * 3
    names = {
        sub_run_id("", RUN_ID, step, f"id:{call}") for step, call in (("1", "1"), ("1", "2"), ("2", "1"))
    }
    assert [mine.log(name)[-1] for name in names] == ["turn"] * 3


def test_no_choice_of_names_makes_two_places_one():
    places = [("a", "b", "c"), ("a/b", "c", ""), ("a", "b/c", ""), ("", "a/b", "c"), ("a@", "b", "c")]
    assert len({sub_run_id("", *place) for place in places}) == len(places)
    assert sub_run_id("x", "a", "b", "c") != sub_run_id("", "a", "b", "c")


def test_sub_agents_of_one_turn_work_at_the_same_time(bureau):
    mine = bureau()
    mine.fail = Meeting(2)
    calls = [pick("clerk", "1", task="Write."), pick("clerk", "2", task="Write.")]
    mine.run(with_clerk(mine, parent=Counted([say(*calls)])))
    assert mine.sent() == ["ann"] * 2


def test_a_doubt_in_a_sub_agent_pauses_the_parent_and_both_resume(bureau):
    mine, clerk, parent = bureau(wait=timedelta(0)), Counted(CLERK), Counted(PARENT)
    left = [TimeoutError("no answer")]

    def lose(call):
        if call.tool == "send" and left:
            raise left.pop()

    mine.lose, mine.is_down = lose, True
    with pytest.raises(semel.OutcomeUnknown):
        mine.run(with_clerk(mine, clerk, parent))
    mine.is_down = False
    assert answers(mine.run(with_clerk(mine, clerk, parent))) == ["written", "charge bob"]
    assert sorted(mine.sent()) == ["ann", "bob"]
    assert (len(clerk.shown), len(parent.shown)) == (2, 2)


def test_a_sub_agents_budget_is_its_own_and_stops_the_parent(bureau):
    mine = bureau()
    with pytest.raises(BudgetSpent) as spent:
        mine.run(with_clerk(mine, budget=Budget(turns=1)))
    assert spent.value.run_id.startswith(f"{RUN_ID}/1/id:1@")
    assert answers(mine.run(with_clerk(mine)))[0] == "written"
    assert sorted(mine.sent()) == ["ann", "bob"]


def test_whoever_cancels_the_parent_cancels_what_works_for_it(bureau):
    mine, clerk = bureau(), Counted(CLERK)
    agent = with_clerk(mine, clerk)
    mine.lose = lambda call: agent.cancel(RUN_ID)
    with pytest.raises(RunCancelled):
        mine.run(agent)
    assert len(clerk.shown) <= 1
    mine.lose = lambda call: None
    assert answers(mine.run(agent)) == ["written", "charge bob"]
    assert sorted(mine.sent()) == ["ann", "bob"]


@pytest.mark.parametrize("wrong", [{}, {"task": 5}, {"task": "Write.", "more": 1}], ids=str)
def test_a_task_that_is_no_text_is_the_models_to_hear_of(bureau, wrong):
    mine = bureau()
    (answer,) = answers(mine.run(with_clerk(mine, parent=Counted([say(pick("clerk", **wrong))]))))
    assert (answer["outcome"], answer["retryable"]) == ("did_not_happen", False)


def test_another_task_at_the_same_place_is_another_program(bureau):
    mine = bureau()
    with pytest.raises(BudgetSpent):
        mine.run(with_clerk(mine, budget=Budget(turns=1)))
    name = sub_run_id("", RUN_ID, "1", "id:1")
    with pytest.raises(ProgramChanged, match=r"'Write to ann\.' and is now given 'Write to bob\.'"):
        mine.run(mine.agent(Counted(CLERK)), "Write to bob.", run_id=name)


# ------------------------------------------------------------------ kill -9 in a run within a run


class Asked:
    """A model that tells a file of each question."""

    def __init__(self, folder, name, script):
        self.ledger = Ledger(folder)
        self._name = name
        self._script = ScriptedModel(script)

    def next_turn(self, messages, tools, *, on_text=None):
        turn = 1 + [message["role"] for message in messages].count("assistant")
        self.ledger.enter(self._name, turn=turn)
        return self._script.next_turn(messages, tools)


def nested(folder, dies_at=None):
    mine = Bureau(folder)

    def checkpoint(place, name):
        if f"{place}@{name}" == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    below = mine.agent(
        Asked(folder / "model", "clerk", CLERK), tools=[mine.tools["send"]], checkpoint=checkpoint
    )
    tools = [below.as_tool("clerk", "Writes letters.")]
    return mine, mine.agent(Asked(folder / "model", "parent", [PARENT[0]]), tools=tools)


def die_below(folder, dies_at):
    _, agent = nested(folder, dies_at)
    agent.run(OPENING, run_id=RUN_ID)


PLACES = [
    "asking@1",
    "asked@1",
    "recorded@1",
    "calling@1/0",
    "called@1/0",
    "asking@2",
    "asked@2",
    "recorded@2",
]


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_in_a_sub_agent_it_resumes_with_its_parent(tmp_path, place):
    (tmp_path / "model").mkdir()
    kill(die_below, tmp_path, place)
    mine, agent = nested(tmp_path)
    assert answers(agent.run(OPENING, run_id=RUN_ID))[0] == "written"
    mine.guard.close()
    asked = [(line["tool"], line["turn"]) for line in Ledger(tmp_path / "model").lines()]
    again = [("clerk", int(place[-1]))] if place.startswith("asked") else []
    assert sorted(asked) == sorted([("parent", 1), ("parent", 2), ("clerk", 1), ("clerk", 2), *again])
    assert mine.sent() == ["ann"]


def test_a_call_id_of_any_length_names_a_run_that_can_be_indexed(bureau):
    """A PostgreSQL index takes no row of more than 2,700 bytes, and some providers' call ids are longer."""
    mine = bureau()
    worker = mine.agent(Counted([say(pick("send", to="ann"))]))
    long = "é" * 20_000
    calls = [pick("worker", f"{long}{number}", task="go") for number in (1, 2)]
    parent = mine.agent(Counted([say(*calls)]), tools=[worker.as_tool("worker", "Works.")])
    runs = {sub_run_id("", RUN_ID, "1", f"id:{call.id}") for call in calls}
    ended = mine.run(parent)
    assert len(runs) == 2
    assert all(len(run_id.encode()) < 2_700 and mine.log(run_id)[0] == "input" for run_id in runs)
    assert mine.sent() == ["ann", "ann"]
    assert mine.run(parent).transcript == ended.transcript
