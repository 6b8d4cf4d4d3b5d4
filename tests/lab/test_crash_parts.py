"""The parts of the lab for one's own agent that start no process: recorder, plan, judge, how a process ended."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import timedelta
from http import HTTPStatus

import pytest

from semel.errors import ClaimHeld, OutcomeUnknown, PausedForPerson, UsageError
from semel.lab.model import ProviderKind, Window
from semel.lab.own import plan
from semel.lab.own.judge import judge, name_of, names_of, shortened
from semel.lab.own.life import Broke, Later, Paused, _ended_by
from semel.lab.own.model import Effect, Finding, SeenBy
from semel.lab.own.plan import Arrival, Passed, Seen
from semel.lab.own.provider import fields_of
from semel.lab.own.recorder import Armed, NoReply, Recorder, Reply, Request, Silence
from semel.lab.own.run import _effect_of

W1, W2, W3, W4 = Window


def request(method="POST", path="/charge", key=None, query=None, **fields) -> Request:
    return Request(method=method, path=path, query=query or {}, key=key, fields=fields)


def effects(recorder: Recorder) -> list[str]:
    return [effect["tool"] for effect in recorder.record()["effects"]]


# ------------------------------------------------------------------ the recorder


def test_every_request_that_is_no_get_is_an_effect_at_its_path():
    recorder = Recorder(ProviderKind.HONOURS_KEYS)
    for method in ("POST", "PUT", "PATCH", "DELETE", "GET"):
        recorder.receive(request(method))
    assert effects(recorder) == ["POST /charge", "PUT /charge", "PATCH /charge", "DELETE /charge"]


@pytest.mark.parametrize(("kind", "times"), [("honours-keys", 1), ("has-lookup", 2), ("blind", 2)])
def test_only_a_provider_that_honours_keys_dedupes_on_them(kind, times):
    recorder = Recorder(ProviderKind(kind))
    answers = [recorder.receive(request(key="k", amount=1)) for _ in range(2)]
    assert len(effects(recorder)) == times
    assert (answers[0] == answers[1]) == (times == 1)


def test_another_key_another_path_and_no_key_are_other_effects():
    recorder = Recorder(ProviderKind.HONOURS_KEYS)
    for one in (request(key="k"), request(key="l"), request(key="k", path="/mail"), request(), request()):
        recorder.receive(one)
    assert len(effects(recorder)) == 5


def test_a_lookup_lists_the_path_s_effects_by_key_or_by_field():
    recorder = Recorder(ProviderKind.HAS_LOOKUP)
    recorder.receive(request(key="k", customer="a"))
    recorder.receive(request(key="l", customer="b"))
    recorder.receive(request(path="/mail", key="k"))

    def found(**query):
        answer = recorder.receive(request("GET", query=query))
        assert isinstance(answer, Reply)
        return [effect["id"] for effect in answer.body["effects"]]

    assert found() == ["charge_1", "charge_2"]
    assert found(key="k") == ["charge_1"]
    assert found(customer="b") == ["charge_2"]
    assert found(key="k", customer="b") == []


def test_a_blind_provider_cannot_be_asked():
    answer = Recorder(ProviderKind.BLIND).receive(request("GET"))
    assert isinstance(answer, Reply)
    assert answer.status is HTTPStatus.METHOD_NOT_ALLOWED


@pytest.mark.parametrize(
    ("window", "applied_when_it_struck", "struck_by"),
    [(W2, 1, "the second request"), (W3, 2, "the second request"), (W4, 2, "the next request")],
)
def test_a_kill_strikes_in_its_window_of_its_request_and_only_once(window, applied_when_it_struck, struck_by):
    recorder, struck = Recorder(ProviderKind.BLIND), []
    recorder.arm(Armed(window=window, passing=2, strike=lambda: struck.append(len(recorder._entries))))
    answers = {"the first request": recorder.receive(request())}
    answers["the second request"] = recorder.receive(request())
    answers["the next request"] = recorder.receive(request("GET"))
    recorder.receive(request())
    assert struck == [applied_when_it_struck]
    assert [name for name, answer in answers.items() if isinstance(answer, NoReply)] == [struck_by]


def test_w4_of_the_last_request_strikes_when_the_program_has_come_to_its_end():
    recorder, struck = Recorder(ProviderKind.BLIND), []
    recorder.arm(Armed(window=W4, passing=1, strike=lambda: struck.append("now")))
    recorder.returned()
    assert struck == [], "nothing was answered yet"
    recorder.receive(request())
    recorder.returned()
    recorder.returned()
    assert struck == ["now"]


def test_a_silent_provider_does_it_and_does_not_say_so():
    recorder = Recorder(ProviderKind.BLIND, is_silent=True)
    assert isinstance(recorder.receive(request()), Silence)
    assert len(effects(recorder)) == 1


@pytest.mark.parametrize(
    ("body", "content_type", "fields"),
    [
        (b'{"a": 1}', "application/json", {"a": 1}),
        (b'{"a": "b=c"}', "application/x-www-form-urlencoded", {"a": "b=c"}),  # as urllib posts JSON
        (b"a=1&b=x", "application/x-www-form-urlencoded", {"a": "1", "b": "x"}),
        (b"[1, 2]", "application/json", {"body": [1, 2]}),
        (b"hello", "text/plain", {"body": "hello"}),
        (b"", "text/plain", {}),
    ],
)
def test_what_was_sent_is_read_by_name(body, content_type, fields):
    assert fields_of(body, content_type) == fields


# ------------------------------------------------------------------ the plan


def passed(window: Window, passing: int, key: str, at: float, tool: str | None = None) -> Passed:
    return Passed(SeenBy.GUARD, window, passing, key, tool, at)


def guarded_call(number: int, key: str, tool: str, at: float) -> list[Passed]:
    return [
        passed(W1, number, key, at),
        passed(W2, number, key, at + 1),
        passed(W3, number, key, at + 3),
        passed(W4, number, key, at + 4, tool),
    ]


CHARGE = [Effect(tool="POST /charges", fields={"amount": 1})]


def test_a_request_during_exactly_one_guarded_call_belongs_to_its_tool():
    seen = Seen(
        passed=guarded_call(1, "k", "charge", at=0.0),
        arrivals=[Arrival("POST /charges", 2.0), Arrival("POST /mails", 9.0)],
        effects=CHARGE,
    )
    outside = [gap for gap in plan.gaps_of(seen, seen) if gap.seen_by is SeenBy.PROVIDER]
    assert [(gap.tool, gap.window, gap.passing) for gap in outside] == [
        *[("charge", window, 1) for window in (W2, W3, W4)],
        *[("POST /mails", window, 2) for window in (W2, W3, W4)],
    ]


def test_a_request_during_two_guarded_calls_keeps_its_own_name():
    both = [*guarded_call(1, "k", "charge", at=0.0), *guarded_call(2, "l", "mail", at=0.5)]
    seen = Seen(passed=both, arrivals=[Arrival("POST /charges", 2.0)], effects=CHARGE)
    assert {g.tool for g in plan.gaps_of(seen, seen) if g.seen_by is SeenBy.PROVIDER} == {"POST /charges"}


def test_a_gap_is_waited_for_by_key_only_where_the_key_came_again():
    first = Seen(passed=guarded_call(1, "k", "charge", at=0.0), arrivals=[], effects=CHARGE)
    other = Seen(passed=guarded_call(1, "random", "charge", at=0.0), arrivals=[], effects=CHARGE)
    assert {gap.key for gap in plan.gaps_of(first, first)} == {"k"}
    assert {gap.key for gap in plan.gaps_of(first, other)} == {None}
    assert {gap.tool for gap in plan.gaps_of(first, other)} == {"charge"}


def test_names_of_gaps_are_unique():
    calls = [*guarded_call(1, "k", "charge", at=0.0), *guarded_call(2, "l", "charge", at=5.0)]
    seen = Seen(passed=calls, arrivals=[Arrival("POST /charges", t) for t in (2.0, 7.0, 9.0)], effects=CHARGE)
    names = [gap.name for gap in plan.gaps_of(seen, seen)]
    assert len(names) == len(set(names)) == 8 + 9


def test_w2_of_a_ledger_is_seen_only_if_it_is_opened_for_each_effect():
    def grown(n: int) -> Passed:
        return Passed(SeenBy.LEDGER, W3, n, None, None, float(n))

    def opened(n: int) -> Passed:
        return Passed(SeenBy.LEDGER, W2, n, None, None, float(n))

    lines = [Effect(tool="charge", fields={}), Effect(tool="mail", fields={})]
    kept_open = Seen(passed=[opened(1), grown(1), grown(2)], arrivals=[], effects=lines, lines=lines)
    each = Seen(passed=[opened(1), grown(1), opened(2), grown(2)], arrivals=[], effects=lines, lines=lines)
    assert {gap.window for gap in plan.gaps_of(kept_open, kept_open)} == {W3, W4}
    assert {gap.window for gap in plan.gaps_of(each, each)} == {W2, W3, W4}
    assert [gap.tool for gap in plan.gaps_of(each, each) if gap.window is W3] == ["charge", "mail"]


def test_two_different_runs_are_no_baseline_and_the_difference_is_named():
    first, other = ([Effect(tool="POST /charges", fields={"customer": "ann", "amount": n})] for n in (1, 2))
    one, two = (Seen(passed=[], arrivals=[], effects=e) for e in (first, other))
    with pytest.raises(UsageError, match=r'(?s)"amount":1.*"amount":2'):
        plan.baseline_of(one, two, ())
    assert plan.baseline_of(one, two, ("customer",)) == Counter({'POST /charges {"customer":"ann"}': 1})


# ------------------------------------------------------------------ the judge

ONCE = Counter({"charge": 1, "mail": 1})


@pytest.mark.parametrize(
    ("happened", "has_finished", "waits", "finding"),
    [
        (["charge", "mail"], True, False, Finding.OK),
        (["charge", "charge", "mail"], True, False, Finding.DUPLICATE),
        (["charge"], True, False, Finding.LOST),
        (["charge", "charge"], True, False, Finding.DUPLICATE),
        (["charge"], False, False, Finding.STUCK),
        (["charge"], False, True, Finding.ASKED),
        (["charge", "charge"], False, True, Finding.DUPLICATE),
        (["charge", "mail", "refund"], True, False, Finding.DUPLICATE),
    ],
)
def test_the_gravest_finding_is_the_one(happened, has_finished, waits, finding):
    found = judge(Counter(happened), ONCE, has_finished=has_finished, waits_for_person=waits)
    assert found.finding is finding


def test_an_effect_is_named_by_the_fields_of_its_identity_else_by_its_intent_else_by_all():
    worded = Effect(tool="mail", fields={"to": "a", "body": "Hello", "intent": "tell a"})
    assert name_of(worded, ("to",)) == 'mail {"to":"a"}'
    assert name_of(worded, ()) == 'mail "tell a"'
    assert name_of(Effect(tool="mail", fields={"to": "a", "n": 1}), ()) == 'mail {"n":1,"to":"a"}'


def test_rewording_hides_no_duplicate_where_the_identity_is_named():
    reworded = [Effect(tool="mail", fields={"to": "a", "body": body}) for body in ("Hello", "Good morning")]
    assert names_of(reworded, ("to",)) == Counter({'mail {"to":"a"}': 2})


def test_a_long_name_is_shortened_where_it_is_shown():
    assert len(shortened("x" * 1_000)) == 300


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ('{"tool": "charge", "amount": 1}', Effect(tool="charge", fields={"amount": 1})),
        ('{"amount": 1}', Effect(tool="the ledger", fields={"amount": 1})),
        ('{"tool": "cha', Effect(tool="the ledger", fields={"line": '{"tool": "cha'})),
        ("[1]", Effect(tool="the ledger", fields={"line": "[1]"})),
    ],
)
def test_every_line_of_a_ledger_is_an_effect_also_one_that_a_kill_cut_off(line, effect):
    assert _effect_of(line) == effect


# ------------------------------------------------------------------ how a process ended

PAUSE = PausedForPerson("only a person knows", key="k", fingerprint="f", attempt=2)
LATER = ClaimHeld("come back", retry_after=timedelta(seconds=3))


def wrapped(error: BaseException) -> BaseException:
    try:
        try:
            raise error
        except BaseException as cause:
            raise BaseExceptionGroup("of a task group", [RuntimeError("beside it")]) from cause
    except BaseExceptionGroup as outer:
        return outer


@pytest.mark.parametrize("error", [PAUSE, BaseExceptionGroup("", [PAUSE]), wrapped(PAUSE)])
def test_a_pause_counts_however_it_was_wrapped(error):
    ended = _ended_by(error)
    assert isinstance(ended, Paused)
    assert pickle.loads(pickle.dumps(ended)).pause.attempt == 2


@pytest.mark.parametrize("error", [LATER, wrapped(LATER)])
def test_a_time_to_come_back_counts_however_it_was_wrapped(error):
    assert _ended_by(error) == Later(3.0)


def test_anything_else_is_a_program_that_broke():
    assert isinstance(_ended_by(OutcomeUnknown("nobody says when")), Broke)
    assert isinstance(_ended_by(RuntimeError("a bug")), Broke)
