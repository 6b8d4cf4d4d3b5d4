"""What the model is told of a call without a result, and what becomes of a call in doubt that it asks for anew."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from bureau import RUN_ID, Counted, answers, pick, say

import semel
from semel import http
from semel.agent.likeness import Likeness, likeness
from semel.decide import decide

ANSWER = {"by": "pat", "why": "asked the post office"}
UNKNOWN = {
    "outcome": "unknown",
    "retryable": False,
    "retry_after_seconds": None,
    "error": "post may or may not have happened; it is being found out, so do not ask for it again in any words.",
}


def no(why, *, retryable=False, after=None):
    return {"outcome": "did_not_happen", "retryable": retryable, "retry_after_seconds": after, "error": why}


def times_out_once(call, left):
    if left:
        left.pop()
        raise TimeoutError("no answer")


def after_a_time_out(mine):
    """The first call takes effect, and its answer is lost."""
    left = [1]
    mine.lose = lambda call: times_out_once(call, left)
    return mine


# ------------------------------------------------------------------ structured errors


def told_of(mine, effect, error, **options):
    def fail():
        raise error

    mine.register("fail", effect, fail)
    model = Counted([say(pick("fail"))])
    ended = mine.run(mine.agent(model, **options))
    assert mine.run(mine.agent(Counted(()), **options)).transcript == ended.transcript
    (answer,) = answers(ended)
    return answer


IDEMPOTENT = semel.Idempotent(key_ttl=timedelta(days=1))
IN_TEN = timedelta(seconds=10)


@pytest.mark.parametrize("effect", [semel.Safe(), IDEMPOTENT, semel.Unsafe()], ids=lambda effect: effect.name)
def test_a_refusal_is_never_to_be_retried(bureau, effect):
    answer = told_of(bureau(), effect, semel.Rejected("no such customer"))
    assert (answer["outcome"], answer["retryable"], answer["retry_after_seconds"]) == (
        "did_not_happen",
        False,
        None,
    )
    assert "no such customer" in answer["error"]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_400_type_answer_is_never_to_be_retried_not_even_by_a_tool_that_only_reads(bureau, status):
    error = http.StatusInDoubt("HTTP", status=status, retry_after=IN_TEN)
    answer = told_of(bureau(), semel.Safe(), error)
    assert (answer["retryable"], answer["retry_after_seconds"]) == (False, None)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503])
def test_a_tool_that_only_reads_may_be_asked_again_when_its_provider_says_so(bureau, status):
    error = http.StatusInDoubt("HTTP", status=status, retry_after=IN_TEN)
    answer = told_of(bureau(), semel.Safe(), error)
    assert (answer["retryable"], answer["retry_after_seconds"]) == (True, 10)


def test_what_a_transaction_did_not_send_may_be_asked_for_again_too(bureau):
    mine = bureau()

    def grant(*, tx):
        raise semel.NotSent("turned away", retry_after=IN_TEN)

    mine.register("grant", semel.Atomic(), grant)
    agent = mine.agent(Counted([say(pick("grant"))]))
    ended = mine.run(agent)
    assert answers(ended) == [no("NotSent: turned away", retryable=True, after=10)]
    assert mine.run(agent).transcript == ended.transcript


@pytest.mark.parametrize("effect", [semel.Safe(), IDEMPOTENT, semel.Unsafe()], ids=lambda effect: effect.name)
def test_what_never_left_may_be_asked_for_again_after_the_providers_own_pause(bureau, effect):
    answer = told_of(bureau(), effect, semel.NotSent("turned away", retry_after=IN_TEN))
    assert answer == no("NotSent: turned away", retryable=True, after=10)


def test_a_429_that_the_provider_documents_as_unread_keeps_its_retry_after(bureau):
    rules = http.HttpRules(name="ours", rejected=frozenset(), turned_away=frozenset({429}))
    with pytest.raises(semel.NotSent) as turned_away:
        http.check(429, rules, text="slow down", retry_after="10")
    assert told_of(bureau(), semel.Unsafe(), turned_away.value)["retry_after_seconds"] == 10


def test_a_429_that_proves_nothing_is_a_doubt_and_stops_the_run(bureau):
    mine = bureau()
    with pytest.raises(semel.PausedForPerson):
        told_of(mine, semel.Unsafe(), http.StatusInDoubt("HTTP 429", status=429, retry_after=IN_TEN))


def test_an_atomic_tool_that_raises_did_not_happen_and_may_be_asked_for_again(bureau):
    mine = bureau()

    def grant(to, *, tx):
        tx.execute("CREATE TABLE grants (customer TEXT)")
        raise ValueError(f"no plan for\n{to}")

    mine.register("grant", semel.Atomic(), grant)
    ended = mine.run(mine.agent(Counted([say(pick("grant", to="ann"))])))
    assert answers(ended) == [no("ValueError: no plan for ann", retryable=True)]
    with mine.guard.store.transaction() as transaction:
        transaction.handle.execute("CREATE TABLE grants (customer TEXT)")  # it does not exist


def test_a_result_that_could_not_be_recorded_happened_and_is_not_to_be_retried(bureau):
    mine = bureau()
    mine.register("make", semel.Unsafe(), lambda: object())
    (answer,) = answers(mine.run(mine.agent(Counted([say(pick("make"))]))))
    assert (answer["outcome"], answer["retryable"]) == ("happened", False)


def test_every_error_is_one_sentence_of_bounded_length(bureau):
    answer = told_of(bureau(), semel.Safe(), semel.Rejected("line\n" * 10_000))
    assert "\n" not in answer["error"]
    assert len(answer["error"]) <= 400


# ------------------------------------------------------------------ what never left, and is asked for anew

ASKED_ANEW = [say(pick("post", "1", to="ann")), say(pick("post", "2", to="ann"))]


def never_leaves_once(mine):
    left = [1]

    def fail(call):
        if left:
            left.pop()
            raise semel.NotSent("no route")

    mine.fail = fail
    return mine


def test_what_never_left_and_is_asked_for_anew_happens_once_in_this_and_every_later_life(bureau):
    mine = never_leaves_once(bureau())
    ended = mine.run(mine.agent(Counted(ASKED_ANEW)))
    assert answers(ended) == [no("NotSent: no route", retryable=True), "post ann"]
    assert mine.run(mine.agent(Counted(()))).transcript == ended.transcript
    assert mine.sent() == ["ann"]
    states = [operation.state for operation in mine.guard.store.read_run("", RUN_ID)]
    assert sorted(states) == [semel.State.COMMITTED, semel.State.FAILED], "the first intent could still run"


def test_where_the_rules_say_so_what_never_left_stops_the_run_and_its_own_intent_is_tried_again(bureau):
    mine = never_leaves_once(bureau())
    agent = mine.agent(Counted(ASKED_ANEW[:1]), on_not_done="stop")
    with pytest.raises(semel.NotSent):
        mine.run(agent)
    assert answers(mine.run(agent)) == ["post ann"]
    assert mine.sent() == ["ann"]


# ------------------------------------------------------------------ a doubt stops the run


REWORDED = [
    say(pick("post", "1", to="ann", amount=250, text="Your plan renews.")),
    say(pick("post", "2", to="Ann", amount=25_000, text="Dear Ann, your plan has been renewed.")),
]


def test_a_doubt_pauses_the_run_rather_than_inviting_another_call(bureau):
    mine, model = after_a_time_out(bureau()), Counted(REWORDED)
    with pytest.raises(semel.PausedForPerson):
        mine.run(mine.agent(model))
    assert len(model.shown) == 1, "the model heard of a time-out"
    assert mine.sent() == ["ann"]


def test_a_doubt_that_evidence_settles_is_settled_when_the_run_is_resumed(bureau):
    mine, model = after_a_time_out(bureau(wait=timedelta(0))), Counted([say(pick("send", to="ann"))])
    mine.is_down = True
    with pytest.raises(semel.OutcomeUnknown):
        mine.run(mine.agent(model))
    mine.is_down = False
    assert answers(mine.run(mine.agent(model))) == ["send ann"]
    assert mine.sent() == ["ann"]


# ------------------------------------------------------------------ or is told, and what repeats it is held back


def told_and_held_back(mine, script, **options):
    """The model hears that nobody knows, asks again, and the run stops at that: a person is shown both."""
    agent = mine.agent(Counted(script), on_unknown={"post": "tell"}, **options)
    with pytest.raises(semel.PausedForPerson) as pause:
        mine.run(agent)
    with pytest.raises(semel.PausedForPerson):
        mine.run(agent)
    assert mine.sent() == ["ann"], "it was sent again"
    return agent, pause.value


def test_a_call_that_was_told_as_unknown_and_is_reworded_is_held_back_and_shown_to_a_person(bureau):
    mine = after_a_time_out(bureau())
    _, pause = told_and_held_back(mine, REWORDED)
    assert "Held back: post(to='Ann', amount=25000" in str(pause)
    assert "post(to='ann', amount=250" in str(pause)
    (doubt,) = mine.guard.in_doubt()
    assert (pause.key, pause.fingerprint) == (doubt.key, doubt.fingerprint)


REPEATED = [say(pick("post", "1", to="ann", amount=250)), say(pick("post", "2", to="Ann ", amount=250.0))]


def test_if_it_happened_the_same_call_gets_its_result_and_nothing_is_sent(bureau):
    mine = after_a_time_out(bureau())
    agent, pause = told_and_held_back(mine, REPEATED)
    mine.guard.resolve(pause.key, semel.ItHappened("posted"), **ANSWER)
    ended = mine.run(agent)
    assert answers(ended) == [UNKNOWN, "posted"]
    assert mine.run(agent).transcript == ended.transcript
    assert mine.sent() == ["ann"]


def test_if_it_happened_a_reworded_call_is_told_so_and_may_be_made_anew_on_purpose(bureau):
    mine = after_a_time_out(bureau())
    script = [*REWORDED, REWORDED[1]]
    agent, pause = told_and_held_back(mine, script)
    mine.guard.resolve(pause.key, semel.ItHappened("posted"), **ANSWER)
    first, held, anew = answers(mine.run(agent))
    assert first == UNKNOWN
    assert (held["outcome"], held["retryable"]) == ("did_not_happen", False)
    assert "that one happened" in held["error"]
    assert anew == "post Ann"
    assert mine.sent() == ["ann", "Ann"]


def test_if_a_person_says_run_it_the_first_one_runs_once_and_answers_the_other(bureau):
    mine = bureau()
    left = [1]
    mine.fail = lambda call: times_out_once(call, left)  # before it is sent; nobody can know that
    agent = mine.agent(Counted(REPEATED), on_unknown="tell")
    with pytest.raises(semel.PausedForPerson) as pause:
        mine.run(agent)
    mine.guard.resolve(pause.value.key, semel.RunIt(), **ANSWER)
    assert answers(mine.run(agent)) == [UNKNOWN, "post ann"]
    assert mine.sent() == ["ann"]
    assert [operation.key for operation in mine.guard.store.read_run("", RUN_ID)] == [pause.value.key]


def test_if_a_person_gives_up_the_other_is_told_so_and_does_not_run(bureau):
    mine = after_a_time_out(bureau())
    agent, pause = told_and_held_back(mine, REPEATED)
    mine.guard.resolve(pause.key, semel.GiveUp(), **ANSWER)
    assert answers(mine.run(agent)) == [UNKNOWN, no("given up by pat: asked the post office")]
    assert mine.sent() == ["ann"]


def test_a_doubt_that_was_settled_before_the_model_heard_of_it_holds_back_all_the_same(bureau):
    mine = after_a_time_out(bureau())

    def ask_again(messages):
        (doubt,) = mine.guard.in_doubt()
        mine.guard.resolve(doubt.key, semel.ItHappened("posted"), **ANSWER)
        return REPEATED[1]

    ended = mine.run(mine.agent(Counted([REPEATED[0], ask_again, REPEATED[1]]), on_unknown="tell"))
    assert answers(ended) == [UNKNOWN, "posted", "post Ann "]
    assert mine.sent() == ["ann", "Ann "], "asked for knowing what became of the first, it is meant"


def test_what_was_told_as_unknown_and_is_cleared_afterwards_runs_when_the_run_is_resumed(bureau):
    """The intent is not lost on account of what the model was told."""
    mine = bureau()
    left = [1]
    mine.fail = lambda call: times_out_once(call, left)
    agent = mine.agent(Counted(REPEATED[:1]), on_unknown="tell")
    ended = mine.run(agent)
    assert answers(ended) == [UNKNOWN]
    (doubt,) = mine.guard.in_doubt()
    mine.guard.resolve(doubt.key, semel.RunIt(), **ANSWER)
    for _ in range(2):
        assert mine.run(agent).transcript == ended.transcript
        assert mine.sent() == ["ann"]


def test_a_doubt_that_was_settled_and_is_past_retention_by_now_does_not_keep_the_run_from_going_on(bureau):
    mine = after_a_time_out(bureau())
    agent, pause = told_and_held_back(mine, REPEATED)
    mine.guard.resolve(pause.key, semel.ItHappened("posted"), **ANSWER)
    while not mine.guard.reap(older_than=timedelta(0)):
        continue  # until the store's clock has moved on
    ended = mine.run(agent)
    first, held = answers(ended)
    assert first == UNKNOWN
    assert "that one happened" in held["error"]
    assert mine.run(agent).transcript == ended.transcript
    assert mine.sent() == ["ann"]


@pytest.mark.parametrize("tool", ["send", "charge"])
def test_where_evidence_or_the_key_can_tell_the_held_call_needs_no_person(bureau, tool):
    mine = after_a_time_out(bureau(wait=timedelta(0)))

    def ask_again(messages):
        mine.is_down = False
        return say(pick(tool, "2", to="ANN"))

    mine.is_down = True
    script = [say(pick(tool, "1", to="ann")), ask_again]
    ended = mine.run(mine.agent(Counted(script), on_unknown="tell"))
    told, held = answers(ended)
    assert (told["outcome"], held) == ("unknown", f"{tool} ann")
    assert len(set(mine.ledger.keys(tool))) == 1
    assert mine.run(mine.agent(Counted(()), on_unknown="tell")).transcript == ended.transcript


def test_a_clearly_different_call_and_another_tool_are_not_held_back(bureau):
    mine = after_a_time_out(bureau())
    script = [say(pick("post", to="ann")), say(pick("post", to="bob"), pick("charge", to="ann"))]
    ended = mine.run(mine.agent(Counted(script), on_unknown="tell"))
    assert answers(ended)[1:] == ["post bob", "charge ann"]


def test_equal_calls_of_one_turn_are_both_meant_though_one_comes_into_doubt(bureau):
    mine = after_a_time_out(bureau())
    script = [say(pick("post", to="ann"), pick("post", to="ann"))]
    ended = mine.run(mine.agent(Counted(script), on_unknown="tell", calls_at_once=1))
    assert answers(ended) == [UNKNOWN, "post ann"]
    assert mine.sent() == ["ann", "ann"]


def test_with_a_business_identity_a_reworded_call_under_a_new_id_is_the_first_one(bureau):
    mine = bureau()
    left = [1]

    def renew(customer, cents=None, dollars=None, *, call):
        mine.ledger.enter("renew", call.key, to=customer)
        times_out_once(call, left)
        return "renewed"

    effect = semel.Unsafe(
        lookup=lambda call: semel.Found("renewed"), lookup_lag=timedelta(0), request_deadline=timedelta(0)
    )
    mine.register("renew", effect, renew, once_per="customer")
    script = [
        say(pick("renew", "1", customer="ann", cents=25_000)),
        say(pick("renew", "2", customer="ann", dollars=250)),
    ]
    ended = mine.run(mine.agent(Counted(script), on_unknown="tell"))
    assert answers(ended)[1] == "renewed"
    assert mine.sent("renew") == ["ann"]
    assert mine.run(mine.agent(Counted(()), on_unknown="tell")).transcript == ended.transcript


# ------------------------------------------------------------------ how like is like


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ({"to": "ann"}, {"to": "ann"}, Likeness.SAME),
        ({"to": "ann", "cc": None}, {"to": " ANN. "}, Likeness.SAME),
        ({"amount": 250}, {"amount": "250.0"}, Likeness.SAME),
        ({"tags": ["a", "b"]}, {"tags": ("A", "b")}, Likeness.SAME),
        ({"to": "ann", "cents": 25_000}, {"to": "ann", "dollars": 250}, Likeness.NEAR),
        ({"to": "ann", "amount": 25_000}, {"to": "ann", "amount": 250}, Likeness.NEAR),
        ({"to": "ann", "amount": 99.99}, {"to": "ann", "amount": 100}, Likeness.NEAR),
        ({"to": "ann", "text": "It renews."}, {"to": "ann", "text": "Your plan renews."}, Likeness.NEAR),
        ({"to": "Ann Smith"}, {"to": "Bob Jones"}, Likeness.NEAR),  # not clearly different, as text goes
        ({}, {"to": "ann"}, Likeness.NEAR),
        ({"to": "ann"}, {"to": "bob"}, Likeness.DIFFERENT),
        ({"to": "ann@a.example"}, {"to": "ann@b.example"}, Likeness.DIFFERENT),
        ({"invoice": 1000}, {"invoice": 1001}, Likeness.DIFFERENT),
        ({"invoice": 17}, {"invoice": 18}, Likeness.DIFFERENT),
        ({"amount": 5}, {"amount": -5}, Likeness.DIFFERENT),
        ({"amount": 0}, {"amount": 10}, Likeness.DIFFERENT),
        ({"urgent": True}, {"urgent": False}, Likeness.DIFFERENT),
        (
            {"who": {"id": "a", "name": "Ann S."}},
            {"who": {"id": "b", "name": "Ann Smith"}},
            Likeness.DIFFERENT,
        ),
        ({"who": {"id": "a", "name": "Ann S."}}, {"who": {"id": "a", "name": "Ann Smith"}}, Likeness.NEAR),
        ({"n": 10**400}, {"n": 1.5}, Likeness.DIFFERENT),
        ({"n": float("inf")}, {"n": 1}, Likeness.DIFFERENT),
        ({"iban": "12345678901234567"}, {"iban": "12345678901234568"}, Likeness.DIFFERENT),
        ({"iban": "12345678901234567.0"}, {"iban": 12345678901234567}, Likeness.SAME),
        ({"account": 1234567890123}, {"account": 1234567890124}, Likeness.DIFFERENT),
        ({"cents": 1234567890123_00}, {"dollars": 1234567890123}, Likeness.NEAR),
        ({"n": "9" * 400}, {"n": "8" * 400}, Likeness.DIFFERENT),
        ({"n": "9" * 400}, {"n": "9"}, Likeness.NEAR),
    ],
    ids=str,
)
def test_what_is_not_clearly_different_is_not_different(earlier, later, expected):
    assert likeness(earlier, later) is expected
    assert likeness(later, earlier) is expected


def test_an_answer_of_the_first_intent_of_its_event_is_kept_whatever_becomes_of_that_one(bureau):
    """That one was refused, which does not use the event up: a resumed run must not make the call then."""
    began, waiting = threading.Event(), threading.Event()

    def watched(operation, *rest, **named):
        if operation is not None and operation.run_id == "other" and named.get("held_fence") is None:
            waiting.set()
        return decide(operation, *rest, **named)

    mine = bureau(decide=watched)

    def renew(customer, *, call):
        mine.ledger.enter("renew", call.key, to=customer)
        began.set()
        assert waiting.wait(20)
        raise semel.Rejected("declined")

    mine.register("renew", semel.Unsafe(), renew, once_per="customer")
    agent = mine.agent(Counted([say(pick("renew", customer="ann"))]))
    other = threading.Thread(target=lambda: mine.run(agent, run_id="other"))
    other.start()
    assert began.wait(20)
    told = mine.run(agent)
    other.join()
    assert answers(told) == [no("Rejected: declined")]
    assert mine.run(agent).transcript == told.transcript
    assert mine.sent("renew") == ["ann"], "it was made when its run was only told again"


def test_arguments_that_the_business_identity_cannot_be_made_of_are_the_models_mistake_to_hear_of(bureau):
    mine = bureau()
    mine.register("renew", IDEMPOTENT, lambda period: "renewed", once_per=lambda period: period.lower())
    agent = mine.agent(Counted([say(pick("renew", period=12)), say(pick("renew", period="MAY"))]))
    ended = mine.run(agent)
    wrong, renewed = answers(ended)
    assert (wrong["outcome"], wrong["retryable"], renewed) == ("did_not_happen", False, "renewed")
    assert "no attribute 'lower'" in wrong["error"]
    assert mine.run(agent).transcript == ended.transcript


@pytest.mark.parametrize("levels", [99, 100, 101])
def test_an_answer_that_is_too_deep_for_the_log_is_told_so_and_keeps_no_run_from_going_on(bureau, levels):
    deep = None
    for _ in range(levels):
        deep = [deep]
    mine = bureau()
    mine.register("look", semel.Safe(), lambda: deep)
    agent = mine.agent(Counted([say(pick("look"))]))
    ended = mine.run(agent)
    (answer,) = answers(ended)
    assert answer == deep if levels < 100 else "nested deeper" in answer["error"]
    assert mine.run(agent).transcript == ended.transcript


def test_a_business_event_that_was_undone_is_told_as_such_and_keeps_no_other_run_from_going_on(bureau):
    mine = bureau()
    renew = mine.guard.tool(effect=IDEMPOTENT, once_per="period", name="renew")(lambda period: "renewed")
    renew.compensation(effect=IDEMPOTENT, name="refund")(lambda arguments, result: None)
    mine.tools["renew"] = renew
    agent = mine.agent(Counted([say(pick("renew", period="may"))]))
    mine.run(agent, run_id="first")
    assert mine.guard.compensate("first") != []
    ended = mine.run(agent, run_id="second")
    (answer,) = answers(ended)
    assert (answer["outcome"], answer["retryable"]) == ("did_not_happen", False)
    assert "was compensated" in answer["error"]
    assert mine.run(agent, run_id="second").transcript == ended.transcript
    with pytest.raises(semel.Compensated):
        mine.run(agent, run_id="first")


def test_a_run_that_is_undone_while_it_is_at_work_is_not_told_to_its_model(bureau):
    mine = bureau()
    renew = mine.guard.tool(effect=IDEMPOTENT, once_per="period", name="renew")(lambda period: "renewed")
    renew.compensation(effect=IDEMPOTENT, name="refund")(lambda arguments, result: None)
    mine.tools["renew"] = renew

    def undone_meanwhile(messages):
        mine.guard.compensate(RUN_ID)
        return say(pick("renew", period="june"))

    with pytest.raises(semel.Compensated):
        mine.run(mine.agent(Counted([say(pick("renew", period="may")), undone_meanwhile])))


def test_a_business_event_whose_record_is_past_retention_is_told_to_have_happened(bureau):
    mine = bureau()
    mine.register("renew", IDEMPOTENT, lambda period: mine.ledger.enter("renew"), once_per="period")
    agent = mine.agent(Counted([say(pick("renew", period="may"))]))
    mine.run(agent, run_id="first")
    while not mine.guard.reap(older_than=timedelta(0)):
        continue  # until the store's clock has moved on
    ended = mine.run(agent, run_id="second")
    (answer,) = answers(ended)
    assert (answer["outcome"], answer["retryable"]) == ("happened", False)
    assert mine.run(agent, run_id="second").transcript == ended.transcript
    assert len(mine.ledger.lines("renew")) == 1
    with pytest.raises(semel.Reaped):
        mine.run(agent, run_id="first")
