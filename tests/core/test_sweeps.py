"""Recover, reconcile, audit, reap: many operations, no effect, and nobody else's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from workbench import NO_TIME, Child, Desk, call, kill_at, register

import semel
from semel.model import Move, Note

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
HONEST = {"lookup_lag": NO_TIME, "request_deadline": NO_TIME}


def time_out() -> None:
    raise TimeoutError


def leave_in_doubt(guard: semel.Guard, run_id: str, tool) -> str:
    with pytest.raises((semel.OutcomeUnknown, semel.PausedForPerson)) as unknown:
        call(guard, "sync", run_id, tool)
    return unknown.value.key


def once_down(answer):
    """A lookup that is down at first (so that the call leaves UNKNOWN) and then says this."""
    state = {"down": True}

    def lookup(call):
        if state.pop("down", False):
            raise ConnectionError("down")
        return answer

    return lookup


# ------------------------------------------------------------------ recover


def call_and_die(folder: Path) -> None:
    Desk(folder, checkpoint=kill_at("claimed")).call("letter")


def test_recovering_moves_the_dead_and_leaves_the_living_alone(tmp_path, desk):
    Child(call_and_die, tmp_path).assert_killed()
    mine = desk(before=lambda call: recovered.append(mine.guard.recover()))
    recovered: list[list[semel.Operation]] = []
    mine.call("letter", "alive")
    assert [[op.run_id for op in found] for found in recovered] == [["run"]]
    assert mine.operation().state is semel.State.UNKNOWN
    assert mine.operation("alive").state is semel.State.COMMITTED
    assert [op.run_id for op in mine.guard.in_doubt()] == ["run"]


def test_recovering_moves_a_claim_whose_lease_ran_out_even_of_an_owner_elsewhere(open_guard, clock):
    guard = open_guard(lease=HOUR)

    @guard.tool(effect=semel.Unsafe())
    def charge():
        other = open_guard()
        assert other.recover() == []
        clock.advance(HOUR)
        assert [op.state for op in other.recover()] == [semel.State.UNKNOWN]
        return "charged"

    with guard.run("run") as run:
        assert run.call(charge) == "charged"
    (operation,) = guard.store.read_run("", "run")
    assert operation.state is semel.State.COMMITTED, "its own late result settled it"


# ------------------------------------------------------------------ reconcile


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("answer", "state", "kind"),
    [
        (semel.Found("there"), semel.State.COMMITTED, "settled"),
        (semel.Absent(), semel.State.PENDING, "settled"),
        (semel.Inconclusive("in progress", retry_after=HOUR), semel.State.UNKNOWN, "waiting"),
        (semel.Inconclusive("two rows"), semel.State.UNKNOWN, "needs_person"),
    ],
)
def test_reconciling_settles_by_evidence_and_causes_no_effect(guard, clock, is_async, answer, state, kind):
    lookup = once_down(answer)

    async def look_async(call):
        return lookup(call)

    effect = semel.Unsafe(lookup=look_async if is_async else lookup, **HONEST)
    key = leave_in_doubt(guard, "run", guard.tool(effect=effect)(time_out))
    clock.advance(HOUR)
    found = guard.reconcile()
    assert len(getattr(found, kind)) == 1
    assert sum(map(len, (found.settled, found.waiting, found.resumable, found.needs_person))) == 1
    assert guard.read(key).state is state
    assert guard.read(key).fence == 1


def test_reconciling_tells_what_only_a_person_or_only_the_next_call_can_settle(open_guard, clock):
    guard = open_guard()
    blind = guard.tool(effect=semel.Unsafe(), name="blind")(time_out)
    keyed = guard.tool(effect=semel.Idempotent(key_ttl=DAY), name="keyed")(time_out)
    keys = {name: leave_in_doubt(guard, name, tool) for name, tool in (("blind", blind), ("keyed", keyed))}
    other = open_guard()
    other.tool(effect=semel.Idempotent(key_ttl=DAY), name="keyed")(time_out)
    for sweeper in (guard, other):
        found = sweeper.reconcile()
        assert [op.key for op in found.resumable] == [keys["keyed"]]
        ((operation, why),) = found.needs_person
        assert operation.key == keys["blind"]
        assert "no lookup is declared" in why or "no tool named 'blind'" in why


def test_a_lookup_that_misbehaves_does_not_stop_the_sweep(guard, clock):
    class Row:
        def __repr__(self):
            raise RuntimeError("no words")

    lookups = {
        "a row": once_down(Row()),
        "wrongly made evidence": lambda call: semel.Inconclusive("busy", retry_after=5),
        "good": once_down(semel.Found("there")),
    }
    for name, lookup in lookups.items():
        leave_in_doubt(guard, name, guard.tool(effect=semel.Unsafe(lookup=lookup), name=name)(time_out))
    clock.advance(HOUR)
    assert [op.run_id for op in guard.reconcile().settled] == ["good"]


def test_a_sweep_over_more_than_a_page_misses_nothing(guard, clock):
    effect = semel.Unsafe(lookup=lambda call: semel.Inconclusive("x", retry_after=HOUR))
    tool = guard.tool(effect=effect, name="charge")(lambda n: time_out())
    with guard.run("run") as run:
        for n in range(450):
            with pytest.raises(semel.OutcomeUnknown):
                run.call(tool, n)
    assert len(guard.in_doubt()) == 450
    assert len(guard.reconcile().waiting) == 450


# ------------------------------------------------------------------ more effects than one


@pytest.mark.parametrize("times", [0, -1, True, 2.0, "2", None])
def test_how_often_it_was_found_is_a_whole_number_of_at_least_one(times):
    with pytest.raises(semel.UsageError, match="1 or more"):
        semel.Found("there", times=times)


def told(guard: semel.Guard) -> list[tuple[str, str | None]]:
    return [(entry.key, entry.why) for entry in guard.divergences()]


TWO = "the provider shows 2 effects under this reference"


def test_what_is_found_twice_settles_the_call_and_is_told_of_as_a_divergence(guard, engine):
    def find(call):
        return semel.Found("there", key=call.key, times=2)

    tool = register(guard, engine, lambda: time_out(), name="mail", effect=semel.Unsafe(lookup=find))
    assert call(guard, engine, "run", tool) == "there"
    (operation,) = guard.store.read_run("", "run")
    assert operation.state is semel.State.COMMITTED
    assert told(guard) == [(operation.key, TWO)]


def test_what_a_sweep_or_an_undoing_finds_twice_is_told_of_too(guard):
    def mail_tool(name):
        lookup = once_down(semel.Found("there", times=2))
        return guard.tool(effect=semel.Unsafe(lookup=lookup), name=name)(time_out)

    swept, undone = mail_tool("swept"), mail_tool("undone")
    undone.compensation(effect=semel.Unsafe())(lambda arguments, result: None)
    key = leave_in_doubt(guard, "sweep", swept)
    assert [op.key for op in guard.reconcile().settled] == [key]
    other = leave_in_doubt(guard, "undoing", undone)
    assert guard.compensate("undoing") == [other]
    assert told(guard) == [(other, TWO), (key, TWO)]


def test_what_is_found_once_is_no_divergence(guard):
    tool = guard.tool(effect=semel.Unsafe(lookup=lambda call: semel.Found("there")), name="mail")(time_out)
    assert call(guard, "sync", "run", tool) == "there"
    assert guard.divergences() == []


def test_a_process_that_dies_before_it_settles_what_it_found_twice_has_told_of_it(guard, monkeypatch):
    lookup = once_down(semel.Found("there", times=2))
    key = leave_in_doubt(guard, "run", guard.tool(effect=semel.Unsafe(lookup=lookup), name="mail")(time_out))
    apply, written = guard.store.apply, []

    def die_at_the_move(writes):
        written.extend(writes)
        if any(isinstance(write, Move) for write in writes):
            raise semel.StoreUnavailable("gone")
        return apply(writes)

    monkeypatch.setattr(guard._core.committer, "_apply", die_at_the_move)
    with pytest.raises(semel.StoreUnavailable):
        guard.reconcile()
    assert [type(write) for write in written] == [Note, Move]
    assert guard.read(key).state is semel.State.UNKNOWN
    assert told(guard) == [(key, TWO)]


# ------------------------------------------------------------------ audit


class Mail:
    """A provider whose lookup shows only what it is told to, and counts how often it is asked."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.shows = 0  # of what was sent
        self.asked: list[str] = []

    def send(self, call: semel.Call) -> str:
        self.sent.append(call.key)
        if len(self.sent) == 1:
            raise TimeoutError
        return "sent"

    def find(self, call: semel.Call) -> semel.Evidence:
        self.asked.append(call.key)
        shown = self.sent[: self.shows].count(call.key)
        return semel.Found("there", key=call.key, times=shown) if shown else semel.Absent()


