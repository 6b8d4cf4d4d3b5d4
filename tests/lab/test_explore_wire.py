"""What the wire and the provider can do to a request, one fault at a time, over real sockets."""

from __future__ import annotations

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from semel.lab.client import StillProcessing, UnexpectedStatus
from semel.lab.model import ProviderKind
from semel.lab.provider import Provider, Reply, Request
from semel.lab.scenario import opening
from semel.lab.wire import Fault, Part, Settings, Strike

HONOURS, HAS_LOOKUP, BLIND = ProviderKind
CHARGE = {"customer": "cus_42", "amount_cents": 25000, "period": "2026-12"}
LATE, IN_TIME = 0.0, 1e12


def settings(provider: ProviderKind = HAS_LOOKUP, *faults: Fault, **more: object) -> Settings:
    return Settings(provider=provider, faults=faults, **more)


def charge(cell, **more: object):
    return cell.provider.perform("charge", CHARGE, **{"key": "k", "reference": "k", **more})


def test_a_request_is_told_of_before_it_is_sent_when_it_is_and_when_its_answer_is_there(begin):
    told: list[tuple[str, str]] = []
    cell = replace(begin(settings()), on_wire=lambda place, request: told.append((place, request)))
    charge(cell)
    assert told == [(place, "POST /provider/charge") for place in ("sending", "sent", "received")]


def test_a_delayed_answer_comes_after_the_effect_and_after_the_clients_patience(begin):
    cell = begin(settings(BLIND, Fault(strike=Strike.DELAY_ANSWER, delay_ms=2_000)))
    with pytest.raises(TimeoutError):
        charge(replace(cell, timeout_seconds=0.1))
    assert len(cell.ledger()) == 1


def test_a_second_answer_on_the_connection_is_not_taken_for_the_next_requests(begin):
    cell = begin(settings(HAS_LOOKUP, Fault(strike=Strike.REPEAT_ANSWER)))
    answers = [charge(cell, key=key, reference=key)["id"] for key in ("a", "b", "c")]
    assert answers == ["charge_1", "charge_2", "charge_3"]


@pytest.mark.parametrize(("provider", "effects"), [(HONOURS, 1), (BLIND, 2)])
def test_of_a_request_that_arrives_twice_only_a_provider_with_keys_makes_one_effect(begin, provider, effects):
    cell = begin(settings(provider, Fault(strike=Strike.REPEAT_REQUEST)))
    charge(cell)
    assert len(cell.ledger()) == effects


def test_429_has_no_effect_and_says_when_to_come_again(begin):
    cell = begin(settings(BLIND, Fault(strike=Strike.TOO_MANY)))
    with pytest.raises(UnexpectedStatus) as refused:
        charge(cell)
    assert (refused.value.status, cell.ledger()) == (429, ())


def test_while_the_first_request_is_in_progress_a_resend_under_its_key_is_answered_409(begin):
    cell = begin(settings(HONOURS, Fault(strike=Strike.IN_PROGRESS)))
    for _ in range(2):
        with pytest.raises(UnexpectedStatus, match="in progress"):
            charge(cell)
    assert cell.ledger() == ()
    cell.release_held()
    assert charge(cell)["id"] == "charge_1"
    assert len(cell.ledger()) == 1


def test_a_request_held_open_is_answered_when_it_lands(begin):
    cell = begin(settings(BLIND, Fault(strike=Strike.HOLD_OPEN)))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(charge, cell)
        while not answer.done():
            cell.release_held()
        assert answer.result()["id"] == "charge_1"


def test_a_lookup_can_be_down_and_can_be_still_processing(begin):
    down = Fault(strike=Strike.ERROR_ANSWER, part=Part.LOOKUP)
    processing = Fault(strike=Strike.PROCESSING, part=Part.LOOKUP)
    cell = begin(settings(HAS_LOOKUP, down, processing))
    charge(cell)
    with pytest.raises(UnexpectedStatus, match="503"):
        cell.provider.find("charge", "k")
    with pytest.raises(StillProcessing):
        cell.provider.find("charge", "k")
    assert cell.provider.find("charge", "k") is not None


def test_a_models_turn_can_get_lost_and_is_then_asked_for_anew(begin):
    cell = begin(settings(BLIND, Fault(strike=Strike.DROP_ANSWER, part=Part.MODEL, tool="turn 1")))
    with pytest.raises((OSError, http.client.HTTPException)):
        cell.model.next_turn(opening())
    assert cell.model.next_turn(opening()).calls
    assert cell.counters().model_calls == {1: 2}


def test_a_provider_that_minds_the_deadline_has_no_effect_after_it(begin):
    cell = begin(settings(BLIND, drops_late=True))
    with pytest.raises(UnexpectedStatus, match="408"):
        charge(cell, lands_by=LATE)
    assert cell.ledger() == ()


def test_a_provider_that_does_not_mind_it_has(begin):
    cell = begin(settings(BLIND))
    charge(cell, lands_by=LATE)
    assert len(cell.ledger()) == 1


def test_what_lands_in_time_is_not_dropped(begin):
    cell = begin(settings(BLIND, drops_late=True))
    charge(cell, lands_by=time.monotonic() + IN_TIME)
    assert len(cell.ledger()) == 1


def test_a_held_request_that_is_released_after_its_deadline_is_dropped(begin):
    cell = begin(settings(BLIND, Fault(strike=Strike.HOLD), drops_late=True))
    with pytest.raises((OSError, http.client.HTTPException)):
        charge(cell, lands_by=LATE)
    cell.release_held()
    assert cell.ledger() == ()


def test_a_provider_forgets_a_key_so_long_after_its_effect_and_not_before():
    now = [100.0]
    provider = Provider(settings(HONOURS, forgets_keys_after_ms=1_000), now=lambda: now[0])
    request = Request(tool="charge", arguments=CHARGE, key="k", reference="k")

    def answered() -> str:
        reply = provider.receive(request)
        assert isinstance(reply, Reply)
        return str(reply.body["id"])

    assert answered() == "charge_1"
    now[0] += 0.999
    assert answered() == "charge_1"
    now[0] += 0.002
    assert answered() == "charge_2"
