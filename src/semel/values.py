"""Values as text: one faithful form for the record, one canonical form for the fingerprint.

Record form (`encode`/`decode`): JSON in ASCII; what JSON cannot say is tagged `{"$kind": ...}`, and a
mapping that JSON would mangle (keys that are not strings or begin with `$`) is tagged too. What comes back
equals what went in, type included: tuples, sets, bytes, dates, decimals, UUIDs, NaN, lone surrogates.

Canonical form (`canonical`): equal values agree (key order; 1, 1.0 and -0.0 with 0; a list and a tuple,
which no JSON transport can tell apart; equal instants in two time zones), distinct values differ (True and 1;
integers above 2**53; the number 1, the decimal 1 and the string "1"; a naive and an aware time). Text is
taken as is: no Unicode normalisation, so "é" in one code point and in two are different. NaN and infinities
are refused, since NaN does not even equal itself.

What has no faithful form is refused with its path (`$.items[2].when`).
"""

from __future__ import annotations

import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

from semel.errors import Unencodable

if TYPE_CHECKING:
    from decimal import Decimal

DEPTH_MAX: Final = 100  # deeper than any sane argument, shallower than the interpreter's recursion limit

INT_BITS_MAX: Final = 14_000  # what the interpreter still writes as text by default (4300 digits)

_AS_IS: Final = frozenset({bool, type(None)})


def encode(value: Any) -> str:
    """The record form. Raises `Unencodable`, naming the path."""
    return _as_written(value if _is_flat(value) else _plain(value, "$", 0))


def encode_and_canonical(arguments: dict[str, Any]) -> tuple[str, str]:
    """Both forms of a call's arguments. Raises `Unencodable`, naming the path.

    Of plain ones the two differ at most by the order of the keys, so that they are walked once.
    """
    for name, value in arguments.items():
        if not (_is_flat(value) and _is_plain_key(name)):
            return encode(arguments), canonical(arguments)
    encoded = _as_written(arguments)
    if len(arguments) < 2 or (names := list(arguments)) == sorted(names):
        return encoded, encoded
    return encoded, _to_json(arguments)


def _is_flat(value: Any) -> bool:
    """Whether both its forms are what it is."""
    kind = type(value)
    if kind is int:
        return bool(value.bit_length() <= INT_BITS_MAX)
    return bool(value.isascii()) if kind is str else kind in _AS_IS


def decode(text: str) -> Any:
    """The value that `encode` was given."""
    return _revive(json.loads(text))


def canonical(value: Any) -> str:
    """The canonical form. Raises `Unencodable`, naming the path."""
    return _to_json(_canonical(value, "$", 0))


def _writer(*, sort_keys: bool) -> Callable[[Any], str]:
    """Made once, down to the C function where there is one: `JSONEncoder.encode` makes that anew for each text."""
    encoder = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    # no markers: `_plain` and `_canonical` bound the depth, so nothing that reaches it contains itself
    in_c = make(
        None, encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", sort_keys, False, True
    )
    return lambda value: "".join(in_c(value, 0))


_to_json: Final = _writer(sort_keys=True)
_as_written: Final = _writer(sort_keys=False)


# ------------------------------------------------------------------ the record form