@pytest.fixture
def mail() -> Mail:
    return Mail()


def mail_tool(guard: semel.Guard, mail: Mail, *, lag: timedelta = NO_TIME):
    effect = semel.Unsafe(lookup=mail.find, lookup_lag=lag, request_deadline=NO_TIME)
    return guard.tool(effect=effect, name="mail")(lambda *, call: mail.send(call))


def send_twice(guard: semel.Guard, mail: Mail, clock, *, lag: timedelta = NO_TIME) -> str:
    """The lookup lags longer than declared, so that recovery is shown nothing and sends again."""
    tool = mail_tool(guard, mail, lag=lag)
    with pytest.raises(semel.OutcomeUnknown):
        call(guard, "sync", "run", tool)
    clock.advance(HOUR)
    assert call(guard, "sync", "run", tool) == "sent"
    (operation,) = guard.store.read_run(guard.namespace, "run")
    assert (operation.state, operation.fence, len(mail.sent)) == (semel.State.COMMITTED, 2, 2)
    assert guard.divergences() == []
    mail.asked.clear()
    clock.advance(lag + timedelta(microseconds=1))
    return operation.key


def test_an_audit_finds_the_second_effect_that_a_false_lag_has_let_through(guard, mail, clock):
    key = send_twice(guard, mail, clock, lag=timedelta(seconds=1))
    mail.shows = 2
    ((operation, times),) = guard.audit().diverged
    assert (operation.key, times) == (key, 2)
    assert told(guard) == [(key, TWO)]
    assert [entry.event for entry in guard.history(key)][-1] is semel.Event.DIVERGED
    assert (guard.read(key), len(mail.sent)) == (operation, 2), "it changed no record and sent nothing"


