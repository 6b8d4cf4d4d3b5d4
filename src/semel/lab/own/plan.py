"""From two crash-free runs to the gaps worth a kill. Pure.

Two, because what differs between them (a random reference, a date, an order) is no crash's doing. Where the
guard gives an operation the same key in both, a gap is found again by that key, whatever else runs beside it;
where it does not, gaps are found by counting.

A request, or a line of the tools' ledger, that comes while exactly one guarded call is between its claim and
its return belongs to that tool, so that one tool has one row, whoever sees its gaps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from semel.errors import UsageError
from semel.lab.model import Window
from semel.lab.own.judge import names_of, shortened
from semel.lab.own.model import Effect, Gap, SeenBy

OUTSIDE: Final = (Window.W2, Window.W3, Window.W4)  # what can be seen from outside a guard


class Passed(NamedTuple):
    """A gap that a crash-free run passed, as the trace has it."""

    seen_by: SeenBy
    window: Window
    passing: int
    key: str | None
    tool: str | None
    at: float  # monotonic seconds, one clock for all processes of the host


class Arrival(NamedTuple):
    tool: str
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One crash-free run. `lines` are those of the tools' ledger, in order."""

    passed: Sequence[Passed]
    arrivals: Sequence[Arrival]
    effects: Sequence[Effect]
    lines: Sequence[Effect] = ()


def baseline_of(first: Seen, second: Seen, identity: Sequence[str]) -> Counter[str]:
    """The effects, by name. Raises `UsageError` if they are no measure for anything."""
    one, other = names_of(first.effects, identity), names_of(second.effects, identity)
    if not one:
        raise UsageError(
            "The crash-free run had no effect that the lab could see. Let the tools send to the address in "
            "SEMEL_LAB_PROVIDER (--env YOUR_VARIABLE={provider}), or name the file they write with --effects."
        )
    names = {name for effect in (*first.effects, *second.effects) for name in effect.fields}
    if unknown := [field for field in identity if field not in names]:
        raise UsageError(
            f"--identity names {', '.join(unknown)}, and no effect of the crash-free run has such a field. "
            f"There are: {', '.join(sorted(names)) or 'none'}."
        )
    if one != other:
        differing = [*(one - other).elements(), *(other - one).elements()]
        raise UsageError(
            "Two crash-free runs did not do the same, so a crash could not be told from chance. Name the fields "
            "that identify an effect in business terms with --identity. What differed:\n  "
            + "\n  ".join(map(shortened, differing))
        )
    return one


def gaps_of(first: Seen, second: Seen) -> tuple[Gap, ...]:
    """In the order of rows: what the guard sees of a tool, then what is seen from outside."""
    return (*_of_guard(first, second), *_of_provider(first), *_of_ledger(first))


def _of_guard(first: Seen, second: Seen) -> Iterable[Gap]:
    tools = _tools_by_key(first.passed)
    again = {(p.window, p.key) for p in second.passed if p.seen_by is SeenBy.GUARD}
    numbers: dict[str, int] = {}
    count: Counter[str] = Counter()
    for passed in first.passed:
        if passed.seen_by is not SeenBy.GUARD or passed.key is None:
            continue
        tool = tools.get(passed.key, "a guarded call")
        if passed.key not in numbers:
            count[tool] += 1
            numbers[passed.key] = count[tool]
        yield Gap(
            tool=tool,
            nth=numbers[passed.key],
            window=passed.window,
            seen_by=SeenBy.GUARD,
            passing=passed.passing,
            key=passed.key if (passed.window, passed.key) in again else None,
        )


def _of_provider(seen: Seen) -> Iterable[Gap]:
    labels = [_tool_at(seen, arrival.at) or arrival.tool for arrival in seen.arrivals]
    return _from_outside(labels, SeenBy.PROVIDER, OUTSIDE)


def _of_ledger(seen: Seen) -> Iterable[Gap]:
    grown = [p for p in seen.passed if (p.seen_by, p.window) == (SeenBy.LEDGER, Window.W3)]
    opened = [p for p in seen.passed if (p.seen_by, p.window) == (SeenBy.LEDGER, Window.W2)]
    told = [line.tool for line in seen.lines]
    is_one_each = len(grown) == len(told)  # else a growth held several lines, and names none of them
    labels = [_tool_at(seen, p.at) or (told[n] if is_one_each else "the ledger") for n, p in enumerate(grown)]
    windows = OUTSIDE if len(opened) == len(grown) else (Window.W3, Window.W4)  # W2: opened for each effect
    return _from_outside(labels, SeenBy.LEDGER, windows)


def _from_outside(labels: Sequence[str], seen_by: SeenBy, windows: Sequence[Window]) -> Iterable[Gap]:
    count: Counter[str] = Counter()
    for passing, tool in enumerate(labels, start=1):
        count[tool] += 1
        for window in windows:
            yield Gap(tool=tool, nth=count[tool], window=window, seen_by=seen_by, passing=passing)


def _tool_at(seen: Seen, at: float) -> str | None:
    """The guarded tool that was at work then, if exactly one was."""
    tools = _tools_by_key(seen.passed)
    begun = {p.key: p.at for p in seen.passed if p.seen_by is SeenBy.GUARD and p.window is Window.W2}
    ended = {p.key: p.at for p in seen.passed if p.seen_by is SeenBy.GUARD and p.window is Window.W3}
    at_work = [key for key, since in begun.items() if since <= at <= ended.get(key, since)]
    if len(at_work) != 1:
        return None
    return tools.get(at_work[0] or "")


def _tools_by_key(passed: Sequence[Passed]) -> Mapping[str, str]:
    return {p.key: p.tool for p in passed if p.key is not None and p.tool is not None}


def passed_from(line: str) -> Passed:
    told: dict[str, Any] = json.loads(line)
    return Passed(
        seen_by=SeenBy(told["seen_by"]),
        window=Window(told["window"]),
        passing=told["passing"],
        key=told["key"],
        tool=told["tool"],
        at=told["at"],
    )
