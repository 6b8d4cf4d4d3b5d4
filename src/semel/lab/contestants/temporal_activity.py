"""Temporal, on its dev server: the plan is a workflow, each model call and each tool call an activity.

`default`    activities are retried until they succeed. The tool hands the provider the workflow's run and the
             activity's id as idempotency key.
`strictest`  a tool's activity is tried once at most, which the documentation names for what must not run twice.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from semel.lab.contestants.stage import Stage
from semel.lab.scenario import answered, opening, said
from semel.lab.wire import Turn

ACTIVITY_TIME_MAX = timedelta(seconds=10)  # well above what an activity takes on a busy machine
TASK_TIME_MAX = timedelta(seconds=1)
TRIES_MAX = 100  # ten seconds
PAUSE_SECONDS = 0.1
UNTIL_IT_SUCCEEDS = RetryPolicy(initial_interval=timedelta(milliseconds=50), backoff_coefficient=1.0)
ONCE_AT_MOST = RetryPolicy(maximum_attempts=1)


@workflow.defn
class Renewal:
    @workflow.run
    async def run(self, is_strict: bool) -> None:
        messages = opening()
        for_tools = ONCE_AT_MOST if is_strict else UNTIL_IT_SUCCEEDS
        while (turn := Turn.from_json(await _do("ask_model", UNTIL_IT_SUCCEEDS, messages))).calls:
            messages.append(said(turn))  # the loop ends with the script
            for call in turn.calls:
                answer = await _do("call_tool", for_tools, call.name, dict(call.arguments))
                messages.append(answered(call, answer))


async def _do(name: str, retry: RetryPolicy, *arguments: object) -> Any:
    return await workflow.execute_activity(
        name, args=arguments, start_to_close_timeout=ACTIVITY_TIME_MAX, retry_policy=retry
    )


class Activities:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @activity.defn
    def ask_model(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return self._stage.next_turn(messages).to_json()

    @activity.defn
    def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        info = activity.info()
        key = f"{info.workflow_run_id}/{info.activity_id}"
        return self._stage.perform(name, arguments, key=key, reference=key)


def run(stage: Stage) -> None:
    asyncio.run(_work(stage))


async def _work(stage: Stage) -> None:
    client = await Client.connect(stage.order.service)
    activities = Activities(stage)
    with ThreadPoolExecutor(max_workers=1) as threads:
        worker = Worker(
            client,
            task_queue=stage.order.cell_id,
            workflows=[Renewal],
            activities=[activities.ask_model, activities.call_tool],
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),  # the sandbox would import everything anew for each task
            max_cached_workflows=0,  # no sticky queue, on which a task would wait for the dead worker
        )
        async with worker:
            await (await _started_when_ready(client, stage)).result()


async def _started_when_ready(client: Client, stage: Stage) -> WorkflowHandle[Any, Any]:
    """A server that has just started may not know its namespace yet."""
    for _ in range(TRIES_MAX):
        try:
            return await _started_or_found(client, stage)
        except RPCError as problem:
            if problem.status is not RPCStatusCode.NOT_FOUND:
                raise
        await asyncio.sleep(PAUSE_SECONDS)
    return await _started_or_found(client, stage)


async def _started_or_found(client: Client, stage: Stage) -> WorkflowHandle[Any, Any]:
    """One workflow id, one run of the plan: also when it has ended already."""
    try:
        return await client.start_workflow(
            Renewal.run,
            stage.order.setting == "strictest",
            id=stage.order.cell_id,
            task_queue=stage.order.cell_id,
            task_timeout=TASK_TIME_MAX,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        return client.get_workflow_handle(stage.order.cell_id)
