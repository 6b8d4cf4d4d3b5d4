"""The scripted model rewords what it means, and never what is meant."""

from __future__ import annotations

import hashlib
import json

import pytest

from semel.lab.model import ModelKind
from semel.lab.scenario import PLANS, BadArguments, call_id, intent_of, normalised, turn

STEPS = PLANS["renewal"]


def canonical_hash(arguments):
    return hashlib.sha256(json.dumps(dict(arguments), sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.tool)
def test_rewording_changes_the_canonical_hash_and_keeps_the_intent(step):
    assert canonical_hash(step.at_first) != canonical_hash(step.asked_again)
    assert intent_of(step.tool, step.at_first) == intent_of(step.tool, step.asked_again)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.tool)
def test_rewording_changes_the_order_of_the_fields(step):
    assert list(step.at_first) != list(step.asked_again)


@pytest.mark.parametrize("amount", [{"amount_cents": 1999}, {"amount_usd": 19.99}, {"amount_usd": "19.99"}])
def test_an_amount_means_the_same_in_every_unit(amount):
    charge = {"customer": "c", "period": "p", **amount}
    assert normalised("charge", charge)["amount_cents"] == 1999


@pytest.mark.parametrize("model", ModelKind)
def test_only_a_model_that_rewords_does_and_only_when_asked_again(model):
    first = turn("renewal", 1, asked=1, model=model, call_id="a").calls[0].arguments
    second = turn("renewal", 1, asked=2, model=model, call_id="b").calls[0].arguments
    assert (first != second) is (model is ModelKind.REWORDS)


def test_the_fourth_turn_ends_the_plan():
    assert turn("renewal", 4, asked=1, model=ModelKind.REPEATS, call_id="a").calls == ()


def test_call_ids_are_new_on_every_model_call_and_the_same_in_every_run():
    ids = [call_id(7, "cell", number) for number in range(50)]
    assert len(set(ids)) == 50
    assert ids == [call_id(7, "cell", number) for number in range(50)]
    assert not set(ids) & {call_id(8, "cell", number) for number in range(50)}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("charge", {"customer": "c", "period": "p"}),
        ("charge", {"customer": "c", "period": "p", "amount_usd": "a lot"}),
        ("refund", {}),
    ],
)
def test_what_no_tool_takes_is_bad_arguments(tool, arguments):
    with pytest.raises(BadArguments):
        intent_of(tool, arguments)