def test_two_audits_tell_of_one_divergence_and_a_third_effect_is_another(guard, mail, clock):
    key = send_twice(guard, mail, clock)
    mail.shows = 2
    assert guard.audit() == guard.audit()
    assert told(guard) == [(key, TWO)]
    mail.sent.append(key)
    mail.shows = 3
    assert [times for _, times in guard.audit().diverged] == [3]
    assert told(guard) == [(key, TWO.replace("2", "3")), (key, TWO)]


def test_an_audit_asks_nothing_about_what_was_sent_once(guard, clock):
    asked = []
    effect = semel.Unsafe(lookup=asked.append)
    call(guard, "sync", "run", guard.tool(effect=effect, name="mail")(lambda: "sent"))
    clock.advance(HOUR)
    assert guard.audit() == semel.Audited()
    assert asked == []


@pytest.mark.parametrize(
    ("shows", "kind"), [(1, "single"), (0, "unclear")], ids=["one effect", "not even what is recorded"]
)
def test_an_audit_tells_of_no_divergence_where_the_provider_does_not_show_two(
    guard, mail, clock, shows, kind
):
    send_twice(guard, mail, clock)
    mail.shows = shows
    audited = guard.audit()
    assert len(getattr(audited, kind)) == 1
    assert sum(map(len, (audited.single, audited.diverged, audited.waiting, audited.unclear))) == 1
    assert guard.divergences() == []


def test_an_audit_waits_until_the_lookup_may_show_what_is_recorded(guard, mail, clock):
    key = send_twice(guard, mail, clock, lag=HOUR)
    clock.advance(-timedelta(microseconds=2))
    assert [op.key for op in guard.audit().waiting] == [key]
    assert mail.asked == []


def test_an_audit_says_why_nobody_could_be_asked_and_goes_on(open_guard, mail, clock):
    key = send_twice(open_guard(), mail, clock)
    ((operation, why),) = open_guard().audit().unclear
    assert (operation.key, why) == (key, "no tool named 'mail' is registered here")
    again = open_guard()
    again.tool(effect=semel.Unsafe(lookup=lambda call: 1 / 0), name="mail")(time_out)
    clock.advance(HOUR)
    ((_, why),) = again.audit().unclear
    assert "the lookup failed" in why


