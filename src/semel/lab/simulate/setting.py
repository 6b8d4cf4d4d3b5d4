"""What kind of world a seed is: the provider, what is declared of it, the plan, the processes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from semel import keys
from semel.lab.mutants.mutant import Mutant, Place, Places
from semel.lab.simulate.choices import Choices
from semel.model import Effect, Idempotent, Intent, Unsafe

RUN_ID: Final = "renewal"
LEASE_MS: Final = 1_000
TOOL: Final = "charge"


BAD_SPELLS: Final = (
    "cannot reach the lookup",
    "is told: processing",
    "is told None",
    "is shown another's row",
)


class Kind(StrEnum):
    """What the provider can do, as its documentation says."""

    KEYS = "honours-keys"
    KEYS_AND_LOOKUP = "honours-keys, has-lookup"
    LOOKUP = "has-lookup"
    BLIND = "blind"


class Untrue(StrEnum):
    """Which declaration is broken on purpose."""

    NOTHING = ""
    REQUEST_DEADLINE = "request_deadline"
    LOOKUP_LAG = "lookup_lag"
    KEY_TTL = "key_ttl"


class Plan(StrEnum):
    """What the processes want."""

    ONE_CALL = "one call"
    TWO_EQUAL = "two equal calls, both meant"
    ONE_EVENT = "one business event under two ids"
    RUN_TOGETHER = "names that a colon could run together"
    OTHER_ARGUMENTS = "one call id, two sets of arguments"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call of the plan. `event` is the business event: two effects of one event are a duplicate."""

    event: str
    place: Place
    amount: int


_FIRST: Final = Wanted("a", Place("1", "call_0"), 1)
WANTED: Final[dict[Plan, tuple[tuple[Wanted, ...], tuple[Wanted, ...]]]] = {  # of even and of odd processes
    Plan.ONE_CALL: ((_FIRST,), (_FIRST,)),
    Plan.TWO_EQUAL: ((_FIRST, Wanted("b", Place("2", "call_0"), 1)),) * 2,
    Plan.ONE_EVENT: ((_FIRST,), (Wanted("a", Place("2", "call_7"), 1),)),
    Plan.RUN_TOGETHER: ((Wanted("a", Place("a:b", "c"), 1), Wanted("b", Place("a", "b:c"), 1)),) * 2,
    Plan.OTHER_ARGUMENTS: ((_FIRST,), (Wanted("b", Place("1", "call_0"), 2),)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Times are milliseconds. `chance` is how likely each step is to deviate.

    `lookup_is` how every lookup fares for the first while, in words of `steps.LOOK`; empty: each by itself.
    """

    kind: Kind
    plan: Plan
    untrue: Untrue
    processes: int
    attempts: int
    is_one_host: bool
    request_deadline_ms: int
    lookup_lag_ms: int
    key_ttl_ms: int
    chance: float
    lookup_is: str

    @property
    def honours_keys(self) -> bool:
        return self.kind in (Kind.KEYS, Kind.KEYS_AND_LOOKUP)

    @property
    def effect(self) -> Effect:
        return _effect(self.kind, self.request_deadline_ms, self.lookup_lag_ms, self.key_ttl_ms)

    def wanted(self, process: int) -> tuple[Wanted, ...]:
        return WANTED[self.plan][process % 2]


def draw_setting(choices: Choices, kind: Kind | None = None) -> Setting:
    """`kind` keeps the provider as it is while the rest is shrunk."""

    def among(what: str, *options: Any) -> Any:
        return options[choices.deviate("world", what, 1 - 1 / len(options), len(options) - 1)]

    drawn = among("provider", *Kind)
    kind = kind or drawn
    return Setting(
        kind=kind,
        plan=among("plan", *Plan),
        untrue=among("untrue", *(Untrue.NOTHING,) * 4, *_breakable(kind)),
        processes=2 + choices.deviate("world", "processes", 0.4, 2),
        attempts=among("attempts", 1, 3),
        is_one_host=among("hosts", True, False),
        request_deadline_ms=among("request_deadline", 500, 100, 2_000),
        lookup_lag_ms=among("lookup_lag", 400, 0, 1_500),
        key_ttl_ms=among("key_ttl", 60_000, 4_000),
        chance=among("chance", 0.1, 0.05, 0.3),
        lookup_is=among("lookups", *("",) * 12, *BAD_SPELLS),
    )


def _breakable(kind: Kind) -> tuple[Untrue, ...]:
    match kind:
        case Kind.KEYS | Kind.KEYS_AND_LOOKUP:
            return (Untrue.KEY_TTL,)
        case Kind.LOOKUP:
            return (Untrue.REQUEST_DEADLINE, Untrue.LOOKUP_LAG)
        case Kind.BLIND:
            return (Untrue.REQUEST_DEADLINE,)


# ------------------------------------------------------------------ made once, used by every seed


@functools.cache
def _effect(kind: Kind, request_deadline_ms: int, lookup_lag_ms: int, key_ttl_ms: int) -> Effect:
    lookup = _never_called if kind in (Kind.LOOKUP, Kind.KEYS_AND_LOOKUP) else None
    deadline, lag = timedelta(milliseconds=request_deadline_ms), timedelta(milliseconds=lookup_lag_ms)
    if kind in (Kind.LOOKUP, Kind.BLIND):
        return Unsafe(lookup=lookup, lookup_lag=lag, request_deadline=deadline)
    key_ttl = timedelta(milliseconds=key_ttl_ms)
    return Idempotent(key_ttl=key_ttl, request_deadline=deadline, lookup=lookup, lookup_lag=lag)


def _never_called(call: Any) -> Any:
    raise AssertionError("the simulator answers lookups itself")


def intent_of(wanted: Wanted, plan: Plan, effect_name: str, mutant: Mutant) -> Intent:
    return _intent(wanted, plan is Plan.ONE_EVENT and mutant.heeds_once_per, effect_name, mutant.places)


@functools.cache
def _intent(wanted: Wanted, names_event: bool, effect_name: str, places: Places) -> Intent:
    place = places(wanted.place)
    arguments = {"amount": wanted.amount}
    return Intent(
        key=keys.idempotency_key("", RUN_ID, place.step, place.call_id),
        namespace="",
        run_id=RUN_ID,
        step=place.step,
        call_id=place.call_id,
        tool=TOOL,
        effect=effect_name,
        fingerprint=keys.fingerprint(TOOL, arguments),
        arguments=f'{{"amount":{wanted.amount}}}',
        once_key=keys.once_key("", TOOL, [wanted.event]) if names_event else None,
    )
