"""What an HTTP answer, or the want of one, proves: by status, by real connections, and inside a real guard."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import timedelta

import pytest
from workbench import PATIENCE_SECONDS, call, register

import semel
from semel import http as rules
from semel.http import GENERIC, STRIPE, VALIDATES_WITH_422, StatusInDoubt, check, one_request

SOON_SECONDS = 0.2  # how long a client waits for an answer that never comes

# ------------------------------------------------------------------ statuses

REFUSED_BY_ALL = {
    400: "the request is malformed",
    401: "nobody we know",
    403: "not allowed",
    404: "there is nothing there",
}
REFUSED = {
    GENERIC.name: REFUSED_BY_ALL
    | {
        405: "no such method there",
        410: "no longer there",
        411: "no length given",
        413: "too large",
        414: "address too long",
        415: "no such media type",
        416: "no such range",
        417: "an expectation that is not met",
        426: "another protocol first",
        428: "a condition first",
        431: "headers too large",
        451: "not legal",
    },
    STRIPE.name: REFUSED_BY_ALL | {402: "card declined: documented as 'request failed'"},
}
REFUSED[VALIDATES_WITH_422.name] = REFUSED[GENERIC.name] | {422: "documented as failed validation"}
NO_PROOF = {
    301: "moved: whether the first place acted on it is not said",
    302: "found: often the answer to a form that was processed",
    303: "see other: it was processed",
    307: "moved for now",
    402: "payment required: only Stripe says what it means",
    406: "not acceptable: frameworks find that out when they write the answer, after the handler has run",
    407: "a proxy spoke",
    408: "the server gave up waiting; perhaps not for the beginning",
    409: "in progress, or done by an earlier request",
    412: "a condition that our own earlier request may have changed",
    421: "another server's business",
    423: "locked, perhaps by our own earlier request",
    424: "a dependency failed half-way",
    425: "too early, to be sent again",
    429: "counted first, or refused after",
    500: "it broke, after who knows what",
    502: "a gateway's guess",
    503: "overloaded, perhaps after acting",
    504: "nobody answered the gateway",
    599: "a proxy's invention",
}
ALL_RULES = [GENERIC, STRIPE, VALIDATES_WITH_422]


def concluded(status, *given, **text):
    """What `check` makes of a status, in the words of the table."""
    try:
        check(status, *given, **text)
    except semel.Rejected as refused:
        assert f"refused with HTTP {status}" in str(refused)  # noqa: PT017
        return "refused"
    except StatusInDoubt as in_doubt:
        assert f"HTTP {status} " in str(in_doubt)  # noqa: PT017
        assert in_doubt.status == status  # noqa: PT017
        return "in doubt"
    return "done"


@pytest.mark.parametrize("kind", ALL_RULES, ids=lambda kind: kind.name)
def test_a_status_proves_what_the_table_says_and_nothing_more(kind):
    expected = {status: "done" if 200 <= status < 300 else "in doubt" for status in range(100, 600)}
    expected |= dict.fromkeys(REFUSED[kind.name], "refused")
    assert {status: concluded(status, kind) for status in range(100, 600)} == expected


def test_a_status_in_doubt_is_no_error_of_ours_the_phase_decides():
    assert not issubclass(StatusInDoubt, semel.SemelError)


@pytest.mark.parametrize("status", NO_PROOF)
def test_what_may_have_happened_is_refused_by_nobody_but_who_documents_it(status):
    assert {kind.name for kind in ALL_RULES if status in kind.rejected} == (
        {"stripe"} if status == 402 else set()
    )


def test_422_is_no_proof_unless_the_provider_says_that_it_validates_first():
    assert [concluded(422, kind) for kind in ALL_RULES] == ["in doubt", "in doubt", "refused"]


def test_without_rules_the_generic_ones_hold():
    assert [concluded(status) for status in (204, 404, 402, 422)] == [
        "done",
        "refused",
        "in doubt",
        "in doubt",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "This idempotency key was already used.",
        "IDEMPOTENCY_ERROR: Keys for idempotent requests can only be used with the same parameters",
        '{"error": {"type": "idempotency_error"}}',
        "Request is not idempotent",
        "Idempotency-Key already used with another payload",
        "Duplicate request",
        "Duplicate transaction",
        "This charge has already been captured.",
        '{"code": "charge_already_refunded"}',
        '{"code": "resource_already_exists"}',
        "An order with this reference already exists.",
    ],
)
def test_a_refusal_that_speaks_of_an_earlier_request_is_no_refusal_of_the_intent(text):
    found = {concluded(status, kind, text=text) for status in REFUSED_BY_ALL for kind in ALL_RULES}
    assert found == {"in doubt"}


@pytest.mark.parametrize(
    "text", ["", "card_declined", "Invalid amount: -1", "no such customer", "é\x00\ud800"]
)
def test_a_refusal_in_any_other_words_is_one(text):
    assert concluded(400, text=text) == "refused"


def test_the_answer_is_told_but_not_at_any_length():
    with pytest.raises(semel.Rejected, match="Invalid amount") as refused:
        check(400, text="Invalid amount " + "x" * 100_000)
    assert len(str(refused.value)) < 300


def test_words_far_into_a_long_answer_are_read_all_the_same():
    assert concluded(400, text="x" * 100_000 + " idempotency key already used") == "in doubt"


TURNS_AWAY = rules.HttpRules(name="ours", rejected=frozenset(), turned_away=frozenset({429}))


def test_a_429_is_no_proof_unless_the_provider_says_that_it_turns_requests_away_unread():
    with pytest.raises(StatusInDoubt):
        check(429)
    with pytest.raises(semel.NotSent, match="429: slow down"):
        check(429, TURNS_AWAY, text="slow down")
    with pytest.raises(StatusInDoubt):
        check(429, TURNS_AWAY, text="this key was already used")


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("said", "pause"),
    [
        ("30", timedelta(seconds=30)),
        (" 0 ", timedelta(0)),
        (None, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("\u0663", None),
        ("9" * 30, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
    ids=str,
)
def test_how_long_a_provider_asks_to_be_left_alone_goes_with_the_error(status, said, pause):
    with pytest.raises((semel.NotSent, StatusInDoubt)) as error:
        check(status, TURNS_AWAY, retry_after=said)
    assert error.value.retry_after == pause


def test_a_refusal_comes_without_advice_to_try_again():
    with pytest.raises(semel.Rejected) as refused:
        check(400, retry_after="30")
    assert not hasattr(refused.value, "retry_after")


def test_a_caller_is_told_the_pause_that_the_provider_asked_for(guard, engine):
    def busy():
        raise StatusInDoubt("HTTP 429", status=429, retry_after=timedelta(seconds=30))

    tool = register(guard, engine, busy, effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
    with pytest.raises(semel.OutcomeUnknown) as unknown:
        call(guard, engine, "run", tool)
    assert unknown.value.retry_after == timedelta(seconds=30)


def test_rules_of_ones_own_are_as_good():
    mine = rules.HttpRules(name="mine", rejected=frozenset({409}), speaks_of_earlier=("once more",))
    assert concluded(409, mine, text="already used") == "refused"
    assert concluded(409, mine, text="Once More") == "in doubt"
    with pytest.raises(StatusInDoubt, match=r"\(mine rules\)"):
        check(400, mine)


# ------------------------------------------------------------------ real connections


@pytest.fixture
def closed():
    """An address that refuses every connection. Bound, so that nobody else comes to listen there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def url_of(server):
    host, port = server.getsockname()
    return f"http://{host}:{port}/charge"


