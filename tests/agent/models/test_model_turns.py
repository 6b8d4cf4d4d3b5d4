"""Every adapter, through the real SDK, against a provider that judges each request: what a turn is made of."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from datetime import date

import pytest
from dialects import Chat, Messages, Responses, Say, misshapen
from model_server import Answer
from words import ASKED, CHARGE, REASONING, THINKING, after, call, listening, results_in, said

from semel.agent import ModelFailed, ToolCall, Turn, Usage
from semel.errors import UsageError

# ------------------------------------------------------------------ turns


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_turn_of_text_is_its_text_and_its_tokens_and_costs_one_request(model, server, dialect, streamed):
    server.will_answer(dialect.answer(Say(text="It was renewed — für 25 €.")))
    heard, listener = listening(streamed)
    turn = model.next_turn([ASKED], **listener)
    assert (turn.text, turn.calls) == ("It was renewed — für 25 €.", ())
    assert turn.usage == Usage(input_tokens=11, output_tokens=7)
    assert len(server.requests) == 1
    if streamed:
        assert len(heard) == 2
        assert "".join(heard) == turn.text


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_parallel_calls_are_one_turn_in_the_models_order(model, server, dialect, streamed):
    server.will_answer(dialect.answer(Say(text="Both.", calls=[call("c1", "ann"), call("c2", "bob")])))
    turn = model.next_turn([ASKED], [CHARGE], **listening(streamed)[1])
    assert turn.text == "Both."
    assert turn.calls == (
        ToolCall(id="c1", name="charge", arguments={"to": "ann"}),
        ToolCall(id="c2", name="charge", arguments={"to": "bob"}),
    )


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_calls_and_their_results_come_back_to_the_provider_as_a_pair(model, server, dialect, streamed):
    server.will_answer(dialect.answer(Say(calls=[call("c1", "ann"), call("c2", "bob")])))
    server.will_answer(dialect.answer(Say(text="Done.")))
    turn = model.next_turn([ASKED], [CHARGE], **listening(streamed)[1])
    last = model.next_turn(after(turn, {"receipt": 1}, "plain words"), [CHARGE])
    assert last.text == "Done."
    one, two = results_in(server.bodies()[1])
    assert [json.loads(one.get("content") or one["output"]), two.get("content") or two["output"]] == [
        {"receipt": 1},
        "plain words",
    ]


def test_what_a_tool_answered_is_told_whatever_kind_of_value_it_is(model, server, dialect):
    values = [
        "",
        "words",
        7,
        1.5,
        None,
        True,
        [1, "é"],
        {"a": {"b": []}},
        {"due": date(2026, 12, 1)},
        "\ud83d",
    ]
    server.will_answer(dialect.answer(Say(calls=[call(f"c{i}", "ann") for i in range(len(values))])))
    server.will_answer(dialect.answer(Say(text="Done.")))
    turn = model.next_turn([ASKED], [CHARGE])
    model.next_turn(after(turn, *values), [CHARGE])
    texts = [result.get("content", result.get("output")) for result in results_in(server.bodies()[1])]
    assert texts[:2] == ["", "words"]
    assert [json.loads(text) for text in texts[2:8]] == values[2:8]
    assert "2026-12-01" in texts[8]
    assert "é" in texts[6], "not as an escape, which costs tokens"
    assert texts[9] == "\ufffd", "half a character, which no transport carries"


def test_a_call_that_did_not_happen_is_an_error_to_the_messages_api(make, server):
    outcomes = [
        {"outcome": "did_not_happen"},
        {"outcome": "unknown"},
        {"outcome": "happened"},
        {"receipt": 1},
    ]
    dialect = Messages()
    model = make(dialect)
    server.will_answer(dialect.answer(Say(calls=[call(f"c{i}", "ann") for i in range(4)])))
    server.will_answer(dialect.answer(Say(text="Done.")))
    model.next_turn(after(model.next_turn([ASKED], [CHARGE]), *outcomes), [CHARGE])
    assert [result["is_error"] for result in results_in(server.bodies()[1])] == [True, True, False, False]


def test_the_results_of_one_turn_are_one_message_to_the_messages_api(make, server):
    dialect = Messages()
    model = make(dialect)
    server.will_answer(dialect.answer(Say(calls=[call("c1", "ann"), call("c2", "bob")])))
    server.will_answer(dialect.answer(Say(text="Done.")))
    model.next_turn(after(model.next_turn([ASKED]), 1, 2))
    assert [message["role"] for message in server.bodies()[1]["messages"]] == ["user", "assistant", "user"]


def test_tools_the_system_prompt_and_extra_parameters_reach_the_provider(make, server, dialect, colour):
    extra = {"metadata": {"user_id": "u1"}, "extra_headers": {"x-team": "billing"}, "extra_body": {"seed": 7}}
    model = make(dialect, colour, system="You renew.", max_tokens=321, parameters=extra)
    server.will_answer(dialect.answer(Say(text="Yes.")))
    model.next_turn([ASKED], [CHARGE])
    (request,) = server.requests
    body = request.body
    assert (body["model"], body["metadata"], body["seed"]) == ("scripted", {"user_id": "u1"}, 7)
    assert request.headers["x-team"] == "billing"
    (tool,) = body["tools"]
    offered = tool.get("function", tool)
    schema = offered.get("parameters") or offered["input_schema"]
    assert (offered["name"], offered["description"], schema) == (
        CHARGE.name,
        CHARGE.description,
        CHARGE.parameters,
    )
    limits = {"max_tokens", "max_completion_tokens", "max_output_tokens"} & body.keys()
    assert [body[name] for name in limits] == [321]
    system = body.get("system") or body.get("instructions") or body["messages"][0]["content"]
    assert system == "You renew."


def test_without_tools_none_are_mentioned(model, server, dialect):
    server.will_answer(dialect.answer(Say(text="Yes.")))
    model.next_turn([ASKED])
    assert "tools" not in server.bodies()[0]


# ------------------------------------------------------------------ what the provider wants back as it was


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_signed_thinking_comes_back_to_the_provider_as_it_was(make, server, colour, streamed):
    dialect = Messages()
    model = make(dialect, colour)
    server.will_answer(
        dialect.answer(Say(text="Charging.", calls=[call("c1", "ann")], reasoning=THINKING)),
        dialect.answer(Say(text="Done.")),
    )
    turn = model.next_turn([ASKED], [CHARGE], **listening(streamed)[1])
    assert turn.text == "Charging."
    model.next_turn(after(turn, "ok"), [CHARGE])
    _, assistant, _ = server.bodies()[1]["messages"]
    assert assistant["content"] == [
        *THINKING,
        {"type": "text", "text": "Charging."},
        {"type": "tool_use", "id": "c1", "name": "charge", "input": {"to": "ann"}},
    ]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_reasoning_items_come_back_to_the_responses_api_as_they_were(make, server, colour, streamed):
    dialect = Responses()
    model = make(dialect, colour)
    first = Say(text="Charging.", calls=[call("c1", "ann")], reasoning=(REASONING,))
    server.will_answer(dialect.answer(first), dialect.answer(Say(text="Done.")))
    turn = model.next_turn([ASKED], [CHARGE], **listening(streamed)[1])
    model.next_turn(after(turn, "ok"), [CHARGE])
    user, *items, _ = server.bodies()[1]["input"]
    assert user == ASKED
    assert items == dialect.body(first)["output"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_what_a_chat_server_adds_to_its_message_comes_back_to_it(make, server, colour, streamed):
    dialect = Chat()
    model = make(dialect, colour)
    extra = ({"reasoning_content": "The card is on file."},)
    server.will_answer(
        dialect.answer(Say(calls=[call("c1", "ann")], reasoning=extra)), dialect.answer(Say(text="Done."))
    )
    turn = model.next_turn([ASKED], [CHARGE], **listening(streamed)[1])
    assert turn.text == ""
    model.next_turn(after(turn, "ok"), [CHARGE])
    assert server.bodies()[1]["messages"][1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "The card is on file.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "charge", "arguments": '{"to": "ann"}'}}
        ],
    }


def test_another_providers_turn_is_told_by_its_text_and_calls(model, server, dialect):
    turn = Turn(
        text="Charging.",
        calls=(ToolCall(id="c1", name="charge", arguments={"to": "ann"}),),
        provider_data={"somebody_else": [1]},
    )
    server.will_answer(dialect.answer(Say(text="Done.")))
    assert model.next_turn(after(turn, "ok"), [CHARGE]).text == "Done."
    sent = json.dumps(server.bodies()[0])
    assert all(word in sent for word in ("Charging.", "c1", "ann"))
    assert "somebody_else" not in sent


def test_a_turn_that_said_nothing_does_not_keep_a_conversation_from_going_on(model, server, dialect):
    server.will_answer(dialect.answer(Say()), dialect.answer(Say(text="Yes.")))
    silent = model.next_turn([ASKED])
    assert (silent.text, silent.calls) == ("", ())
    assert model.next_turn([ASKED, said(silent), {"role": "user", "content": "And?"}]).text == "Yes."


# ------------------------------------------------------------------ the program's own mistakes


@pytest.mark.parametrize(
    "messages",
    [
        [ASKED, {"role": "tool", "call_id": "c1", "content": "stray"}],
        [ASKED, {"role": "system", "content": "no such role"}],
        [ASKED, {"role": "assistant", "text": "", "calls": [{"id": "c", "name": "charge", "arguments": {}}]}],
    ],
    ids=["a result without a call", "an unknown role", "a call without a result"],
)
def test_a_transcript_that_does_not_pair_is_refused_before_anything_is_sent(model, server, messages):
    with pytest.raises(UsageError, match=r"Nothing was sent"):
        model.next_turn(messages)
    assert server.requests == []


UNUSABLE = {"stream": "the model says this itself", "temprature": "the SDK takes no such parameter"}


@pytest.mark.parametrize(("name", "why"), UNUSABLE.items())
def test_a_parameter_that_cannot_be_meant_is_refused_before_a_run_begins(make, dialect, colour, name, why):
    with pytest.raises(UsageError, match=why):
        make(dialect, colour, parameters={name: 1})


@pytest.mark.parametrize(("wanted", "given"), [("async", "sync"), ("sync", "async")])
def test_a_client_of_the_other_colour_is_refused_at_once(make, dialect, wanted, given):
    client = make(dialect, given).client
    with pytest.raises(UsageError, match="is not "):
        dialect.classes[wanted]("scripted", **dialect.required, client=client)


def test_what_is_no_client_is_refused_at_once(dialect, colour):
    with pytest.raises(UsageError, match=r"client=object is not "):
        dialect.classes[colour]("scripted", **dialect.required, client=object())


def test_a_client_is_made_from_the_environment_where_none_is_given(dialect, server, monkeypatch):
    monkeypatch.setenv(f"{dialect.package.upper()}_API_KEY", "from the environment")
    monkeypatch.setenv(f"{dialect.package.upper()}_BASE_URL", server.url + dialect.base)
    server.will_answer(Answer(status=503, body={}), dialect.answer(Say(text="Yes.")))
    model = dialect.classes["sync"]("scripted", **dialect.required)
    with pytest.raises(ModelFailed):
        model.next_turn([ASKED], [])
    assert len(server.requests) == 1, "its own retries are off"
    assert "from the environment" in str(server.requests[0].headers)


def test_missing_credentials_are_the_programs_fault(dialect, monkeypatch):
    for name in list(os.environ):
        if name.startswith(dialect.package.upper() + "_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")  # some SDKs look for a profile there
    with pytest.raises(UsageError, match=r"api_key|authentication"):
        dialect.classes["sync"]("scripted", **dialect.required).next_turn([ASKED], [])


def test_what_the_user_said_and_no_transport_carries_is_the_programs_fault(model, server):
    content = [{"type": "text", "text": object()}]
    with pytest.raises(UsageError, match=r"did not take the request"):
        model.next_turn([{"role": "user", "content": content}])
    assert server.requests == []


@pytest.mark.parametrize("room", ["anthropic", "openai"])
def test_no_sdk_is_loaded_before_a_model_is_made(room):
    program = f"import sys, semel.agent.models.{room}; print({room!r} in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_a_missing_sdk_is_missed_politely(dialect, colour, monkeypatch):
    monkeypatch.setitem(sys.modules, dialect.package, None)
    with pytest.raises(UsageError, match=rf"pip install 'semel\[{dialect.package}\]'"):
        dialect.classes[colour]("scripted", **dialect.required)


# ------------------------------------------------------------------ the tests' own checkers


SAYINGS = {
    "nothing": Say(),
    "text": Say(text="Yes."),
    "calls": Say(calls=[call("c1", "ann"), call("c2", "bob")]),
    "both": Say(text="Charging.", calls=[call("c1", "ann")]),
}


@pytest.mark.parametrize("say", SAYINGS.values(), ids=SAYINGS)
def test_the_servers_answers_are_of_the_sdks_form(dialect, say):
    assert [misshapen(kind, [value]) for kind, value in dialect.typed(say)] == [None] * len(
        dialect.typed(say)
    )


def test_reasoning_as_the_server_says_it_is_of_the_sdks_form():
    for dialect, blocks in ((Messages(), THINKING), (Responses(), (REASONING,))):
        typed = dialect.typed(Say(text="Yes.", reasoning=blocks))
        assert [misshapen(kind, [value]) for kind, value in typed] == [None] * len(typed)


def test_an_answer_that_is_not_of_the_sdks_form_is_caught(dialect):
    """The broken twin: a kind that the SDK does not know, in each answer."""
    for kind, value in dialect.typed(SAYINGS["both"]):
        assert misshapen(kind, [value | {"type": "no such type", "object": "no such object"}])


def test_a_request_that_is_not_of_the_sdks_form_is_caught(make, server, dialect):
    """The broken twin of the requests: a description that is no text."""
    with pytest.raises(ModelFailed, match=r"is not of the SDK's form"):
        make(dialect).next_turn([ASKED], [dataclasses.replace(CHARGE, description=7)])


def test_what_a_person_said_reaches_the_provider_though_half_a_character_is_missing(model, server, dialect):
    server.will_answer(dialect.answer(Say(text="Hello.")))
    assert model.next_turn([{"role": "user", "content": "Hi \ud83d"}], []).text == "Hello."
