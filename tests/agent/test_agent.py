"""The agent in both colours: parallel calls, streaming, a model that fails, budgets, cancellation."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from datetime import timedelta

import pytest
from bureau import OPENING, RUN_ID, Counted, Meeting, answers, pick, say

import semel
from semel.agent import (
    Agent,
    AsyncScriptedModel,
    Budget,
    BudgetSpent,
    ModelFailed,
    RunCancelled,
    RunStopped,
    ScriptedModel,
    Turn,
    Usage,
)
from semel.testing.clock import ManualClock

TWO = (say(pick("send", to="ann"), pick("charge", to="bob"), text="both"), say(text="done"))


# ------------------------------------------------------------------ running, and running again


def test_a_run_ends_with_its_last_words_and_tells_what_it_took(bureau):
    mine, model = bureau(), Counted(TWO)
    ended = mine.run(mine.agent(model))
    assert (ended.text, ended.turns, ended.model_calls) == ("done", 2, 2)
    assert answers(ended) == ["send ann", "charge bob"]
    assert model.shown[1] == ended.transcript[:-1]
    assert sorted(mine.sent()) == ["ann", "bob"]


def test_started_again_it_tells_the_same_and_asks_nobody(bureau):
    mine = bureau()
    first, model = mine.run(mine.agent(Counted(TWO))), Counted(())
    again = mine.run(mine.agent(model))
    assert again.transcript == first.transcript
    assert (again.model_calls, model.shown) == (0, [])
    assert sorted(mine.sent()) == ["ann", "bob"]


def test_a_run_can_be_begun_in_one_colour_and_ended_in_the_other(bureau):
    mine = bureau()
    mine.fail = raise_once(semel.NotSent("no route"))
    with pytest.raises(semel.NotSent):
        mine.run(mine.agent(Counted(TWO), on_not_done="stop"))
    mine.colour = "sync" if mine.colour == "async" else "async"
    assert answers(mine.run(mine.agent(Counted(TWO)))) == ["send ann", "charge bob"]
    assert sorted(mine.sent()) == ["ann", "bob"]


def test_a_finished_run_costs_no_write(bureau, monkeypatch):
    mine = bureau()
    mine.run(mine.agent(Counted(TWO)))
    monkeypatch.setattr(mine.guard.store, "apply", None)  # any write would fail
    assert mine.run(mine.agent(Counted(()))).text == "done"


def raise_once(error):
    left = [error]

    def fail(call):
        if left:
            raise left.pop()

    return fail


# ------------------------------------------------------------------ parallel calls


def test_the_calls_of_a_turn_run_at_the_same_time_and_are_told_in_their_order(bureau):
    mine = bureau()
    mine.fail = Meeting(3)
    ended = mine.run(mine.agent(Counted([say(*(pick("send", to=name) for name in ("ann", "bob", "cy")))])))
    assert answers(ended) == ["send ann", "send bob", "send cy"]


def test_answers_are_recorded_as_they_come_and_told_in_the_order_of_the_calls(bureau):
    mine, second_is_done = bureau(), threading.Event()

    def look(at):
        if at == "first":
            assert second_is_done.wait(20)
        return at

    mine.register("look", semel.Safe(), look)

    def checkpoint(place, name):
        if (place, name) == ("called", "1/1"):
            second_is_done.set()

    script = [say(pick("look", at="first"), pick("look", at="second"))]
    ended = mine.run(mine.agent(Counted(script), checkpoint=checkpoint))
    assert answers(ended) == ["first", "second"]
    recorded = [event.payload for event in mine.guard.store.read_log("", RUN_ID) if event.kind == "answer"]
    assert ["second" in payload for payload in recorded] == [True, False], (
        "they did not come in another order"
    )
    assert mine.run(mine.agent(Counted(()))).transcript == ended.transcript


def test_no_more_calls_run_at_once_than_may(bureau):
    mine, at_work, most = bureau(), [], []
    lock = threading.Lock()

    def work(n):
        with lock:
            at_work.append(n)
            most.append(len(at_work))
        with lock:
            at_work.remove(n)
        return n

    mine.register("work", semel.Safe(), work)
    script = [say(*(pick("work", n=n) for n in range(12)))]
    assert answers(mine.run(mine.agent(Counted(script), calls_at_once=2))) == list(range(12))
    assert max(most) <= 2


def test_where_one_call_pauses_for_a_person_the_others_finish_first(bureau):
    mine = bureau()

    def lose(call):
        if call.tool == "post":
            raise TimeoutError("no answer")

    mine.lose = lose
    script = [say(pick("post", to="ann"), pick("send", to="bob"), pick("charge", to="cy"))]
    with pytest.raises(semel.PausedForPerson) as pause:
        mine.run(mine.agent(Counted(script)))
    assert sorted(mine.sent()) == ["ann", "bob", "cy"]
    mine.guard.resolve(pause.value.key, semel.ItHappened("posted"), by="pat", why="saw it")
    assert answers(mine.run(mine.agent(Counted(script)))) == ["posted", "send bob", "charge cy"]
    assert sorted(mine.sent()) == ["ann", "bob", "cy"]


def test_a_run_that_paused_is_not_held_by_anyone(bureau):
    mine = bureau(wait=timedelta(0))
    mine.lose = raise_once(TimeoutError("no answer"))
    script = [say(pick("post", to="ann"))]
    for _ in range(3):
        with pytest.raises(semel.PausedForPerson):
            mine.run(mine.agent(Counted(script)))
    assert [operation.tool for operation in mine.guard.in_doubt()] == ["post"], "the claim on the run shows"


def test_one_after_the_other_a_pause_keeps_the_next_from_starting(bureau):
    mine = bureau()
    mine.lose = raise_once(TimeoutError("no answer"))
    with pytest.raises(semel.PausedForPerson):
        mine.run(mine.agent(Counted([say(pick("post", to="ann"), pick("send", to="bob"))]), calls_at_once=1))
    assert mine.sent() == ["ann"]


def test_equal_calls_that_are_meant_twice_both_run(bureau):
    mine = bureau()
    script = [say(pick("post", to="ann"), pick("post", to="ann")), say(pick("post", to="ann"))]
    assert answers(mine.run(mine.agent(Counted(script)))) == ["post ann"] * 3
    assert mine.sent("post") == ["ann"] * 3


@pytest.mark.parametrize("call_id", ["call_0", "post", "", "same"])
def test_whatever_the_ids_each_call_runs_once_and_none_is_lost(bureau, call_id):
    mine = bureau()
    script = [say(pick("post", call_id, to="ann"), pick("post", call_id, to="bob"))] * 3
    first = mine.run(mine.agent(Counted(script)))
    assert answers(first) == ["post ann", "post bob"] * 3
    assert sorted(mine.sent("post")) == ["ann"] * 3 + ["bob"] * 3
    assert mine.run(mine.agent(Counted(()))).transcript == first.transcript


def test_guarded_tools_that_a_tool_calls_are_named_by_the_place_of_its_call(bureau):
    """A resumed run replays the first turn: a tool of the second must not be taken for one of the first."""
    mine = bureau()
    inner = mine.guard.tool(effect=semel.Unsafe(), name="inner")(lambda n: mine.ledger.enter("inner", to=n))
    mine.register("outer", semel.Idempotent(key_ttl=timedelta(days=1)), lambda n: inner(n=n))
    script = [say(pick("outer", n=1)), say(pick("outer", n=1), pick("outer", n=1))]
    mine.run(mine.agent(Counted(script[:1]), budget=Budget(turns=2)))
    stop = Counted(script)
    with pytest.raises(BudgetSpent):
        mine.run(mine.agent(stop, budget=Budget(turns=1)), run_id="other")
    mine.run(mine.agent(stop), run_id="other")
    assert len(mine.ledger.lines("inner")) == 1 + 3


# ------------------------------------------------------------------ streaming


def test_text_is_heard_as_it_arrives_and_never_again(bureau):
    mine, heard = bureau(), []
    script = [say(pick("send", to="ann"), text="I am on it."), say(text="All done.")]
    mine.run(mine.agent(Counted(script)), on_text=heard.append)
    assert [piece for piece in heard if piece] == ["I ", "am ", "on ", "it.", "All ", "done."]
    mine.run(mine.agent(Counted(())), on_text=heard.append)
    assert "".join(heard) == "I am on it.All done."


class Drops:
    """A stream that breaks off in the middle of a turn, so often."""

    def __init__(self, times, **failure):
        self.left = times
        self.asked = 0
        self._failure = {"retryable": True, "retry_after_seconds": 0} | failure

    def next_turn(self, messages, tools, *, on_text=None):
        self.asked += 1
        if self.left:
            self.left -= 1
            if on_text is not None:
                on_text("I am ab")
            raise ModelFailed("the stream broke off", **self._failure)
        return Turn(text="done")


def test_a_dropped_stream_records_nothing_and_is_the_models_failure(bureau):
    mine, heard = bureau(), []
    with pytest.raises(ModelFailed, match="broke off"):
        mine.run(mine.agent(Drops(1)), on_text=heard.append)
    assert heard == ["I am ab"]
    assert mine.log() == ["input"]
    assert mine.run(mine.agent(Drops(0))).text == "done"


# ------------------------------------------------------------------ a model that fails


def test_a_model_that_fails_is_not_asked_again_unless_that_is_wanted(bureau):
    mine, model = bureau(), Drops(1)
    with pytest.raises(ModelFailed):
        mine.run(mine.agent(model))
    assert model.asked == 1


def test_as_many_tries_as_wanted_are_made_and_told(bureau):
    mine, model = bureau(), Drops(2)
    ended = mine.run(mine.agent(model, model_tries=3))
    assert (ended.model_calls, model.asked) == (3, 3)
    assert ended.turns == 1
    assert '"tries":3' in mine.guard.store.read_log("", RUN_ID)[1].payload
    with pytest.raises(ModelFailed) as failed:
        mine.run(mine.agent(Drops(5), model_tries=2), run_id="other")
    assert "asked the model for this turn 2 of 2 times" in failed.value.__notes__[0]


def test_a_failure_that_another_try_cannot_help_is_not_tried_again(bureau):
    mine, model = bureau(), Drops(1, retryable=False)
    with pytest.raises(ModelFailed):
        mine.run(mine.agent(model, model_tries=5))
    assert model.asked == 1


@pytest.mark.parametrize("seconds", [3_600, float("inf")])
def test_a_provider_that_wants_to_be_left_alone_for_long_is_not_sat_out(bureau, seconds):
    mine, model = bureau(), Drops(1, retry_after_seconds=seconds)
    with pytest.raises(ModelFailed) as failed:
        mine.run(mine.agent(model, model_tries=5))
    assert (model.asked, failed.value.retry_after_seconds) == (1, seconds)


def test_a_run_that_rests_before_it_asks_again_hears_that_it_is_to_stop(bureau):
    mine = bureau()

    class Cancelled(Drops):
        def next_turn(self, *given, **options):
            agent.cancel(RUN_ID)
            return super().next_turn(*given, **options)

    model = Cancelled(1, retry_after_seconds=500)
    agent = mine.agent(model, model_tries=2)
    with pytest.raises(RunCancelled):
        mine.run(agent)
    assert model.asked == 1


def test_any_other_error_of_the_model_passes_as_it_is(bureau):
    class Broken:
        def next_turn(self, messages, tools, *, on_text=None):
            raise RuntimeError("a bug")

    mine = bureau()
    with pytest.raises(RuntimeError, match="a bug"):
        mine.run(mine.agent(Broken(), model_tries=5))
    assert mine.log() == ["input"]


def test_what_is_no_turn_is_refused(bureau):
    class Wrong:
        def next_turn(self, messages, tools, *, on_text=None):
            return {"text": "done"}

    mine = bureau()
    with pytest.raises(semel.UsageError, match="no Turn"):
        mine.run(mine.agent(Wrong()))
    assert mine.log() == ["input"]


def test_what_the_provider_wants_back_is_given_back(bureau):
    mine, signed = bureau(), {"thinking": ["…", b"\x00signature"]}
    turn = Turn(text="", calls=(pick("send", to="ann"),), provider_data=signed)
    model = Counted([turn])
    mine.run(mine.agent(model))
    assert model.shown[1][1]["provider_data"] == signed


# ------------------------------------------------------------------ budgets


ENDLESS = [say(pick("send", to="ann"))] * 100


def test_a_budget_of_turns_stops_a_run_that_a_higher_one_lets_go_on(bureau):
    mine, model = bureau(), Counted(ENDLESS)
    with pytest.raises(BudgetSpent) as spent:
        mine.run(mine.agent(model, budget=Budget(turns=3)))
    assert (spent.value.budget, spent.value.spent, spent.value.limit) == ("turns", 3, 3)
    with pytest.raises(BudgetSpent):
        mine.run(mine.agent(model, budget=Budget(turns=3)))
    assert (len(model.shown), mine.sent()) == (3, ["ann"] * 3)
    with pytest.raises(BudgetSpent):
        mine.run(mine.agent(model, budget=Budget(turns=3)), budget=Budget(turns=5))
    assert (len(model.shown), mine.sent()) == (5, ["ann"] * 5)


def costly(tokens):
    usage = Usage(input_tokens=tokens - 1, output_tokens=1)
    return [Turn(text="", calls=(pick("send", to="ann"),), usage=usage)] * 100


def test_tokens_are_counted_in_the_log_so_that_a_resumed_run_goes_on_counting(bureau):
    mine, model = bureau(), Counted(costly(100))
    with pytest.raises(BudgetSpent):
        mine.run(mine.agent(model, budget=Budget(tokens=150)))
    assert len(model.shown) == 2
    with pytest.raises(BudgetSpent) as spent:
        mine.run(mine.agent(model, budget=Budget(tokens=350)))
    assert (spent.value.budget, spent.value.spent) == ("tokens", 400)
    assert len(model.shown) == 4, "a resumed run began to count anew"


def test_a_budget_of_tokens_needs_a_model_that_tells_them(bureau):
    mine = bureau()
    with pytest.raises(semel.UsageError, match="does not tell"):
        mine.run(mine.agent(Counted(ENDLESS), budget=Budget(tokens=150)))


def test_time_at_work_is_counted_over_all_lives_and_waiting_is_not(bureau):
    clock = ManualClock()
    mine, model = bureau(clock=clock), Counted(ENDLESS)
    mine.fail = lambda call: clock.advance(timedelta(seconds=4))
    with pytest.raises(BudgetSpent):
        mine.run(mine.agent(model, budget=Budget(time=timedelta(seconds=10))))
    assert len(model.shown) == 3
    clock.advance(timedelta(days=1))
    with pytest.raises(BudgetSpent) as spent:
        mine.run(mine.agent(model, budget=Budget(time=timedelta(seconds=14))))
    assert (spent.value.budget, spent.value.limit) == ("time", 14)
    assert 4 <= len(model.shown) <= 5


@pytest.mark.parametrize(
    "wrong", [{"turns": 0}, {"tokens": 1.5}, {"time": 30}, {"time": timedelta(0)}], ids=str
)
def test_a_budget_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(semel.UsageError):
        Budget(**wrong)


def test_what_stopped_a_run_pickles():
    error = BudgetSpent("spent", budget="turns", spent=3, limit=3, run_id="run")
    again = pickle.loads(pickle.dumps(error))
    assert (again.budget, again.spent, again.limit, again.run_id) == ("turns", 3, 3, "run")
    failed = pickle.loads(
        pickle.dumps(ModelFailed("failed", retryable=True, retry_after_seconds=2, status=429))
    )
    assert (failed.retryable, failed.retry_after_seconds, failed.status) == (True, 2, 429)
    assert isinstance(error, RunStopped)


# ------------------------------------------------------------------ cancellation


def test_a_run_that_is_cancelled_ends_what_is_under_way_and_can_be_resumed(bureau):
    mine, model = bureau(), Counted(TWO)
    agent = mine.agent(model)
    assert agent.cancel(RUN_ID) is False
    mine.fail, mine.lose = Meeting(2), lambda call: agent.cancel(RUN_ID)
    with pytest.raises(RunCancelled):
        mine.run(agent)
    assert sorted(mine.sent()) == ["ann", "bob"]
    assert mine.run(mine.agent(model)).text == "done"
    assert sorted(mine.sent()) == ["ann", "bob"]
    assert len(model.shown) == 2


def test_cancelled_while_the_model_speaks_the_turn_is_not_recorded(bureau):
    mine = bureau()
    agent = mine.agent(Counted(TWO))
    with pytest.raises(RunCancelled):
        mine.run(agent, on_text=lambda piece: agent.cancel(RUN_ID))
    assert mine.log() == ["input"]


@pytest.mark.parametrize("colour", ["sync"])  # the other one hears of it as a cancelled task
def test_an_interrupt_leaves_a_run_that_can_be_resumed(bureau):
    mine, model = bureau(), Counted(TWO)
    left = [KeyboardInterrupt()]

    def checkpoint(place, name):
        if place == "called" and left:
            raise left.pop()

    with pytest.raises(KeyboardInterrupt):
        mine.run(mine.agent(model, checkpoint=checkpoint))
    ended = mine.run(mine.agent(model))
    assert answers(ended) == ["send ann", "charge bob"]
    assert sorted(mine.sent()) == ["ann", "bob"]
    assert len(model.shown) == 2


def test_a_cancelled_task_leaves_a_run_that_can_be_resumed_at_once(tmp_path):
    sent = []

    async def main():
        guard = semel.open(f"sqlite:///{tmp_path}/agent.db", wait=timedelta(0))
        began, never = asyncio.Event(), asyncio.Event()

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(days=1)))
        async def charge(n: int, *, call: semel.Call) -> int:
            sent.append(call.key)
            if len(sent) == 1:
                began.set()
                await never.wait()
            return n

        model = AsyncScriptedModel([say(pick("charge", n=1)), say(text="done")])
        agent = Agent(model, [charge], guard)
        task = asyncio.create_task(agent.run_async(OPENING, run_id=RUN_ID))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended = await agent.run_async(OPENING, run_id=RUN_ID)
        guard.close()
        return ended

    ended = asyncio.run(main())
    assert answers(ended) == [1]
    assert (len(sent), len(set(sent))) == (2, 1)
    assert ended.model_calls == 1


@pytest.mark.parametrize("colour", ["sync"])
def test_a_signal_while_the_model_is_asked_leaves_a_run_that_can_be_resumed_at_once(bureau):
    mine = bureau(wait=timedelta(0))

    def interrupted(messages):
        signal.raise_signal(signal.SIGINT)
        return TWO[1]

    with pytest.raises(KeyboardInterrupt):
        mine.run(mine.agent(Counted([TWO[0], interrupted])))
    assert mine.run(mine.agent(Counted(TWO))).text == "done"
    assert sorted(mine.sent()) == ["ann", "bob"]


@pytest.mark.parametrize("colour", ["sync"])
def test_a_signal_while_tools_run_lets_them_end_and_be_recorded(bureau):
    mine, model = bureau(wait=timedelta(0)), Counted(TWO)
    mine.fail = Meeting(2)
    mine.lose = lambda call: os.kill(os.getpid(), signal.SIGINT) if call.tool == "send" else None
    with pytest.raises(KeyboardInterrupt):
        mine.run(mine.agent(model))
    assert {operation.state for operation in mine.guard.store.read_run("", RUN_ID)} == {semel.State.COMMITTED}
    assert answers(mine.run(mine.agent(model))) == ["send ann", "charge bob"]
    assert sorted(mine.sent()) == ["ann", "bob"]
    assert len(model.shown) == 2


def test_where_several_calls_pause_the_first_is_raised_and_notes_the_others(bureau):
    mine = bureau()

    def lose(call):
        raise TimeoutError(f"no answer from {call.arguments['to']}")

    mine.lose = lose
    with pytest.raises(semel.PausedForPerson, match="no answer from ann") as pause:
        mine.run(mine.agent(Counted([say(pick("post", to="ann"), pick("post", to="bob"))])))
    (note,) = pause.value.__notes__
    assert "no answer from bob" in note


# ------------------------------------------------------------------ found before anything is recorded


def test_an_async_model_or_tool_is_refused_in_the_sync_colour(tmp_path):
    with semel.open(f"sqlite:///{tmp_path}/agent.db") as guard:

        @guard.tool(effect=semel.Safe())
        async def look() -> int:
            return 1

        for agent in (Agent(AsyncScriptedModel([]), [], guard), Agent(ScriptedModel([]), [look], guard)):
            with pytest.raises(semel.UsageError, match="async"):
                agent.run(OPENING, run_id=RUN_ID)
        assert guard.store.read_log("", RUN_ID) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls_at_once": 0},
        {"model_tries": 0},
        {"on_unknown": "ignore"},
        {"on_unknown": {"nobody": "tell"}},
        {"on_not_done": "retry"},
        {"tools": [print]},
    ],
    ids=str,
)
def test_an_agent_that_makes_no_sense_is_refused(bureau, wrong):
    mine = bureau()
    with pytest.raises(semel.UsageError):
        mine.agent(Counted(()), **wrong)


# ------------------------------------------------------------------ tools that are awaited


def test_awaited_tools_of_a_turn_run_at_the_same_time_and_each_once_over_two_lives(tmp_path):
    sent = []

    async def life(places):
        guard = semel.open(f"sqlite:///{tmp_path}/agent.db")
        meeting = asyncio.Barrier(2)

        @guard.tool(effect=semel.Unsafe())
        async def send(to: str) -> str:
            await meeting.wait()
            sent.append(to)
            return f"sent {to}"

        @guard.tool(effect=semel.Safe())
        async def look(at: str, *, call: semel.Call) -> str:
            await asyncio.sleep(0)
            return f"{at} {len(call.key)}"

        def checkpoint(place, name):
            if f"{place}@{name}" in places:
                raise KeyError(name)

        script = [say(pick("send", to="ann"), pick("look", at="it"), pick("send", to="bob"))]
        agent = Agent(AsyncScriptedModel(script), [send, look], guard, checkpoint=checkpoint)
        try:
            return await agent.run_async(OPENING, run_id=RUN_ID)
        finally:
            guard.close()

    with pytest.raises(KeyError):
        asyncio.run(life({"called@1/1"}))
    assert answers(asyncio.run(life(()))) == ["sent ann", "it 64", "sent bob"]
    assert sorted(sent) == ["ann", "bob"]


def test_a_cancelled_tool_that_may_have_sent_is_in_doubt_and_not_sent_again(tmp_path):
    sent = []

    async def main():
        guard = semel.open(f"sqlite:///{tmp_path}/agent.db")
        began, never = asyncio.Event(), asyncio.Event()

        @guard.tool(effect=semel.Unsafe())
        async def post(to: str) -> None:
            sent.append(to)
            began.set()
            await never.wait()

        agent = Agent(AsyncScriptedModel([say(pick("post", to="ann"))]), [post], guard)
        task = asyncio.create_task(agent.run_async(OPENING, run_id=RUN_ID))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(semel.PausedForPerson):
            await agent.run_async(OPENING, run_id=RUN_ID)
        guard.close()

    asyncio.run(main())
    assert sent == ["ann"]
