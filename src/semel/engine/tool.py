"""A tool: a plain function, the kind of its effect, and its business identity."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from semel.engine.call import Call
from semel.engine.names import is_storable
from semel.errors import UsageError
from semel.model import Atomic, Effect, Idempotent, Safe, Steps, Unsafe

INJECTED: Final = ("call", "tx")

OncePer = str | Sequence[str] | Callable[..., Any]
Caller = Callable[["Tool", dict[str, Any]], Any]
Registrar = Callable[["Tool"], None]


def _call_nowhere(tool: Tool, arguments: dict[str, Any]) -> Any:
    raise UsageError(f"{tool.name} is called by the guard alone. Nothing was sent.")


def _register_nowhere(tool: Tool) -> None:
    raise UsageError(f"{tool.name} belongs to no guard. Nothing was registered.")


class Tool:
    """Made by `guard.tool(...)`. Calling it inside a run goes through the guard; `fn` is bare."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None,
        effect: Effect,
        once_per: OncePer | None = None,
        attempts: int = 1,
        irreversible: bool = False,
        compensates: str | None = None,
        caller: Caller = _call_nowhere,
        registrar: Registrar = _register_nowhere,
    ) -> None:
        if not callable(fn):
            raise UsageError(f"{fn!r} is not a function. Nothing was registered.")
        self.fn = fn
        self.name = name if name is not None else str(getattr(fn, "__name__", ""))
        self.effect = effect
        self.attempts = attempts
        self.is_async = _is_async(fn)
        self.irreversible = irreversible
        self.compensates = compensates  # the name of the tool that this one undoes
        self.compensated_by: Tool | None = None
        self.announces = False  # whether a transaction of it has to be waited for by the undoing of its run
        self._caller = caller
        self._registrar = registrar
        self._signature = inspect.signature(fn)
        self.wants_call = "call" in self._signature.parameters
        self.wants_tx = "tx" in self._signature.parameters
        self._names = tuple(name for name in self._signature.parameters if name not in INJECTED)
        self._bare_signature = self._signature.replace(
            parameters=[self._signature.parameters[name] for name in self._names]
        )
        functools.update_wrapper(self, fn)
        self.__signature__ = self._bare_signature
        self._identity = _identity_maker(once_per, self._names)
        _check(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._caller(self, self.bind(args, kwargs))

    def __repr__(self) -> str:
        return f"<semel tool {self.name} ({self.effect.name})>"

    @property
    def may_be_undone(self) -> bool:
        """Whether undoing its run has to keep it from happening meanwhile."""
        return self.compensates is None and (
            self.compensated_by is not None or isinstance(self.effect, Steps)
        )

    def compensation(
        self, *, effect: Effect, name: str | None = None, attempts: int = 1
    ) -> Callable[[Callable[..., Any]], Tool]:
        """Register what undoes this tool: a function `(arguments, result)`, and `call` or `tx` if it wants them.

        It gets the arguments and the result that are recorded of what it undoes. Its key comes from that
        operation's: however often, and by whomever, it is asked for, it is one intent. `run.compensate()` calls it.

        `effect`  its own kind: what a crash means for it.
        """

        def register(fn: Callable[..., Any]) -> Tool:
            undoes = Tool(
                fn,
                name=name,
                effect=effect,
                attempts=attempts,
                compensates=self.name,
                caller=_refuse_direct_call,
                registrar=self._registrar,
            )
            _check_compensation(self, undoes)
            self._registrar(undoes)
            self.compensated_by = undoes
            return undoes

        return register

    def with_body(self, body: Callable[..., Any]) -> Tool:
        """The same tool with another function in it."""
        tool = copy.copy(self)
        tool.fn = body
        return tool

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, defaults filled in, so that the way a call is written does not matter."""
        if not args and kwargs.keys() == set(self._names):
            return {name: kwargs[name] for name in self._names}
        try:
            bound = self._bare_signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise UsageError(
                f"{self.name}{self._bare_signature} was called wrongly: {problem}. Nothing was sent."
            ) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def business_identity(self, arguments: Mapping[str, Any]) -> Sequence[Any] | None:
        """The values that name the business event, or None if the tool declares none."""
        return None if self._identity is None else self._identity(arguments)

    def injected(self, *, call: Call | None, tx: Any = None) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.wants_call:
            extra["call"] = call
        if self.wants_tx:
            extra["tx"] = tx
        return extra


def _is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await. A plain wrapper may run an async function to its end, or
    hand on what is to be awaited: which of the two only its call shows (see `sync`)."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _identity_maker(
    once_per: OncePer | None, names: Sequence[str]
) -> Callable[[Mapping[str, Any]], Sequence[Any]] | None:
    if once_per is None:
        return None
    if callable(once_per):
        return lambda arguments: (once_per(**arguments),)
    wanted = (once_per,) if isinstance(once_per, str) else tuple(once_per)
    missing = [name for name in wanted if name not in names]
    if missing or not wanted:
        raise UsageError(
            f"once_per={once_per!r} must name arguments of the tool ({', '.join(names) or 'it has none'}), "
            "or be a function of them. Nothing was registered."
        )
    return lambda arguments: tuple(arguments[name] for name in wanted)


def _check(tool: Tool) -> None:
    kinds = inspect.Parameter
    for parameter in tool._bare_signature.parameters.values():
        if parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY):
            raise _wrong(tool, f"parameter {parameter} has no fixed name; name each argument")
        if parameter.name == "self":
            raise _wrong(tool, "it is a method; register a function, or a bound method's function")
    if inspect.isgeneratorfunction(tool.fn) or inspect.isasyncgenfunction(tool.fn):
        raise _wrong(tool, "it is a generator: calling it runs nothing; return the result instead")
    if not tool.name:
        raise _wrong(tool, "it has no name; pass name=")
    if not is_storable(tool.name):
        raise _wrong(tool, "its name holds NUL or half a surrogate pair, which no database keeps")
    if not isinstance(tool.effect, Safe | Idempotent | Atomic | Unsafe | Steps):
        raise _wrong(
            tool,
            f"effect={tool.effect!r} is not Safe(), Idempotent(...), Atomic(), Unsafe(...) or Steps(...)",
        )
    if isinstance(tool.effect, Atomic) != tool.wants_tx:
        raise _wrong(tool, "an Atomic tool takes `tx` and writes through it, and no other kind does")
    if isinstance(tool.effect, Atomic) and tool.is_async:
        raise _wrong(
            tool, "an Atomic tool is a plain function (`def`): its transaction must not wait for a loop"
        )
    if type(tool.attempts) is not int or tool.attempts < 1:
        raise _wrong(tool, f"attempts={tool.attempts!r} must be a whole number, at least 1")


def _check_compensation(original: Tool, undoes: Tool) -> None:
    if undoes._names != ("arguments", "result"):
        raise _wrong(
            undoes,
            f"what undoes {original.name} takes `arguments` and `result`, in this order, and `call` or `tx` if it "
            "wants them",
        )
    if isinstance(undoes.effect, Safe):
        raise _wrong(undoes, "a compensation changes something, so it is not Safe()")
    if isinstance(original.effect, Safe):
        raise _wrong(undoes, f"{original.name} is Safe(): there is nothing to undo")
    if original.irreversible:
        raise _wrong(undoes, f"{original.name} is declared irreversible")
    if original.compensates is not None:
        raise _wrong(undoes, f"{original.name} is itself a compensation")
    if original.compensated_by is not None:
        raise _wrong(undoes, f"{original.name} has a compensation already ({original.compensated_by.name})")


def _refuse_direct_call(tool: Tool, arguments: dict[str, Any]) -> Any:
    raise UsageError(
        f"{tool.name} undoes {tool.compensates}, and which one is for the record to say: called by itself it would "
        "be an intent of its own, and a second undoing. Nothing was sent. Use run.compensate(...)."
    )


def _wrong(tool: Tool, what: str) -> UsageError:
    return UsageError(f"The tool {tool.name or tool.fn!r} cannot be guarded: {what}. Nothing was registered.")
