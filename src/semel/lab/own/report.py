"""What a campaign says: to people, to programs, to a test that fails, and as a page."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from semel.lab import heat_map
from semel.lab.model import Window
from semel.lab.own.judge import shortened
from semel.lab.own.model import Campaign, Crash, Finding, Gap, SeenBy

GAP: Final = "{gap}"
TOOL_WIDTH_MAX: Final = 32
ENDING_LINES: Final = 12  # of what the last process said
FINDING_WORDS: Final = {
    Finding.OK: "once",
    Finding.ASKED: "stopped for a person",
    Finding.STUCK: "got stuck",
    Finding.LOST: "never happened",
    Finding.DUPLICATE: "happened twice",
    Finding.UNKNOWN: "no experiment",
}
ABOUT: Final = {
    Window.W1: "the model has picked a tool; the intent is not recorded",
    Window.W2: "the intent is recorded, or the request has arrived; nothing has happened yet",
    Window.W3: "it has happened, and nobody here knows",
    Window.W4: "it is recorded, or was answered; the model has not been told",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What came of it. `again` is a command that repeats one crash, with `{gap}` where its name goes."""

    campaign: Campaign
    again: str

    @property
    def holds(self) -> bool:
        return self.campaign.holds

    @property
    def crashes(self) -> Sequence[Crash]:
        return self.campaign.crashes

    @property
    def asked(self) -> tuple[Gap, ...]:
        """The gaps after which the program stopped for a person, or asked one."""
        return tuple(crash.gap for crash in self.crashes if crash.asks)

    def assert_once(self) -> None:
        """Raise AssertionError, with all there is to know, if anything happened twice, never, or got stuck.

        A run that stops for a person passes, although it has not come to its end: see `asked`.
        """
        __tracebackhide__ = True
        if not self.holds:
            raise AssertionError("\n".join([self.conclusion(), "", *self.lines()[:-2]]))

    def conclusion(self) -> str:
        counted = Counter(crash.finding for crash in self.crashes)
        bad = [
            f"{FINDING_WORDS[f]}: {n}" for f, n in sorted(counted.items(), reverse=True) if f > Finding.ASKED
        ]
        killed = sum(crash.killed_by_signal is not None for crash in self.crashes)
        if bad:
            return f"Does not hold. {killed} real processes killed; {'; '.join(bad)}."
        if counted[Finding.ASKED]:
            stopped = f"{counted[Finding.ASKED]} runs stopped for a person"
            return (
                f"Holds: {killed} real processes killed; nothing happened twice, nothing is lost; {stopped}."
            )
        asked = f"; a person was asked in {len(self.asked)} runs" if self.asked else ""
        return f"Holds: {killed} real processes killed, and every effect happened once{asked}."

    def lines(self) -> list[str]:
        """For a terminal or a failing test: the map, what is wrong, and the conclusion."""
        wrong = [crash for crash in self.crashes if crash.finding > Finding.ASKED]
        said = [line for crash in wrong for line in self._told(crash)]
        return [*self._map(), "", *said, self.conclusion()]

    def _told(self, crash: Crash) -> list[str]:
        gap = crash.gap
        which = f"{gap.tool} (call {gap.nth}) killed at {gap.window}, seen by the {gap.seen_by}"
        return [
            f"{which}: {FINDING_WORDS[crash.finding]}",
            *(f"    {line}" for line in details(crash)),
            f"    again: {self.command_for(gap)}",
            "",
        ]

    def command_for(self, gap: Gap) -> str:
        return self.again.replace(GAP, shlex.quote(gap.name))

    def _map(self) -> list[str]:
        width = min(TOOL_WIDTH_MAX, max(len(tool) for tool in self.tools()))
        head = " ".join(f"{window:<10}" for window in Window)
        rows = [
            f"{tool:<{width}}  " + " ".join(f"{self._word(tool, window):<10}" for window in Window)
            for tool in self.tools()
        ]
        return [line.rstrip() for line in (f"{'':<{width}}  {head}", *rows)]

    def _word(self, tool: str, window: Window) -> str:
        crashes = self.at(tool, window)
        return max(crash.finding for crash in crashes).name if crashes else "-"

    def tools(self) -> list[str]:
        return list(dict.fromkeys(gap.tool for gap in self.campaign.gaps))

    def at(self, tool: str, window: Window) -> list[Crash]:
        return [crash for crash in self.crashes if (crash.gap.tool, crash.gap.window) == (tool, window)]

    # -------------------------------------------------------------- for programs

    def to_json(self) -> str:
        campaign = self.campaign
        counted = Counter(crash.finding.name for crash in self.crashes)
        return json.dumps(
            {
                "target": campaign.program.target,
                "provider": campaign.program.provider,
                "holds": self.holds,
                "crash_free": dict(campaign.effects),
                "verdicts": {finding.name: counted[finding.name] for finding in Finding},
                "crashes": [_row_of(crash) for crash in self.crashes],
                "seconds": round(campaign.seconds, 3),
            },
            indent=2,
            ensure_ascii=False,
        )

    # -------------------------------------------------------------- as a page

    def to_html(self) -> str:
        program = self.campaign.program
        content = heat_map.Page(
            title=f"{program.target} in the crash lab",
            lead="Killed with SIGKILL at every gap of its tool calls, started again, and compared with a run that "
            "nobody killed.",
            conclusion=self.conclusion(),
            holds=self.holds,
            rows=self.tools(),
            columns=[str(window) for window in Window],
            squares=[self._square(tool, window) for tool in self.tools() for window in Window],
            about={str(window): words for window, words in ABOUT.items()},
            figures=(
                ("processes killed", str(sum(c.killed_by_signal is not None for c in self.crashes))),
                ("effects in the crash-free run", str(self.campaign.effects.total())),
                ("seconds", f"{self.campaign.seconds:.1f}"),
                ("provider", program.provider),
            ),
            notes=tuple(f"Without a crash: {shortened(name)}" for name in self.campaign.effects.elements()),
            command=re.sub(r" --\S*gap \{gap\}$", "", self.again),
        )
        return heat_map.render(content)

    def _square(self, tool: str, window: Window) -> heat_map.Square:
        crashes = self.at(tool, window)
        if not crashes:
            sees = any(gap.tool == tool and gap.seen_by is SeenBy.GUARD for gap in self.campaign.gaps)
            text = "not run" if sees or window is not Window.W1 else "cannot be seen without a guard"
            return heat_map.Square(row=tool, column=window, verdict="", text=text)
        worst = max(crash.finding for crash in crashes)
        count = sum(crash.finding is worst for crash in crashes)
        return heat_map.Square(
            row=tool,
            column=window,
            verdict=worst.name,
            text=f"{FINDING_WORDS[worst]}, {count} of {len(crashes)}",
            runs=tuple(self._run(crash) for crash in crashes),
        )

    def _run(self, crash: Crash) -> heat_map.Run:
        gap = crash.gap
        return heat_map.Run(
            title=f"call {gap.nth}, seen by the {gap.seen_by}",
            verdict=crash.finding.name,
            lines=(
                f"{crash.processes} processes, {crash.seconds:.1f} s, {FINDING_WORDS[crash.finding]}",
                *details(crash),
                f"again: {self.command_for(gap)}",
            ),
        )