def by_urllib(url, key="k"):
    request = urllib.request.Request(url, data=key.encode(), method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
        return response.read().decode()


def by_http_client(url, key="k"):
    host = url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", "/charge", body=key)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


BROKEN = (ConnectionError, urllib.error.URLError)  # of NotSent, neither is a base
CLIENTS = pytest.mark.parametrize("post", [by_urllib, by_http_client])


class Provider:
    """Takes one connection after another, reads each request whole, and answers it or not. Keeps the books."""

    def __init__(self, server, answer):
        self.arrived = []
        self._server = server
        self.answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                length = 0
                while (line := lines.readline().strip().lower()) not in (b"", b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                self.arrived.append(lines.read(length).decode())
                connection.sendall(self.answer)

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()


@contextmanager
def provider(bound, answer):
    bound.listen()
    serving = Provider(bound, answer)
    try:
        yield serving
    finally:
        serving.close()


NO_ANSWER = b""
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@CLIENTS
def test_a_refused_connection_sent_nothing(closed, post):
    with pytest.raises(semel.NotSent, match="no connection came about") as unsent, one_request():
        post(url_of(closed))
    assert isinstance(unsent.value.__cause__, OSError)


@CLIENTS
def test_a_name_that_does_not_resolve_sent_nothing(post):
    with pytest.raises(semel.NotSent), one_request():
        post("http://provider.invalid/charge")


@CLIENTS
def test_a_server_that_takes_the_request_and_closes_without_an_answer_proves_nothing(closed, post):
    with provider(closed, NO_ANSWER) as serving:
        with pytest.raises(http.client.RemoteDisconnected), one_request():
            post(url_of(closed), "the key")
        assert serving.arrived == ["the key"]


@CLIENTS
def test_a_connection_reset_in_the_middle_proves_nothing(closed, post):
    closed.listen()
    linger_for_no_time = b"\x01\x00\x00\x00\x00\x00\x00\x00"

    def reset():
        connection, _ = closed.accept()
        connection.recv(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_no_time)
        connection.close()

    resetting = threading.Thread(target=reset)
    resetting.start()
    with pytest.raises(BROKEN), one_request():
        post(url_of(closed), "x" * 10_000_000)
    resetting.join()


def test_an_answer_that_does_not_come_in_time_proves_nothing(closed):
    closed.listen()  # the kernel takes the connection; nobody answers
    with pytest.raises(TimeoutError), one_request():
        urllib.request.urlopen(url_of(closed), data=b"k", timeout=SOON_SECONDS)


@CLIENTS
def test_an_answer_is_handed_through(closed, post):
    with provider(closed, DONE), one_request():
        assert post(url_of(closed)) == "done"


def test_a_status_that_the_client_raises_is_left_to_the_tool(closed):
    with provider(closed, UNAVAILABLE):
        with pytest.raises(urllib.error.HTTPError) as answered, one_request():
            by_urllib(url_of(closed))
        answered.value.close()


# ------------------------------------------------------------------ what lies behind an error


def refusal():
    return ConnectionRefusedError("refused")


class Wrapped(Exception):
    """A client's own error."""


def wrapped(innermost, times):
    error = innermost
    for _ in range(times):
        outer = Wrapped("it failed")
        outer.__cause__ = error
        error = outer
    return error


@pytest.mark.parametrize("depth", [0, 1, 2, 5, 15])
def test_a_refused_connection_is_seen_through_whatever_a_client_wraps_around_it(depth):
    with pytest.raises(semel.NotSent), one_request():
        raise wrapped(refusal(), depth)


def while_handling(first, then, **how):
    """Raise the one while the other is handled, as careless clients do; or from a `cause`, as careful ones do."""
    try:
        raise first
    except type(first):
        if "cause" in how:
            raise then from how["cause"]
        raise then  # noqa: B904


def test_a_refused_connection_is_seen_where_the_client_only_raised_while_it_handled_it():
    with pytest.raises(semel.NotSent), one_request():
        while_handling(refusal(), Wrapped("it failed"))


def test_a_refused_connection_is_seen_where_the_client_only_names_it_as_its_reason():
    with pytest.raises(semel.NotSent), one_request():
        raise urllib.error.URLError(refusal())


def test_a_chain_that_never_ends_is_not_followed_for_ever():
    one, other = Wrapped(), Wrapped()
    one.__cause__, other.__cause__ = other, one
    with pytest.raises(Wrapped), one_request():
        raise one


@pytest.mark.parametrize(
    "kind",
    [
        TimeoutError,
        ConnectionResetError,
        BrokenPipeError,
        ConnectionAbortedError,
        http.client.RemoteDisconnected,
        OSError,
        ValueError,
    ],
)
@pytest.mark.parametrize("depth", [0, 2])
def test_everything_else_proves_nothing_and_passes_as_it_was(kind, depth):
    raised = wrapped(kind("connection refused"), depth)
    with pytest.raises(type(raised)) as passed, one_request():
        raise raised
    assert passed.value is raised


@pytest.mark.parametrize("kind", [KeyboardInterrupt, semel.PausedForPerson])
def test_an_interruption_passes_through_whatever_lies_behind_it(kind):
    with pytest.raises(kind), one_request():
        raise kind from refusal()


@pytest.mark.parametrize("kind", [semel.Rejected, semel.ClaimLost, semel.OutcomeUnknown, StatusInDoubt])
def test_what_the_tool_itself_concludes_passes_through(kind):
    """The refusal was of a cache, say, which the tool can do without."""
    concluded = kind("whatever the answer said")
    with pytest.raises(kind) as passed, one_request():
        while_handling(refusal(), concluded)
    assert passed.value is concluded


def error_of(module, name):
    """As a client names its errors; the client itself is not needed."""
    return type(name, (Exception,), {"__module__": module})("all attempts failed")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("httpx", "ConnectError"),
        ("httpx", "ConnectTimeout"),
        ("httpx._exceptions", "ConnectError"),
        ("aiohttp.client_exceptions", "ClientConnectorError"),
    ],
)
def test_the_connect_errors_of_other_clients_sent_nothing(module, name):
    with pytest.raises(semel.NotSent), one_request():
        raise error_of(module, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("httpx", "ReadTimeout"),
        ("httpx", "ReadError"),
        ("httpx", "WriteError"),
        ("httpx", "RemoteProtocolError"),
        ("httpx", "PoolTimeout"),
        ("aiohttp", "ServerDisconnectedError"),
        ("requests.exceptions", "ConnectionError"),  # refused and reset alike: only its cause tells
        ("somebody", "ConnectError"),
        ("httpx_lookalike", "ConnectError"),
    ],
)
def test_no_other_error_of_a_client_is_believed(module, name):
    error = error_of(module, name)
    with pytest.raises(type(error)), one_request():
        raise error


