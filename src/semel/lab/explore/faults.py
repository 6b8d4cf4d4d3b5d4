"""The catalogue: what goes wrong in a run, where it can, and whether what was declared of the provider holds.

Where the declarations are true, nothing may happen twice, be lost or get stuck. Where one is broken on purpose, the
second effect must be told of as a divergence: by whoever sent first and goes on, or, if they are dead, by an audit
that asks the lookup again. `beyond_sight` marks those of which no guard on this earth can hear, because whoever
sent the first request is dead and the provider cannot be asked about what it did.

To add one: a line in `FAULTS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from semel.lab.explore.agent import Declared
from semel.lab.explore.plan import KILLS, Deed
from semel.lab.ladder import TOOLS
from semel.lab.model import ModelKind, ProviderKind
from semel.lab.wire import Fault as OnWire
from semel.lab.wire import Part, Settings, Strike

HONOURS_KEYS, HAS_LOOKUP, BLIND = ProviderKind
ALL: Final = tuple(ProviderKind)
TOOL_NAMES: Final = tuple(TOOLS.values())
TURNS: Final = tuple(f"turn {number}" for number in range(1, len(TOOLS) + 2))
NOTHING: Final = ("",)

LEASE_MS: Final = 30_000
SHORT_LEASE_MS: Final = 300  # a paused owner is alive: recovery waits for the end of its lease
TRUE: Final = Declared()
TIMEOUT_SECONDS: Final = 10.0
SHORT_TIMEOUT_SECONDS: Final = 0.3
BEYOND_THE_TIMEOUT_MS: Final = 500
WITHIN_THE_DEADLINE_MS: Final = 60
SLOW_ANSWER_MS: Final = 200
LAG_MS: Final = 600  # longer than the request's deadline: that alone does not cover it
LONGER_LEASE_MS: Final = 3_000
KEY_TTL_MS: Final = 1_000
LONG_KEY_TTL_MS: Final = 4_000  # two recoveries, one within it and one after it, however busy the machine
FOR_EVER_MS: Final = 3_600_000

Where: TypeAlias = Callable[[str, str], bool]  # a place's name, the tool that is struck


def everywhere(place: str, struck: str) -> bool:
    return True


def from_request_to_record(place: str, struck: str) -> bool:
    """While the struck tool's request is under way, or its outcome not recorded."""
    tool = re.escape(struck) if struck else r"\w+"
    return (
        re.fullmatch(rf"(provider|lookup|person) {tool}: .*|.* {tool}|write .* of {tool} .*", place)
        is not None
    )


def sent(place: str, struck: str) -> bool:
    return place == f"provider {struck}: sent"


def claimed(place: str, struck: str) -> bool:
    return place.startswith("claimed ")


def sending(place: str, struck: str) -> bool:
    return place.startswith("provider ") and place.endswith(": sending")


def between_request_and_record(place: str, struck: str) -> bool:
    """From the claim on, to the record of the outcome."""
    return (
        re.fullmatch(
            r"provider \w+: \w+|(claimed|effect_done) \w+"
            r"|write claim of \w+ \(.*\): after|write committed of \w+ \(.*\): before",
            place,
        )
        is not None
    )


