"""Which runs there are, which of them to make, and the tally.

A crash-free run names its places; a run killed at each of them names the places of its recovery; so all single
kills and all pairs are known, and nothing of that is a guess. Every other fault is put at each place, or request,
where it can matter. The short form makes every single kill and every fault by itself, and a sample of the rest.
"""

from __future__ import annotations

import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from semel.lab import durable, injector, world
from semel.lab.explore import faults
from semel.lab.explore.drive import Astray, NeverThere, Seen, Stage
from semel.lab.explore.faults import FAULTS, Fault
from semel.lab.explore.plan import KILLS, Act, Deed, Plan
from semel.lab.explore.verdict import Finding, is_bad, judge
from semel.lab.model import ProviderKind, StoreKind
from semel.lab.wire import Effect
from semel.stores.sqlite.place import memory_folder

AT_ONCE: Final = 4  # two cores, and a run waits for its world now and then
AT_ONCE_WAITING: Final = 8  # most faults are waited out
TRIES_MAX: Final = 6  # of a run whose process came to another place, because the machine was busy
BASELINE_TRIES_MAX: Final = 5
WARMED: Final = ("semel.lab.explore.agent", "semel.stores.sqlite.store", "semel.lab.mutants")

S = TypeVar("S")
T = TypeVar("T")
OnRun: TypeAlias = "Callable[[Ran], None]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How many of the runs that are not always made; None: all of them."""

    pairs: int | None = None
    of_a_fault: int | None = None


FULL: Final = Size()
SHORT: Final = Size(pairs=180, of_a_fault=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """One run: what was done, what came of it, and the places that its processes passed."""

    plan: Plan
    finding: Finding
    is_bad: bool
    passed: tuple[int, ...] = ()  # places, a process
    ledger: tuple[str, ...] = ()  # intents, in order
    seconds: float = 0.0
    recovery: tuple[str, ...] = ()  # the last process's places


@dataclass(frozen=True, kw_only=True, slots=True)
class Explored:
    """What a campaign came to. `possible`: the runs there are, within its bound.

    `never_there`: of which so many could not be made, because no process came to their place any more (one that
    asks a second time, or waits, only where a machine is as fast as it was): they are no runs.
    """

    runs: tuple[Ran, ...]
    possible: int
    never_there: int
    kills_a_second: float
    seconds: float
    seed: int
    store: StoreKind

    @property
    def bad(self) -> tuple[Ran, ...]:
        return tuple(ran for ran in self.runs if ran.is_bad)

    @property
    def verdicts(self) -> Mapping[str, int]:
        """Of the kills, one by one and in pairs."""
        return Counter(ran.finding.verdict for ran in self.runs if ran.plan.fault == KILLS)

    @property
    def faults(self) -> Mapping[str, Mapping[str, int]]:
        """Of everything else, in the order of the catalogue."""
        tally: dict[str, Counter[str]] = {fault.name: Counter() for fault in FAULTS if fault.name != KILLS}
        for ran in self.runs:
            if ran.plan.fault != KILLS:
                tally[ran.plan.fault][ran.finding.verdict] += 1
        return {name: counts for name, counts in tally.items() if counts}


def ignore(ran: Ran) -> None:
    """For callers that only want the result."""


@contextmanager
def stage_for(store: StoreKind) -> Iterator[Stage]:
    """A world, a folder in memory (what a SIGKILL leaves behind is the same there), and a database."""
    injector.warm([*WARMED, *durable.MODULES[store]])
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="semel-explore-", dir=memory_folder())
        folder = Path(stack.enter_context(made))
        postgres_url = stack.enter_context(durable.server_for(store))
        address = stack.enter_context(world.running())
        yield Stage(address=address, folder=folder, postgres_url=postgres_url)


def explore(
    stage: Stage,
    *,
    store: StoreKind = StoreKind.SQLITE,
    size: Size = FULL,
    seed: int = 0,
    providers: Sequence[ProviderKind] = tuple(ProviderKind),
    on_run: OnRun = ignore,
) -> Explored:
    """Make the runs, each judged against a crash-free run. `on_run` is called from one thread."""
    started = time.monotonic()
    campaign = Campaign(stage=stage, store=store, size=size, seed=seed, providers=providers, on_run=on_run)
    campaign.run_kills()
    kills, kill_seconds = len(campaign.runs), campaign.seconds
    campaign.run_faults()
    return Explored(
        runs=tuple(campaign.runs),
        possible=campaign.possible,
        never_there=campaign.never_there,
        kills_a_second=kills / kill_seconds,
        seconds=time.monotonic() - started,
        seed=seed,
        store=store,
    )


