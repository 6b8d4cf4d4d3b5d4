"""What a call is an intent of, and which of a run's operations are part of something else.

A step, a compensation and the undoing of a run have keys of their own kinds (`semel.keys`). Their coordinates say
what they belong to, and count only if the key follows from them: no step or call id that a program chooses can
pass for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from semel import keys, values
from semel.engine.tool import Tool
from semel.model import Intent, Operation

COMPENSATES: Final = "compensates"
SAGA: Final = "semel.compensation"


def make_intent(
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    key: str,
    namespace: str,
    run_id: str,
    step: str,
    call_id: str,
) -> Intent:
    """Raises `Unencodable` before anything is written or sent."""
    identity = tool.business_identity(arguments)
    recorded, canonical = values.encode_and_canonical(dict(arguments))
    return Intent(
        key=key,
        namespace=namespace,
        run_id=run_id,
        step=step,
        call_id=call_id,
        tool=tool.name,
        effect=tool.effect.name,
        fingerprint=keys.fingerprint_of_canonical(tool.name, canonical),
        arguments=recorded,
        once_key=None if identity is None else keys.once_key(namespace, tool.name, identity),
    )


def parent_of(operation: Operation) -> str | None:
    """The key of the operation that this is a step of, if it is one."""
    is_step = operation.key == keys.step_key(operation.step, operation.call_id)
    return operation.step if is_step else None


def original_of(operation: Operation) -> str | None:
    """The key of the operation that this compensates, if it does."""
    if operation.step != COMPENSATES or operation.key != keys.compensation_key(operation.call_id):
        return None
    return operation.call_id


def with_wholes(found: Iterable[str], operations: Iterable[Operation]) -> set[str]:
    """These keys, and those of the operations that they are steps of."""
    parents = {op.key: parent for op in operations if (parent := parent_of(op)) is not None}
    keys_and_wholes: set[str] = set()
    for key in found:
        above: str | None = key
        while above is not None:  # ends: a step's key is a digest of its parent's
            keys_and_wholes.add(above)
            above = parents.get(above)
    return keys_and_wholes


def is_saga(operation: Operation) -> bool:
    """Whether it is the undoing of a run, or of some of its operations."""
    return operation.tool == SAGA and operation.step == SAGA
