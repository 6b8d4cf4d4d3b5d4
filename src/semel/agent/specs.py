"""What the model is told of a tool: its parameters as JSON Schema, from the function's own signature.

Known are str, int, float, bool, None, list, tuple, set, dict, Optional and other unions, Literal, Enum (by value),
dates and times, Decimal and UUID (as text), and `Annotated[…, "what it means"]`. Anything else is `{}`: any value.
Arguments reach the tool as JSON has them: a `datetime` parameter is text to the model, and text to the tool.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin

from semel.agent.turns import ToolSpec
from semel.engine.tool import Tool

Schema = dict[str, Any]

_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
}
_BY_NAME: Final[Mapping[str, Schema]] = {  # slow to import, so compared by name
    "decimal.Decimal": {"type": "string"},
    "uuid.UUID": {"type": "string", "format": "uuid"},
}
_UNIONS: Final = (Union, types.UnionType)
_JSON: Final = (str, int, float, bool, type(None))


def spec_of(tool: Tool, name: str) -> ToolSpec:
    """`name`: as the agent offers it. What the guard injects (`call`, `tx`) is not the model's to give."""
    signature, hints = inspect.signature(tool), _hints(tool.fn)
    properties = {
        parameter.name: _parameter(parameter, hints.get(parameter.name, Any))
        for parameter in signature.parameters.values()
    }
    required = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    parameters: Schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=inspect.getdoc(tool.fn) or "", parameters=parameters)


def _hints(fn: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except Exception:  # a name that exists for type checkers only: any value
        return {}


def _parameter(parameter: inspect.Parameter, hint: Any) -> Schema:
    schema = schema_of(hint)
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if default is not inspect.Parameter.empty and isinstance(default, _JSON):
        return {**schema, "default": default}
    return schema


def schema_of(hint: Any) -> Schema:
    if _is_hashable(hint) and hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        inner, *notes = arguments
        described = next((note for note in notes if isinstance(note, str)), None)
        return schema_of(inner) | ({} if described is None else {"description": described})
    if origin is Literal:
        return _one_of(arguments)
    if origin in _UNIONS:
        return {"anyOf": [schema_of(option) for option in arguments]}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _one_of([member.value for member in hint])
    kind = origin or hint
    if isinstance(kind, type):
        return _container(kind, arguments) or dict(_BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}", {}))
    return {}


def _container(kind: type, arguments: tuple[Any, ...]) -> Schema:
    if issubclass(kind, Mapping):
        values = schema_of(arguments[1]) if len(arguments) == 2 else {}
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        return {
            "type": "array",
            "prefixItems": [schema_of(item) for item in arguments],
            "minItems": len(arguments),
            "maxItems": len(arguments),
        }
    if issubclass(kind, Collection) and not issubclass(kind, str | bytes | bytearray):
        unique = {"uniqueItems": True} if issubclass(kind, set | frozenset) else {}
        return {"type": "array", "items": schema_of(arguments[0]) if arguments else {}} | unique
    return {}


def _one_of(values: Collection[Any]) -> Schema:
    """With the type, where it is one: some providers want it."""
    kinds = {type(value) for value in values}
    typed = _PLAIN.get(kinds.pop(), {}) if len(kinds) == 1 else {}
    return dict(typed) | {"enum": list(values)}


def _is_hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True
