"""Levels 0, 1, 2 and 4, killed for real at the gaps that tell them apart."""

from __future__ import annotations

import signal
from contextlib import closing

import pytest

from semel.lab import durable, matrix
from semel.lab.client import World
from semel.lab.levels import MODULES, Level, Missing, l1_argument_hash, l2_stable_key, load
from semel.lab.model import ModelKind, ProviderKind, Selection, Verdict, Window
from semel.lab.scenario import intents_of
from semel.lab.trial import Trial, crash_free
from semel.lab.wire import Settings, ToolCall

LEVELS = (0, 1, 2, 4)
SELECTION = Selection(levels=LEVELS)
A_CELL = Selection(levels=(4,), windows=(Window.W3,), steps=(1,))
HONOURS, HAS_LOOKUP, BLIND = ProviderKind
WHATEVER_HAD_HAPPENED = {"W3/1", "W4/1"} | {f"{window}/{step}" for window in Window for step in (2, 3)}
REPEATS, REWORDS = ModelKind.REPEATS, ModelKind.REWORDS


def no_controls(address, seed, postgres_url):
    return ()


@pytest.fixture(scope="module")
def cells():
    found = matrix.run(SELECTION, seed=1, controls=no_controls)
    return found.cells


@pytest.fixture
def duplicates_of(cells):
    """Where a level duplicated, as `W3/1`: window and step."""

    def duplicates(level, provider, model):
        return {
            f"{cell.at.window}/{cell.at.step}"
            for cell in cells
            if (cell.at.level, cell.at.provider, cell.at.model) == (level, provider, model)
            and cell.verdict is Verdict.DUPLICATE
        }

    return duplicates


def test_every_cell_was_killed_and_is_as_the_ladder_predicts(cells):
    assert [cell.at for cell in cells] == list(SELECTION.cells())
    assert {cell.killed_by_signal for cell in cells} == {signal.SIGKILL}
    assert [cell for cell in cells if not cell.is_as_predicted] == []


def test_nothing_is_lost_or_stuck_and_nobody_is_asked_below_level_5(cells):
    assert {(cell.lost, cell.stuck, cell.asks, cell.false_asks) for cell in cells} == {(0, 0, 0, 0)}
    assert all(cell.recovery_seconds for cell in cells)


@pytest.mark.parametrize("provider", ProviderKind)
@pytest.mark.parametrize("model", ModelKind)
def test_a_naive_resume_repeats_whatever_had_happened(duplicates_of, provider, model):
    assert duplicates_of(0, provider, model) == WHATEVER_HAD_HAPPENED


def test_a_hash_of_the_arguments_holds_while_the_model_repeats_itself(duplicates_of):
    assert duplicates_of(1, HONOURS, REPEATS) == set()


def test_a_hash_of_the_arguments_fails_when_the_model_rewords(duplicates_of):
    assert duplicates_of(1, HONOURS, REWORDS) == WHATEVER_HAD_HAPPENED


def test_a_hash_of_the_arguments_merges_two_equal_calls_that_are_both_meant(begin, tmp_path):
    two = Settings(provider=HONOURS, plan="two equal charges")
    cell = begin(two)
    hashed = crash_free(Trial(run=l1_argument_hash.run), cell, two, tmp_path / "hashed")
    stable = crash_free(Trial(run=l2_stable_key.run), cell, two, tmp_path / "stable")
    assert tuple(e.intent for e in stable.ledger) == intents_of("two equal charges")
    assert len(hashed.ledger) == 1, "the second charge was swallowed without a word"


@pytest.mark.parametrize("model", ModelKind)
def test_a_stable_key_holds_where_keys_are_honoured_and_fails_at_w3_where_not(duplicates_of, model):
    assert duplicates_of(2, HONOURS, model) == set()
    assert duplicates_of(2, HAS_LOOKUP, model) == {"W3/1", "W3/2", "W3/3"}
    assert duplicates_of(2, BLIND, model) == {"W3/1", "W3/2", "W3/3"}


def test_a_persisted_turn_is_not_asked_for_again(cells):
    assert {cell.redundant_model_calls for cell in cells if cell.at.level in (2, 4)} == {0}
    assert {cell.redundant_model_calls for cell in cells if cell.at.level == 0} == {1, 2, 3}


def test_one_key_with_other_arguments_is_refused(tmp_path):
    call = ToolCall(id="c", name="charge", arguments={"amount_cents": 100})
    other = ToolCall(id="c", name="charge", arguments={"amount_cents": 50})
    nowhere = World(address="127.0.0.1:1", cell_id="nowhere")
    with closing(durable.connect(nowhere, tmp_path)) as database:
        intents = l2_stable_key.Intents(database)
        intents.write_down("key", l2_stable_key.fingerprint_of(call))
        with pytest.raises(l2_stable_key.KeyReused):
            intents.write_down("key", l2_stable_key.fingerprint_of(other))


@pytest.mark.parametrize("model", ModelKind)
@pytest.mark.parametrize("provider", ProviderKind)
def test_one_transaction_has_no_w3(duplicates_of, provider, model):
    assert duplicates_of(4, provider, model) == set()


def test_the_atomic_level_never_contacts_the_provider(cells):
    assert {cell.requests for cell in cells if cell.at.level == 4} == {0}


def test_the_same_seed_gives_the_same_outcome(cells):
    once_more = Selection(levels=(1,), windows=(Window.W3,), steps=(2,), providers=(HONOURS,))
    again = matrix.run(once_more, seed=1, controls=no_controls).cells
    first = [cell for cell in cells if cell.at in {c.at for c in again}]
    assert list(map(without_time, again)) == list(map(without_time, first))


def without_time(cell):
    return (cell.at, cell.verdict, cell.duplicates, cell.redundant_model_calls, cell.requests)


def test_every_level_of_the_ladder_is_registered():
    assert set(MODULES) == {0, 1, 2, 3, 4, 5}
    assert all(isinstance(load(number), Level) for number in LEVELS)


def test_a_level_whose_part_is_not_installed_is_skipped_and_says_why():
    found = load(4, {4: "not_installed"})
    assert found == Missing(number=4, why="No module named 'not_installed'")


def test_a_broken_import_within_semel_is_not_taken_for_a_missing_part():
    with pytest.raises(ModuleNotFoundError):
        load(4, {4: "level_with_a_broken_import"})


def test_a_skipped_cell_has_no_verdict():
    found = matrix.run(A_CELL, controls=no_controls, modules={4: "not_installed"})
    assert {cell.verdict for cell in found.cells} == {None}
    assert found.holds


def test_a_level_that_never_reaches_the_window_is_unknown():
    found = matrix.run(A_CELL, controls=no_controls, modules={4: "level_that_raises"})
    assert {cell.verdict for cell in found.cells} == {Verdict.UNKNOWN}
    assert not found.holds
    assert all("cannot go on" in (cell.trace or "") for cell in found.cells)
