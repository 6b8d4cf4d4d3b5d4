"""What is said between a level and the world outside it: records, and their form as JSON.

The world (provider, scripted model, person) is another process; these records are all that the two
sides share. `from_json` is the border: past it, the types are trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from semel.lab.model import ModelKind, ProviderKind

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Arguments: TypeAlias = Mapping[str, JSON]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """One tool picked by the model. The id is fresh on every model call, as with real models."""

    id: str
    name: str
    arguments: Arguments

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ToolCall:
        return cls(id=str(raw["id"]), name=str(raw["name"]), arguments=dict(raw["arguments"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One answer of the model: some text and the tools it picked. No calls: the plan has ended."""

    text: str
    calls: tuple[ToolCall, ...] = ()

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Turn:
        return cls(text=str(raw["text"]), calls=tuple(map(ToolCall.from_json, raw["calls"])))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One real change of the world, as the provider's ledger holds it.

    `intent` is the business identity in normal form: two effects of one intent are a duplicate,
    whatever their wording, key or reference.
    """

    sequence: int
    tool: str
    intent: str
    arguments: Arguments
    key: str | None = None
    reference: str | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Effect:
        return cls(**raw)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A question put to a person, and whether the provider's books held such an effect."""

    tool: str
    reference: str | None
    found: bool

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ask:
        return cls(**raw)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """`requests` counts what the provider received, `lookups` included. `model_calls` is by turn."""

    requests: int
    lookups: int
    model_calls: Mapping[int, int]
    asks: tuple[Ask, ...]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Counters:
        return cls(
            requests=int(raw["requests"]),
            lookups=int(raw["lookups"]),
            model_calls={int(turn): int(calls) for turn, calls in raw["model_calls"].items()},
            asks=tuple(map(Ask.from_json, raw["asks"])),
        )

    @property
    def model_calls_total(self) -> int:
        return sum(self.model_calls.values())


class Part(StrEnum):
    """Whose request a fault strikes."""

    EFFECT = "effect"
    LOOKUP = "lookup"
    MODEL = "model"


class Strike(StrEnum):
    """What a fault does to a request. A lookup and a model's turn are only answered, so only that can go wrong."""

    DROP_ANSWER = "drop-answer"  # committed; the connection closes without an answer
    ERROR_ANSWER = "error-answer"  # committed; answered 503
    DELAY_ANSWER = "delay-answer"  # committed; answered `delay_ms` later
    REPEAT_ANSWER = "repeat-answer"  # committed; the answer arrives twice
    REPEAT_REQUEST = "repeat-request"  # the request arrives twice
    TOO_MANY = "too-many"  # answered 429 with Retry-After; not applied
    IN_PROGRESS = "in-progress"  # answered 409; applied later, and until then a resend is answered 409, too
    HOLD = "hold"  # the connection closes; the request is applied later
    HOLD_OPEN = "hold-open"  # the same, but the connection stays open and is answered then
    PROCESSING = "processing"  # a lookup: "still processing", which is neither yes nor no


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Strikes the first `times` requests (of one `tool`, or of any), then is spent.

    `tool` of a model's turn is `turn 1`, `turn 2`, …
    A held request is applied after `held_lookups` further lookups were answered, or `held_ms` later,
    or when the cell is told to release what it holds, whichever comes first.
    """

    strike: Strike
    part: Part = Part.EFFECT
    tool: str | None = None
    times: int = 1
    held_lookups: int | None = None
    held_ms: int | None = None
    delay_ms: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Fault:
        known = {"strike": Strike(raw["strike"]), "part": Part(raw.get("part", Part.EFFECT))}
        return cls(**{**raw, **known})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How the world behaves in one cell.

    A lookup finds an effect only after `lag_lookups` lookups have missed it and `lag_ms` have passed.
    `drops_late`: a request that says until when it may land has no effect after that.
    `forgets_keys_after_ms`: counted from the effect; None: it never forgets one.
    """

    provider: ProviderKind
    model: ModelKind = ModelKind.REPEATS
    seed: int = 0
    plan: str = "renewal"
    lag_lookups: int = 0
    lag_ms: int = 0
    drops_late: bool = False
    forgets_keys_after_ms: int | None = None
    faults: tuple[Fault, ...] = field(default=())

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Settings:
        known = {
            **raw,
            "provider": ProviderKind(raw["provider"]),
            "model": ModelKind(raw.get("model", ModelKind.REPEATS)),
            "faults": tuple(map(Fault.from_json, raw.get("faults", ()))),
        }
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
