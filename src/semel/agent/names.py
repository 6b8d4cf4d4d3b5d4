"""What a call is called, and what runs inside it: by their place in the persisted turns, never by what they say."""

from __future__ import annotations

from typing import Final

from semel import keys
from semel.agent.turns import Turn
from semel.engine.names import is_storable

READABLE_MAX: Final = 400  # characters
DIGEST_LENGTH: Final = 32  # hex digits, half of them the parent run's: 64 bits tell its calls apart


def stable_id(turn: Turn, position: int) -> str:
    """The model's own call id, if it names this call and no other; else the call's place in the persisted turn.

    Some providers leave ids out, repeat them, or give the function's name.
    """
    call = turn.calls[position]
    if not is_storable(call.id):
        return f"place:{position}"
    is_unique = [other.id for other in turn.calls].count(call.id) == 1
    if call.id and is_unique and call.id != call.name:
        return f"id:{call.id}"
    return f"place:{position}"


def sub_run_id(namespace: str, run_id: str, step: str, call_id: str) -> str:
    """The run inside a call of a sub-agent.

    The first part is for people, and cut where it gets too long to be indexed: some providers' call ids are. The
    digest of all coordinates makes it unambiguous, whatever they contain.
    """
    digest = keys.idempotency_key(namespace, run_id, step, call_id)
    return f"{f'{run_id}/{step}/{call_id}'[:READABLE_MAX]}@{digest[:DIGEST_LENGTH]}"
