"""`call4agents`: each tool an effect within a run, its key handed on to the provider.

`default`    an effect is named by run, tool and exact arguments; one in doubt is resolved by hand.
`strictest`  named by an explicit key, and with the option that the documentation gives for the provider at hand:
             the lifetime of its keys, a reconcile function, or neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import call4agents as c4a
from call4agents import ops

from semel.lab.contestants.stage import ASKS_MAX, Stage, name_of_step, run_plan
from semel.lab.model import ProviderKind
from semel.lab.scenario import RUN_ID
from semel.lab.wire import JSON, ToolCall

KEYS_LAST_SECONDS = 24 * 3600.0


def run(stage: Stage) -> None:
    c4a.init(str(stage.folder / "record.sqlite"))

    def call_tool(call: ToolCall) -> dict[str, JSON]:
        effect = effect_for(stage, call.name)
        for _ in range(ASKS_MAX):
            try:
                return dict(effect(**call.arguments))
            except c4a.EffectInDoubt:
                resolve_by_hand(stage, call.name)
        raise RuntimeError("still in doubt, whatever is resolved")

    with c4a.run(RUN_ID):
        run_plan(stage, call_tool)


def effect_for(stage: Stage, tool: str) -> Callable[..., Any]:
    def perform(**arguments: JSON) -> dict[str, JSON]:
        return stage.perform(tool, arguments, key=c4a.idempotency_key(), reference=reference(tool))

    def charge(
        customer: str, period: str, amount_cents: int | None = None, amount_usd: int | None = None
    ) -> dict[str, JSON]:
        amount = {"amount_cents": amount_cents} if amount_usd is None else {"amount_usd": amount_usd}
        return perform(customer=customer, period=period, **amount)

    def send_email(to: str, subject: str, body: str) -> dict[str, JSON]:
        return perform(to=to, subject=subject, body=body)

    def grant_entitlement(
        customer: str, period: str, plan: str | None = None, tier: str | None = None
    ) -> dict[str, JSON]:
        name = {"plan": plan} if tier is None else {"tier": tier}
        return perform(customer=customer, period=period, **name)

    tools: dict[str, Callable[..., Any]] = {
        "charge": charge,
        "send_email": send_email,
        "grant_entitlement": grant_entitlement,
    }
    decorated: Callable[..., Any] = c4a.effect(tools[tool], name=tool, **options_for(stage, tool))
    return decorated


def options_for(stage: Stage, tool: str) -> dict[str, Any]:
    if stage.order.setting != "strictest":
        return {}
    options: dict[str, Any] = {"key": lambda **_: name_of_step(tool)}
    match stage.provider_kind():
        case ProviderKind.HONOURS_KEYS:
            options["idempotent_for"] = KEYS_LAST_SECONDS
        case ProviderKind.HAS_LOOKUP:
            options["reconcile"] = lambda **_: stage.find(tool, reference(tool))
    return options


def reference(tool: str) -> str:
    """What the lookup searches for; a reconcile function is not told the effect's key."""
    return name_of_step(tool)


def resolve_by_hand(stage: Stage, tool: str) -> None:
    record = c4a.current_ledger()
    (key,) = [key for key, action in ops.actions(record).items() if "IN DOUBT" in action["state"]]
    found = stage.ask_person(tool, reference(tool))
    outcome = "not-done" if found is None else "done"
    ops.resolve(record, key, outcome, note="looked into the books", result=found)
