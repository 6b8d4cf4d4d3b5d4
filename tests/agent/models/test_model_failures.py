"""A model that gives no whole turn: one request, one error, and the right word on whether to ask again."""

from __future__ import annotations

import asyncio
import json
import pickle

import pytest
from dialects import DIALECTS, Chat, Messages, Responses, Say, sse
from model_server import Answer
from words import ASKED, CHARGE, call, listening

from semel.agent.models.failures import ModelFailed, retry_after_seconds
from semel.errors import SemelError

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
FOR_GOOD = (400, 401, 402, 403, 404, 413, 422)
FOR_NOW = (408, 409, 429, 500, 502, 503, 504, 529)


def failing(model, streamed=False, **expected) -> ModelFailed:
    """The error that asking ends in."""
    with pytest.raises(ModelFailed) as caught:
        model.next_turn([ASKED], [CHARGE], **listening(streamed)[1])
    failure = caught.value
    assert expected.items() <= vars(failure).items(), vars(failure)
    return failure


# ------------------------------------------------------------------ answers that refuse


@STREAMED
@pytest.mark.parametrize("status", FOR_GOOD + FOR_NOW)
def test_the_status_says_whether_asking_again_can_help(model, server, status, streamed):
    body = {"error": {"type": "some_error", "message": "this is why"}}
    server.will_answer(Answer(status=status, body=body, headers={"Retry-After": "7"}))
    failure = failing(model, streamed, status=status, retryable=status in FOR_NOW, retry_after_seconds=7.0)
    assert f"HTTP {status}" in str(failure)
    assert "this is why" in str(failure)
    assert failure.outcome == "did_not_happen"
    assert failure.__cause__.status_code == status
    assert len(server.requests) == 1, "the SDK's own retries would multiply with the agent's"


def test_retries_of_the_sdks_own_would_be_seen(make, server, dialect, colour, monkeypatch):
    """The broken twin: a model that leaves the client as it was given."""
    kind = dialect.clients[colour]
    monkeypatch.setattr(kind, "with_options", lambda client, **options: client)
    at_once = Answer(status=429, body={}, headers={"retry-after-ms": "1"})
    server.will_answer(at_once, at_once, at_once)
    failing(make(dialect, colour), status=429)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "pay"}}, {}),
        ({"type": "error", "error": {"type": "billing_error", "message": "pay"}}, {}),
        ({"error": {"type": "rate_limit_error", "message": "no"}}, {"x-should-retry": "false"}),
    ],
    ids=["the quota is used up", "the bill is not paid", "the server says so"],
)
def test_a_429_that_will_not_pass_is_not_retryable(model, server, body, headers):
    server.will_answer(Answer(status=429, body=body, headers=headers))
    failing(model, status=429, retryable=False)


