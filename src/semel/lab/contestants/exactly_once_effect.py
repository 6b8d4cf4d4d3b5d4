"""`exactly-once`: each effect under the key of its business identity, handed on to the provider.

`default`    the policy that is the package's default: what was interrupted is quarantined, and whoever keeps the
             ledger commits or releases the key. Here the lab's person does.
`strictest`  a lease on every claim, and the policy that the documentation gives for the provider at hand: run again
             where the provider dedupes on the key, a prober where it can be asked, quarantine where it can't.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from exactly_once import (
    JSONCodec,
    Policy,
    ProbeResult,
    QuarantinedError,
    Store,
    Verdict,
    auto_retry,
    check_then_decide,
    current_key,
    once,
    quarantine,
)

from semel.lab.contestants.stage import ASKS_MAX, Stage, name_of_step, run_plan
from semel.lab.model import ProviderKind
from semel.lab.wire import JSON, ToolCall

LEASE_SECONDS = 1.0


def run(stage: Stage) -> None:
    store: Any = Store.sqlite(str(stage.folder / "effects.db"))
    is_strict = stage.order.setting == "strictest"
    policy = policy_for(stage) if is_strict else quarantine

    def call_tool(call: ToolCall) -> dict[str, JSON]:
        key = name_of_step(call.name)

        @once(store, key=key, policy=policy, lease_ttl=LEASE_SECONDS if is_strict else None)
        def effect() -> dict[str, JSON]:
            return stage.perform(call.name, call.arguments, key=current_key(), reference=current_key())

        return settled(effect, partial(decide_by_hand, stage, store, call.name, key))

    run_plan(stage, call_tool)


def policy_for(stage: Stage) -> Policy:
    def prober(key: str) -> ProbeResult:
        found = stage.find(key.rpartition("/")[2], key)
        return ProbeResult(Verdict.NOT_COMMITTED) if found is None else ProbeResult(Verdict.COMMITTED, found)

    match stage.provider_kind():
        case ProviderKind.HONOURS_KEYS:
            return auto_retry
        case ProviderKind.HAS_LOOKUP:
            return check_then_decide(prober)
        case ProviderKind.BLIND:
            return quarantine


def settled(effect: Callable[[], dict[str, JSON]], decide: Callable[[], None]) -> dict[str, JSON]:
    for _ in range(ASKS_MAX):
        try:
            return effect()
        except QuarantinedError:
            decide()
    raise RuntimeError("still quarantined, whatever is decided")


def decide_by_hand(stage: Stage, store: Any, tool: str, key: str) -> None:
    found = stage.ask_person(tool, key)
    if found is None:
        store.release(key)
    else:
        store.commit(key, JSONCodec().encode(found))
