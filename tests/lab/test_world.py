"""The world as a real process: what each kind of provider does, how it fails, what it remembers."""

from __future__ import annotations

import http.client
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from semel.lab import scenario, world
from semel.lab.client import UnexpectedStatus, World
from semel.lab.model import ModelKind, ProviderKind
from semel.lab.provider import Provider, Request
from semel.lab.wire import Fault, Settings, Strike

CHARGE = scenario.CHARGE.at_first
IGNORING_KEYS = (ProviderKind.HAS_LOOKUP, ProviderKind.BLIND)
WITHOUT_LOOKUP = (ProviderKind.HONOURS_KEYS, ProviderKind.BLIND)


def test_a_provider_that_honours_keys_answers_the_first_answer_and_has_no_second_effect(begin):
    cell = begin(Settings(provider=ProviderKind.HONOURS_KEYS))
    first = cell.provider.perform("charge", CHARGE, key="k")
    again = cell.provider.perform("charge", scenario.CHARGE.asked_again, key="k")
    assert again == first
    assert len(cell.ledger()) == 1


def test_another_key_is_another_effect(begin):
    cell = begin(Settings(provider=ProviderKind.HONOURS_KEYS))
    cell.provider.perform("charge", CHARGE, key="k")
    cell.provider.perform("charge", CHARGE, key="l")
    assert len(cell.ledger()) == 2


def test_many_at_once_under_one_key_are_one_effect(begin):
    cell = begin(Settings(provider=ProviderKind.HONOURS_KEYS))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: cell.provider.perform("charge", CHARGE, key="k"), range(40)))
    assert all(answer == answers[0] for answer in answers)
    assert len(cell.ledger()) == 1


@pytest.mark.parametrize("kind", IGNORING_KEYS)
def test_the_other_providers_ignore_keys(begin, kind):
    cell = begin(Settings(provider=kind))
    cell.provider.perform("charge", CHARGE, key="k")
    cell.provider.perform("charge", CHARGE, key="k")
    first, second = cell.ledger()
    assert first.intent == second.intent
    assert (first.sequence, second.sequence) == (1, 2)


def test_a_lookup_finds_an_effect_by_tool_and_reference(begin):
    cell = begin(Settings(provider=ProviderKind.HAS_LOOKUP))
    cell.provider.perform("charge", CHARGE, reference="ref & more/1")
    found = cell.provider.find("charge", "ref & more/1")
    assert found == cell.ledger()[0]
    assert cell.provider.find("charge", "ref") is None
    assert cell.provider.find("send_email", "ref & more/1") is None


@pytest.mark.parametrize("kind", WITHOUT_LOOKUP)
def test_a_provider_without_lookup_says_so(begin, kind):
    cell = begin(Settings(provider=kind))
    with pytest.raises(UnexpectedStatus, match="no such thing") as raised:
        cell.provider.find("charge", "ref")
    assert raised.value.status == 405
    assert pickle.loads(pickle.dumps(raised.value)).status == 405


def test_every_request_is_counted_lookups_included(begin):
    cell = begin(Settings(provider=ProviderKind.HAS_LOOKUP))
    cell.provider.perform("charge", CHARGE)
    cell.provider.find("charge", "ref")
    counters = cell.counters()
    assert (counters.requests, counters.lookups) == (2, 1)


def test_a_lagging_lookup_misses_an_effect_so_many_times(begin):
    cell = begin(Settings(provider=ProviderKind.HAS_LOOKUP, lag_lookups=2))
    cell.provider.perform("charge", CHARGE, reference="ref")
    assert [cell.provider.find("charge", "ref") is not None for _ in range(4)] == [False, False, True, True]


def test_a_lagging_lookup_misses_an_effect_for_so_long():
    seconds = [0.0]
    provider = Provider(Settings(provider=ProviderKind.HAS_LOOKUP, lag_ms=500), now=lambda: seconds[0])
    provider.receive(Request(tool="charge", arguments=CHARGE, key=None, reference="ref"))
    seconds[0] = 0.499
    assert provider.find("charge", "ref") == ()
    seconds[0] = 0.5
    assert provider.find("charge", "ref") == provider.effects()


def test_a_lookup_shows_every_effect_under_its_reference_and_once_it_has_caught_up_without_lag(begin):
    cell = begin(Settings(provider=ProviderKind.HAS_LOOKUP, lag_ms=3_600_000))
    for reference in ("ref", "other", "ref"):
        cell.provider.perform("charge", CHARGE, reference=reference)
    assert cell.provider.find_all("charge", "ref") == ()
    cell.catch_up()
    first, _, third = cell.ledger()
    assert cell.provider.find_all("charge", "ref") == (first, third)
    assert cell.provider.find("charge", "ref") == first


def test_an_answer_can_be_dropped_after_the_effect(begin):
    cell = begin(Settings(provider=ProviderKind.BLIND, faults=(Fault(strike=Strike.DROP_ANSWER),)))
    with pytest.raises(http.client.RemoteDisconnected):
        cell.provider.perform("charge", CHARGE)
    assert len(cell.ledger()) == 1
    assert cell.provider.perform("charge", CHARGE)["status"] == "done"


def test_a_503_can_follow_the_effect(begin):
    fault = Fault(strike=Strike.ERROR_ANSWER, tool="send_email")
    cell = begin(Settings(provider=ProviderKind.BLIND, faults=(fault,)))
    cell.provider.perform("charge", CHARGE)
    with pytest.raises(UnexpectedStatus) as raised:
        cell.provider.perform("send_email", scenario.SEND_EMAIL.at_first)
    assert raised.value.status == 503
    assert [effect.tool for effect in cell.ledger()] == ["charge", "send_email"]


