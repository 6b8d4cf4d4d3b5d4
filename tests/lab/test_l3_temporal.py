"""Level 3 against a real Temporal server: what the engine seals, and the gap it leaves by design."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from semel.lab import injector, world
from semel.lab.client import World
from semel.lab.injector import Finished, Kill
from semel.lab.levels import temporal_server
from semel.lab.model import ModelKind, ProviderKind, Window
from semel.lab.scenario import intents_of
from semel.lab.trial import Observation, Trial, crashed
from semel.lab.wire import Settings

pytest.importorskip("temporalio", reason=f"needs Temporal's SDK: {temporal_server.INSTALL}")
if why := temporal_server.unavailable_because():
    pytest.skip(why, allow_module_level=True)

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from semel.lab.levels import l3_temporal

At: TypeAlias = tuple[Window, ProviderKind]
Seen: TypeAlias = Mapping[At, Observation]

CELLS: tuple[At, ...] = (
    (Window.W1, ProviderKind.BLIND),
    (Window.W3, ProviderKind.BLIND),
    (Window.W3, ProviderKind.HONOURS_KEYS),
    (Window.W4, ProviderKind.BLIND),
)
ONCE_EACH = [CHARGE, EMAIL, GRANT] = list(intents_of("renewal"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[str]:
    injector.warm([l3_temporal.__name__])
    with l3_temporal.service(tmp_path_factory.mktemp("temporal")) as address:
        yield address


@pytest.fixture(scope="module")
def seen(server: str, tmp_path_factory: Any) -> Seen:
    """In each cell a worker killed at a window of step 2, and a fresh one: side by side, as in the lab."""
    trial = Trial(run=partial(l3_temporal.run, service=server))
    folder = tmp_path_factory.mktemp("cells")

    def crash(at: At) -> Observation:
        window, provider = at
        cell = World(address=address, cell_id=f"{window}-{provider}")
        settings = Settings(provider=provider, model=ModelKind.REWORDS)
        return crashed(trial, cell, settings, folder / cell.cell_id, Kill(window=window, step=2))

    with world.running() as address, ThreadPoolExecutor(len(CELLS)) as pool:
        return dict(zip(CELLS, pool.map(crash, CELLS), strict=True))


def effects(cell: Observation) -> list[str]:
    return [effect.intent for effect in cell.ledger]


@pytest.mark.parametrize("at", CELLS)
def test_a_killed_worker_is_followed_by_a_fresh_one_that_ends_the_plan(seen: Seen, at: At) -> None:
    assert seen[at].killed_by_signal == signal.SIGKILL, "the window was never reached"
    assert isinstance(seen[at].outcome, Finished)


def test_an_activity_that_died_after_its_effect_runs_again_under_the_same_key(seen: Seen) -> None:
    cell = seen[Window.W3, ProviderKind.HONOURS_KEYS]
    assert effects(cell) == ONCE_EACH
    assert cell.counters.requests == 4, "the provider must have seen the second attempt"


def test_at_a_provider_that_ignores_keys_the_second_run_of_an_activity_is_a_duplicate(seen: Seen) -> None:
    cell = seen[Window.W3, ProviderKind.BLIND]
    assert effects(cell) == [CHARGE, EMAIL, EMAIL, GRANT]
    first, second = (effect.key for effect in cell.ledger if effect.intent == EMAIL)
    assert first == second


def test_a_recorded_completion_is_not_run_again(seen: Seen) -> None:
    cell = seen[Window.W4, ProviderKind.BLIND]
    assert effects(cell) == ONCE_EACH
    assert cell.counters.requests == 3


def test_a_turn_that_was_not_recorded_is_asked_for_again_before_anything_has_happened(seen: Seen) -> None:
    cell = seen[Window.W1, ProviderKind.BLIND]
    assert effects(cell) == ONCE_EACH
    assert cell.counters.model_calls == {1: 1, 2: 2, 3: 1, 4: 1}


# ---- continue-as-new


@activity.defn
def name_yourself() -> list[str]:
    return [activity.info().activity_id, l3_temporal.idempotency_key(activity.info())]


@workflow.defn
class TwoRuns:
    """One workflow id, two runs, each with one activity."""

    @workflow.run
    async def run(self, before: list[list[str]]) -> list[list[str]]:
        named = await workflow.execute_activity(
            name_yourself, start_to_close_timeout=l3_temporal.ACTIVITY_TIME_MAX
        )
        if not before:
            workflow.continue_as_new([named])
        return [*before, named]


async def both_runs(server: str) -> list[list[str]]:
    client = await Client.connect(server)
    with ThreadPoolExecutor(max_workers=1) as threads:
        async with Worker(
            client,
            task_queue="two runs",
            workflows=[TwoRuns],
            activities=[name_yourself],
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            return await client.execute_workflow(TwoRuns.run, [], id="two runs", task_queue="two runs")


def test_two_runs_of_one_workflow_id_get_different_keys(server: str) -> None:
    (first_id, first_key), (second_id, second_key) = asyncio.run(both_runs(server))
    assert first_id == second_id, "with different activity ids the run id would not be needed"
    assert first_key != second_key


# ---- the process that is forked


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads in /proc")
def test_importing_the_level_starts_no_thread_so_that_the_warmed_process_may_be_forked() -> None:
    code = "import os, semel.lab.levels.l3_temporal; print(len(os.listdir('/proc/self/task')))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "1\n"


def test_without_the_sdk_the_level_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['temporalio'] = None\n"
        "from semel.lab import levels; print(levels.load(3).why)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'semel[temporal]'" in ended.stdout


# ---- the server


def test_the_server_does_not_outlive_a_lab_that_was_killed(tmp_path: Path) -> None:
    """`subprocess.run` returns when standard error ends: when the last process that has it has ended."""
    code = (
        "import os, pathlib, signal; from semel.lab.levels import temporal_server\n"
        f"with temporal_server.running(pathlib.Path({str(tmp_path)!r})):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    lab = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60, check=False)
    assert lab.returncode == -signal.SIGKILL
