"""The scripted model, and the recording that can be played again without a network."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from bureau import OPENING, Counted, answers, pick, say

import semel
from semel.agent import (
    AsyncRecordingModel,
    AsyncScriptedModel,
    ModelFailed,
    ProgramChanged,
    RecordingModel,
    ReplayingModel,
    ScriptedModel,
    Turn,
    Usage,
)

SCRIPT = [
    Turn(
        text="On it.",
        calls=(pick("send", "1", to="ann"),),
        usage=Usage(input_tokens=5, output_tokens=2),
        provider_data={"signature": b"\x00"},
    ),
    say(text="done"),
]
ASKED = [{"role": "user", "content": OPENING}]


def test_a_script_is_said_by_where_the_messages_stand_and_ends_with_done():
    model = ScriptedModel([say(text="a"), lambda messages: say(text=f"after {len(messages)}")])
    said = {"role": "assistant", "text": "", "calls": []}
    assert model.next_turn(ASKED, []).text == model.next_turn(ASKED, []).text == "a"
    assert model.next_turn([*ASKED, said], []).text == "after 2"
    assert model.next_turn([*ASKED, said, said], []).text == "done"


@pytest.mark.parametrize("text", ["", "one", "two words", "  spaces \n and lines "])
def test_the_pieces_of_a_scripted_text_are_the_text(text):
    heard = []
    ScriptedModel([say(text=text)]).next_turn(ASKED, [], on_text=heard.append)
    assert "".join(heard) == text


def test_the_awaited_script_says_the_same():
    assert asyncio.run(AsyncScriptedModel(SCRIPT).next_turn(ASKED, [])) == SCRIPT[0]


def record(bureau, path, script=SCRIPT):
    mine = bureau()
    model = Counted(script)
    recording = (
        AsyncRecordingModel(AsyncScriptedModel(script), path)
        if mine.colour == "async"
        else RecordingModel(model, path)
    )
    if mine.colour == "async":
        ended = asyncio.run(
            semel.agent.Agent(recording, mine.tools, mine.guard).run_async(OPENING, run_id="first")
        )
    else:
        ended = mine.run(mine.agent(recording), run_id="first")
    return mine, ended


def test_a_recorded_run_is_played_again_without_its_model(bureau, tmp_path):
    mine, first = record(bureau, tmp_path / "tape.jsonl")
    again = mine.run(mine.agent(ReplayingModel(tmp_path / "tape.jsonl")), run_id="second")
    assert again.transcript == first.transcript
    assert again.tokens == first.tokens == 7
    assert mine.sent() == ["ann", "ann"], "it is another run: its calls are made"


def test_a_recording_has_a_line_a_turn(bureau, tmp_path):
    record(bureau, tmp_path / "tape.jsonl")
    lines = (tmp_path / "tape.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"name":"send"' in lines[0]


def test_other_messages_than_were_recorded_are_refused_by_the_first_difference(bureau, tmp_path):
    mine, _ = record(bureau, tmp_path / "tape.jsonl")
    mine.register("sent", semel.Unsafe(), lambda to: "another answer")
    agent = mine.agent(ReplayingModel(tmp_path / "tape.jsonl"), tools={"send": mine.tools["sent"]})
    with pytest.raises(ProgramChanged) as refused:
        mine.run(agent, run_id="second")
    assert refused.value.difference == "messages[2].content was 'send ann', and is 'another answer' now"


@pytest.mark.parametrize(
    ("messages", "difference"),
    [
        (
            [{"role": "user", "content": "Cancel."}],
            f"messages[0].content was {OPENING!r}, and is 'Cancel.' now",
        ),
        (
            [{"role": "user", "content": OPENING, "cache": True}],
            "messages[0].cache was missing, and is True now",
        ),
        ([{"role": "user"}], f"messages[0].content was {OPENING!r}, and is missing now"),
        ([*ASKED, *ASKED], f"messages[1] was missing, and is {ASKED[0]!r} now"),
    ],
    ids=["other", "more", "less", "longer"],
)
def test_each_way_to_differ_is_named(tmp_path, messages, difference):
    RecordingModel(ScriptedModel(SCRIPT), tmp_path / "tape").next_turn(ASKED, [])
    with pytest.raises(ProgramChanged) as refused:
        ReplayingModel(tmp_path / "tape").next_turn(messages, [])
    assert refused.value.difference == difference


def test_behind_its_end_a_recording_says_nothing(tmp_path):
    RecordingModel(ScriptedModel(SCRIPT), tmp_path / "tape").next_turn(ASKED, [])
    with pytest.raises(semel.UsageError, match="has no turn 2"):
        ReplayingModel(tmp_path / "tape").next_turn([*ASKED, {"role": "assistant"}], [])


def test_where_a_turn_was_asked_for_twice_the_last_one_counts(tmp_path):
    """A process that died in between had the first one recorded nowhere else."""
    for text in ("lost", "kept"):
        RecordingModel(ScriptedModel([say(text=text)]), tmp_path / "tape").next_turn(ASKED, [])
    assert ReplayingModel(tmp_path / "tape").next_turn(ASKED, []).text == "kept"


def test_a_turn_that_did_not_arrive_whole_is_not_in_the_recording(tmp_path):
    class Drops:
        def next_turn(self, messages, tools, *, on_text=None):
            raise ModelFailed("the stream broke off", retryable=True)

    with pytest.raises(ModelFailed):
        RecordingModel(Drops(), tmp_path / "tape").next_turn(ASKED, [])
    assert not (tmp_path / "tape").exists()


def test_a_recording_keeps_what_json_cannot_say_and_a_replay_streams_it(tmp_path):
    when = datetime(2026, 12, 1, tzinfo=UTC)
    messages = [*ASKED, {"role": "tool", "call_id": "1", "content": {"at": when, "raw": b"\xff"}}]
    RecordingModel(ScriptedModel([say(text="so it is")]), tmp_path / "tape").next_turn(messages, [])
    heard = []
    turn = ReplayingModel(tmp_path / "tape").next_turn(messages, [], on_text=heard.append)
    assert turn.text == "".join(heard) == "so it is"


def test_answers_that_are_told_to_the_model_are_in_the_transcript(bureau, tmp_path):
    _, ended = record(bureau, tmp_path / "tape.jsonl")
    assert answers(ended) == ["send ann"]