def _plain(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind in _AS_IS:
        return value
    if kind is dict:
        return _plain_mapping(value, path, _deeper(path, depth))
    if kind is list:
        return [_plain(item, f"{path}[{i}]", _deeper(path, depth)) for i, item in enumerate(value)]
    if kind is int:
        return _writable(value, path)
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    return _tagged(value, path, depth, _plain)


def _plain_mapping(value: dict[Any, Any], path: str, depth: int) -> Any:
    if all(map(_is_plain_key, value)):
        return {key: _plain(item, f"{path}.{key}", depth) for key, item in value.items()}
    return {
        "$dict": [
            [_plain(key, f"{path}.<key>", depth), _plain(item, f"{path}.<{type(key).__name__} key>", depth)]
            for key, item in value.items()
        ]
    }


# ------------------------------------------------------------------ the canonical form


def _canonical(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind in _AS_IS:
        return value
    if kind is dict:
        return _canonical_mapping(value, path, _deeper(path, depth))
    if kind is list or kind is tuple:
        return [_canonical(item, f"{path}[{i}]", _deeper(path, depth)) for i, item in enumerate(value)]
    if kind is int:
        return _writable(value, path)
    if kind is float:
        return _canonical_float(value, path)
    if _name(kind) == "decimal.Decimal":
        return {"$decimal": _canonical_decimal(value, path)}
    if kind is datetime and value.tzinfo is not None:
        return {"$datetime": _in_utc(value, path)}
    if kind is time and (offset := value.utcoffset()) is not None:
        return {"$time": _microseconds_of_day(value, offset)}
    return _tagged(value, path, depth, _canonical)


def _canonical_mapping(value: dict[Any, Any], path: str, depth: int) -> Any:
    if all(map(_is_plain_key, value)):
        return {key: _canonical(item, f"{path}.{key}", depth) for key, item in value.items()}
    pairs = [
        [
            _canonical(key, f"{path}.<key>", depth),
            _canonical(item, f"{path}.<{type(key).__name__} key>", depth),
        ]
        for key, item in value.items()
    ]
    return {"$dict": sorted(pairs, key=_to_json)}


def _microseconds_of_day(value: time, offset: timedelta) -> int:
    """In UTC; a day's border is not wrapped, as Python's own comparison does not wrap it."""
    since_midnight = timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    return (since_midnight - offset) // timedelta(microseconds=1)


def _is_plain_key(key: Any) -> bool:
    return type(key) is str and not key.startswith("$") and (key.isascii() or type(_text(key)) is str)


def _text(value: str) -> str | dict[str, list[int]]:
    """Halves of surrogate pairs are kept as numbers: as JSON escapes, two that meet would come back as one."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return {"$codepoints": [ord(character) for character in value]}
    return value


def _in_utc(value: datetime, path: str) -> str:
    try:
        return value.astimezone(UTC).isoformat()
    except (OverflowError, ValueError) as problem:
        raise Unencodable(f"{path} is {value!r}, which is no instant in UTC: {problem}.") from None


def _writable(value: int, path: str) -> int:
    if value.bit_length() > INT_BITS_MAX:
        raise Unencodable(
            f"{path} is an integer of {value.bit_length()} bits; at most {INT_BITS_MAX} are kept."
        )
    return value


def _canonical_float(value: float, path: str) -> int | float:
    if not math.isfinite(value):
        raise Unencodable(
            f"{path} is {value!r}, which does not equal itself or has no value. Nothing was sent. "
            "Pass None or leave the argument out."
        )
    return int(value) if value.is_integer() else value


def _canonical_decimal(value: Decimal, path: str) -> str:
    if not value.is_finite():
        raise Unencodable(f"{path} is {value!r}, which has no value. Nothing was sent.")
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return "0"
    return f"{'-' if sign else ''}{stripped}e{int(exponent) + len(text) - len(stripped)}"


# ------------------------------------------------------------------ what JSON cannot say


def _tagged(value: Any, path: str, depth: int, walk: Callable[[Any, str, int], Any]) -> Any:
    kind = type(value)
    if kind is tuple:
        return {"$tuple": [walk(x, f"{path}[{i}]", _deeper(path, depth)) for i, x in enumerate(value)]}
    if kind is set or kind is frozenset:
        items = [walk(item, f"{path}.<item>", _deeper(path, depth)) for item in value]
        return {"$set" if kind is set else "$frozenset": sorted(items, key=_to_json)}
    if kind in _WRITERS:
        name, write = _WRITERS[kind]
        return {name: write(value)}
    if (name := _name(kind)) in _SLOW_TO_IMPORT:
        return {_SLOW_TO_IMPORT[name]: str(value)}
    raise Unencodable(
        f"{path} is a {name}, which has no faithful form in the record. "
        "Pass plain values: None, bool, int, float, str, bytes, list, tuple, dict, set, "
        "datetime, date, time, timedelta, Decimal, UUID (for an Enum its .value, for a model its dict)."
    )


def _deeper(path: str, depth: int) -> int:
    if depth >= DEPTH_MAX:
        raise Unencodable(
            f"{path[:80]}… is nested deeper than {DEPTH_MAX} levels, or contains itself. "
            "Pass a flatter value."
        )
    return depth + 1


def _write_span(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


_WRITERS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    time: ("$time", time.isoformat),
    timedelta: ("$timedelta", _write_span),
    bytes: ("$bytes", lambda value: binascii.b2a_base64(value, newline=False).decode("ascii")),
}
_SLOW_TO_IMPORT: Final = {"decimal.Decimal": "$decimal", "uuid.UUID": "$uuid"}  # so compared by name


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _decimal(text: str) -> Decimal:
    from decimal import Decimal

    return Decimal(text)


def _uuid(text: str) -> Any:
    from uuid import UUID  # slow to import, rarely needed

    return UUID(text)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": _decimal,
    "$bytes": binascii.a2b_base64,
    "$uuid": _uuid,
    "$float": float,
    "$codepoints": lambda numbers: "".join(map(chr, numbers)),
    "$tuple": lambda items: tuple(_revive(item) for item in items),
    "$set": lambda items: {_revive(item) for item in items},
    "$frozenset": lambda items: frozenset(_revive(item) for item in items),
    "$dict": lambda pairs: {_revive(key): _revive(item) for key, item in pairs},
}


def _revive(plain: Any) -> Any:
    if type(plain) is list:
        return [_revive(item) for item in plain]
    if type(plain) is not dict:
        return plain
    if len(plain) == 1:
        (key,) = plain
        if key in _READERS:
            return _READERS[key](plain[key])
    return {key: _revive(item) for key, item in plain.items()}