def details(crash: Crash) -> list[str]:
    """Each effect that is wrong, how often a person was asked, and the end of what the last process said."""
    lines = [
        *(f"once too often: {_times(name, n)}" for name, n in _counted(crash.twice)),
        *(f"missing: {_times(name, n)}" for name, n in _counted(crash.never)),
    ]
    if crash.asks:
        lines.append(f"a person was asked {crash.asks} times" if crash.asks > 1 else "a person was asked")
    if crash.because is not None:
        lines.extend(crash.because.strip().splitlines()[-ENDING_LINES:])
    return lines


def _counted(names: Sequence[str]) -> list[tuple[str, int]]:
    return [(name, len(list(same))) for name, same in groupby(sorted(names))]


def _times(name: str, count: int) -> str:
    return shortened(name) if count == 1 else f"{shortened(name)} ({count} times)"


def _row_of(crash: Crash) -> dict[str, Any]:
    gap = crash.gap
    return {
        "gap": gap.name,
        "tool": gap.tool,
        "call": gap.nth,
        "window": gap.window,
        "seen_by": gap.seen_by,
        "verdict": crash.finding.name,
        "killed_by_signal": crash.killed_by_signal,
        "twice": list(crash.twice),
        "never": list(crash.never),
        "asks": crash.asks,
        "processes": crash.processes,
        "seconds": round(crash.seconds, 3),
        "because": crash.because,
    }
