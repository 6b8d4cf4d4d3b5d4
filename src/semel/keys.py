"""Names: the key of an intent, the fingerprint of its arguments, the identity of its business event.

Each is a SHA-256 over length-prefixed fields behind a version tag, so no choice of names can collide by
playing with delimiters (`a:b` + `c` against `a` + `b:c`), and a later encoding cannot collide with this one.

A key begins with the name of its run, so that a store's index by key holds a run's operations side by side: it
needs no second index to find them, and the calls of one run touch the same few pages of a large one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from semel import values
from semel.errors import UsageError

if TYPE_CHECKING:
    from uuid import UUID

KEY_LENGTH_MIN: Final = 16  # 16 characters of base 32 are 80 bits: a billion keys collide once in two million
RUN_LENGTH: Final = (
    16  # of a key's 64 characters; the 48 that follow, 192 bits, tell apart all there ever was
)
RUNS_MAX: Final = 256  # whose beginnings of a digest are kept: more than one process works on at a time
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"


def idempotency_key(namespace: str, run_id: str, step: str, call_id: str) -> str:
    """Name the intent by where it stands in the run, never by what the model wrote. 64 hex characters.

    A retried model turn rewords its arguments; the coordinates survive.
    """
    run, begun = _run(namespace, run_id)
    digest = begun.copy()
    digest.update(_fields(step, call_id))
    return run + str(digest.hexdigest()[: 64 - RUN_LENGTH])


def run_name(namespace: str, run_id: str) -> str:
    """What each key of the run begins with."""
    return _run(namespace, run_id)[0]


@functools.lru_cache(RUNS_MAX)
def _run(namespace: str, run_id: str) -> tuple[str, Any]:
    """A run's name, and the digest that all its keys begin with."""
    import hashlib

    begun = hashlib.sha256(b"semel.key.v1" + _fields(namespace, run_id))
    return _digest(b"semel.run.v1", namespace, run_id)[:RUN_LENGTH], begun


def fingerprint(tool: str, arguments: dict[str, Any]) -> str:
    """Digest of tool and canonical arguments: tells one key used for two things. 64 hex characters.

    Raises `Unencodable`, naming the argument's path.
    """
    return fingerprint_of_canonical(tool, values.canonical(arguments))


def fingerprint_of_canonical(tool: str, arguments: str) -> str:
    return _digest(b"semel.fingerprint.v1", tool, arguments)


def once_key(namespace: str, tool: str, identity: Sequence[Any]) -> str:
    """Name a business event (`once_per=`), whatever run or call it is asked for in."""
    return _digest(b"semel.once.v1", namespace, tool, values.canonical(list(identity)))


def step_key(parent: str, name: str) -> str:
    """Name a step of a tool by the operation that it is a part of. 64 hex characters."""
    return _digest(b"semel.step.v1", parent, name)


def compensation_key(original: str) -> str:
    """Name what undoes an operation by that operation: whoever asks for it, it is one intent."""
    return _digest(b"semel.compensation.v1", original)


def saga_key(namespace: str, run_id: str, originals: Sequence[str] = ()) -> str:
    """Name the undoing of a run, or of some of its operations."""
    return _digest(b"semel.saga.v1", namespace, run_id, *originals)


def message_key(operation: str, number: int) -> str:
    """Name a message by the operation that enqueued it and its number there."""
    return _digest(b"semel.message.v1", operation, str(number))


def short_key(key: str, *, max_length: int) -> str:
    """The same name for a provider with narrower rules: at most `max_length` lower-case letters and digits.

    A key that fits is left as it is; otherwise a digest of it, never a cut of it.
    """
    if max_length < KEY_LENGTH_MIN:
        raise UsageError(
            f"A key of {max_length} characters would not be unique: the least is {KEY_LENGTH_MIN}. "
            "Nothing was sent. Use a field of the provider's that is wider."
        )
    if max_length >= len(key):
        return key
    number = int(_digest(b"semel.short.v1", key), 16)
    return "".join(_BASE32[(number >> (5 * place)) & 31] for place in range(min(max_length, 51)))


def key_as_uuid(key: str) -> UUID:
    """The same name as a UUID (version 8: custom)."""
    from uuid import UUID  # slow to import, rarely needed

    number = int(_digest(b"semel.uuid.v1", key)[:32], 16)
    number = number & ~(0xF << 76) | (0x8 << 76)
    return UUID(int=number & ~(0x3 << 62) | (0x2 << 62))


def is_name_of(key: str, text: str) -> bool:
    """Whether a provider's reference is this key, in any of the forms that a tool can have given it."""
    if text == key or text.lower() == str(key_as_uuid(key)):
        return True
    return KEY_LENGTH_MIN <= len(text) < len(key) and text == short_key(key, max_length=len(text))


def prepare() -> None:
    """Have the digests at hand. A guard does this when it is made: a process forked while another thread is in
    the middle of its first import would wait for that import for ever."""
    import hashlib  # noqa: F401


def _digest(version: bytes, *fields: str) -> str:
    import hashlib  # slow to import, so not with `import semel`; imported by `prepare`

    return hashlib.sha256(version + _fields(*fields)).hexdigest()


def _fields(*texts: str) -> bytes:
    """Each behind its length, so that no choice of texts can look like another."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join([part for each in encoded for part in (len(each).to_bytes(8, "big"), each)])
