"""The record of a broken guard, and how it is put in the place of the sound one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from semel.connect import open_store
from semel.decide import decide
from semel.engine.call import Call
from semel.engine.core import Decide
from semel.engine.guard import LEASE, WAIT, Guard
from semel.engine.tool import Tool
from semel.model import Effect, Found, Idempotent, Unsafe
from semel.ports import Store, no_checkpoint

GUARD_OPTIONS: Final = {"namespace": "", "lease": LEASE, "wait": WAIT, "checkpoint": no_checkpoint}


class Place(NamedTuple):
    """Where an intent stands in its run: what its key is made of."""

    step: str
    call_id: str


class Attempt(NamedTuple):
    """What a key could be made of. `key` is the right one."""

    key: str
    number: int
    arguments: str


Heeds: TypeAlias = Callable[[Effect], Effect]
Hears: TypeAlias = Callable[[Exception], Exception]
Reads: TypeAlias = Callable[[Any], Any]
Names: TypeAlias = Callable[[Attempt], str]
Places: TypeAlias = Callable[[Place], Place]
Stores: TypeAlias = Callable[[Store], Store]


def as_it_is(thing: Any) -> Any:
    """The sound part of most seams."""
    return thing


def the_right_key(attempt: Attempt) -> str:
    return attempt.key


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """A guard. Every field after `opens` is a part of it, and sound unless replaced.

    `broken`    one sentence: what is wrong with it.
    `opens`     the hazard that this lets in.
    `decide`    what to do next.
    `heeds`     what it keeps in mind of the effect's declaration.
    `hears`     what it takes the tool's exception for.
    `reads`     what it takes the lookup's answer for.
    `names`     the key that an attempt gives to the provider.
    `places`    the coordinates that the record's key is made of.
    `store`     what stands between it and the store.
    `heeds_once_per`  whether a tool's business identity counts.
    """

    name: str
    broken: str
    opens: str = "nothing"
    decide: Decide = decide
    heeds: Heeds = as_it_is
    hears: Hears = as_it_is
    reads: Reads = as_it_is
    names: Names = the_right_key
    places: Places = as_it_is
    store: Stores = as_it_is
    heeds_once_per: bool = True

    # -------------------------------------------------------------- in the place of the real guard

    def open(self, url: str, **options: Any) -> Guard:
        """As `semel.open`."""
        of_guard = {name: options.pop(name, default) for name, default in GUARD_OPTIONS.items()}
        store = open_store(url, **options)
        try:
            return Guard(self.store(store), decide=self.decide, **of_guard)
        except BaseException:
            store.close()
            raise

    def tool(self, guard: Guard, *, effect: Effect, **options: Any) -> Callable[[Callable[..., Any]], Tool]:
        """As `guard.tool`, for a plain function that takes `call`."""
        if not self.heeds_once_per:
            options.pop("once_per", None)
        register = guard.tool(effect=self.declared(effect), **options)
        return lambda fn: register(self._around(fn))

    def place(self, step: str, call_id: str) -> dict[str, str]:
        """The coordinates to hand to `run.call_at`."""
        return self.places(Place(step, call_id))._asdict()

    def declared(self, effect: Effect) -> Effect:
        """The effect as this guard knows it, its lookup included."""
        heeded = self.heeds(effect)
        if not isinstance(heeded, Idempotent | Unsafe) or heeded.lookup is None:
            return heeded
        lookup = heeded.lookup

        def find(call: Call) -> Any:
            named = self._named(call)
            return self.read(lookup(named), asked_for=named.key, key=call.key)

        return replace(heeded, lookup=find)

    def read(self, answer: Any, *, asked_for: str, key: str) -> Any:
        """What a lookup's answer is taken for. A guard takes a row under the name that it gave for its own."""
        if isinstance(answer, Found) and answer.key == asked_for:
            answer = replace(answer, key=key)
        return self.reads(answer)

    def _around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def performed(*args: Any, call: Call, **kwargs: Any) -> Any:
            try:
                return fn(*args, call=self._named(call), **kwargs)
            except Exception as error:
                heard = self.hears(error)
                if heard is error:
                    raise
                raise heard from error

        return performed

    def _named(self, call: Call) -> Call:
        attempt = Attempt(call.key, call.attempt, repr(sorted(call.arguments.items())))
        return replace(call, key=self.names(attempt))


SOUND: Final = Mutant(name="Semel", broken="nothing")