def test_a_held_request_lands_after_the_lookup_that_missed_it(begin):
    fault = Fault(strike=Strike.HOLD, held_lookups=1)
    cell = begin(Settings(provider=ProviderKind.HAS_LOOKUP, faults=(fault,)))
    with pytest.raises(http.client.RemoteDisconnected):
        cell.provider.perform("charge", CHARGE, reference="ref")
    assert cell.ledger() == ()
    assert cell.provider.find("charge", "ref") is None
    assert len(cell.ledger()) == 1


def test_a_held_request_lands_when_released_and_only_once(begin):
    cell = begin(Settings(provider=ProviderKind.BLIND, faults=(Fault(strike=Strike.HOLD),)))
    with pytest.raises(http.client.RemoteDisconnected):
        cell.provider.perform("charge", CHARGE)
    cell.release_held()
    cell.release_held()
    assert len(cell.ledger()) == 1


def test_a_held_request_that_lands_after_its_retry_is_one_effect_where_keys_are_honoured(begin):
    cell = begin(Settings(provider=ProviderKind.HONOURS_KEYS, faults=(Fault(strike=Strike.HOLD),)))
    with pytest.raises(http.client.RemoteDisconnected):
        cell.provider.perform("charge", CHARGE, key="k")
    cell.provider.perform("charge", CHARGE, key="k")
    cell.release_held()
    assert len(cell.ledger()) == 1


def test_a_held_request_lands_by_itself_after_its_time():
    timers = []
    late = Settings(provider=ProviderKind.BLIND, faults=(Fault(strike=Strike.HOLD, held_ms=250),))
    provider = Provider(late, call_later=lambda seconds, land: timers.append((seconds, land)))
    provider.receive(Request(tool="charge", arguments=CHARGE, key=None, reference=None))
    assert provider.effects() == ()
    [(seconds, land)] = timers
    land()
    assert (seconds, len(provider.effects())) == (0.25, 1)


def test_a_person_reads_the_books_that_the_lookup_does_not_show(begin):
    cell = begin(Settings(provider=ProviderKind.BLIND))
    cell.provider.perform("charge", CHARGE, reference="ref")
    assert cell.ask_person("charge", reference="ref") == cell.ledger()[0]
    assert cell.ask_person("charge", arguments=scenario.CHARGE.asked_again) == cell.ledger()[0]
    assert cell.ask_person("charge", reference="other") is None
    assert [ask.found for ask in cell.counters().asks] == [True, True, False]
    assert cell.counters().requests == 1


@pytest.mark.parametrize(
    ("tool", "arguments"), [("refund", CHARGE), ("charge", {"customer": "c"}), ("charge", {})]
)
def test_bad_arguments_are_refused_before_any_effect(begin, tool, arguments):
    cell = begin(Settings(provider=ProviderKind.BLIND))
    with pytest.raises(UnexpectedStatus) as raised:
        cell.provider.perform(tool, arguments)
    assert raised.value.status == 422
    assert cell.ledger() == ()


def test_a_cell_that_was_not_begun_does_not_exist(address):
    with pytest.raises(UnexpectedStatus, match="no such cell"):
        World(address=address, cell_id="nowhere").ledger()


def test_an_unknown_plan_is_refused(begin):
    with pytest.raises(UnexpectedStatus, match="no plan"):
        begin(Settings(provider=ProviderKind.BLIND, plan="world domination"))


def test_cells_do_not_see_each_other(address):
    one, other = World(address=address, cell_id="one"), World(address=address, cell_id="other")
    for cell in (one, other):
        cell.prepare(Settings(provider=ProviderKind.HONOURS_KEYS))
    one.provider.perform("charge", CHARGE, key="k")
    other.provider.perform("charge", CHARGE, key="k")
    assert len(one.ledger()) == len(other.ledger()) == 1


def test_beginning_a_cell_again_empties_it(begin):
    begin(Settings(provider=ProviderKind.BLIND)).provider.perform("charge", CHARGE)
    assert begin(Settings(provider=ProviderKind.BLIND)).ledger() == ()


def test_the_model_rewords_a_turn_it_is_asked_for_again_under_a_new_call_id(begin):
    cell = begin(Settings(provider=ProviderKind.BLIND, model=ModelKind.REWORDS))
    first, again = (cell.model.next_turn(scenario.opening()).calls[0] for _ in range(2))
    assert first.id != again.id
    assert (dict(first.arguments), dict(again.arguments)) == (CHARGE, scenario.CHARGE.asked_again)
    assert list(again.arguments) == list(scenario.CHARGE.asked_again), "the order of the fields must survive"
    assert cell.counters().model_calls == {1: 2}


def test_the_model_goes_by_the_messages_it_is_shown(begin):
    cell = begin(Settings(provider=ProviderKind.BLIND))
    messages = scenario.opening()
    tools = []
    while (turn := cell.model.next_turn(messages)).calls:
        messages += [scenario.said(turn), scenario.answered(turn.calls[0], {"status": "done"})]
        tools.append(turn.calls[0].name)
    assert tools == ["charge", "send_email", "grant_entitlement"]
    assert turn.text == scenario.CLOSING


def test_a_world_is_an_address_and_survives_pickling(begin):
    cell = begin(Settings(provider=ProviderKind.BLIND))
    assert pickle.loads(pickle.dumps(cell)).ledger() == ()


def test_the_world_ends_with_the_lab_that_started_it():
    with world.running() as address:
        cell = World(address=address, cell_id="last")
        cell.prepare(Settings(provider=ProviderKind.BLIND))
    with pytest.raises((OSError, http.client.HTTPException)):
        cell.ledger()
