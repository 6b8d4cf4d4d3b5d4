"""The agent loop with a real SDK: two turns, a guarded tool, and a second call that asks nobody anything."""

from __future__ import annotations

import json

import pytest
from dialects import Say
from model_server import Answer

import semel
from semel.agent import run_agent
from semel.agent.models.failures import ModelFailed

OPENING = "Renew sub_42."
RUN_ID = "renewal:sub_42:2026-12"


class Office:
    """One process's guard on a file, with a tool that counts how often it took effect."""

    def __init__(self, folder):
        self.guard = semel.open(f"sqlite:///{folder}/agent.db")
        self.charged = []
        self.tools = {"charge": self.guard.tool(effect=semel.Unsafe(), name="charge")(self.charge)}

    def charge(self, to="whoever is there"):
        self.charged.append(to)
        return {"receipt": len(self.charged), "to": to}

    def run(self, model):
        return run_agent(self.guard, model, self.tools, run_id=RUN_ID, opening=OPENING)


@pytest.fixture
def office(tmp_path):
    opened = []

    def open_office():
        opened.append(Office(tmp_path))
        return opened[-1]

    yield open_office
    for each in opened:
        each.guard.close()


def calls(*customers, call_id=None):
    return [
        (call_id or f"c{place}", "charge", json.dumps({"to": customer}))
        for place, customer in enumerate(customers)
    ]


@pytest.mark.parametrize(
    "call_id", [None, "call_0", "charge", ""], ids=["unique", "repeated", "name", "empty"]
)
def test_a_run_takes_effect_once_and_its_resumption_asks_nobody(
    make, server, dialect, colour, office, call_id
):
    first = office()
    server.will_answer(
        dialect.answer(Say(text="Charging.", calls=calls("ann", "bob", call_id=call_id))),
        dialect.answer(Say(text="Once more.", calls=calls("ann", call_id=call_id))),
        dialect.answer(Say(text="Done.")),
    )
    transcript = first.run(make(dialect, colour))
    assert first.charged == ["ann", "bob", "ann"]
    assert [m["text"] for m in transcript if m["role"] == "assistant"] == ["Charging.", "Once more.", "Done."]
    assert len(server.requests) == 3

    second = office()
    assert second.run(make(dialect, colour)) == transcript
    assert (second.charged, len(server.requests)) == ([], 3)


def test_a_run_whose_model_fails_in_between_goes_on_from_there(make, server, dialect, colour, office):
    first = office()
    unpaid = Answer(status=402, body={"error": {"type": "billing_error", "message": "no credit left"}})
    server.will_answer(dialect.answer(Say(calls=calls("ann"))), unpaid, dialect.answer(Say(text="Done.")))
    with pytest.raises(ModelFailed, match="no credit left"):
        first.run(make(dialect, colour))
    second = office()
    assert second.run(make(dialect, colour))[-1]["text"] == "Done."
    assert (first.charged, second.charged, len(server.requests)) == (["ann"], [], 3)


def test_a_call_with_unreadable_arguments_has_no_effect_even_if_the_tool_needs_none(
    make, server, dialect, colour, office
):
    desk = office()
    broken = Say(calls=[("c0", "charge", '{"to": "an')])
    server.will_answer(dialect.answer(broken), dialect.answer(Say(text="Sorry.")))
    transcript = desk.run(make(dialect, colour))
    (told,) = [message["content"] for message in transcript if message["role"] == "tool"]
    assert told["outcome"] == "did_not_happen"
    assert desk.charged == []
    assert "did_not_happen" in json.dumps(server.bodies()[1])
