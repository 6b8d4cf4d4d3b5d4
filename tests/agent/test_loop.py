"""The agent loop: killed anywhere, resumed, it ends in the transcript of a run that was never disturbed."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from datetime import timedelta

import pytest
from office import OPENING, RUN_ID, Office, contents, pick
from workbench import FORKS, PATIENCE_SECONDS, WINDOWS, Child, kill, kill_at

import semel
from semel.agent import Turn, run_agent
from semel.testing.clock import START

GUARDED = ("charge", "mail", "grant")  # in the plan's order; `look` is safe and passes no checkpoint
CALLING = ("1/0", "1/1", "2/0", "3/0")
PASSINGS = len(CALLING) + len(GUARDED) * len(WINDOWS)
LONG = timedelta(seconds=PATIENCE_SECONDS)


def no(why):
    """What the model is told of a call that did not happen and will not."""
    return {"outcome": "did_not_happen", "retryable": False, "retry_after_seconds": None, "error": why}


DONE = {"role": "assistant", "text": "done", "calls": []}


@pytest.fixture
def undisturbed(office, tmp_path):
    """The transcript of a run of the plan that nothing happened to."""
    return office(tmp_path / "undisturbed").run()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(name):
    """A checkpoint of the loop: the process ends right before this call."""

    def checkpoint(place, here):
        if (place, here) == ("calling", name):
            die()

    return checkpoint


class Passings:
    """Both checkpoints in one: counts what the process passes, and ends it the nth time that it passes anything."""

    def __init__(self, *, die_at=0):
        self.count = 0
        self._die_at = die_at

    def __call__(self, *_):
        self.count += 1
        if self.count == self._die_at:
            die()


def assert_whole(mine, transcript, undisturbed):
    """As if nothing had happened: same transcript, one effect each, no turn asked for twice."""
    assert transcript == undisturbed
    assert {tool: mine.effects(tool) for tool in GUARDED} == dict.fromkeys(GUARDED, 1)
    assert {operation.state for operation in mine.operations()} == {semel.State.COMMITTED}
    assert mine.turns_asked_for() == [1, 2, 3, 4]


# ------------------------------------------------------------------ kill -9 anywhere


def test_an_undisturbed_run_tells_who_said_what(undisturbed):
    assert undisturbed == [
        {"role": "user", "content": OPENING},
        {
            "role": "assistant",
            "text": "turn 1",
            "calls": [
                {"id": "call_0_charge", "name": "charge", "arguments": {"to": "ann"}},
                {"id": "call_0_mail", "name": "mail", "arguments": {"to": "ann"}},
            ],
        },
        {"role": "tool", "call_id": "call_0_charge", "content": {"tool": "charge", "to": "ann"}},
        {"role": "tool", "call_id": "call_0_mail", "content": {"tool": "mail", "to": "ann"}},
        {
            "role": "assistant",
            "text": "turn 2",
            "calls": [{"id": "call_1_look", "name": "look", "arguments": {"at": "ann"}}],
        },
        {"role": "tool", "call_id": "call_1_look", "content": {"at": "ann", "seen_so_far": 1}},
        {
            "role": "assistant",
            "text": "turn 3",
            "calls": [{"id": "call_2_grant", "name": "grant", "arguments": {"to": "ann"}}],
        },
        {"role": "tool", "call_id": "call_2_grant", "content": {"tool": "grant", "to": "ann"}},
        DONE,
    ]


def run_and_die(folder, place, nth):
    Office(folder, in_guard=kill_at(place, nth=nth)).run()


# hazard 30
@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("place", WINDOWS)
def test_killed_at_any_window_of_any_call_it_ends_as_if_undisturbed(
    tmp_path, office, undisturbed, place, call
):
    kill(run_and_die, tmp_path, place, call)
    mine = office()
    done_before = [operation.key for operation in mine.operations() if operation.result is not None]
    lines = mine.ledger.lines()
    assert_whole(mine, mine.run(), undisturbed)
    assert len(done_before) == call - (place != "completed"), "not the window that was meant"
    again = [line["key"] for line in mine.ledger.lines()[len(lines) :]]
    assert not set(again) & set(done_before), "what was recorded reached the provider again"


def run_and_die_before(folder, name):
    Office(folder, in_loop=die_before(name)).run()


@pytest.mark.parametrize("name", CALLING)
def test_killed_right_before_any_call_it_ends_as_if_undisturbed(tmp_path, office, undisturbed, name):
    kill(run_and_die_before, tmp_path, name)
    mine = office()
    assert_whole(mine, mine.run(), undisturbed)


def run_and_die_at_passing(folder, nth):
    passings = Passings(die_at=nth)
    Office(folder, in_guard=passings, in_loop=passings).run()


def passings_to_the_end(office, folder):
    passings = Passings()
    office(folder, in_guard=passings, in_loop=passings).run()
    return passings.count


def test_the_plan_passes_every_checkpoint_that_is_killed_at_below(office, tmp_path):
    assert passings_to_the_end(office, tmp_path) == PASSINGS


# hazard 30
@pytest.mark.parametrize("first", range(1, PASSINGS + 1))
def test_killed_anywhere_and_again_anywhere_in_its_resumption_it_ends_as_if_undisturbed(
    tmp_path, office, undisturbed, first
):
    killed_once = tmp_path / "killed-once"
    killed_once.mkdir()
    kill(run_and_die_at_passing, killed_once, first)
    shutil.copytree(killed_once, tmp_path / "resumed")
    for second in range(1, passings_to_the_end(office, tmp_path / "resumed") + 1):
        killed_twice = shutil.copytree(killed_once, tmp_path / f"killed-again-{second}")
        kill(run_and_die_at_passing, killed_twice, second)
        mine = office(killed_twice)
        assert_whole(mine, mine.run(), undisturbed)


# hazard 30
def test_killed_one_checkpoint_later_in_each_of_its_lives_it_ends_as_if_undisturbed(
    tmp_path, office, undisturbed
):
    lives = [1, 2, 3, 4, 5, 6, 7]  # the eighth has fewer checkpoints left than that
    for nth in lives:
        kill(run_and_die_at_passing, tmp_path, nth)
    mine = office()
    assert_whole(mine, mine.run(), undisturbed)


def test_a_run_that_has_ended_is_only_told_again(office, undisturbed):
    mine = office()
    first = mine.run()
    entries, operations = mine.ledger.lines(), mine.operations()
    assert mine.run() == first == undisturbed
    assert mine.ledger.lines() == entries
    assert mine.operations() == operations
    assert mine.turns_asked_for() == [1, 2, 3, 4]


# ------------------------------------------------------------------ the turn is persisted before its calls


def test_the_whole_turn_is_in_the_log_before_the_first_of_its_calls_starts(tmp_path, office):
    kill(run_and_die_before, tmp_path, "1/0")
    mine = office()
    assert mine.log() == ["input", "turn"]
    assert (mine.operations(), mine.ledger.lines()) == ([], [])
    assert mine.turns_asked_for() == [1]
    resumed = mine.run()
    assert [call["id"] for call in resumed[1]["calls"]] == ["call_0_charge", "call_0_mail"]
    assert mine.turns_asked_for() == [1, 2, 3, 4], "a persisted turn was asked for again"


def die_before_saying(folder, turn):
    Office(folder, before_model_says=lambda number: die() if number == turn else None).run()


@pytest.mark.parametrize("turn", [1, 2, 3, 4])
def test_a_turn_that_was_never_said_is_asked_for_again_and_nothing_else_is(tmp_path, office, turn):
    kill(die_before_saying, tmp_path, turn)
    mine = office()
    resumed = mine.run()
    assert mine.turns_asked_for() == sorted([1, 2, 3, 4, turn])
    assert {tool: mine.effects(tool) for tool in GUARDED} == dict.fromkeys(GUARDED, 1)
    shown = mine.asked.lines()
    assert shown[turn - 1]["shown"] == shown[turn]["shown"], "the model was shown something else than before"
    assert mine.run() == resumed


# ------------------------------------------------------------------ two processes, one run


def run_beside(folder, barrier):
    """Both models are asked for the first turn before either may say it."""

    def together(turn):
        if turn == 1:
            barrier.wait(PATIENCE_SECONDS)

    return Office(folder, before_model_says=together, wait=LONG).run()


def test_of_two_processes_on_one_run_one_log_wins_and_both_end_in_its_transcript(tmp_path, office):
    barrier = FORKS.Barrier(2)
    children = [Child(run_beside, tmp_path, barrier) for _ in range(2)]
    one, other = (child.result() for child in children)
    mine = office()
    assert one == other == mine.run()
    assert {tool: mine.effects(tool) for tool in GUARDED} == dict.fromkeys(GUARDED, 1)
    assert mine.turns_asked_for().count(1) == 2, "they never met"
    assert mine.log() == ["input", "turn", "turn", "answer", "turn", "turn"]


# ------------------------------------------------------------------ the names of calls


def pair(first, second):
    return tuple(pick("mail", call_id=call_id, to="ann") for call_id in (first, second))


TWICE_TWO = {
    "missing": (pair(None, None), pair(None, None)),
    "empty": (pair("", ""), pair("", "")),
    "repeated": (pair("call_0", "call_0"), pair("call_0", "call_0")),
    "named after the function": (pair("mail", "mail"), pair("mail", "mail")),
    "the same in every turn": (pair("call_0", "call_1"), pair("call_0", "call_1")),
    "one named after the function": (pair("mail", "a"), pair("a", "mail")),
    "numbers": (pair(0, 1), pair(0, 1)),
    "a number and its text": (pair(5, "5"), pair("5", 5)),
    "like the place of the other": (pair("place:1", ""), pair("", "place:0")),
    "like the name of the other": (pair("id:", ""), pair("id:a", "a")),
    "made of delimiters": (pair("1:1", "1"), pair("1", "1:1")),
    "not ascii": (pair("é", "e\u0301"), pair("é", "e\u0301")),
    "not storable": (pair("\x00", "\ud800"), pair("a\x00b", "\x00")),
}


def mail_and_die(folder, case, place, nth):
    Office(folder, TWICE_TWO[case], in_guard=kill_at(place, nth=nth)).run()


# hazards 11, 12, 15
@pytest.mark.parametrize("case", TWICE_TWO)
@pytest.mark.parametrize(("place", "nth"), [("completed", 1), ("effect_done", 2), ("claimed", 4)])
def test_whatever_the_model_calls_them_four_equal_calls_run_once_each(tmp_path, office, case, place, nth):
    kill(mail_and_die, tmp_path, case, place, nth)
    mine = office(script=TWICE_TWO[case])
    transcript = mine.run()
    assert len(mine.ledger.lines("mail")) == 4
    assert len({operation.key for operation in mine.operations()}) == 4
    assert contents(transcript) == [{"tool": "mail", "to": "ann"}] * 4
    assert [m["call_id"] for m in transcript if m["role"] == "tool"] == [
        call.id for turn in TWICE_TWO[case] for call in turn
    ]
    assert mine.run() == transcript
    assert len(mine.ledger.lines("mail")) == 4


# ------------------------------------------------------------------ safe tools

LOOK_TWICE = ((pick("look"), pick("look")), (pick("mail"), pick("look")))


def look_and_die_before(folder, name):
    Office(folder, LOOK_TWICE, in_loop=die_before(name)).run()


@pytest.mark.parametrize(("name", "looks"), [("1/1", 1), ("2/0", 2), ("2/1", 2)])
def test_the_first_answer_of_a_safe_tool_is_kept(tmp_path, office, name, looks):
    kill(look_and_die_before, tmp_path, name)
    mine = office(script=LOOK_TWICE)
    assert len(mine.ledger.lines("look")) == looks
    answers = contents(mine.run())
    assert [answer.get("seen_so_far") for answer in answers] == [1, 2, None, 3]
    assert len(mine.ledger.lines("look")) == 3
    assert contents(mine.run()) == answers


def look_and_die_inside(folder):
    Office(folder, LOOK_TWICE, visit=lambda place: die()).run()


def test_a_safe_tool_that_never_answered_is_run_again(tmp_path, office):
    kill(look_and_die_inside, tmp_path)
    mine = office(script=LOOK_TWICE)
    answers = contents(mine.run())
    assert [answer.get("seen_so_far") for answer in answers] == [2, 3, None, 4]
    assert contents(mine.run()) == answers


# ------------------------------------------------------------------ what does not happen

DECLINED = ((pick("decline"), pick("mail")),)
NO_AND_WHY = no("Rejected: the card was declined")


def run_declined_and_die(folder, turn):
    Office(folder, DECLINED, before_model_says=lambda number: die() if number == turn else None).run()


def test_a_rejection_is_told_to_the_model_and_told_again_in_the_same_words(tmp_path, office):
    kill(run_declined_and_die, tmp_path, 2)
    mine = office(script=DECLINED)
    resumed = mine.run()
    assert contents(resumed) == [NO_AND_WHY, {"tool": "mail", "to": "ann"}]
    assert mine.turns_asked_for() == [1, 2, 2]
    before, after = mine.asked.lines()[1:]
    assert before["shown"] == after["shown"] == resumed[:-1]
    assert len(mine.ledger.lines("decline")) == 1, "the provider had said no"
    assert resumed == mine.run()


def test_a_tool_that_does_not_exist_is_told_to_the_model_and_the_others_run(office):
    mine = office(script=((pick("refund"), pick("mail")),))
    transcript = mine.run()
    refusal, receipt = contents(transcript)
    assert refusal == no("there is no tool named 'refund'")
    assert receipt == {"tool": "mail", "to": "ann"}
    assert mine.asked.lines()[-1]["shown"] == transcript[:-1]
    assert mine.run() == transcript


@pytest.mark.parametrize(
    "wrong",
    [{"nobody": 1}, {"to": "ann", "more": 2}, {"call": "mine"}, {"to": float("inf")}],  # the last: no JSON
    ids=str,
)
def test_arguments_that_a_tool_does_not_take_are_told_to_the_model_and_the_others_run(office, wrong):
    mine = office(script=((pick("mail", **wrong), pick("charge")),))
    transcript = mine.run()
    refusal, receipt = contents(transcript)
    assert refusal["outcome"] == "did_not_happen"
    assert refusal["error"]
    assert receipt == {"tool": "charge", "to": "ann"}
    assert mine.ledger.lines("mail") == []
    assert mine.run() == transcript


def test_a_rejection_by_a_safe_tool_is_told_to_the_model(office):
    def look_up():
        raise semel.Rejected("no such customer")

    mine = office(script=((pick("look_up"), pick("mail")),))
    mine.register("look_up", semel.Safe(), look_up)
    transcript = mine.run()
    assert contents(transcript)[0]["outcome"] == "did_not_happen"
    assert "no such customer" in contents(transcript)[0]["error"]
    assert mine.run() == transcript


# ------------------------------------------------------------------ a pause for a person

LETTER = ((pick("letter"), pick("mail")),)
ANSWER = {"by": "bob", "why": "asked the post office"}


def write_letter_and_die(folder, place):
    Office(folder, LETTER, in_guard=kill_at(place)).run()


def paused(mine):
    with pytest.raises(semel.PausedForPerson) as pause:
        mine.run()
    return pause.value


def test_a_pause_for_a_person_stops_the_run_until_they_say_that_it_happened(tmp_path, office):
    expected = office(tmp_path / "undisturbed", script=LETTER).run()
    kill(write_letter_and_die, tmp_path, "effect_done")
    mine = office(script=LETTER)
    for _ in range(2):
        pause = paused(mine)
        assert mine.ledger.lines("mail") == [], "the run went on while a person was to be asked"
    mine.guard.resolve(pause.key, semel.ItHappened({"tool": "letter", "to": "ann"}), **ANSWER)
    assert mine.run() == expected
    assert (mine.effects("letter"), mine.effects("mail")) == (1, 1)
    assert mine.turns_asked_for() == [1, 2]


def test_a_pause_for_a_person_goes_on_with_the_effect_when_they_say_run_it(tmp_path, office):
    expected = office(tmp_path / "undisturbed", script=LETTER).run()
    kill(write_letter_and_die, tmp_path, "claimed")
    mine = office(script=LETTER)
    mine.guard.resolve(paused(mine).key, semel.RunIt(), **ANSWER)
    assert mine.run() == expected
    assert (mine.effects("letter"), mine.effects("mail")) == (1, 1)


def test_a_pause_for_a_person_tells_the_model_when_they_give_up(tmp_path, office):
    kill(write_letter_and_die, tmp_path, "claimed")
    mine = office(script=LETTER)
    mine.guard.resolve(paused(mine).key, semel.GiveUp(), **ANSWER)
    transcript = mine.run()
    assert contents(transcript)[0] == no("given up by bob: asked the post office")
    assert (mine.effects("letter"), mine.effects("mail")) == (0, 1)
    assert mine.run() == transcript


@pytest.mark.parametrize("error", [semel.NotSent("no route"), TimeoutError("no answer")], ids=repr)
def test_what_has_to_be_settled_first_stops_the_run_and_is_not_told_to_the_model(office, error):
    failures = [error]

    def fax():
        if failures:
            raise failures.pop()
        return "sent"

    mine = office(script=((pick("fax"),),))
    mine.register("fax", semel.Idempotent(key_ttl=timedelta(days=1)), fax)
    with pytest.raises((semel.NotSent, semel.OutcomeUnknown)):
        mine.run()
    assert mine.turns_asked_for() == [1]
    assert contents(mine.run()) == ["sent"]
    assert mine.turns_asked_for() == [1, 2]


# ------------------------------------------------------------------ another task, another program


def test_another_opening_under_one_run_id_is_refused_and_sends_nothing(office):
    mine = office()
    first = mine.run()
    entries = mine.ledger.lines()
    with pytest.raises(
        semel.UsageError, match=r"was started with 'Renew sub_42\.'.*now given 'Cancel sub_42\.'"
    ):
        mine.run(opening="Cancel sub_42.")
    assert mine.ledger.lines() == entries
    assert mine.run() == first
    mine.run("cancel:sub_42", opening="Cancel sub_42.")


class ClockThatLetsAnotherGoFirst:
    """Read for the first time between the reading of the log and the first entry in it."""

    def __init__(self):
        self.meanwhile = None

    def now(self):
        first, self.meanwhile = self.meanwhile, None
        if first is not None:
            first()
        return START


def test_another_opening_is_refused_also_where_both_begin_at_once(tmp_path, office):
    clock = ClockThatLetsAnotherGoFirst()
    mine, other = office(clock=clock), office(script=())
    clock.meanwhile = lambda: other.run(opening="Cancel sub_42.")
    with pytest.raises(semel.UsageError, match=r"was started with 'Cancel sub_42\.'"):
        mine.run()
    assert mine.ledger.lines() == []


def stop_after_the_first_call(mine):
    """Turn 1 is recorded and its first call has ended; the process goes no further."""

    def checkpoint(place, name):
        if name == "1/1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine.run(checkpoint=checkpoint)


def changed(mine, **tools):
    """The program in a later version: some tools are others now, or gone (None)."""
    return {name: tool for name, tool in (mine.tools | tools).items() if tool is not None}


def test_a_program_in_which_a_safe_tool_has_an_effect_now_is_refused_before_it_has_it(office):
    mine = office(script=((pick("look"), pick("mail")),))
    stop_after_the_first_call(mine)
    with pytest.raises(semel.UsageError, match="program has changed"):
        mine.run(tools=changed(mine, look=mine.tools["letter"]))
    assert [line["tool"] for line in mine.ledger.lines()] == ["look"]
    assert mine.run()[-1] == DONE


def test_a_recorded_answer_is_given_to_no_other_call_than_the_one_it_answered(office):
    mine = office(script=((pick("look", at="ann"), pick("look_again", at="bob")),))
    mine.register("look_again", semel.Safe(), lambda at: {"at": at})
    stop_after_the_first_call(mine)
    with suppress(semel.UsageError):  # refused, or told what is true
        assert contents(mine.run(tools=changed(mine, look=None)))[1] == {"at": "bob"}
    assert [answer["at"] for answer in contents(mine.run())] == ["ann", "bob"]


def test_a_program_in_which_a_tool_became_safe_no_longer_matches_its_log(office):
    mine = office(script=((pick("mail"),), (pick("mail"),)))
    mine.run()
    with pytest.raises(semel.UsageError, match="program has changed"):
        mine.run(tools=changed(mine, mail=mine.tools["look"]))
    assert mine.run()[-1] == DONE


def test_what_the_model_was_told_does_not_exist_does_not_run_once_it_does(office):
    mine = office(script=((pick("letter"), pick("mail")),))
    transcript = mine.run(tools=changed(mine, letter=None))
    assert contents(transcript)[0]["outcome"] == "did_not_happen"
    with suppress(semel.UsageError):  # refused, or told as before
        assert mine.run() == transcript
    assert mine.ledger.lines("letter") == [], "the model had been told that it did not happen"


def test_what_happened_is_not_told_as_not_happened_once_its_tool_is_gone(office):
    mine = office(script=((pick("charge"), pick("mail")),))
    stop_after_the_first_call(mine)
    assert mine.effects("charge") == 1
    with suppress(semel.UsageError):  # refused, or told as it was
        answers = contents(mine.run(tools=changed(mine, charge=None)))
        assert answers[0] == {"tool": "charge", "to": "ann"}


def test_an_async_tool_is_refused_before_the_model_is_asked(office):
    async def fax():
        return "sent"

    mine = office(script=((pick("fax"),),))
    mine.register("fax", semel.Unsafe(), fax)
    with pytest.raises(semel.UsageError, match="fax is async"):
        mine.run()
    assert mine.turns_asked_for() == []


# ------------------------------------------------------------------ the transcript belongs to the log


def test_a_tool_that_changes_its_arguments_does_not_change_the_transcript(office):
    def send_all(to):
        return [to.pop() for _ in range(len(to))]

    mine = office(script=((pick("send_all", to=["ann", "bob"]),),))
    mine.register("send_all", semel.Unsafe(), send_all)
    first = mine.run()
    assert first[1]["calls"][0]["arguments"] == {"to": ["ann", "bob"]}
    assert mine.run() == first


def test_a_tool_that_goes_on_using_what_it_returned_does_not_change_the_transcript(office):
    sent = []

    def send():
        sent.append(len(sent))
        return sent

    mine = office(script=((pick("send"),), (pick("send"),)))
    mine.register("send", semel.Unsafe(), send)
    first = mine.run()
    assert contents(first) == [[0], [0, 1]]
    assert mine.run() == first


def test_a_model_that_writes_into_the_messages_it_is_shown_does_not_change_the_transcript(office):
    mine = office(script=((pick("mail"),),))

    class Scribbler:
        def next_turn(self, messages, tools, *, on_text=None):
            for message in messages:
                message["cache_control"] = "ephemeral"
            return Turn(text="once", calls=(pick("mail", call_id="1"),) if len(messages) == 1 else ())

    def run():
        return run_agent(mine.guard, Scribbler(), mine.tools, run_id=RUN_ID, opening=OPENING)

    first = run()
    assert all("cache_control" not in message for message in first)
    assert run() == first


def test_a_result_that_cannot_be_recorded_is_told_alike_in_the_first_run_and_in_every_resumed_one(office):
    def send():
        return object()

    mine = office(script=((pick("send"),),))
    mine.register("send", semel.Unsafe(), send)
    first = mine.run()
    assert contents(first)[0]["outcome"] == "happened"
    assert mine.run() == first


def test_a_turn_that_cannot_be_recorded_is_refused_and_sends_nothing(office):
    mine = office(script=((pick("mail", to=1), pick("mail", to=object())),))
    with pytest.raises(semel.Unencodable, match=r"\$\.calls\[1\]\.arguments\.to"):
        mine.run()
    assert (mine.log(), mine.ledger.lines()) == (["input"], [])


def test_a_call_is_named_by_where_it_stands_and_not_by_what_it_says(office):
    said = []
    script = (pair("a", ""), pair("a", "mail"), pair("b", "b"))
    office(script=script, visit=said.append).run()
    assert said == [
        f"{RUN_ID}/{place}"
        for place in ("1/id:a", "1/place:1", "2/id:a", "2/place:1", "3/place:0", "3/place:1")
    ]