def raise_inside(error):
    with one_request():
        raise error


def refused_before():
    """As an earlier block leaves it behind."""
    with pytest.raises(semel.NotSent) as unsent:
        raise_inside(refusal())
    return unsent.value


# hazards 5, 29
@pytest.mark.parametrize("before", [refusal, refused_before, lambda: wrapped(refusal(), 3)])
def test_a_connection_refused_before_the_block_says_nothing_about_the_request_in_it(before):
    """A caller that tries again while it handles the first refusal: that one hangs on every later error."""
    try:
        raise before()
    except Exception:
        with pytest.raises(TimeoutError):
            raise_inside(TimeoutError("sent, and no answer"))


def test_a_connection_refused_again_while_the_first_refusal_is_handled_sent_nothing_either():
    try:
        raise refused_before()
    except semel.NotSent:
        with pytest.raises(semel.NotSent):
            raise_inside(wrapped(refusal(), 1))


def test_a_cause_that_the_client_disowned_is_not_followed():
    with pytest.raises(TimeoutError), one_request():
        while_handling(refusal(), TimeoutError("sent to the second address, and no answer"), cause=None)


# ------------------------------------------------------------------ inside a real guard


def tool_to(guard, engine, url, post=by_urllib, **options):
    def charge(*, call):
        with one_request():
            try:
                return post(url, call.key)
            except urllib.error.HTTPError as answered:
                with answered:
                    check(answered.status, STRIPE, text=answered.read().decode())
                raise

    return register(guard, engine, charge, **({"effect": semel.Unsafe()} | options))


