"""Arguments that are no JSON object: the turn is kept, and the call cannot be made."""

from __future__ import annotations

import pytest
from dialects import Chat, Messages, Responses, Say
from model_server import Answer
from words import ASKED, CHARGE, after, call, listening

from semel.agent import ToolCall
from semel.agent.models.transcript import UNREADABLE_ARGUMENTS

UNREADABLE = {
    "cut off": '{"to": "an',
    "a list": '["ann"]',
    "a number": "7",
    "two objects": '{"to": "ann"}{"to": "bob"}',
    "no number": '{"to": NaN}',
    "beyond any number": '{"to": 1e999}',
    "too many digits": '{"to": ' + "9" * 5000 + "}",
    "half a character": '{"to": "\\ud83d"}',
    "bottomless": '{"to": ' + "[" * 200 + "]" * 200 + "}",
    "deeper than any recursion": '{"to": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("arguments", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("dialect", [Messages(), Chat(), Responses()], ids=lambda dialect: dialect.name)
def test_arguments_that_cannot_be_read_do_not_lose_the_turn(make, server, dialect, arguments):
    model = make(dialect)
    both = [("c1", "charge", arguments), call("c2", "bob")]
    server.will_answer(Answer(events=dialect.stream(Say(text="Charging.", calls=both))))
    server.will_answer(dialect.answer(Say(text="Done.")))
    turn = model.next_turn([ASKED], [CHARGE], on_text=[].append)
    assert turn.text == "Charging."
    assert [call.arguments for call in turn.calls] == [{UNREADABLE_ARGUMENTS: arguments}, {"to": "bob"}]
    sorry = {"outcome": "did_not_happen", "error": "arguments"}
    assert model.next_turn(after(turn, sorry, "paid"), [CHARGE]).text == "Done."


def test_no_parameter_can_be_named_as_unreadable_arguments_are():
    assert not UNREADABLE_ARGUMENTS.isidentifier()


@pytest.mark.parametrize("arguments", ["", "{}"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_call_without_arguments_has_none_however_the_server_says_so(
    model, server, dialect, arguments, streamed
):
    server.will_answer(
        dialect.answer(Say(calls=[("c1", "sync_all", arguments)])), dialect.answer(Say(text="Done."))
    )
    turn = model.next_turn([ASKED], **listening(streamed)[1])
    assert turn.calls == (ToolCall(id="c1", name="sync_all", arguments={}),)
    assert model.next_turn(after(turn, "ok")).text == "Done."
