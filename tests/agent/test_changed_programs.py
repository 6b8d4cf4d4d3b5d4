"""A program that no longer matches the log is refused, with the first difference; a fork starts anew on purpose."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta

import pytest
from bureau import OPENING, RUN_ID, Bureau, Counted, answers, pick, say
from workbench import kill

import semel
from semel.agent import Budget, BudgetSpent, ProgramChanged

SCRIPT = [say(pick("send", to="ann")), say(pick("post", to="bob"), pick("charge", to="cy"))]


@pytest.fixture
def half_way(bureau):
    """A run whose second turn is recorded, and none of its calls made; and the same program in a new version."""

    def begun():
        mine = bureau()
        with pytest.raises(KeyboardInterrupt):
            mine.run(mine.agent(Counted(SCRIPT), checkpoint=interrupt_before("2/0")))
        return mine

    return begun


def interrupt_before(name):
    def checkpoint(place, here):
        if (place, here) == ("recorded", name.partition("/")[0]):
            raise KeyboardInterrupt

    return checkpoint


def refused(mine, opening=OPENING, **options):
    entries, log = mine.ledger.lines(), mine.log()
    with pytest.raises(ProgramChanged) as error:
        mine.run(mine.agent(Counted(SCRIPT), **options), opening)
    assert mine.ledger.lines() == entries, "something was sent"
    assert [kind for kind in mine.log() if kind != "resumed"] == [kind for kind in log if kind != "resumed"]
    assert str(error.value).startswith(error.value.difference)
    return error.value.difference


def other(mine, name, effect=None, fn=None):
    """The tools, with one of them as another version has it."""
    guard = semel.open(":memory:")
    return mine.tools | {name: guard.tool(effect=effect, name=name)(fn)}


def enter(to: str, amount: float | None = None, text: str = "") -> str:
    return to


HONEST = semel.Unsafe(lookup=lambda call: semel.Absent())


def test_another_opening_is_refused(half_way):
    difference = refused(half_way(), "Cancel sub_42.")
    assert "'Renew sub_42.' and is now given 'Cancel sub_42.'" in difference


def test_a_tool_that_was_called_and_is_gone_is_refused(half_way):
    mine = half_way()
    tools = {name: tool for name, tool in mine.tools.items() if name != "send"}
    assert "turn 1, call 'place:0': send was called" in (difference := refused(mine, tools=tools))
    assert "no tool named 'send' now" in difference


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        (semel.Safe(), "only reads now"),
        (semel.Idempotent(key_ttl=timedelta(days=1)), "was unsafe then, and is idempotent"),
    ],
    ids=["safe", "idempotent"],
)
def test_a_tool_that_was_called_and_has_another_kind_of_effect_is_refused(half_way, effect, told):
    mine = half_way()
    assert told in refused(mine, tools=other(mine, "send", effect, enter))


def test_another_tool_under_the_same_name_is_refused(half_way):
    mine = half_way()
    assert "send is post now" in refused(mine, tools=mine.tools | {"send": mine.tools["post"]})


def test_other_defaults_of_a_tool_that_was_called_are_refused_by_the_argument(half_way):
    def with_other_default(to: str, amount: float | None = None, text: str = "Hello") -> str:
        return to

    mine = half_way()
    difference = refused(mine, tools=other(mine, "send", HONEST, with_other_default))
    assert "called with text='', and is called with text='Hello' now" in difference


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (lambda to, amount=None: to, "takes no text now"),
        (lambda to, amount=None, text="", copies=1: to, "called without copies, and is called with copies=1"),
        (lambda whom: whom, "cannot be called so now"),
    ],
    ids=["fewer", "more", "renamed"],
)
def test_other_parameters_of_a_tool_that_was_called_are_refused(half_way, fn, told):
    mine = half_way()
    assert told in refused(mine, tools=other(mine, "send", HONEST, fn))


def test_a_sub_agent_in_the_place_of_a_tool_with_an_effect_is_refused(half_way):
    mine = half_way()
    tools = mine.tools | {"send": mine.agent(Counted(())).as_tool("send", "Sends.")}
    assert "send is a sub-agent now" in refused(mine, tools=tools)


def test_a_tool_that_was_never_called_may_come_and_go(half_way):
    mine = half_way()
    tools = {name: tool for name, tool in mine.tools.items() if name != "charge"}
    mine.register("more", semel.Safe(), lambda: 1)
    ended = mine.run(mine.agent(Counted(SCRIPT), tools=tools | {"more": mine.tools["more"]}))
    assert answers(ended)[:2] == ["send ann", "post bob"]
    assert answers(ended)[2]["error"] == "there is no tool named 'charge'"


def test_the_old_program_goes_on_after_a_new_one_was_refused(half_way):
    mine = half_way()
    refused(mine, "Cancel sub_42.")
    assert answers(mine.run(mine.agent(Counted(SCRIPT)))) == ["send ann", "post bob", "charge cy"]


# ------------------------------------------------------------------ forks


def ended_run(mine, script=SCRIPT):
    return mine.run(mine.agent(Counted(script)))


def test_a_fork_has_the_beginning_as_history_and_nothing_of_it_runs_again(bureau):
    mine = bureau()
    old = ended_run(mine)
    model = Counted([SCRIPT[0], say(pick("charge", to="dee"))])
    agent = mine.agent(model)
    agent.fork(RUN_ID, "forked", upto=1)
    assert mine.sent() == mine.sent()[:3]
    ended = mine.run(agent, run_id="forked")
    assert ended.transcript[:3] == old.transcript[:3]
    assert answers(ended) == ["send ann", "charge dee"]
    assert len(model.shown) == 2, "the turns of the beginning were asked for again"
    assert sorted(mine.sent()) == ["ann", "bob", "cy", "dee"]


def test_a_fork_makes_equal_calls_as_intents_of_its_own(bureau):
    mine = bureau()
    ended_run(mine)
    agent = mine.agent(Counted(SCRIPT))
    agent.fork(RUN_ID, "forked", upto=1)
    mine.run(agent, run_id="forked")
    assert mine.sent("post") == ["bob", "bob"]
    assert len(set(mine.ledger.keys("charge"))) == 2
    assert [operation.tool for operation in mine.guard.store.read_run("", "forked")] == ["post", "charge"]


def test_a_fork_holds_all_kinds_of_answers(bureau):
    mine = bureau()

    def decline():
        raise semel.Rejected("declined")

    mine.register("decline", semel.Unsafe(), decline)
    mine.register("look", semel.Safe(), lambda: [1, 2])
    mine.register("lost", semel.Unsafe(), lambda: object())
    mine.register("renew", semel.Unsafe(), lambda who: f"renewed {who}", once_per="who")
    calls = [
        pick("decline"),
        pick("look"),
        pick("lost"),
        pick("nobody"),
        pick("renew", who="a"),
        pick("renew", who="a"),
    ]
    old = ended_run(mine, [say(*calls), say(pick("send", to="ann"))])
    agent = mine.agent(Counted([say(*calls)]))
    agent.fork(RUN_ID, "forked")
    ended = mine.run(agent, run_id="forked")
    assert answers(ended) == answers(old)
    assert mine.run(agent, run_id="forked").transcript == ended.transcript
    assert mine.guard.store.read_run("", "forked") == []


def test_a_fork_of_everything_ends_before_the_last_words(bureau):
    mine = bureau()
    old = ended_run(mine)
    model = Counted([*SCRIPT, say(text="in other words")])
    agent = mine.agent(model)
    agent.fork(RUN_ID, "forked")
    ended = mine.run(agent, run_id="forked")
    assert ended.transcript[:-1] == old.transcript[:-1]
    assert (ended.text, len(model.shown)) == ("in other words", 1)


def test_a_fork_from_the_opening_alone_is_another_run_of_the_same_task(bureau):
    mine = bureau()
    ended_run(mine)
    agent = mine.agent(Counted(SCRIPT))
    agent.fork(RUN_ID, "forked", upto=0)
    mine.run(agent, run_id="forked")
    assert sorted(mine.sent()) == ["ann", "ann", "bob", "bob", "cy", "cy"]
    with pytest.raises(ProgramChanged):
        mine.run(agent, "Cancel sub_42.", run_id="forked")


def test_a_fork_asked_for_twice_is_one_fork(bureau):
    mine = bureau()
    ended_run(mine)
    agent = mine.agent(Counted(SCRIPT))
    agent.fork(RUN_ID, "forked", upto=1)
    agent.fork(RUN_ID, "forked", upto=1)
    mine.run(agent, run_id="forked")
    agent.fork(RUN_ID, "forked", upto=1)
    with pytest.raises(semel.UsageError, match="has begun already"):
        agent.fork(RUN_ID, "forked", upto=2)
    with pytest.raises(semel.UsageError, match="has begun already"):
        agent.fork("forked", RUN_ID)


@pytest.mark.parametrize(
    ("upto", "why"),
    [(3, "which is its last"), (4, "which is its last"), (-1, "whole number"), (1.5, "whole number")],
)
def test_a_fork_beyond_the_end_is_refused_and_leaves_nothing(bureau, upto, why):
    mine = bureau()
    ended_run(mine)
    with pytest.raises(semel.UsageError, match=why):
        mine.agent(Counted(())).fork(RUN_ID, "forked", upto=upto)
    assert mine.log("forked") == []


def test_a_fork_of_no_run_is_refused(bureau):
    with pytest.raises(semel.UsageError, match="has not begun"):
        bureau().agent(Counted(())).fork("nobody", "forked")


def test_a_fork_of_a_turn_that_is_not_answered_is_refused_and_one_before_it_is_not(half_way):
    mine = half_way()
    agent = mine.agent(Counted(SCRIPT))
    with pytest.raises(semel.UsageError, match="calls that are not answered yet"):
        agent.fork(RUN_ID, "forked", upto=2)
    agent.fork(RUN_ID, "forked")
    assert mine.log("forked") == ["input", "forked", "turn", "answer"]
    assert mine.sent() == ["ann"]


def test_a_fork_holds_back_what_could_repeat_a_call_of_the_old_run_that_is_in_doubt(bureau):
    mine = bureau()

    def lose(call):
        raise TimeoutError("no answer")

    mine.lose = lose
    old = mine.agent(Counted([say(pick("post", to="ann"))]), on_unknown="tell")
    mine.run(old)
    agent = mine.agent(Counted([say(pick("post", to="ann"))] * 2), on_unknown="tell")
    agent.fork(RUN_ID, "forked")
    with pytest.raises(semel.PausedForPerson, match="Held back"):
        mine.run(agent, run_id="forked")
    (doubt,) = mine.guard.in_doubt()
    mine.guard.resolve(doubt.key, semel.ItHappened("posted"), by="pat", why="saw it")
    told, held = answers(mine.run(agent, run_id="forked"))
    assert (told["outcome"], held) == ("unknown", "posted")
    assert mine.sent() == ["ann"]


def test_a_call_that_was_answered_and_of_which_nothing_is_recorded_is_not_made_again(bureau, tmp_path):
    mine = bureau()
    ended_run(mine)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        database.execute("DELETE FROM semel_history")
        database.execute("DELETE FROM semel_operations WHERE tool = 'send'")
    with pytest.raises(ProgramChanged, match="send was answered, and nothing is recorded of it"):
        ended_run(mine)
    assert mine.sent("send") == ["ann"]


def test_what_the_beginning_spent_counts_as_spent(bureau):
    mine = bureau()
    ended_run(mine)
    agent = mine.agent(Counted(SCRIPT), budget=Budget(turns=2))
    agent.fork(RUN_ID, "forked", upto=2)
    with pytest.raises(BudgetSpent):
        mine.run(agent, run_id="forked")


def die_right_behind_a_fork(folder):
    mine = Bureau(folder)
    mine.agent(Counted(SCRIPT)).fork(RUN_ID, "forked", upto=1)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_fork_is_whole_after_a_kill_right_behind_it(tmp_path, bureau):
    mine = bureau()
    ended_run(mine)
    kill(die_right_behind_a_fork, tmp_path)
    assert answers(mine.run(mine.agent(Counted(SCRIPT)), run_id="forked"))[0] == "send ann"
    assert mine.sent("send") == ["ann"]


# ------------------------------------------------------------------ a run that was undone


def undone_run(mine):
    """Its first turn charged and was undone; its second was still to come."""

    @mine.tools["charge"].compensation(effect=semel.Unsafe())
    def refund(arguments, result):
        mine.ledger.enter("refund", to=arguments["to"])

    script = [say(pick("charge", to="ann"))] * 2
    with pytest.raises(BudgetSpent):
        mine.run(mine.agent(Counted(script), budget=Budget(turns=1)))
    with mine.guard.run(RUN_ID) as run:
        run.compensate()
    assert mine.sent("refund") == ["ann"]
    return script


def test_a_run_that_was_undone_does_not_go_on_and_asks_nobody(bureau):
    mine = bureau()
    model = Counted(undone_run(mine))
    with pytest.raises(semel.Compensated):
        mine.run(mine.agent(model))
    assert model.shown == []
    assert mine.sent("charge") == ["ann"]


def test_a_fork_does_not_take_over_what_was_undone(bureau):
    mine = bureau()
    agent = mine.agent(Counted(undone_run(mine)))
    with pytest.raises(semel.UsageError, match="which was undone"):
        agent.fork(RUN_ID, "forked", upto=1)
    agent.fork(RUN_ID, "forked", upto=0)
    mine.run(agent, run_id="forked")
    assert mine.sent("charge") == ["ann"] * 3


def test_what_a_tool_calls_itself_is_undone_with_its_run(bureau):
    mine = bureau()
    inner = mine.guard.tool(effect=semel.Unsafe(), name="inner")(lambda n: mine.ledger.enter("inner", to=n))

    @inner.compensation(effect=semel.Unsafe())
    def undo(arguments, result):
        mine.ledger.enter("undo", to=arguments["n"])

    mine.register(
        "outer", semel.Idempotent(key_ttl=timedelta(days=1)), lambda n: inner(n=n), irreversible=True
    )
    mine.run(mine.agent(Counted([say(pick("outer", n=1), pick("outer", n=2))])))
    with mine.guard.run(RUN_ID) as run, suppress(semel.SagaOpen):
        run.compensate()
    assert sorted(mine.sent("undo")) == [1, 2]


def test_a_tool_that_undoes_another_is_not_the_models_to_call(bureau):
    mine = bureau()

    @mine.tools["charge"].compensation(effect=semel.Unsafe())
    def refund(arguments, result):
        return None

    with pytest.raises(semel.UsageError, match="called by the guard alone"):
        mine.agent(Counted(()), tools={"refund": refund})
