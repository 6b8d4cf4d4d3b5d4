"""What stacked retries make of one intent: four layers, three tries each, a provider that does it and times out.

The layers are real code, from the outside in: a model that asks again under a new call id when it is told of an
error, a step that is run again, a wrapper around the tool, an HTTP client with a time limit. The provider is a
process of its own: it applies a request, and then never answers; its record is what is counted.

Without Semel, a key helps as far as the layer that makes it reaches: all that retries outside it makes more.
With Semel the guard stands at the innermost layer, around the tool. What retries *below* it is hidden from it: an
HTTP client inside the tool that sends again by itself sends under one key, which a provider that ignores keys
applies each time. That retry has to be switched off; it has a row of its own.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import semel
from semel.lab.model import ProviderKind
from semel.lab.own import provider
from semel.lab.own.provider import Provider

TRIES: Final = 3
TIME_LIMIT_SECONDS: Final = 0.05  # of the HTTP client; the provider never answers, so more only takes longer
CONNECT_SECONDS_MAX: Final = 30.0
SETTLING_SECONDS_MAX: Final = 30.0  # until the provider has read what was sent before the caller hung up
CHARGE: Final = {"customer": "cus_42", "period": "2026-12", "amount_cents": 25_000}
Result = TypeVar("Result")


class Layer(StrEnum):
    """From the outside in."""

    MODEL = "model"
    STEP = "step"
    WRAPPER = "tool wrapper"
    CLIENT = "HTTP client"


class KeyFrom(StrEnum):
    """What has a key of its own without Semel."""

    NOBODY = "no key"
    CLIENT = "HTTP request"
    WRAPPER = "wrapper try"
    STEP = "step try"
    MODEL = "model call id"
    EVENT = "business event"


MULTIPLIED_BY: Final = {  # how many layers retry outside the one that makes the key
    KeyFrom.NOBODY: 4,
    KeyFrom.CLIENT: 4,
    KeyFrom.WRAPPER: 3,
    KeyFrom.STEP: 2,
    KeyFrom.MODEL: 1,
    KeyFrom.EVENT: 0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """`key_from` None: Semel makes it. `client_tries`: 1 is an HTTP client whose own retries are off.

    `once_per`  the business identity that is declared to Semel.
    """

    provider: ProviderKind
    key_from: KeyFrom | None
    client_tries: int = TRIES
    once_per: tuple[str, ...] | None = ("customer", "period")

    @property
    def effects(self) -> int:
        """How many there must be, if what this module says is true."""
        if self.key_from is not None:
            return int(TRIES ** MULTIPLIED_BY[self.key_from])
        if self.provider is ProviderKind.HONOURS_KEYS:
            return 1 if self.once_per else TRIES  # each call id of the model is an intent of its own
        return self.client_tries  # of one call of the tool: after it the guard knows, or stops the run


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was counted. `requests` and `effects` by the provider; the tries by the layers themselves."""

    setting: Setting
    tries: dict[str, int]
    requests: int
    lookups: int
    effects: int
    asked_a_person: bool

    @property
    def is_as_said(self) -> bool:
        everything = TRIES**4
        return self.effects == self.setting.effects and (
            self.setting.key_from is None or self.requests == everything
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Amplification:
    rows: tuple[Row, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        return all(row.is_as_said for row in self.rows)


SETTINGS: Final = (
    *(Setting(provider=kind, key_from=KeyFrom.NOBODY) for kind in ProviderKind),
    *(Setting(provider=ProviderKind.HONOURS_KEYS, key_from=made) for made in list(KeyFrom)[1:]),
    *(Setting(provider=kind, key_from=None, client_tries=1) for kind in ProviderKind),
    *(Setting(provider=kind, key_from=None) for kind in ProviderKind),
    Setting(provider=ProviderKind.HONOURS_KEYS, key_from=None, client_tries=1, once_per=None),
)


def run(settings: Sequence[Setting] = SETTINGS) -> Amplification:
    """Every setting at once: each mostly waits for its time limits."""
    started = time.monotonic()
    with (
        provider.running() as running,
        tempfile.TemporaryDirectory(prefix="semel-amplification-") as folder,
        ThreadPoolExecutor(len(settings)) as pool,
    ):
        rows = pool.map(
            lambda numbered: _row(numbered[1], running, f"setting-{numbered[0]}", Path(folder)),
            enumerate(settings),
        )
        return Amplification(rows=tuple(rows), seconds=time.monotonic() - started)


# ------------------------------------------------------------------ one setting


def _row(setting: Setting, running: Provider, cell: str, folder: Path) -> Row:
    running.begin(cell, setting.provider, is_silent=True)
    tries: Counter[Layer] = Counter()
    client = _Client(running, cell, setting.client_tries, tries)
    tool = _bare if setting.key_from is not None else _guarded
    asked = False
    try:
        tool(setting, client, tries, folder / f"{cell}.db")
    except semel.PausedForPerson:
        asked = True
    record = _settled(running, cell, tries[Layer.CLIENT])
    return Row(
        setting=setting,
        tries={layer: tries[layer] for layer in Layer},
        requests=len(record["arrivals"]),
        lookups=record["lookups"],
        effects=len(record["effects"]),
        asked_a_person=asked,
    )


def _bare(setting: Setting, client: _Client, tries: Counter[Layer], _: Path) -> None:
    """A key is carried inwards from the layer that makes it; None where none has made one yet."""
    made_by = setting.key_from

    def new(here: KeyFrom, key: str | None) -> str | None:
        return str(uuid.uuid4()) if made_by is here else key

    def ask(call_id: str) -> str:
        event = "renewal:cus_42:2026-12" if made_by is KeyFrom.EVENT else None
        return in_step(call_id if made_by is KeyFrom.MODEL else event)

    def in_step(key: str | None) -> str:
        return _again(Layer.STEP, tries, lambda: in_wrapper(new(KeyFrom.STEP, key)))

    def in_wrapper(key: str | None) -> str:
        return _again(Layer.WRAPPER, tries, lambda: client.post(lambda: new(KeyFrom.WRAPPER, key), new))

    _model(tries, ask)


def _guarded(setting: Setting, client: _Client, tries: Counter[Layer], file: Path) -> None:
    """The guard around the tool, the tool around the HTTP client, everything else around the guard."""
    with semel.open(f"sqlite:///{file}") as guard, guard.run("renewal:cus_42:2026-12") as run:

        @guard.tool(effect=_effect_for(setting.provider, client), once_per=setting.once_per)
        def charge(customer: str, period: str, amount_cents: int, *, call: semel.Call) -> str:
            return client.post(lambda: call.key, lambda here, key: key)

        def ask(call_id: str) -> str:
            def call() -> str:
                return str(run.call_at(charge, CHARGE, step="charge", call_id=call_id))

            return _again(Layer.STEP, tries, lambda: _again(Layer.WRAPPER, tries, call))

        _model(tries, ask)


def _effect_for(kind: ProviderKind, client: _Client) -> semel.Idempotent | semel.Unsafe:
    match kind:
        case ProviderKind.HONOURS_KEYS:
            return semel.Idempotent(key_ttl=timedelta(hours=24))
        case ProviderKind.HAS_LOOKUP:
            return semel.Unsafe(lookup=lambda call: client.find(call.key), lookup_lag=timedelta(0))
        case ProviderKind.BLIND:
            return semel.Unsafe()


# ------------------------------------------------------------------ the four layers


def _model(tries: Counter[Layer], ask: Callable[[str], str]) -> None:
    """Told of an error it asks again, under a new call id; after three errors it apologises."""
    with suppress(Exception):
        _again(Layer.MODEL, tries, lambda: ask(f"call_{uuid.uuid4().hex}"))


def _again(layer: Layer, tries: Counter[Layer], what: Callable[[], Result], times: int = TRIES) -> Result:
    for left in reversed(range(times)):
        tries[layer] += 1
        try:
            return what()
        except Exception:
            if not left:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


class _Client:
    """An HTTP client with a time limit, and tries of its own."""

    def __init__(self, running: Provider, cell: str, client_tries: int, tries: Counter[Layer]) -> None:
        self._address, self._cell = running.address, cell
        self._client_tries = client_tries
        self._tries = tries

    def post(self, key: Callable[[], str | None], new: Callable[[KeyFrom, str | None], str | None]) -> str:
        made = key()
        return _again(
            Layer.CLIENT, self._tries, lambda: self._post(new(KeyFrom.CLIENT, made)), self._client_tries
        )

    def _post(self, key: str | None) -> str:
        headers = {} if key is None else {"Idempotency-Key": key}
        return str(self._send("POST", "", json.dumps(CHARGE), headers, TIME_LIMIT_SECONDS)["id"])

    def find(self, key: str) -> semel.Evidence:
        found = self._send("GET", f"?{urlencode({'key': key})}", None, {}, CONNECT_SECONDS_MAX)["effects"]
        if len(found) > 1:
            return semel.Inconclusive(f"{len(found)} charges under one key")
        return semel.Found(found[0]["id"]) if found else semel.Absent()

    def _send(
        self, method: str, query: str, body: str | None, headers: dict[str, str], seconds: float
    ) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=CONNECT_SECONDS_MAX)
        try:
            connection.request(method, f"/{self._cell}/charges{query}", body, headers)
            connection.sock.settimeout(seconds)
            answer: dict[str, Any] = json.load(connection.getresponse())
        finally:
            connection.close()
        return answer


def _settled(running: Provider, cell: str, sent: int) -> dict[str, Any]:
    """The provider's record, once it has read all that was sent to it: callers hang up before it has."""
    ends_at = time.monotonic() + SETTLING_SECONDS_MAX
    while True:
        record = running.record(cell)
        if len(record["arrivals"]) >= sent or time.monotonic() > ends_at:
            return record
        time.sleep(TIME_LIMIT_SECONDS)