def only(guard):
    (operation,) = guard.store.read_run("", "run")
    return operation


# hazard 5
@CLIENTS
def test_a_provider_that_refuses_connections_once_and_is_healthy_then_is_charged_once(
    guard, engine, closed, post
):
    tool = tool_to(guard, engine, url_of(closed), post)
    for _ in range(2):
        with pytest.raises(semel.NotSent):
            call(guard, engine, "run", tool)
        assert only(guard).state is semel.State.PENDING
    with provider(closed, DONE) as serving:
        assert call(guard, engine, "run", tool) == "done"
        assert call(guard, engine, "run", tool) == "done"
        assert serving.arrived == [only(guard).key]
    assert only(guard).state is semel.State.COMMITTED


# hazard 5
def test_a_caller_that_tries_again_while_it_handles_the_refusal_is_in_doubt_where_the_second_was_sent(
    guard, engine, closed
):
    tool = tool_to(guard, engine, url_of(closed))
    try:
        call(guard, engine, "run", tool)
    except semel.NotSent:
        with provider(closed, NO_ANSWER) as serving:
            for _ in range(2):
                with pytest.raises((semel.OutcomeUnknown, semel.PausedForPerson)):
                    call(guard, engine, "run", tool)
            assert serving.arrived == [only(guard).key]
    assert only(guard).state is semel.State.UNKNOWN


