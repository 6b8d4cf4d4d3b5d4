"""L3, durable execution: a real Temporal workflow on the real server; the engine replays its history.

What it does: the plan is a workflow. Every model call and every tool call is an activity, and the result of
an activity stands in the workflow's history before the next one is scheduled. After a crash a fresh worker
replays the workflow: finished activities return their recorded results, the unfinished one is run again.
The key names the activity: workflow id, *run id* and activity id. Without the run id it would collide,
since activity ids are numbers that start again when a workflow continues as new.
What it seals: everything that was recorded. The model's turn is (from the end of W1), so rewording is
harmless; so is a completion, hence W4.
What breaks it: W3 at a provider that ignores keys. Activities are at-least-once by design: one that died
before its completion reached the server is run again, whatever it had done.

The worker dies inside its activity, and the server knows of it only by the time limit on the activity.
Recovery therefore takes about `ACTIVITY_TIME_MAX`, and that must be well above the time an activity takes
on a busy machine: a time limit that fires early starts a second attempt beside the first, alive one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

from semel.lab.levels import temporal_server
from semel.lab.levels.temporal_server import unavailable_because as unavailable_because

try:
    from temporalio import activity, workflow
    from temporalio.client import Client, WorkflowHandle
    from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.exceptions import WorkflowAlreadyStartedError
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker
except ModuleNotFoundError as missing:
    why = f"Temporal's SDK is not installed ({temporal_server.INSTALL})"
    raise ModuleNotFoundError(why, name=missing.name) from missing

from semel.lab.client import World
from semel.lab.injector import Checkpoint
from semel.lab.model import Window
from semel.lab.scenario import Message, answered, opening, said, turn_asked_for
from semel.lab.wire import JSON, Turn

TURNS_MAX: Final = 10  # the script ends after four
ACTIVITY_TIME_MAX: Final = timedelta(seconds=5)
TASK_TIME_MAX: Final = timedelta(seconds=1)  # the same for the workflow's own code, should it die in that
RETRY: Final = RetryPolicy(initial_interval=timedelta(milliseconds=50), backoff_coefficient=1.0)
CELLS_AT_ONCE: Final = 16  # a cell mostly waits for the time limit
SECONDS_MAX: Final = 90.0  # on a busy machine, too, a worker is waited for

service = temporal_server.running  # one server for all cells of a run of the lab


@workflow.defn
class Renewal:
    """The plan. Deterministic: it decides from its history alone, and touches the world by activities."""

    @workflow.run
    async def run(self) -> None:
        messages, steps = opening(), count(1)
        for _ in range(TURNS_MAX):
            turn = Turn.from_json(await _activity(Activities.ask_model, messages))
            messages.append(said(turn))
            if not turn.calls:
                return
            for call in turn.calls:
                answer = await _activity(Activities.call_tool, next(steps), asdict(call))
                messages.append(answered(call, answer))
        raise RuntimeError(f"the plan did not end within {TURNS_MAX} turns")


async def _activity(method: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    return await workflow.execute_activity_method(
        method, args=arguments, start_to_close_timeout=ACTIVITY_TIME_MAX, retry_policy=RETRY
    )


class Activities:
    """The plan's contact with the world. Each method may run more than once for one intent."""

    def __init__(self, world: World, checkpoint: Checkpoint) -> None:
        self._world = world
        self._checkpoint = checkpoint

    @activity.defn
    def ask_model(self, messages: list[Message]) -> dict[str, Any]:
        step = turn_asked_for(messages)
        self._checkpoint(Window.W4, step - 1)  # the call before is recorded: else this would not be running
        turn = self._world.model.next_turn(messages)
        self._checkpoint(Window.W1, step)  # the turn is recorded when this method's result is
        return turn.to_json()

    @activity.defn
    def call_tool(self, step: int, call: dict[str, Any]) -> dict[str, JSON]:
        tool, arguments = call["name"], call["arguments"]
        self._checkpoint(Window.W2, step)
        answer = self._world.provider.perform(tool, arguments, key=idempotency_key(activity.info()))
        self._checkpoint(Window.W3, step)
        return answer


def idempotency_key(info: activity.Info) -> str:
    """Name the intent by where it stands in the history. The attempt is no part of it."""
    coordinates = json.dumps([info.workflow_id, info.workflow_run_id, info.activity_id])
    return hashlib.sha256(coordinates.encode()).hexdigest()


def run(world: World, folder: Path, checkpoint: Checkpoint, *, service: str) -> None:
    """Start the workflow or find it, and be its worker until it ends. Nothing lies in the folder."""
    asyncio.run(_work(world, checkpoint, service))


async def _work(world: World, checkpoint: Checkpoint, server: str) -> None:
    client = await Client.connect(server)
    with ThreadPoolExecutor(max_workers=1) as threads:
        async with _worker(client, world.cell_id, Activities(world, checkpoint), threads):
            await (await _started_or_found(client, world.cell_id)).result()


def _worker(client: Client, name: str, activities: Activities, threads: ThreadPoolExecutor) -> Worker:
    return Worker(
        client,
        task_queue=name,
        workflows=[Renewal],
        activities=[activities.ask_model, activities.call_tool],
        activity_executor=threads,
        workflow_runner=UnsandboxedWorkflowRunner(),  # the sandbox would import everything anew for each task
        max_cached_workflows=0,  # no sticky queue, on which a task would wait for the dead worker
    )


async def _started_or_found(client: Client, name: str) -> WorkflowHandle[Any, Any]:
    """One workflow id, one run of the plan: also when it has ended already."""
    try:
        return await client.start_workflow(
            Renewal.run,
            id=name,
            task_queue=name,
            task_timeout=TASK_TIME_MAX,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        return client.get_workflow_handle(name)