def happened_and_unrecorded(place: str, struck: str) -> bool:
    """The effect stands, and the record does not show it."""
    return (
        re.fullmatch(r"provider \w+: received|effect_done \w+|write committed of \w+ \(.*\): before", place)
        is not None
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One line of the catalogue.

    `strikes`   what is wrong on the wire: one fault, aimed at the struck tool (or turn).
    `struck`    whose requests can be struck; a run has one of them.
    `deed`      what it is combined with, at each place of `where`; None: nothing.
    `is_alone`  whether there is a run with the strike alone.
    `after`     places at which a first process is killed, so that the deed strikes its recovery.
    `declared`  what the tool's author says; the figures after it are what the provider does.
    `needs_person`  whether in this world only a person can settle a doubt, whatever the provider.
    `has_hasty_person`  one who looks into the books at once, and answers.
    `is_audited`  whether the guard asks the lookup once more, when all has landed and shows.
    """

    name: str
    meaning: str
    providers: tuple[ProviderKind, ...] = ALL
    strikes: tuple[OnWire, ...] = ()
    struck: tuple[str, ...] = NOTHING
    deed: Deed | None = None
    where: Where = everywhere
    after: tuple[str, ...] = ()
    is_alone: bool = False
    needs_person: bool = False
    has_hasty_person: bool = False
    is_audited: bool = False
    is_true: bool = True
    beyond_sight: bool = False
    declared: Declared = TRUE
    lag_ms: int = 0
    drops_late: bool = True
    forgets_keys_after_ms: int | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    recovery_after_ms: int = 0
    lease_ms: int = LEASE_MS
    stores: tuple[str, ...] = ("sqlite", "postgres")

    def settings(self, provider: ProviderKind, struck: str, seed: int) -> Settings:
        return Settings(
            provider=provider,
            model=ModelKind.REWORDS,
            seed=seed,
            lag_ms=self.lag_ms,
            drops_late=self.drops_late,
            forgets_keys_after_ms=self.forgets_keys_after_ms,
            faults=tuple(replace(strike, tool=struck or None) for strike in self.strikes),
        )

    @property
    def allowed(self) -> frozenset[str]:
        """The verdicts that are no finding."""
        if self.is_true:
            return frozenset({"OK"})
        return frozenset({"OK", "DIVERGED", "DUPLICATE"} if self.beyond_sight else {"OK", "DIVERGED"})


def on_effect(name: str, meaning: str, strike: OnWire, **more: object) -> Fault:
    """A fault of one tool's request, alone and with a kill wherever that request still matters."""
    known = {
        "strikes": (strike,),
        "struck": TOOL_NAMES,
        "deed": Deed.KILL,
        "where": from_request_to_record,
        "is_alone": True,
    }
    return Fault(name=name, meaning=meaning, **(known | more))  # type: ignore[arg-type]


FAULTS: Final = (
    Fault(
        name=KILLS,
        meaning="SIGKILL at every place, and again at every place of the recovery.",
        deed=Deed.KILL,
    ),
    Fault(
        name="zombie",
        meaning="SIGSTOP; another process runs to the end; SIGCONT, and the first one goes on.",
        deed=Deed.STOP,
        lease_ms=SHORT_LEASE_MS,
    ),
    Fault(
        name="zombie, longer lease",
        meaning="Paused for less than its lease says: it is not dead, and whoever thinks so meets it again.",
        deed=Deed.STOP,
        where=claimed,
        lease_ms=LONGER_LEASE_MS,
    ),
    Fault(
        name="rival",
        meaning="A second process starts on the same run while the first one, alive, goes on; answers are slow.",
        strikes=(OnWire(strike=Strike.DELAY_ANSWER, delay_ms=SLOW_ANSWER_MS, times=len(TOOL_NAMES)),),
        deed=Deed.RIVAL,
    ),
    Fault(
        name="zombie in recovery",
        meaning="SIGKILL; the recovery is stopped; another one runs to the end; SIGCONT, and two have recovered.",
        deed=Deed.STOP,
        after=("claimed charge", "effect_done charge"),
        lease_ms=SHORT_LEASE_MS,
    ),
    Fault(
        name="key expired",
        meaning="Recovery comes only when the provider has, as declared, forgotten the key: a person is asked.",
        providers=(HONOURS_KEYS,),
        deed=Deed.KILL,
        where=between_request_and_record,
        needs_person=True,
        declared=Declared(key_ttl_ms=KEY_TTL_MS),
        forgets_keys_after_ms=KEY_TTL_MS,
        recovery_after_ms=KEY_TTL_MS + 50,
    ),
    Fault(
        name="key expires while recovering",
        meaning="Each recovery comes while the key is remembered, and is killed; the last one comes too late.",
        providers=(HONOURS_KEYS,),
        deed=Deed.KILL,
        after=("provider charge: received",),
        where=happened_and_unrecorded,
        needs_person=True,
        declared=Declared(key_ttl_ms=LONG_KEY_TTL_MS),
        forgets_keys_after_ms=LONG_KEY_TTL_MS,
        recovery_after_ms=LONG_KEY_TTL_MS * 6 // 10,
    ),
    Fault(
        name="power loss",
        meaning="SIGKILL, and every byte that SQLite had not flushed is gone.",
        deed=Deed.POWER_LOSS,
        stores=("sqlite",),
    ),
    Fault(
        name="power loss, torn writes",
        meaning="SIGKILL; of each sector that SQLite had not flushed, chance says whether it is there.",
        deed=Deed.TORN_WRITES,
        stores=("sqlite",),
    ),
    on_effect(
        "response dropped",
        "It took effect; the connection closes without an answer.",
        OnWire(strike=Strike.DROP_ANSWER),
    ),
    on_effect(
        "response delayed",
        "It took effect; the answer comes after the client has stopped waiting.",
        OnWire(strike=Strike.DELAY_ANSWER, delay_ms=BEYOND_THE_TIMEOUT_MS),
        timeout_seconds=SHORT_TIMEOUT_SECONDS,
    ),
    on_effect(
        "response duplicated",
        "The answer arrives twice; the second one could be taken for the next request's.",
        OnWire(strike=Strike.REPEAT_ANSWER),
    ),
    on_effect(
        "request duplicated",
        "The request arrives twice. Only a provider that honours keys can make one effect of that.",
        OnWire(strike=Strike.REPEAT_REQUEST),
        providers=(HONOURS_KEYS,),
    ),
    on_effect(
        "request held",
        "The request is still on its way when recovery looks, and lands within its deadline.",
        OnWire(strike=Strike.HOLD, held_ms=WITHIN_THE_DEADLINE_MS),
    ),
    Fault(
        name="request held, hasty person",
        meaning="A person looks at once, sees nothing, and says run it; then the first request lands.",
        providers=(BLIND,),
        strikes=(OnWire(strike=Strike.HOLD, held_ms=WITHIN_THE_DEADLINE_MS),),
        struck=TOOL_NAMES,
        deed=Deed.KILL,
        where=from_request_to_record,
        is_alone=True,
        has_hasty_person=True,
    ),
    on_effect("5xx after commit", "It took effect, and is answered 503.", OnWire(strike=Strike.ERROR_ANSWER)),
    on_effect(
        "409 in progress",
        "The provider works on it, answers 409 meanwhile, also to a resend, and then it takes effect.",
        OnWire(strike=Strike.IN_PROGRESS, held_ms=WITHIN_THE_DEADLINE_MS),
    ),
    on_effect("429", "Refused with Retry-After: it took no effect.", OnWire(strike=Strike.TOO_MANY)),
    on_effect(
        "429, then the next request held",
        "The first request is refused; the second is still on its way when recovery looks.",
        OnWire(strike=Strike.TOO_MANY),
        strikes=(
            OnWire(strike=Strike.TOO_MANY),
            OnWire(strike=Strike.HOLD, held_ms=WITHIN_THE_DEADLINE_MS),
        ),
    ),
    Fault(
        name="model's response dropped",
        meaning="The model's turn is lost on its way; it is asked again and words it differently.",
        strikes=(OnWire(strike=Strike.DROP_ANSWER, part=Part.MODEL),),
        struck=TURNS,
        is_alone=True,
    ),
    Fault(
        name="model's response delayed",
        meaning="The model's turn comes after the client has stopped waiting.",
        strikes=(OnWire(strike=Strike.DELAY_ANSWER, part=Part.MODEL, delay_ms=BEYOND_THE_TIMEOUT_MS),),
        struck=TURNS,
        is_alone=True,
        timeout_seconds=SHORT_TIMEOUT_SECONDS,
    ),
    Fault(
        name="lookup lags",
        meaning="The lookup shows an effect only after the lag that was declared.",
        providers=(HAS_LOOKUP,),
        deed=Deed.KILL,
        lag_ms=LAG_MS,
        declared=Declared(lookup_lag_ms=LAG_MS),
    ),
    Fault(
        name="lookup down",
        meaning="The lookup answers 503, twice.",
        providers=(HAS_LOOKUP,),
        strikes=(OnWire(strike=Strike.ERROR_ANSWER, part=Part.LOOKUP, times=2),),
        deed=Deed.KILL,
    ),
    Fault(
        name="lookup processing",
        meaning="The lookup says twice that the request is still processed: neither yes nor no.",
        providers=(HAS_LOOKUP,),
        strikes=(OnWire(strike=Strike.PROCESSING, part=Part.LOOKUP, times=2),),
        deed=Deed.KILL,
    ),
    # ---- a declaration is broken on purpose: the second effect has to be told of
    Fault(
        name="broken: a zombie sends, nobody minds its deadline",
        meaning="Paused right before it sends; the provider takes the request however late it comes.",
        deed=Deed.STOP,
        where=sending,
        is_true=False,
        drops_late=False,
        lease_ms=SHORT_LEASE_MS,
    ),
    Fault(
        name="broken: a request lands after its deadline",
        meaning="Held until recovery has sent another one; its sender was paused, and goes on to read the answer.",
        strikes=(OnWire(strike=Strike.HOLD_OPEN),),
        struck=TOOL_NAMES,
        deed=Deed.STOP,
        where=sent,
        is_true=False,
        drops_late=False,
        lease_ms=SHORT_LEASE_MS,
    ),
    Fault(
        name="broken: the lookup lags longer than declared",
        meaning="The lookup never shows the effect; whoever caused it was paused, and goes on.",
        providers=(HAS_LOOKUP,),
        deed=Deed.STOP,
        where=happened_and_unrecorded,
        is_true=False,
        lag_ms=FOR_EVER_MS,
        lease_ms=SHORT_LEASE_MS,
    ),
    Fault(
        name="broken: keys are forgotten before key_ttl",
        meaning="The provider forgets each key at once; whoever sent first was paused, and goes on.",
        providers=(HONOURS_KEYS,),
        deed=Deed.STOP,
        where=happened_and_unrecorded,
        is_true=False,
        forgets_keys_after_ms=0,
        lease_ms=SHORT_LEASE_MS,
    ),
    # ---- the same, and whoever sent the first request is dead: where there is a lookup, an audit has to tell of it
    Fault(
        name="broken, sender dead: a request lands after its deadline",
        meaning="Held until recovery has sent another one; its sender was killed. A key makes one of the two; "
        "a lookup shows both to an audit.",
        providers=(HONOURS_KEYS, HAS_LOOKUP),
        strikes=(OnWire(strike=Strike.HOLD),),
        struck=TOOL_NAMES,
        deed=Deed.KILL,
        where=sent,
        is_true=False,
        is_audited=True,
        drops_late=False,
    ),
    Fault(
        name="broken, sender dead: the lookup lags longer than declared",
        meaning="The lookup does not show the effect until the run has ended; whoever caused it was killed. "
        "An audit asks again.",
        providers=(HAS_LOOKUP,),
        deed=Deed.KILL,
        where=happened_and_unrecorded,
        is_true=False,
        is_audited=True,
        lag_ms=FOR_EVER_MS,
    ),
    # ---- and where there is none, nobody can see it
    Fault(
        name="broken, sender dead, nobody to ask: a request lands after its deadline",
        meaning="Held until recovery has sent another one; its sender was killed. Nobody can see it: "
        "the provider is blind.",
        providers=(BLIND,),
        strikes=(OnWire(strike=Strike.HOLD),),
        struck=TOOL_NAMES,
        deed=Deed.KILL,
        where=sent,
        is_true=False,
        beyond_sight=True,
        drops_late=False,
    ),
    Fault(
        name="broken, sender dead, nobody to ask: keys are forgotten before key_ttl",
        meaning="The provider forgets each key at once; whoever sent first was killed. Nobody can see it: "
        "no lookup is declared, and nobody is left who has the first answer.",
        providers=(HONOURS_KEYS,),
        deed=Deed.KILL,
        where=happened_and_unrecorded,
        is_true=False,
        beyond_sight=True,
        forgets_keys_after_ms=0,
    ),
)
BY_NAME: Final[Mapping[str, Fault]] = {fault.name: fault for fault in FAULTS}