def test_a_request_without_an_answer_is_in_doubt_and_is_not_sent_again(guard, engine, closed):
    tool = tool_to(guard, engine, url_of(closed))
    with provider(closed, NO_ANSWER) as serving:
        for _ in range(2):
            with pytest.raises((semel.OutcomeUnknown, semel.PausedForPerson)):
                call(guard, engine, "run", tool)
        assert serving.arrived == [only(guard).key]
    assert only(guard).state is semel.State.UNKNOWN


def answer(status, text=""):
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@pytest.mark.parametrize(
    ("status", "text", "state"),
    [
        (402, "card_declined", semel.State.FAILED),
        (400, "Invalid amount", semel.State.FAILED),
        (400, '{"type": "idempotency_error"}', semel.State.UNKNOWN),
        (409, "in progress", semel.State.UNKNOWN),
        (429, "slow down", semel.State.UNKNOWN),
        (500, "oops", semel.State.UNKNOWN),
    ],
)
def test_an_answer_moves_the_record_by_what_it_proves(guard, engine, closed, status, text, state):
    tool = tool_to(guard, engine, url_of(closed))
    told = pytest.raises((semel.Rejected, semel.OutcomeUnknown, semel.PausedForPerson))
    with provider(closed, answer(status, text)), told:
        call(guard, engine, "run", tool)
    assert only(guard).state is state


# hazard 29
def test_a_provider_that_says_already_used_to_a_second_attempt_has_not_refused_the_first(
    guard, engine, closed
):
    effect = semel.Idempotent(key_ttl=timedelta(hours=24))
    tool = tool_to(guard, engine, url_of(closed), effect=effect)
    with provider(closed, NO_ANSWER) as serving:
        with pytest.raises(semel.OutcomeUnknown):
            call(guard, engine, "run", tool)
        serving.answer = answer(400, "Idempotency-Key already used")
        with pytest.raises(semel.OutcomeUnknown):
            call(guard, engine, "run", tool)
        assert serving.arrived == [only(guard).key] * 2
    assert only(guard).state is semel.State.UNKNOWN
