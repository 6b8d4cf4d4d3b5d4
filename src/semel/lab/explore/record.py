"""One run as a file: what was done to it, step by step, and what came of it; and the same run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from semel.errors import UsageError
from semel.lab.explore import faults
from semel.lab.explore.campaign import Judge, Ran, stage_for
from semel.lab.explore.plan import SOUND, Deed, Plan
from semel.lab.model import StoreKind

FORMAT: Final = "semel lab run, 1"

_DONE: Final = {
    Deed.KILL: "SIGKILL",
    Deed.RIVAL: "another process starts beside it",
    Deed.STOP: "SIGSTOP",
    Deed.POWER_LOSS: "SIGKILL, and what was not flushed is lost",
    Deed.TORN_WRITES: "SIGKILL, and of what was not flushed some sectors are lost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """`recorded` is the verdict in the file."""

    recorded: str
    again: Ran

    @property
    def is_as_recorded(self) -> bool:
        return self.again.finding.verdict == self.recorded


def steps_of(ran: Ran) -> list[str]:
    """The run as a sequence, for people."""
    plan, fault = ran.plan, faults.BY_NAME[ran.plan.fault]
    guard = "Semel" if plan.guard == SOUND else f"a guard that {plan.guard}"
    steps = [f"{guard} on {plan.store}, provider {plan.provider}, seed {plan.seed}"]
    steps.append(f"{fault.name}{f' ({plan.struck})' if plan.struck else ''}: {fault.meaning}")
    for number, act in enumerate(plan.acts, 1):
        steps.append(f"process {number}: at place {act.at}, {act.place!r}: {_DONE[act.deed]}")
    steps.append(f"process {len(plan.acts) + 1}: to the end, {len(ran.recovery)} places")
    steps.extend(
        f"process {number}: goes on, to its end"
        for number, act in enumerate(plan.acts, 1)
        if act.deed in (Deed.STOP, Deed.RIVAL)
    )
    if fault.is_audited:
        steps.append("one more process: an audit, when all has landed and shows")
    return [*steps, f"the provider's books: {'; '.join(ran.ledger) or 'empty'}", _found(ran)]


def _found(ran: Ran) -> str:
    finding = ran.finding
    told = f"{finding.divergences} told of as divergence" if finding.divergences else "none told of"
    return (
        f"{finding.verdict}: {finding.duplicates} second effects ({told}), {finding.lost} lost, "
        f"{finding.asks} asked, {finding.false_asks} of them for nothing"
    )


def write(ran: Ran, folder: Path, number: int) -> Path:
    """Write it under a name of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"run-{number:03}-{ran.finding.verdict.lower()}.json"
    content = {
        "format": FORMAT,
        "seed": ran.plan.seed,
        "plan": ran.plan.to_json(),
        "steps": steps_of(ran),
        "verdict": ran.finding.verdict,
        "finding": asdict(ran.finding),
    }
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return file


def replay(file: Path) -> Replayed:
    """Run it again, in a world of its own. Raises `UsageError` for a file that is no recorded run."""
    plan, verdict = _read(file)
    with stage_for(StoreKind(plan.store)) as stage:
        judge = Judge(stage, lambda provider: Plan(provider=provider, store=plan.store, seed=plan.seed))
        again = judge.run(plan)
    if again is None:
        raise UsageError(f"{file}: no process comes to that place any more. Nothing is concluded.")
    return Replayed(recorded=verdict, again=again)


def _read(file: Path) -> tuple[Plan, str]:
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if raw["format"] == FORMAT and raw["plan"]["fault"] in faults.BY_NAME:
            return Plan.from_json(raw["plan"]), raw["verdict"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UsageError(
            f"{file} is no recorded run of the lab ({_why(problem)}). Nothing was run."
        ) from problem
    raise UsageError(f"{file} was recorded by another version of the lab. Nothing was run.")


def _why(problem: Exception) -> str:
    match problem:
        case OSError():
            return problem.strerror or "it cannot be read"
        case ValueError():
            return "it is not JSON, or names what is not known here"
        case _:
            return "it is JSON of another kind"


def not_ok(runs: Sequence[Ran]) -> list[Ran]:
    """Those to look at, the bad ones first."""
    return sorted((ran for ran in runs if ran.finding.verdict != "OK"), key=lambda ran: not ran.is_bad)
