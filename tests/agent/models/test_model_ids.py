"""Call ids as real servers give them: reported as they came, and paired when they go back."""

from __future__ import annotations

import itertools

import pytest
from dialects import Say
from words import ASKED, CHARGE, after, call, listening, said, told

STRANGE_IDS = {
    "omitted": ("", ""),
    "repeated": ("call_0", "call_0"),
    "the function's name": ("charge", "charge"),
    "as ours would be": ("call_1_1", "call_1_1"),
}


@pytest.mark.parametrize("ids", STRANGE_IDS.values(), ids=STRANGE_IDS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_strange_ids_are_reported_as_they_came_and_pair_when_they_go_back(
    make, server, dialect, colour, ids, streamed
):
    model = make(dialect, colour)
    turns = []
    transcript = [ASKED]
    for to in ("ann", "bob"):
        both = [call(ids[0], f"{to}1"), call(ids[1], f"{to}2")]
        server.will_answer(dialect.answer(Say(calls=both)))
        turns.append(model.next_turn(transcript, [CHARGE], **listening(streamed)[1]))
        transcript += [said(turns[-1]), *told(turns[-1], f"{to}1 paid", f"{to}2 paid")]
    server.will_answer(dialect.answer(Say(text="Done.")))
    assert model.next_turn(transcript, [CHARGE]).text == "Done.", "the server would not have taken a bad pair"
    assert [call.id for turn in turns for call in turn.calls] == [*ids, *ids]
    assert [call.arguments["to"] for turn in turns for call in turn.calls] == ["ann1", "ann2", "bob1", "bob2"]


def test_the_server_refuses_ids_that_do_not_pair(make, server, dialect, monkeypatch):
    """The broken twin: a renderer that sends ids as they came is caught."""
    monkeypatch.setattr("semel.agent.models.transcript._Ids.take", lambda self, wanted, from_place: wanted)
    model = make(dialect)
    server.will_answer(dialect.answer(Say(calls=[call("call_0", "ann"), call("call_0", "bob")])))
    turn = model.next_turn([ASKED], [CHARGE])
    with pytest.raises(Exception, match="ids are not unique"):
        model.next_turn(after(turn, "paid", "paid"), [CHARGE])


def test_an_id_once_sent_is_sent_the_same_way_ever_after(make, server, dialect):
    model = make(dialect)
    transcript = [ASKED]
    for _ in range(3):
        server.will_answer(dialect.answer(Say(calls=[call("call_0", "ann")])))
        turn = model.next_turn(transcript, [CHARGE])
        transcript += [said(turn), *told(turn, "paid")]
    rendered = [body.get("messages") or body["input"] for body in server.bodies()]
    for shorter, longer in itertools.pairwise(rendered):
        assert longer[: len(shorter)] == shorter, "a provider's prompt cache knows what it saw, and only that"


def test_an_id_that_the_server_leaves_out_altogether_is_an_empty_one(make, server, dialect, colour):
    model = make(dialect, colour)
    server.will_answer(dialect.answer(Say(calls=[call(None, "ann")])), dialect.answer(Say(text="Done.")))
    turn = model.next_turn([ASKED], [CHARGE])
    assert [call.id for call in turn.calls] == [""]
    assert model.next_turn(after(turn, "paid"), [CHARGE]).text == "Done."
