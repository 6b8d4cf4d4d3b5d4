"""The guards broken on purpose: each is the sound one but for one part, and works where its hole is not met."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest

import semel
from semel.lab.mutants import BY_NAME, MUTANTS, NOT_SIMULATED, SOUND

NO_TIME = timedelta(0)
SEAMS = [field.name for field in fields(SOUND) if field.name not in ("name", "broken", "opens")]


def test_there_are_at_least_fifteen_and_each_has_a_name_of_its_own():
    assert len(BY_NAME) == len(MUTANTS) >= 15


@pytest.mark.parametrize("mutant", [*MUTANTS, *NOT_SIMULATED], ids=lambda mutant: mutant.name)
def test_a_mutant_is_the_sound_guard_with_one_part_replaced(mutant):
    assert [seam for seam in SEAMS if getattr(mutant, seam) is not getattr(SOUND, seam)] != []
    assert sum(getattr(mutant, seam) is not getattr(SOUND, seam) for seam in SEAMS) == 1


@pytest.mark.parametrize("mutant", [SOUND, *MUTANTS, *NOT_SIMULATED], ids=lambda mutant: mutant.name)
def test_where_nothing_goes_wrong_a_mutant_carries_out_a_call_and_replays_it(mutant, tmp_path):
    """A mutant that could do nothing at all would be caught for the wrong reason."""
    ledger: list[str] = []

    def find(call: semel.Call) -> semel.Evidence:
        return semel.Found("receipt", key=call.key) if call.key in ledger else semel.Absent()

    def charge(customer: str, *, call: semel.Call) -> str:
        ledger.append(call.key)
        return "receipt"

    effect = semel.Unsafe(lookup=find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
    with mutant.open(f"sqlite:///{tmp_path}/semel.db", lease=timedelta(seconds=20)) as guard:
        tool = mutant.tool(guard, effect=effect)(charge)
        for _ in range(2):
            with guard.run("renewal") as run:
                result = run.call_at(tool, {"customer": "cus_42"}, **mutant.place("1", "call_1"))
                assert result in ("receipt", None)
    assert len(ledger) == 1


def test_a_mutant_passes_its_own_key_to_the_tool_and_to_the_lookup(tmp_path):
    mutant, seen = BY_NAME["makes the key of the arguments"], []

    def find(call: semel.Call) -> semel.Evidence:
        seen.append(call.key)
        return semel.Found("receipt", key=None)

    def charge(customer: str, *, call: semel.Call) -> str:
        seen.append(call.key)
        raise TimeoutError

    effect = semel.Unsafe(lookup=find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
    with mutant.open(f"sqlite:///{tmp_path}/semel.db") as guard, guard.run("renewal") as run:
        assert run.call(mutant.tool(guard, effect=effect)(charge), customer="cus_42") == "receipt"
        (operation,) = guard.store.read_run("", "renewal")
    assert len(seen) == 2
    assert len({*seen, operation.key}) == 2


def test_an_error_is_heard_as_the_mutant_hears_it_and_keeps_its_cause(tmp_path):
    mutant = BY_NAME["takes any error for final"]

    def charge(*, call: semel.Call) -> str:
        raise TimeoutError("no answer")

    with mutant.open(f"sqlite:///{tmp_path}/semel.db") as guard, guard.run("renewal") as run:
        with pytest.raises(semel.Rejected) as told:
            run.call(mutant.tool(guard, effect=semel.Unsafe())(charge))
        assert isinstance(told.value.__cause__, TimeoutError)
        (operation,) = guard.store.read_run("", "renewal")
    assert operation.state is semel.State.FAILED


def test_a_store_that_cannot_be_opened_is_not_left_open(tmp_path):
    def no_store(store):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        replace(SOUND, store=no_store).open(f"sqlite:///{tmp_path}/semel.db")
