"""Finding out: what a lookup's answer is worth, and when it is worth it. All by the manual clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from workbench import call, register

import semel
from semel.engine.verdicts import as_evidence

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
LAG, DEADLINE = 10 * SECOND, 20 * SECOND
KEY = "k" * 64


class Provider:
    """Takes requests that land later than they were sent, and lists them later still."""

    def __init__(self, clock, ledger):
        self._clock, self._ledger = clock, ledger
        self.lookups = 0
        self.takes = [timedelta(0)]  # how long each next request is under way; None: it never arrives

    def send(self, key):
        """Always ends in a time-out at the caller, at once."""
        delay = self.takes.pop(0) if self.takes else timedelta(0)
        if delay is not None:
            self._ledger.enter("charge", key, lands_at=(self._clock.now() + delay).isoformat())
        raise TimeoutError("read timed out")

    def look(self, call):
        self.lookups += 1
        visible = self._clock.now() - LAG
        for line in self._ledger.lines():
            if line["key"] == call.key and line["lands_at"] <= visible.isoformat():
                return semel.Found({"at": line["lands_at"]}, key=line["key"])
        return semel.Absent()


@pytest.fixture
def provider(clock, ledger):
    return Provider(clock, ledger)


def mail_tool(guard, engine, provider, **options):
    effect = semel.Unsafe(lookup=provider.look, lookup_lag=LAG, request_deadline=DEADLINE)
    return register(guard, engine, lambda *, call: provider.send(call.key), name="charge", effect=effect)


def only(guard):
    (operation,) = guard.store.read_run("", "run")
    return operation


# ------------------------------------------------------------------ lag and late requests


# hazard 3
def test_an_early_absent_of_a_lagging_lookup_is_not_believed(guard, ledger, clock, provider, engine):
    tool = mail_tool(guard, engine, provider)
    with pytest.raises(semel.OutcomeUnknown) as unknown:
        call(guard, engine, "run", tool)
    assert unknown.value.retry_after == LAG + DEADLINE
    clock.advance(LAG - SECOND)
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    clock.advance(SECOND)
    assert set(call(guard, engine, "run", tool)) == {"at"}
    assert len(ledger.lines()) == 1


# hazard 4
def test_a_request_that_lands_late_is_found_and_not_sent_again(guard, ledger, clock, provider, engine):
    provider.takes = [DEADLINE]
    tool = mail_tool(guard, engine, provider)
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    for _ in range(5):  # absent, again and again, up to one second before it must show
        clock.advance((LAG + DEADLINE - SECOND) / 5)
        with pytest.raises(semel.OutcomeUnknown):
            call(guard, engine, "run", tool)
    clock.advance(SECOND)
    call(guard, engine, "run", tool)
    assert len(ledger.lines()) == 1
    assert only(guard).state is semel.State.COMMITTED


# hazards 3, 4
def test_what_is_absent_in_quiet_is_sent_again(guard, ledger, clock, provider, engine):
    provider.takes = [None, timedelta(0)]
    tool = mail_tool(guard, engine, provider)
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    clock.advance(LAG + DEADLINE)
    with pytest.raises(semel.OutcomeUnknown):  # the second attempt times out as well, and is there
        call(guard, engine, "run", tool)
    assert only(guard).fence == 2
    clock.advance(LAG)
    call(guard, engine, "run", tool)
    assert len(ledger.lines()) == 1


# hazard 3
def test_an_absent_that_was_asked_for_too_early_is_asked_for_again(guard, clock, provider):
    provider.takes = [None]
    tool = mail_tool(guard, "sync", provider)
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, "sync", "run", tool)
    clock.advance(LAG + DEADLINE - SECOND)
    assert guard.reconcile().waiting
    asked = provider.lookups
    clock.advance(SECOND)
    assert guard.reconcile().settled
    assert provider.lookups == asked + 1


# ------------------------------------------------------------------ typed evidence


class Row:
    def __repr__(self):
        raise RuntimeError("no words")


NO_EVIDENCE = [
    0,
    "",
    False,
    None,
    True,
    1,
    [],
    {},
    "processing",
    [{"id": 1}, {"id": 2}],
    semel.Absent,
    semel.Found,
    Row(),
    semel.Inconclusive("in progress"),
    semel.Found("somebody else's", key="x" * 64),
    semel.Found("nobody's", key=""),
]


# hazard 9
@pytest.mark.parametrize("answer", NO_EVIDENCE, ids=range(len(NO_EVIDENCE)))
@pytest.mark.parametrize("is_lookup_async", [False, True])
def test_an_answer_that_is_no_evidence_settles_nothing_and_sends_nothing(
    guard, ledger, clock, engine, answer, is_lookup_async
):
    async def look_async(call):
        return answer

    lookup = look_async if is_lookup_async else lambda call: answer
    effect = semel.Unsafe(lookup=lookup, lookup_lag=LAG, request_deadline=DEADLINE)

    def charge(*, call):
        ledger.enter("charge", call.key)
        raise TimeoutError

    tool = register(guard, engine, charge, effect=effect)
    for _ in range(2):
        with pytest.raises(semel.PausedForPerson, match="UNKNOWN"):
            call(guard, engine, "run", tool)
        clock.advance(HOUR)
    assert only(guard).state is semel.State.UNKNOWN
    assert len(ledger.lines()) == 1


# hazard 9
@pytest.mark.parametrize(
    "shown",
    [
        lambda call: call.key,
        lambda call: None,
        lambda call: call.key_for(max_length=40),
        lambda call: call.key_for(max_length=20),
        lambda call: str(call.uuid),
    ],
    ids=["the key", "no reference", "a key of 40 characters", "a key of 20 characters", "a UUID"],
)
def test_a_row_that_carries_our_key_in_any_form_that_the_guard_gave_out_is_ours(guard, engine, shown):
    effect = semel.Unsafe(lookup=lambda call: semel.Found("found", key=shown(call)))
    tool = register(guard, engine, time_out, effect=effect)
    assert call(guard, engine, "run", tool) == "found"


def time_out():
    raise TimeoutError


# hazard 9
@pytest.mark.parametrize(
    "error", [ConnectionError("down"), TimeoutError(), KeyError("id"), semel.NotSent("x")]
)
def test_a_lookup_that_fails_is_asked_again_later_and_is_never_an_absent(guard, clock, engine, error):
    answers = [error, error, semel.Found("there")]

    def lookup(call):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    effect = semel.Unsafe(lookup=lookup, lookup_lag=LAG, request_deadline=DEADLINE)
    tool = register(guard, engine, time_out, effect=effect)
    for _ in range(2):
        with pytest.raises(semel.OutcomeUnknown, match="the lookup failed") as unknown:
            call(guard, engine, "run", tool)
        assert unknown.value.retry_after > timedelta(0)
        clock.advance(HOUR)
    assert call(guard, engine, "run", tool) == "there"


def test_a_lookup_that_says_when_is_asked_then(guard, clock, engine):
    answers = [semel.Inconclusive("in progress", retry_after=7 * SECOND), semel.Found("there")]
    tool = register(guard, engine, time_out, effect=semel.Unsafe(lookup=lambda call: answers.pop(0)))
    with pytest.raises(semel.OutcomeUnknown, match="in progress") as unknown:
        call(guard, engine, "run", tool)
    assert unknown.value.retry_after == 7 * SECOND
    assert call(guard, engine, "run", tool) == "there"


def test_a_lookup_is_given_the_key_and_the_arguments_of_the_attempt(guard, engine):
    seen = []

    def lookup(call):
        seen.append((call.key, call.arguments, call.run_id, call.deadline_at))
        return semel.Found("there")

    tool = register(guard, engine, lambda to: time_out(), name="mail", effect=semel.Unsafe(lookup=lookup))
    call(guard, engine, "run", tool, to="ann")
    assert seen == [(only(guard).key, {"to": "ann"}, "run", None)]


# hazard 17
def test_a_found_result_that_cannot_be_recorded_still_settles_it(guard, engine):
    effect = semel.Unsafe(lookup=lambda call: semel.Found(object()))
    tool = register(guard, engine, time_out, effect=effect)
    with pytest.raises(semel.ResultLost, match="happened"):
        call(guard, engine, "run", tool)
    assert only(guard).state is semel.State.COMMITTED


def test_only_evidence_is_evidence():
    """The words of the verdict say what came instead."""
    assert as_evidence(semel.Absent(), KEY) == semel.Absent()
    assert "returned False" in as_evidence(False, KEY).why
    assert "another operation" in as_evidence(semel.Found(1, key="other"), KEY).why


# ------------------------------------------------------------------ keys grow old


def remembering(ttl=HOUR, **options):
    return semel.Idempotent(key_ttl=ttl, request_deadline=DEADLINE, lookup_lag=LAG, **options)


# hazard 28
def test_a_key_older_than_the_providers_memory_is_not_resent_blindly(guard, ledger, clock, engine):
    def charge(*, call):
        ledger.enter("charge", call.key)
        raise TimeoutError

    tool = register(guard, engine, charge, effect=remembering())
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    clock.advance(HOUR - DEADLINE - SECOND)
    with pytest.raises(semel.OutcomeUnknown):  # in time: resent, under the same key
        call(guard, engine, "run", tool)
    assert len(ledger.lines()) == 2
    clock.advance(SECOND)
    with pytest.raises(semel.PausedForPerson, match="may have forgotten the key"):
        call(guard, engine, "run", tool)
    assert len(ledger.lines()) == 2


# hazard 28
def test_a_key_too_old_to_be_resent_is_looked_up_where_that_can_be_done(
    guard, ledger, clock, provider, engine
):
    provider.takes = [timedelta(0)]
    tool = register(
        guard,
        engine,
        lambda *, call: provider.send(call.key),
        name="charge",
        effect=remembering(lookup=provider.look),
    )
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    assert provider.lookups == 0, "within its life a key needs no lookup"
    clock.advance(HOUR)
    assert set(call(guard, engine, "run", tool)) == {"at"}
    assert len(ledger.lines()) == 1


# hazard 28
def test_an_attempt_that_certainly_was_not_sent_does_not_age_the_key(guard, ledger, clock, engine):
    errors = [semel.NotSent("connection refused"), TimeoutError()]

    def charge(*, call):
        if errors:
            raise errors.pop(0)
        ledger.enter("charge", call.key)
        return "charged"

    tool = register(guard, engine, charge, effect=remembering())
    with pytest.raises(semel.NotSent):
        call(guard, engine, "run", tool)
    clock.advance(24 * HOUR)
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    clock.advance(HOUR / 2)
    assert call(guard, engine, "run", tool) == "charged"


# hazard 20
def test_a_key_from_the_future_has_no_known_age_and_is_not_resent(guard, ledger, clock, engine):
    tool = register(guard, engine, time_out, effect=remembering())
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, engine, "run", tool)
    clock.advance(-HOUR)
    with pytest.raises(semel.PausedForPerson):
        call(guard, engine, "run", tool)
