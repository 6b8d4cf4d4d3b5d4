"""What the model is told of a tool, from its signature alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union
from uuid import UUID

import pytest

import semel
from semel.agent import ScriptedModel, spec_of
from semel.agent.specs import schema_of


class Plan(Enum):
    SMALL = "small"
    LARGE = "large"


class Anything:
    """No JSON."""


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, TEXT),
        (int, WHOLE),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {}),
        (type(None), {"type": "null"}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": WHOLE}),
        (Sequence[str], {"type": "array", "items": TEXT}),
        (tuple[int, ...], {"type": "array", "items": WHOLE}),
        (tuple[int, str], {"type": "array", "prefixItems": [WHOLE, TEXT], "minItems": 2, "maxItems": 2}),
        (set[str], {"type": "array", "items": TEXT, "uniqueItems": True}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": WHOLE}),
        (Mapping[str, Any], {"type": "object"}),
        (
            list[dict[str, list[int]]],
            {
                "type": "array",
                "items": {"type": "object", "additionalProperties": {"type": "array", "items": WHOLE}},
            },
        ),
        (int | None, {"anyOf": [WHOLE, {"type": "null"}]}),
        (Optional[str], {"anyOf": [TEXT, {"type": "null"}]}),  # noqa: UP045  (as people write it)
        (Union[int, str], {"anyOf": [WHOLE, TEXT]}),  # noqa: UP007
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Plan, {"type": "string", "enum": ["small", "large"]}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (time, {"type": "string", "format": "time"}),
        (Decimal, TEXT),
        (UUID, {"type": "string", "format": "uuid"}),
        (Annotated[int, "in cents"], {"type": "integer", "description": "in cents"}),
        (Annotated[int, 5], WHOLE),
        (Any, {}),
        (Anything, {}),
        (bytes, {}),
        ("a name that nobody has", {}),
    ],
    ids=str,
)
def test_each_annotation_has_its_schema_and_what_is_not_known_is_any_value(hint, schema):
    assert schema_of(hint) == schema


@pytest.fixture
def guard():
    with semel.open(":memory:") as guard:
        yield guard


def test_a_tool_is_told_by_its_docstring_and_parameters_without_what_the_guard_injects(guard):
    @guard.tool(effect=semel.Unsafe())
    def charge(
        customer: str, cents: int = 100, plan: Plan = Plan.SMALL, *, call: semel.Call
    ) -> dict[str, Any]:
        """Take money.

        From a customer.
        """
        return {}

    spec = spec_of(charge, "charge")
    assert (spec.name, spec.description) == ("charge", "Take money.\n\nFrom a customer.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "customer": TEXT,
            "cents": {"type": "integer", "default": 100},
            "plan": {"type": "string", "enum": ["small", "large"], "default": "small"},
        },
        "required": ["customer"],
        "additionalProperties": False,
    }


def test_the_transaction_of_an_atomic_tool_is_not_the_models_to_give(guard):
    @guard.tool(effect=semel.Atomic())
    def grant(customer: str, *, tx: Any) -> None: ...

    assert list(spec_of(grant, "grant").parameters["properties"]) == ["customer"]
    assert spec_of(grant, "grant").description == ""


def test_a_name_that_only_a_type_checker_knows_leaves_the_tool_usable(guard):
    def look(at: OnlyForTypeCheckers, n=1):  # noqa: F821
        return at

    tool = guard.tool(effect=semel.Safe())(look)
    assert spec_of(tool, "look").parameters["properties"] == {"at": {}, "n": {"default": 1}}


def test_the_model_is_told_the_names_under_which_the_agent_offers_its_tools(guard):
    tool = guard.tool(effect=semel.Safe())(lambda: 1)
    agent = semel.agent.Agent(ScriptedModel([]), {"peek": tool}, guard)
    assert [spec.name for spec in agent.specs] == ["peek"]