NOON = "Tue, 01 Dec 2026 12:00:00 GMT"
RETRY_AFTER = [
    ({}, None),
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": "0.5"}, 0.5),
    ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ({"retry-after": "Tue, 01 Dec 2026 12:01:00 GMT", "date": NOON}, 60.0),
    ({"retry-after": "Tue, 01 Dec 2026 11:59:00 GMT", "date": NOON}, 0.0),
    ({"retry-after": "Tue, 01 Dec 2026 12:01:00 GMT"}, None),  # from when? our clock is not the server's
    ({"retry-after": "soon", "date": NOON}, None),
    ({"retry-after": "-1", "date": NOON}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
]


@pytest.mark.parametrize(("headers", "seconds"), RETRY_AFTER)
def test_retry_after_is_read_in_each_of_its_forms(headers, seconds):
    assert retry_after_seconds(headers) == seconds


def test_a_date_is_read_off_a_real_answer(make, server):
    headers = {"Retry-After": "Tue, 01 Dec 2126 12:01:00 GMT"}  # BaseHTTPRequestHandler adds the Date
    server.will_answer(Answer(status=429, body={}, headers=headers))
    assert failing(make(Messages())).retry_after_seconds > 0


def test_a_page_instead_of_an_answer_points_to_the_address(make, server, colour):
    for dialect in (Chat(), Responses()):
        server.will_answer(Answer(body="<html>Welcome to nginx</html>"))
        failure = failing(make(dialect, colour), retryable=False, status=None)
        assert "base URL" in str(failure)


# ------------------------------------------------------------------ connections that break


def test_a_server_that_is_not_there_may_come_back(make, server, model):
    server.stop_listening()
    failing(model, retryable=True, status=None)
    assert server.requests == []


@STREAMED
def test_an_answer_that_does_not_come_in_time_may_come_another_time(make, server, dialect, colour, streamed):
    server.will_answer(Answer(hold=True))
    model = make(dialect, colour, parameters={"timeout": 0.05})
    failure = failing(model, streamed, retryable=True, status=None)
    assert type(failure.__cause__).__name__ == "APITimeoutError"
    assert len(server.requests) == 1


def test_an_answer_that_breaks_off_is_not_used(make, server, colour):
    for dialect in (Chat(), Responses()):
        body = dialect.body(Say(text="Yes.", calls=[call("c1", "ann")]))
        server.will_answer(Answer(body=body, drop=True))
        failing(make(dialect, colour), retryable=True, status=None)
    assert len(server.requests) == 2


SAID = Say(text="Charging both.", calls=[call("c1", "ann"), call("c2", "bob")])
ENDS = {"anthropic-messages": b"message_stop", "openai-chat": b'"finish_reason": "tool_calls"'}
ENDS["openai-responses"] = b"response.completed"


def before_the_end(dialect):
    """The events that come before the one that makes the turn whole."""
    events = dialect.stream(SAID)
    (end,) = [number for number, event in enumerate(events) if ENDS[dialect.name] in event]
    return events[:end]


PLACES = [
    pytest.param(dialect, place, id=f"{dialect.name}-{place}")
    for dialect in DIALECTS
    for place in range(len(before_the_end(dialect)) + 1)
]


@pytest.mark.parametrize("drop", [True, False], ids=["dropped", "ended"])
@pytest.mark.parametrize(("dialect", "place"), PLACES)
def test_a_stream_that_stops_anywhere_before_its_end_gives_no_turn(
    make, server, colour, dialect, place, drop
):
    server.will_answer(Answer(events=before_the_end(dialect)[:place], drop=drop))
    failure = failing(make(dialect, colour), True, retryable=True, status=None)
    assert ("The connection to the model failed" if drop else "did not arrive whole") in str(failure)
    assert len(server.requests) == 1


def test_the_same_stream_up_to_its_end_gives_the_turn(make, server, colour, dialect):
    """So that what the test above sees is the missing end, and nothing else."""
    server.will_answer(Answer(events=dialect.stream(SAID)))
    turn = make(dialect, colour).next_turn([ASKED], [CHARGE], on_text=[].append)
    assert [call.id for call in turn.calls] == ["c1", "c2"]


def test_half_an_event_is_none(make, server, colour, dialect):
    *events, last = dialect.stream(SAID) if dialect.name != "openai-chat" else before_the_end(dialect)
    server.will_answer(Answer(events=[*events, last[: len(last) // 2]]))
    failing(make(dialect, colour), True, retryable=True)


def test_what_is_no_json_in_a_stream_is_no_turn(make, server, colour, dialect):
    garbled = b"event: message_start\ndata: {no json\n\n"
    server.will_answer(Answer(events=[garbled, *dialect.stream(SAID)]))
    failing(make(dialect, colour), True, retryable=True)


# ------------------------------------------------------------------ errors in the middle of a stream


def anthropic_error(kind):
    return sse({"type": "error", "error": {"type": kind, "message": "this is why"}}, named=True)


def chat_error(code):
    return (
        f"data: {json.dumps({'error': {'type': code, 'code': code, 'message': 'this is why'}})}\n\n".encode()
    )


def responses_error(code):
    event = {"type": "error", "code": code, "message": "this is why", "param": None, "sequence_number": 9}
    return sse(event, named=True)


def response_failed(code):
    response = Responses().body(Say()) | {
        "status": "failed",
        "error": {"code": code, "message": "this is why"},
    }
    return sse({"type": "response.failed", "response": response, "sequence_number": 9}, named=True)


IN_THE_MIDDLE = [
    (Messages(), anthropic_error("overloaded_error"), True),
    (Messages(), anthropic_error("api_error"), True),
    (Messages(), anthropic_error("invalid_request_error"), False),
    (Chat(), chat_error("server_error"), True),
    (Chat(), chat_error("context_length_exceeded"), False),
    (Responses(), responses_error("server_error"), True),
    (Responses(), responses_error("insufficient_quota"), False),
    (Responses(), response_failed("server_error"), True),
    (Responses(), response_failed("invalid_prompt"), False),
]


@pytest.mark.parametrize(("dialect", "error", "retryable"), IN_THE_MIDDLE)
def test_an_error_in_the_middle_of_a_stream_says_by_its_kind_whether_to_ask_again(
    make, server, colour, dialect, error, retryable
):
    server.will_answer(Answer(events=[*before_the_end(dialect), error]))
    failure = failing(make(dialect, colour), True, retryable=retryable, status=None)
    assert "this is why" in str(failure)
    assert len(server.requests) == 1


# ------------------------------------------------------------------ turns that end before their end


@STREAMED
def test_a_call_that_was_cut_off_by_the_limit_of_tokens_is_not_made(model, server, dialect, streamed):
    cut = Say(text="Charging.", calls=[("c1", "charge", '{"to": "an')], end=dialect.cut_off)
    server.will_answer(dialect.answer(cut))
    failure = failing(model, streamed, retryable=False, status=None)
    assert "give the model more" in str(failure)


@STREAMED
def test_text_that_was_cut_off_by_the_limit_of_tokens_is_no_turn_either(model, server, dialect, streamed):
    server.will_answer(dialect.answer(Say(text="The answer is not", end=dialect.cut_off)))
    failing(model, streamed, retryable=False)


@STREAMED
@pytest.mark.parametrize(
    ("dialect", "end"),
    [
        (Messages(), "refusal"),
        (Messages(), "pause_turn"),
        (Messages(), "model_context_window_exceeded"),
        (Messages(), "tool_use"),
        (Messages(), "a new reason"),
        (Chat(), "content_filter"),
        (Chat(), "tool_calls"),
        (Chat(), "a new reason"),
        (Responses(), "content_filter"),
        (Responses(), "a new reason"),
    ],
)
def test_a_turn_that_did_not_end_of_itself_is_not_used(make, server, colour, dialect, end, streamed):
    server.will_answer(dialect.answer(Say(text="Half a", end=end)))
    failing(make(dialect, colour), streamed, status=None)


def test_an_answer_that_does_not_say_why_it_ended_is_not_used(make, server):
    no_end = Chat().body(Say(text="Yes."))
    no_end["choices"][0]["finish_reason"] = None
    queued = Responses().body(Say(text="Yes.")) | {"status": "queued"}
    no_choice = Chat().body(Say()) | {"choices": []}
    for dialect, body in ((Chat(), no_end), (Chat(), no_choice), (Responses(), queued)):
        server.will_answer(Answer(body=body))
        failing(make(dialect), retryable=True)


def misformed():
    """Answers that are JSON and of no provider's form, by dialect."""
    stop = sse({"type": "message_stop"}, named=True)
    lost = {"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "x"}}
    yield Messages(), Answer(events=[sse(lost, named=True), stop])
    yield Messages(), Answer(events=[sse({"type": "message_start"}, named=True), stop])
    for choices in ([None], ["yes"], [{"finish_reason": "stop", "message": "yes"}]):
        yield Chat(), Answer(body=Chat().body(Say()) | {"choices": choices})
    yield Chat(), Answer(body=Chat().body(Say(text="Yes.", reasoning=({"tool_calls": ["charge"]},))))
    yield Responses(), Answer(body=Responses().body(Say()) | {"output": ["yes"]})
    yield Responses(), Answer(body=Responses().body(Say()) | {"output": [{"type": "message", "content": 7}]})


@pytest.mark.parametrize(("dialect", "answer"), list(misformed()))
def test_an_answer_of_another_form_is_a_failure_of_the_model_and_not_of_the_program(
    make, server, colour, dialect, answer
):
    server.will_answer(answer)
    failing(make(dialect, colour), retryable=True, status=None)


# ------------------------------------------------------------------ whoever listens


class ListenerBroke(Exception):
    pass


def test_what_the_listener_raises_is_its_own_and_the_model_can_be_asked_again(make, server, dialect, colour):
    def broken(piece: str) -> None:
        raise ListenerBroke(piece)

    model = make(dialect, colour)
    server.will_answer(Answer(events=dialect.stream(SAID)), dialect.answer(Say(text="Yes.")))
    with pytest.raises(ListenerBroke, match="Chargin"):
        model.next_turn([ASKED], on_text=broken)
    assert model.next_turn([ASKED]).text == "Yes."


def test_a_connection_error_of_the_listener_is_not_mistaken_for_the_models(make, server, dialect, colour):
    def broken(piece: str) -> None:
        raise json.JSONDecodeError("of the listener", piece, 0)

    server.will_answer(Answer(events=dialect.stream(SAID)))
    with pytest.raises(json.JSONDecodeError, match="of the listener"):
        make(dialect, colour).next_turn([ASKED], on_text=broken)


def test_a_cancelled_call_stays_cancelled_and_the_model_can_be_asked_again(make, server, dialect):
    def cancel(piece: str) -> None:
        asyncio.current_task().cancel()

    model = make(dialect, "async")
    server.will_answer(Answer(events=dialect.stream(SAID)), dialect.answer(Say(text="Yes.")))
    with pytest.raises(asyncio.CancelledError):
        model.next_turn([ASKED], on_text=cancel)
    assert model.next_turn([ASKED]).text == "Yes."


# ------------------------------------------------------------------ the error itself


def test_a_failure_pickles_with_all_that_it_says():
    failure = ModelFailed("it failed", retryable=True, retry_after_seconds=7.5, status=429)
    again = pickle.loads(pickle.dumps(failure))
    assert isinstance(again, SemelError)
    assert (str(again), vars(again)) == (str(failure), vars(failure))


def test_a_failure_that_was_raised_pickles_too(model, server):
    server.will_answer(Answer(status=503, body={"error": {"message": "busy"}}))
    failure = failing(model, retryable=True)
    assert vars(pickle.loads(pickle.dumps(failure))) == vars(failure)