@dataclass(kw_only=True)
class Campaign:
    stage: Stage
    store: StoreKind
    size: Size
    seed: int
    providers: Sequence[ProviderKind]
    on_run: OnRun
    runs: list[Ran] = field(default_factory=list)
    possible: int = 0
    never_there: int = 0
    seconds: float = 0.0  # in which runs were made
    _recoveries: Mapping[Plan, Sequence[str]] = field(default_factory=dict)  # of the single kills

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._judge = Judge(self.stage, self._plan)

    def _plan(self, provider: ProviderKind, **more: object) -> Plan:
        return Plan(provider=provider, store=self.store, seed=self.seed, **more)  # type: ignore[arg-type]

    # -------------------------------------------------------------- kills

    def run_kills(self) -> None:
        singles = [
            self._plan(provider, acts=(act,))
            for provider in self.providers
            for act in acts_at(Deed.KILL, self._judge.places(provider))
        ]
        ran = self._run(singles, at_once=AT_ONCE)
        self._recoveries = {one.plan: one.recovery for one in ran}
        pairs = [
            replace(one.plan, acts=(*one.plan.acts, again))
            for one in ran
            for again in acts_at(Deed.KILL, one.recovery)
        ]
        self.possible += len(singles) + len(pairs)
        self._run(self._some(pairs, self.size.pairs), at_once=AT_ONCE)

    # -------------------------------------------------------------- everything else

    def run_faults(self) -> None:
        chosen = [fault for fault in FAULTS if fault.name != KILLS and self.store in fault.stores]
        alone = [plan for fault in chosen if fault.is_alone for plan in self._struck(fault)]
        courses = {
            (ran.plan.fault, ran.plan.provider, ran.plan.struck): ran.recovery
            for ran in self._run(alone, at_once=AT_ONCE_WAITING)
        }
        self.possible += len(alone)
        for fault in chosen:
            plans = list(self._combined(fault, courses))
            self.possible += len(plans)
            self._run(self._some(plans, self.size.of_a_fault), at_once=AT_ONCE_WAITING)

    def _struck(self, fault: Fault) -> Iterator[Plan]:
        for provider in self.providers:
            if provider in fault.providers:
                for struck in fault.struck:
                    yield self._plan(provider, fault=fault.name, struck=struck)

    def _combined(
        self, fault: Fault, courses: Mapping[tuple[str, ProviderKind, str], Sequence[str]]
    ) -> Iterator[Plan]:
        if fault.deed is None:
            return
        for plan in self._struck(fault):
            if fault.after:
                yield from self._in_recovery(fault, plan)
                continue
            course = courses.get((plan.fault, plan.provider, plan.struck)) or self._judge.places(
                plan.provider
            )
            for act in acts_at(fault.deed, course):
                if fault.where(act.place, plan.struck):
                    yield replace(plan, acts=(act,))

    def _in_recovery(self, fault: Fault, plan: Plan) -> Iterator[Plan]:
        """The first process is killed; its recovery is what is struck."""
        assert fault.deed is not None
        for single, recovery in self._recoveries.items():
            if single.provider is plan.provider and single.acts[0].place in fault.after:
                for act in acts_at(fault.deed, recovery):
                    if fault.where(act.place, plan.struck):
                        yield replace(plan, acts=(*single.acts, act))

    # -------------------------------------------------------------- running

    def _run(self, plans: Sequence[Plan], *, at_once: int) -> list[Ran]:
        started = time.monotonic()
        found = []
        for ran in each(self._judge.run, plans, at_once=at_once):
            if ran is None:
                self.never_there += 1
                continue
            self.on_run(ran)
            found.append(ran)
        self.runs.extend(found)
        self.seconds += time.monotonic() - started
        return found

    def _some(self, plans: Sequence[Plan], most: int | None) -> Sequence[Plan]:
        if most is None or len(plans) <= most:
            return plans
        return [plans[number] for number in sorted(self._chance.sample(range(len(plans)), most))]


class Judge:
    """Runs a plan and judges it. What breaks in a run makes that run UNKNOWN, never OK."""

    def __init__(self, stage: Stage, plan: Callable[[ProviderKind], Plan]) -> None:
        self._stage = stage
        self._plan = plan
        self._crash_free: dict[ProviderKind, Seen] = {}

    def places(self, provider: ProviderKind) -> Sequence[str]:
        return self._baseline(provider).recovery.places

    def ledger(self, provider: ProviderKind) -> Sequence[Effect]:
        return self._baseline(provider).ledger

    def run(self, plan: Plan) -> Ran | None:
        """None: no process came to the place. Every place of a crash-free run is reached, or the run is UNKNOWN."""
        try:
            baseline = self.ledger(plan.provider)
            seen = self._seen(plan)
        except injector.GivenUp:
            raise
        except NeverThere as why:
            if plan.fault == KILLS and len(plan.acts) == 1:
                return Ran(plan=plan, finding=Finding(verdict="UNKNOWN", because=str(why)), is_bad=True)
            return None
        except Exception:
            finding = Finding(verdict="UNKNOWN", because=traceback.format_exc())
            return Ran(plan=plan, finding=finding, is_bad=True)
        finding = judge(seen, baseline)
        return Ran(
            plan=plan,
            finding=finding,
            is_bad=is_bad(seen, finding),
            passed=tuple(len(journal.places) for journal in seen.journals),
            ledger=tuple(effect.intent for effect in seen.ledger),
            seconds=seen.seconds,
            recovery=tuple(seen.recovery.places),
        )

    def _seen(self, plan: Plan) -> Seen:
        for _ in range(TRIES_MAX - 1):
            try:
                return self._stage.run(plan)
            except Astray:
                continue
        return self._stage.run(plan)

    def _baseline(self, provider: ProviderKind) -> Seen:
        """A run in which nothing at all went wrong, not even a slow answer."""
        if provider not in self._crash_free:
            for _ in range(BASELINE_TRIES_MAX):
                seen = self._stage.run(self._plan(provider))
                if not seen.stuck and seen.counters.requests == len(faults.TOOL_NAMES):
                    self._crash_free[provider] = seen
                    break
            else:
                raise RuntimeError(
                    f"no crash-free run with the provider {provider}: {seen.stuck or seen.counters}"
                )
        return self._crash_free[provider]


def acts_at(deed: Deed, places: Sequence[str]) -> list[Act]:
    passed: Counter[str] = Counter()
    acts = []
    for number, place in enumerate(places, 1):
        passed[place] += 1
        acts.append(Act(deed=deed, at=number, place=place, nth=passed[place]))
    return acts


def each(work: Callable[[S], T], given: Sequence[S], *, at_once: int) -> Iterator[T]:
    """In their order, several at a time; if interrupted, all children are ended."""
    pool = ThreadPoolExecutor(at_once)
    try:
        yield from pool.map(work, given)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        injector.end_all()
        raise
    finally:
        pool.shutdown()
