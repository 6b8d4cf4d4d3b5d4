"""Servers that nearly speak Chat Completions, and answers of an unusual form."""

from __future__ import annotations

import json

import pytest
from dialects import Chat, Responses, Say, sse
from model_server import Answer
from words import ASKED, CHARGE, call

from semel.agent import ToolCall


def piece(index, **call):
    """One delta of tool calls."""
    place = {} if index is None else {"index": index}
    return Chat().chunk({"tool_calls": [place | call]})


def function(name=None, arguments=None):
    return {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}


ANN, BOB = '{"to": "ann"}', '{"to": "bob"}'
NEARLY = {
    "all calls at index 0, with ids": (
        [
            piece(0, id="a", function=function("charge", ANN)),
            piece(0, id="b", function=function("charge", BOB)),
        ],
        [("a", ANN), ("b", BOB)],
    ),
    "all calls at index 0, without ids": (
        [piece(0, function=function("charge", ANN)), piece(0, function=function("charge", BOB))],
        [("", ANN), ("", BOB)],
    ),
    "all calls at index 0 under one id": (
        [
            piece(0, id="call_0", function=function("charge", ANN)),
            piece(0, id="call_0", function=function("charge", BOB)),
        ],
        [("call_0", ANN), ("call_0", BOB)],
    ),
    "no index at all": (
        [
            piece(None, id="a", function=function("charge", ANN)),
            piece(None, function=function("charge", BOB)),
        ],
        [("a", ANN), ("", BOB)],
    ),
    "id and name again with every piece": (
        [
            piece(0, id="a", function=function("charge", ANN[:5])),
            piece(0, id="a", function=function("charge", ANN[5:])),
            piece(0, id="a", function=function("charge", "")),
        ],
        [("a", ANN)],
    ),
    "a last piece that repeats the name": (
        [piece(0, id="a", function=function("charge", ANN)), piece(0, function=function("charge"))],
        [("a", ANN)],
    ),
    "a name in two pieces": (
        [piece(0, id="a", function=function("cha")), piece(0, function=function("rge", ANN))],
        [("a", ANN)],
    ),
    "pieces of two calls in turn": (
        [
            piece(0, id="a", function=function("charge", ANN[:5])),
            piece(1, id="b", function=function("charge", BOB[:5])),
            piece(0, function=function(arguments=ANN[5:])),
            piece(1, function=function(arguments=BOB[5:])),
        ],
        [("a", ANN), ("b", BOB)],
    ),
}


@pytest.mark.parametrize("ends", ["tool_calls", "stop"])
@pytest.mark.parametrize(("chunks", "calls"), NEARLY.values(), ids=NEARLY)
def test_no_call_of_a_nearly_compatible_server_is_lost_or_made_up(make, server, chunks, calls, ends):
    model = make(Chat())
    server.will_answer(Answer(events=[*chunks, Chat().chunk({}, end=ends)]))
    turn = model.next_turn([ASKED], [CHARGE], on_text=[].append)
    assert turn.calls == tuple(
        ToolCall(id=call_id, name="charge", arguments=json.loads(arguments)) for call_id, arguments in calls
    )


def test_a_character_that_comes_in_two_halves_is_whole_in_the_turn(make, server):
    model = make(Chat())
    halves = [Chat().chunk({"content": half}) for half in ("\ud83d", "\ude80")]
    server.will_answer(Answer(events=[*halves, Chat().chunk({}, end="stop")]))
    assert model.next_turn([ASKED], on_text=[].append).text == "🚀"


def test_a_refusal_is_what_the_model_said(make, server):
    model = make(Chat())
    body = Chat().body(Say())
    body["choices"][0]["message"]["refusal"] = "I will not."
    server.will_answer(Answer(body=body))
    assert model.next_turn([ASKED]).text == "I will not."


def test_content_in_parts_is_text(make, server):
    model = make(Chat())
    body = Chat().body(Say())
    body["choices"][0]["message"]["content"] = [{"type": "thinking"}, {"type": "text", "text": "Yes."}]
    server.will_answer(Answer(body=body))
    assert model.next_turn([ASKED]).text == "Yes."


def test_a_response_that_leaves_its_output_to_the_items_before_it_is_whole(make, server):
    dialect = Responses()
    model = make(dialect)
    say = Say(calls=[call("c1", "ann")])
    (created, done, _) = dialect.stream(say)
    last = {
        "type": "response.completed",
        "response": dialect.body(say) | {"output": []},
        "sequence_number": 2,
    }
    server.will_answer(Answer(events=[created, done, sse(last, named=True)]))
    assert [call.id for call in model.next_turn([ASKED], on_text=[].append).calls] == ["c1"]
