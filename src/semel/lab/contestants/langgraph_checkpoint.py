"""LangGraph: an agent as a graph of two nodes, checkpointed in SQLite; `setting` is the durability mode.

The tool node hands the provider the thread and the model's call id as idempotency key, since the documentation asks
for idempotent side effects. A resumed thread is invoked with no new input.

In mode "async" a node may run before what the node before it returned is on the disk. Whether it is there when the
process dies is a race; here the race is decided, for the worst: the disk is slow just then, and all that was
written earlier has arrived (`SlowDisk`).
"""

from __future__ import annotations

import operator
import sqlite3
import threading
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from semel.lab.contestants.stage import Death, Place, Stage
from semel.lab.scenario import RUN_ID, answered, opening, said
from semel.lab.wire import ToolCall

ARRIVES_WITHIN_HUNDREDTHS = 1_000  # ten seconds, on the slowest of disks


class Conversation(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


def run(stage: Stage) -> None:
    connection = sqlite3.connect(stage.folder / "checkpoints.db", check_same_thread=False)
    mode: Any = stage.order.setting
    graph = graph_of(stage).compile(checkpointer=saver_for(stage, mode, connection))
    config: Any = {"configurable": {"thread_id": RUN_ID}}
    is_begun = bool(graph.get_state(config).next)
    graph.invoke(None if is_begun else {"messages": opening()}, config, durability=mode)


def graph_of(stage: Stage) -> Any:
    def model(state: Conversation) -> dict[str, Any]:
        return {"messages": [said(stage.next_turn(state["messages"]))]}

    def tools(state: Conversation) -> dict[str, Any]:
        calls = map(ToolCall.from_json, state["messages"][-1]["calls"])
        return {"messages": [answered(call, perform(stage, call)) for call in calls]}

    def picked_tools(state: Conversation) -> str:
        return "tools" if state["messages"][-1]["calls"] else END

    graph = StateGraph(Conversation)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", picked_tools)
    graph.add_edge("tools", "model")
    return graph


def perform(stage: Stage, call: ToolCall) -> dict[str, Any]:
    return stage.perform(
        call.name, call.arguments, key=f"{RUN_ID}/{call.id}", reference=f"{RUN_ID}/{call.id}"
    )


def saver_for(stage: Stage, mode: str, connection: sqlite3.Connection) -> SqliteSaver:
    if mode != "async" or stage.order.death is None:
        return SqliteSaver(connection)
    return SlowDisk(connection, stage, stage.order.death)


class SlowDisk(SqliteSaver):
    """Writes wait from the gap on in which the last node before the death returns; after a pause they go on."""

    def __init__(self, connection: sqlite3.Connection, stage: Stage, death: Death) -> None:
        super().__init__(connection)
        self._writes_arrive = threading.Event()
        self._writes_arrive.set()
        self._slow_from = last_gap_of_the_node_before(death)
        stage.watch = self._pass
        stage.awakened = self._writes_arrive.set

    def put(self, *arguments: Any, **named: Any) -> Any:
        self._writes_arrive.wait()
        return super().put(*arguments, **named)

    def put_writes(self, *arguments: Any, **named: Any) -> None:
        self._writes_arrive.wait()
        super().put_writes(*arguments, **named)

    def _pass(self, place: Place, step: int) -> None:
        if (place, step) == self._slow_from:
            self._wait_until_arrived(messages_before(place, step))
            self._writes_arrive.clear()

    def _wait_until_arrived(self, messages: int) -> None:
        """Polls: the package does not say when a write has arrived."""
        pause = threading.Event()
        for _ in range(ARRIVES_WITHIN_HUNDREDTHS):
            found = self.get_tuple({"configurable": {"thread_id": RUN_ID}})
            if found is not None and len(found.checkpoint["channel_values"].get("messages", ())) == messages:
                return
            pause.wait(0.01)
        raise RuntimeError(f"a checkpoint of {messages} messages never arrived")


def messages_before(place: Place, step: int) -> int:
    """How many messages the node was given that passes this gap: the opening, and two for each step before."""
    return 1 + 2 * (step - 1) + (1 if place is Place.W3 else 0)


def last_gap_of_the_node_before(death: Death) -> tuple[Place, int]:
    match death.place:
        case Place.W2 | Place.IN_FLIGHT | Place.W3:
            return Place.W1, death.step  # the model node, which returns the turn
        case Place.W4:
            return Place.W3, death.step  # the tool node, which returns the answer
        case Place.W1:
            return Place.W3, death.step - 1
