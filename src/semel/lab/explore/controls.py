"""Guards broken on purpose, in real processes: each has to be caught, and the sound guard not, in the same trap.

The traps are runs of the campaign's own kind. A broken guard walks into them one after the other until one catches
it; what it passes proves nothing yet. One that passes them all has survived, and fails the campaign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from semel.lab.explore.campaign import Judge, Ran, each
from semel.lab.explore.drive import Stage
from semel.lab.explore.plan import KILLS, SOUND, Act, Deed, Plan
from semel.lab.model import ProviderKind, StoreKind
from semel.lab.mutants import MUTANTS, NOT_SIMULATED

HONOURS_KEYS, HAS_LOOKUP, BLIND = ProviderKind
AT_ONCE: Final = 6

BROKEN: Final = (*MUTANTS, *NOT_SIMULATED)
NOT_HERE: Final[Mapping[str, str]] = {
    "takes a falsy answer for absent": "the lookups here answer in typed evidence",
    "takes any row for its own": "the provider's lookup here finds no other's row",
    "lets two recoverers claim": "takes two claims in one instant, which no process can be brought to",
    "compares no fence": "takes two claims in one instant, which no process can be brought to",
    "takes a refused connection for final": "the world here refuses no connection",
    "believes a refused resend": "no answer of the provider here is taken for a refusal",
    "ignores once_per": "no tool of this plan declares a business identity",
    "takes any arguments": "the persisted turn gives every attempt the same arguments",
    "runs names together": "the agent loop names the steps itself, without colons",
    "leaves the step out of the key": "the agent loop's call ids do not repeat",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trap:
    """`acts`: (deed, the place's name), found in the guard's own course, whatever ordinals it has there.

    `meant_for`: the broken guards that walk into this one first; all of them walk into all, until they are caught.
    """

    provider: ProviderKind
    fault: str = KILLS
    struck: str = ""
    acts: tuple[tuple[Deed, str], ...] = ()
    meant_for: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Caught:
    """A broken guard. `by` is the run that caught it, or None: it survived."""

    name: str
    broken: str
    by: Ran | None
    walked: int  # traps that it walked into

    @property
    def is_caught(self) -> bool:
        return self.by is not None


def kill(place: str) -> tuple[Deed, str]:
    return Deed.KILL, place


def stop(place: str) -> tuple[Deed, str]:
    return Deed.STOP, place


def on_each(providers: Sequence[ProviderKind], **named: object) -> tuple[Trap, ...]:
    return tuple(Trap(provider=provider, **named) for provider in providers)  # type: ignore[arg-type]


ALL: Final = tuple(ProviderKind)
IN_DOUBT: Final = (kill("provider charge: received"),)
TRAPS: Final = (
    *on_each((HAS_LOOKUP, BLIND, HONOURS_KEYS), acts=IN_DOUBT),
    *on_each((HAS_LOOKUP, BLIND), acts=(kill("provider charge: sending"),)),
    *on_each((HAS_LOOKUP, BLIND), fault="zombie", acts=(stop("provider charge: sending"),)),
    Trap(
        provider=HAS_LOOKUP,
        fault="zombie",
        acts=(stop("claimed charge"),),
        meant_for=("believes in its own lease",),
    ),
    Trap(
        provider=BLIND,
        fault="zombie",
        acts=(stop("claimed charge"),),
        meant_for=("overwrites a terminal state",),
    ),
    Trap(
        provider=HAS_LOOKUP,
        fault="zombie, longer lease",
        acts=(stop("claimed charge"),),
        meant_for=("takes over a live owner", "takes silence for death"),
    ),
    Trap(provider=BLIND, fault="rival", acts=((Deed.RIVAL, "provider charge: sent"),)),
    Trap(
        provider=HAS_LOOKUP,
        fault="request held",
        struck="charge",
        meant_for=(
            "believes an early absent",
            "ignores the request's deadline",
            "takes any error for not sent",
        ),
    ),
    Trap(
        provider=BLIND,
        fault="request held, hasty person",
        struck="charge",
        meant_for=("runs at once on a person's word",),
    ),
    Trap(
        provider=HAS_LOOKUP,
        fault="429, then the next request held",
        struck="charge",
        meant_for=("counts quiet from the first send", "takes any error for final"),
    ),
    *on_each(ALL, fault="response dropped", struck="charge"),
    Trap(provider=HAS_LOOKUP, fault="lookup lags", acts=IN_DOUBT, meant_for=("ignores the lookup's lag",)),
    Trap(
        provider=HAS_LOOKUP,
        fault="lookup down",
        acts=IN_DOUBT,
        meant_for=("takes an inconclusive answer for absent",),
    ),
    *on_each((HAS_LOOKUP, HONOURS_KEYS), fault="429", struck="charge"),
    Trap(
        provider=HONOURS_KEYS,
        fault="key expired",
        acts=IN_DOUBT,
        meant_for=("resends under a forgotten key",),
    ),
    Trap(
        provider=HONOURS_KEYS,
        fault="key expires while recovering",
        acts=(*IN_DOUBT, *IN_DOUBT),
        meant_for=("counts the key's age from its last send",),
    ),
    Trap(
        provider=HAS_LOOKUP,
        fault="broken: a request lands after its deadline",
        struck="charge",
        acts=(stop("provider charge: sent"),),
        meant_for=("drops late results",),
    ),
    Trap(
        provider=HAS_LOOKUP,
        fault="broken: the lookup lags longer than declared",
        acts=(stop("provider charge: received"),),
    ),
    Trap(
        provider=HAS_LOOKUP,
        fault="broken, sender dead: the lookup lags longer than declared",
        acts=IN_DOUBT,
        meant_for=("keeps divergences to itself",),
    ),
)


def ignore(caught: Caught) -> None:
    """For callers that only want the result."""


class NoSuchPlace(Exception):
    """This guard's course does not pass the trap's place."""


def try_controls(
    stage: Stage,
    judge: Judge,
    *,
    store: StoreKind,
    seed: int,
    names: Sequence[str] = (),
    on_caught: Callable[[Caught], None] = ignore,
) -> tuple[Caught, ...]:
    """Try these broken guards; all that a campaign of real processes can show, unless named (see `NOT_HERE`)."""

    def walk(name: str) -> Caught:
        return _walk(Walker(stage, judge, store, seed), name)

    found = []
    tried = names or [mutant.name for mutant in BROKEN if mutant.name not in NOT_HERE]
    for caught in each(walk, tried, at_once=AT_ONCE):
        on_caught(caught)
        found.append(caught)
    return tuple(found)


def _walk(walker: Walker, name: str) -> Caught:
    broken = next(mutant.broken for mutant in BROKEN if mutant.name == name)
    for walked, trap in enumerate(sorted(TRAPS, key=lambda trap: name not in trap.meant_for), 1):
        ran = walker.into(trap, name)
        if (
            ran is not None
            and ran.is_bad
            and ran.finding.verdict != "UNKNOWN"
            and not walker.catches_sound(trap)
        ):
            return Caught(name=name, broken=broken, by=ran, walked=walked)
    return Caught(name=name, broken=broken, by=None, walked=len(TRAPS))


@dataclass(frozen=True, slots=True)
class Walker:
    stage: Stage
    judge: Judge
    store: StoreKind
    seed: int

    def into(self, trap: Trap, guard: str) -> Ran | None:
        """None: this guard does not come to the trap."""
        plan = Plan(
            provider=trap.provider,
            fault=trap.fault,
            struck=trap.struck,
            store=self.store,
            guard=guard,
            seed=self.seed,
        )
        try:
            return self.judge.run(replace(plan, acts=self._located(plan, trap.acts)))
        except NoSuchPlace:
            return None

    def catches_sound(self, trap: Trap) -> bool:
        ran = self.into(trap, SOUND)
        return ran is None or ran.is_bad

    def _located(self, plan: Plan, acts: Sequence[tuple[Deed, str]]) -> tuple[Act, ...]:
        """The acts with the ordinals that their places have in this guard's own course, in a sound world."""
        located: tuple[Act, ...] = ()
        for deed, place in acts:
            course = self.stage.run(replace(plan, fault=KILLS, struck="", acts=located)).recovery.places
            if place not in course:
                raise NoSuchPlace(place)
            located = (*located, Act(deed=deed, at=course.index(place) + 1, place=place))
        return located
