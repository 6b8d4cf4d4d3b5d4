"""Level 5, which is Semel itself, in the real grid: nothing twice, nothing lost, nobody asked for nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import semel
from semel.agent import run_agent
from semel.lab import injector, matrix
from semel.lab.levels import l5_semel
from semel.lab.model import ModelKind, ProviderKind, Selection, Verdict, Window
from semel.lab.scenario import CLOSING, OPENING, RUN_ID, intents_of
from semel.lab.trial import Trial, crash_free, crashed
from semel.lab.wire import Settings

STEPS = (1, 2)
SELECTION = Selection(levels=(5,), steps=STEPS)
HONOURS, HAS_LOOKUP, BLIND = ProviderKind
W1, W2, W3, W4 = Window
IN_DOUBT = {(BLIND, W2), (BLIND, W3)}  # neither key nor lookup, and the crash left no evidence which it was


def no_controls(address, seed, postgres_url):
    return ()


@pytest.fixture(scope="module")
def cells():
    return matrix.run(SELECTION, seed=1, controls=no_controls).cells


def test_every_cell_was_killed_and_is_as_the_ladder_predicts(cells):
    assert [cell.at for cell in cells] == list(SELECTION.cells())
    assert len(cells) == 4 * len(STEPS) * 3 * 2
    assert {cell.killed_by_signal for cell in cells} == {signal.SIGKILL}
    assert [cell for cell in cells if not cell.is_as_predicted] == []


def test_nothing_happens_twice_and_nothing_is_lost(cells):
    assert {(cell.verdict, cell.duplicates, cell.lost, cell.stuck) for cell in cells} == {
        (Verdict.OK, 0, 0, 0)
    }


@pytest.mark.parametrize("provider", ProviderKind)
@pytest.mark.parametrize("window", Window)
def test_a_person_is_asked_once_where_nobody_else_can_know_and_nowhere_else(cells, window, provider):
    here = [cell for cell in cells if (cell.at.window, cell.at.provider) == (window, provider)]
    assert len(here) == len(STEPS) * len(ModelKind)
    assert {cell.asks for cell in here} == {1 if (provider, window) in IN_DOUBT else 0}
    assert {cell.false_asks for cell in here} == {0}


def test_a_persisted_turn_is_not_asked_for_again(cells):
    assert {cell.redundant_model_calls for cell in cells} == {0}


@pytest.mark.parametrize(
    ("provider", "window", "requests"),
    [
        *((provider, window, {3}) for provider in ProviderKind for window in (W1, W4)),  # one an effect
        (HONOURS, W2, {3}),  # nothing had been sent before the crash
        (HONOURS, W3, {4}),  # the same key again
        (HAS_LOOKUP, W2, {4, 5}),  # looked up, once more if that was too early to count, then sent
        (HAS_LOOKUP, W3, {4}),  # looked up and found
        (BLIND, W2, {3}),
        (BLIND, W3, {3}),
    ],
)
def test_recovery_sends_no_more_than_finding_out_takes(cells, provider, window, requests):
    here = [cell for cell in cells if (cell.at.window, cell.at.provider) == (window, provider)]
    assert {cell.requests for cell in here} <= requests


# ------------------------------------------------------------------ what the recovered run tells


def transcript_of(world, folder: Path):
    """Read back from the durable state: a run that has ended asks no model and sends nothing."""
    before = world.counters()
    with semel.open(f"sqlite:///{folder}/semel.db") as guard:
        tools = l5_semel.guarded_tools(guard, world, l5_semel.effect_for(world))
        transcript = run_agent(guard, l5_semel.Script(world), tools, run_id=RUN_ID, opening=OPENING)
    assert world.counters() == before
    return transcript


@pytest.mark.parametrize("provider", ProviderKind)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_recovered_transcript_is_complete_and_as_if_undisturbed(begin, tmp_path, provider, step):
    settings = Settings(provider=provider, model=ModelKind.REWORDS)
    world, trial = begin(settings), Trial(run=l5_semel.run)
    assert crash_free(trial, world, settings, tmp_path / "undisturbed").killed_by_signal is None
    undisturbed = transcript_of(world, tmp_path / "undisturbed")
    assert undisturbed[-1] == {"role": "assistant", "text": CLOSING, "calls": []}
    at = injector.Kill(window=W3, step=step)
    seen = crashed(trial, world, settings, tmp_path / "crashed", at)
    assert seen.killed_by_signal == signal.SIGKILL
    assert isinstance(seen.outcome, injector.Finished)
    assert [effect.intent for effect in seen.ledger] == list(intents_of("renewal"))
    assert transcript_of(world, tmp_path / "crashed") == undisturbed


def test_a_crash_free_run_asks_nobody_and_looks_nothing_up(begin, tmp_path):
    settings = Settings(provider=HAS_LOOKUP)
    seen = crash_free(Trial(run=l5_semel.run), begin(settings), settings, tmp_path / "durable")
    assert (seen.counters.requests, seen.counters.lookups, seen.counters.asks) == (3, 0, ())
    assert [effect.intent for effect in seen.ledger] == list(intents_of("renewal"))


def test_every_effect_carries_the_key_of_its_operation(begin, tmp_path):
    settings = Settings(provider=HONOURS)
    world = begin(settings)
    seen = crashed(
        Trial(run=l5_semel.run), world, settings, tmp_path / "durable", injector.Kill(window=W3, step=2)
    )
    with semel.open(f"sqlite:///{tmp_path}/durable/semel.db") as guard:
        operations = guard.store.read_run("", RUN_ID)
    assert [effect.key for effect in seen.ledger] == [operation.key for operation in operations]
    assert {operation.state for operation in operations} == {semel.State.COMMITTED}


def test_a_person_who_never_answers_leaves_the_plan_stuck_and_not_wrong(begin, tmp_path):
    """The lab's person answers; one who does not must not turn into a second effect."""
    settings = Settings(provider=BLIND)
    world = begin(settings)
    at = injector.Kill(window=W3, step=1)
    seen = crashed(Trial(run=run_with_nobody_to_ask), world, settings, tmp_path / "durable", at)
    assert isinstance(seen.outcome, injector.Stuck)
    assert "PausedForPerson" in seen.outcome.because
    assert len(seen.ledger) == 1


def run_with_nobody_to_ask(world, folder, checkpoint):
    gaps = l5_semel.Gaps(checkpoint)
    with semel.open(f"sqlite:///{folder}/semel.db", checkpoint=gaps.in_guard) as guard:
        tools = l5_semel.guarded_tools(guard, world, l5_semel.effect_for(world))
        run_agent(
            guard,
            l5_semel.Script(world),
            tools,
            run_id=RUN_ID,
            opening=OPENING,
            checkpoint=gaps.in_loop,
        )
