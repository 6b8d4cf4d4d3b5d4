"""The plan every level carries out: an agent renews a subscription, one tool call a turn.

Turn 1 charges the customer, turn 2 sends the receipt, turn 3 grants the entitlement, turn 4 says so and
ends. The model is a script, but it behaves as real ones do: the call ids are new on every model call, and
(where asked to) it words a turn differently when it is asked for it a second time. The wording changes the
hash of the arguments of every tool; the intent stays the same. `normalised` is where that is decided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from semel.lab.model import ModelKind
from semel.lab.wire import JSON, Arguments, ToolCall, Turn

RUN_ID: Final = "renewal:cus_42:2026-12"  # the business event names the run
OPENING: Final = "Renew the subscription of cus_42 for 2026-12: charge, send the receipt, grant the plan."
CLOSING: Final = "cus_42 is renewed for 2026-12."

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One tool call of a plan, and how the model words it: at first, and when asked again."""

    tool: str
    at_first: Arguments
    asked_again: Arguments


CHARGE: Final = Step(
    tool="charge",
    at_first={"customer": "cus_42", "amount_cents": 25000, "period": "2026-12"},
    asked_again={"period": "2026-12", "amount_usd": 250, "customer": "cus_42"},
)
SEND_EMAIL: Final = Step(
    tool="send_email",
    at_first={
        "to": "ada@example.com",
        "subject": "Your renewal receipt",
        "body": "We charged $250.00 for December 2026. Thank you!",
    },
    asked_again={
        "body": "Thank you! Your card was charged 250 dollars for December 2026.",
        "subject": "Receipt for your renewal",
        "to": "Ada@Example.com",
    },
)
GRANT_ENTITLEMENT: Final = Step(
    tool="grant_entitlement",
    at_first={"customer": "cus_42", "plan": "pro", "period": "2026-12"},
    asked_again={"period": "2026-12", "tier": "Pro", "customer": "cus_42"},
)

PLANS: Final[Mapping[str, tuple[Step, ...]]] = {
    "renewal": (CHARGE, SEND_EMAIL, GRANT_ENTITLEMENT),
    "two equal charges": (CHARGE, CHARGE),  # both are meant: the customer bought two
}


def turn(plan: str, number: int, *, asked: int, model: ModelKind, call_id: str) -> Turn:
    """What the model answers when this turn (counted from 1) is asked for the `asked`-th time."""
    steps = PLANS[plan]
    if number > len(steps):
        return Turn(text=CLOSING)
    step = steps[number - 1]
    rewords = asked > 1 and model is ModelKind.REWORDS
    arguments = step.asked_again if rewords else step.at_first
    call = ToolCall(id=call_id, name=step.tool, arguments=arguments)
    return Turn(text=f"Next: {step.tool}.", calls=(call,))


def call_id(seed: int, cell_id: str, model_call: int) -> str:
    """New on every model call, the same in every run of the lab."""
    return "call_" + hashlib.sha256(f"{seed}/{cell_id}/{model_call}".encode()).hexdigest()[:24]


# ---- the conversation, as a level keeps it


def opening() -> list[Message]:
    return [{"role": "user", "content": OPENING}]


def said(turn: Turn) -> Message:
    """The model's turn, as a message."""
    return {"role": "assistant", **turn.to_json()}


def answered(call: ToolCall, answer: Mapping[str, JSON]) -> Message:
    """A tool's answer, as a message."""
    return {"role": "tool", "call_id": call.id, "content": dict(answer)}


def turn_asked_for(messages: Sequence[Message]) -> int:
    """Which turn follows these messages. A model knows only what it is shown."""
    return 1 + [message["role"] for message in messages].count("assistant")


# ---- what a call means, however it is worded


def normalised(tool: str, arguments: Arguments) -> dict[str, JSON]:
    """The arguments in one form: cents, `plan`, lower case. Raises `BadArguments`."""
    try:
        return _NORMAL_FORMS[tool](arguments)
    except (KeyError, AttributeError, ArithmeticError) as wrong:
        raise BadArguments(f"{tool} cannot be called with {dict(arguments)!r}") from wrong


def intent_of(tool: str, arguments: Arguments) -> str:
    """The business identity of a call: equal for every wording of one decision."""
    identity = normalised(tool, arguments)
    return " ".join([tool, *(str(identity[name]) for name in _IDENTITY[tool])])


def intents_of(plan: str) -> tuple[str, ...]:
    """What a plan means to happen, each as often as it is meant."""
    return tuple(intent_of(step.tool, step.at_first) for step in PLANS[plan])


class BadArguments(ValueError):
    """No such tool, or arguments it does not take."""


def _charge(given: Arguments) -> dict[str, JSON]:
    return {"customer": given["customer"], "amount_cents": _cents(given), "period": given["period"]}


def _send_email(given: Arguments) -> dict[str, JSON]:
    return {"to": str(given["to"]).lower(), "subject": given["subject"], "body": given["body"]}


def _grant_entitlement(given: Arguments) -> dict[str, JSON]:
    plan = str(given["plan"] if "plan" in given else given["tier"]).lower()
    return {"customer": given["customer"], "plan": plan, "period": given["period"]}


def _cents(given: Arguments) -> int:
    if "amount_cents" in given:
        return int(Decimal(str(given["amount_cents"])))
    return int(Decimal(str(given["amount_usd"])) * 100)


_NORMAL_FORMS: Final = {
    "charge": _charge,
    "send_email": _send_email,
    "grant_entitlement": _grant_entitlement,
}
_IDENTITY: Final = {
    "charge": ("customer", "period", "amount_cents"),
    "send_email": ("to",),  # a receipt is a receipt, whatever its wording
    "grant_entitlement": ("customer", "period", "plan"),
}
