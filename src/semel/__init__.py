"""Semel: one intent, one effect.

guard = semel.open("sqlite:///agent.db")

@guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
def charge(customer: str, amount_cents: int, *, call: semel.Call) -> dict: ...

with guard.run("renewal:sub_42:2026-12") as run:
    run.call(charge, customer="cus_42", amount_cents=25_000)
"""

from typing import TYPE_CHECKING, Any

from semel.connect import open_guard as open  # noqa: A004  (semel.open reads like gzip.open)
from semel.engine.call import Call, current_call
from semel.engine.compensate import Saga
from semel.engine.guard import Guard
from semel.engine.outbox import Delivery, Relayed
from semel.engine.run import AsyncRun, Run
from semel.engine.sweeps import Audited, Reconciled
from semel.engine.tool import Tool
from semel.errors import (
    ClaimHeld,
    ClaimLost,
    CommitInDoubt,
    Compensated,
    Diverged,
    IllegalTransition,
    KeyReused,
    NotExecuted,
    NotSent,
    OutcomeUnknown,
    PausedForPerson,
    PreviouslyFailed,
    Reaped,
    Rejected,
    ResultLost,
    SagaOpen,
    SemelError,
    StoreError,
    StoreUnavailable,
    StoreVanished,
    TransactionConflict,
    Unencodable,
    UsageError,
    WriteRefused,
)
from semel.model import (
    Absent,
    Atomic,
    Event,
    Evidence,
    Found,
    GiveUp,
    HistoryEntry,
    Idempotent,
    Inconclusive,
    ItHappened,
    Message,
    Operation,
    RunIt,
    Safe,
    State,
    Steps,
    Unsafe,
)

if TYPE_CHECKING:
    from semel import http

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "AsyncRun",
    "Atomic",
    "Audited",
    "Call",
    "ClaimHeld",
    "ClaimLost",
    "CommitInDoubt",
    "Compensated",
    "Delivery",
    "Diverged",
    "Event",
    "Evidence",
    "Found",
    "GiveUp",
    "Guard",
    "HistoryEntry",
    "Idempotent",
    "IllegalTransition",
    "Inconclusive",
    "ItHappened",
    "KeyReused",
    "Message",
    "NotExecuted",
    "NotSent",
    "Operation",
    "OutcomeUnknown",
    "PausedForPerson",
    "PreviouslyFailed",
    "Reaped",
    "Reconciled",
    "Rejected",
    "Relayed",
    "ResultLost",
    "Run",
    "RunIt",
    "Safe",
    "Saga",
    "SagaOpen",
    "SemelError",
    "State",
    "Steps",
    "StoreError",
    "StoreUnavailable",
    "StoreVanished",
    "Tool",
    "TransactionConflict",
    "Unencodable",
    "Unsafe",
    "UsageError",
    "WriteRefused",
    "__version__",
    "current_call",
    "http",
    "open",
]


def __getattr__(name: str) -> Any:
    """`semel.http` without an import of its own: it is slow to import, and not every program speaks HTTP."""
    if name != "http":
        raise AttributeError(f"module 'semel' has no attribute {name!r}")
    import importlib

    return importlib.import_module("semel.http")