def test_an_audit_does_not_ask_where_no_lookup_is_declared(open_guard, clock):
    keyed = {"effect": semel.Idempotent(key_ttl=DAY), "name": "charge"}
    guard, outcomes = open_guard(), [TimeoutError(), "charged"]

    def charge():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    tool = guard.tool(**keyed)(charge)
    leave_in_doubt(guard, "run", tool)
    assert call(guard, "sync", "run", tool) == "charged"
    clock.advance(HOUR)
    assert guard.audit() == semel.Audited()


def test_an_audit_of_one_program_does_not_ask_about_another_in_the_same_store(open_guard, mail, clock):
    send_twice(open_guard(namespace="theirs"), mail, clock)
    mail.shows = 2
    ours = open_guard(namespace="ours")
    mail_tool(ours, mail)
    assert ours.audit() == semel.Audited()
    assert mail.asked == []


# ------------------------------------------------------------------ reap


# hazard 13
@pytest.mark.parametrize("error", [None, semel.Rejected("no")])
def test_what_is_past_retention_is_refused_as_stale_and_not_run_again(guard, ledger, clock, engine, error):
    def charge(secret):
        ledger.enter("charge")
        if error is not None:
            raise error
        return secret

    tool = register(guard, engine, charge, effect=semel.Unsafe())
    if error is None:
        call(guard, engine, "run", tool, secret="4111")
    else:
        with pytest.raises(semel.Rejected):
            call(guard, engine, "run", tool, secret="4111")
    clock.advance(DAY)
    assert guard.reap(older_than=DAY) == 0
    clock.advance(timedelta(microseconds=1))
    assert guard.reap(older_than=DAY) == 1
    with pytest.raises(semel.Reaped, match="past retention") as reaped:
        call(guard, engine, "run", tool, secret="4111")
    assert reaped.value.outcome == ("happened" if error is None else "did_not_happen")
    assert len(ledger.lines()) == 1
    (operation,) = guard.store.read_run("", "run")
    assert "4111" not in repr(operation)


# hazard 13
def test_what_is_open_is_never_reaped_however_old(guard, clock):
    key = leave_in_doubt(guard, "run", guard.tool(effect=semel.Unsafe())(time_out))
    clock.advance(1000 * DAY)
    assert guard.reap(older_than=NO_TIME) == 0
    assert guard.read(key).state is semel.State.UNKNOWN


def test_reaping_goes_on_until_everything_old_is_gone(guard, clock):
    tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda n: n)
    with guard.run("run") as run:
        for n in range(450):
            run.call(tool, n)
    clock.advance(DAY)
    assert guard.reap(older_than=HOUR) == 450
    assert guard.reap(older_than=HOUR) == 0


# ------------------------------------------------------------------ several programs in one store


def test_a_sweep_of_one_program_does_not_touch_another_in_the_same_store(open_guard, ledger, clock):
    """Two programs, two accounts at one provider: what the one does not show says nothing of the other."""
    theirs, ours = open_guard(namespace="theirs"), open_guard(namespace="ours")

    def charge(*, call):
        ledger.enter("charge", call.key)
        raise TimeoutError

    asked = []

    def look_at_our_account(call):
        asked.append(call.key)
        return semel.Absent()

    their_tool = theirs.tool(effect=semel.Unsafe())(charge)
    ours.tool(effect=semel.Unsafe(lookup=look_at_our_account, **HONEST))(charge)
    key = leave_in_doubt(theirs, "run", their_tool)
    clock.advance(HOUR)
    ours.reconcile()
    assert theirs.read(key).state is semel.State.UNKNOWN
    assert asked == []
    with pytest.raises(semel.PausedForPerson):
        call(theirs, "sync", "run", their_tool)
    assert len(ledger.lines()) == 1


def test_reaping_one_program_leaves_anothers_results(open_guard, clock):
    theirs, ours = open_guard(namespace="theirs"), open_guard(namespace="ours")
    tool = theirs.tool(effect=semel.Unsafe(), name="charge")(lambda: "charged")
    call(theirs, "sync", "run", tool)
    clock.advance(DAY)
    assert ours.reap(older_than=HOUR) == 0
    assert call(theirs, "sync", "run", tool) == "charged"
