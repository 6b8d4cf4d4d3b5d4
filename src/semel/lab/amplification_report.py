"""What the stacked retries came to: in a terminal, as JSON, as a page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from semel.lab import heat_map
from semel.lab.amplification import TRIES, Amplification, KeyFrom, Layer, Row, Setting
from semel.lab.model import ProviderKind, Verdict

WHAT: Final = f"One intent; four layers that retry, {TRIES} tries each: {', '.join(Layer)}."
PROVIDER: Final = "The provider does what it is asked, and never answers."


def to_json(found: Amplification) -> str:
    told = {"tries": TRIES, "layers": list(Layer), "rows": [_object_of(row) for row in found.rows]}
    return json.dumps({**told, "holds": found.holds, "seconds": round(found.seconds, 3)}, indent=2)


def _object_of(row: Row) -> dict[str, Any]:
    setting = row.setting
    return {
        "guard": "semel" if setting.key_from is None else "none",
        "key_from": setting.key_from,
        "provider": setting.provider,
        "client_retries": setting.client_tries > 1,
        "once_per": setting.once_per if setting.key_from is None else None,
        **{name: value for name, value in asdict(row).items() if name != "setting"},
        "expected_effects": setting.effects,
    }


def lines(found: Amplification) -> list[str]:
    said = [WHAT, PROVIDER, "", f"{'':<44} {'provider':<13} {'requests':>8} {'lookups':>8} {'effects':>8}"]
    for row in found.rows:
        counted = f"{row.requests:>8} {row.lookups:>8} {row.effects:>8}"
        said.append(f"{_title(row.setting):<44} {row.setting.provider:<13} {counted}{_remark(row)}")
    return [*said, "", conclusion(found)]


def _title(setting: Setting) -> str:
    if setting.key_from is KeyFrom.NOBODY:
        return "without Semel, no key"
    if setting.key_from is not None:
        return f"without Semel, a key per {setting.key_from}"
    hidden = "" if setting.client_tries == 1 else ", HTTP client retries too"
    return f"Semel{hidden}{'' if setting.once_per else ', no once_per'}"


def _remark(row: Row) -> str:
    setting = row.setting
    if not row.is_as_said:
        return f"  expected {setting.effects} effects"
    said = ["a person is asked"] if row.asked_a_person else []
    if setting.key_from is None and setting.once_per is None:
        said.append("each call id is an intent: declare once_per")
    elif setting.key_from is None and row.effects > 1:
        said.append("a retry below the guard: switch it off")
    return "  " + "; ".join(said) if said else ""


def _is_as_documented(setting: Setting) -> bool:
    """Semel, with nothing that retries below it and the business event declared."""
    return setting.key_from is None and setting.client_tries == 1 and setting.once_per is not None


def conclusion(found: Amplification) -> str:
    bare = [row for row in found.rows if row.setting.key_from is KeyFrom.NOBODY]
    guarded = [row for row in found.rows if _is_as_documented(row.setting)]
    if not found.holds:
        return "Does not hold: a row is not as it should be."
    return (
        f"Measured: {bare[0].requests} requests and {bare[0].effects} effects of one intent without Semel; "
        f"{max(row.effects for row in guarded)} effect with it."
    )


# ------------------------------------------------------------------ as a page


def to_html(found: Amplification) -> str:
    titles = list(dict.fromkeys(_title(row.setting) for row in found.rows))
    content = heat_map.Page(
        title="Stacked retries",
        lead=f"{WHAT} {PROVIDER} Counted by the provider, a process of its own.",
        conclusion=conclusion(found),
        holds=found.holds,
        rows=titles,
        columns=[str(kind) for kind in ProviderKind],
        squares=[_square(row) for row in found.rows],
        figures=(("requests", str(sum(r.requests for r in found.rows))), ("seconds", f"{found.seconds:.1f}")),
        notes=(
            "Without Semel a key helps as far as the layer that makes it reaches.",
            "An HTTP client inside the tool that retries by itself is below the guard: a provider that ignores "
            "keys applies each of its requests. Switch such retries off.",
        ),
        command="semel lab amplification",
    )
    return heat_map.render(content)


def _square(row: Row) -> heat_map.Square:
    verdict = Verdict.UNKNOWN if not row.is_as_said else Verdict.OK if row.effects == 1 else Verdict.DUPLICATE
    counted = f"{row.requests} requests, {row.effects} effect{'s' * (row.effects != 1)}"
    tried = [f"{layer}: {count} tries" for layer, count in row.tries.items()]
    remark = _remark(row).strip()
    run = heat_map.Run(
        title=counted,
        verdict=verdict.name,
        lines=(*tried, f"lookups: {row.lookups}", *([remark] if remark else [])),
    )
    return heat_map.Square(
        row=_title(row.setting), column=row.setting.provider, verdict=verdict.name, text=counted, runs=(run,)
    )
