"""The crash lab in your own test suite: `crash_lab`, `@pytest.mark.crash`, `--crash-gap`.

    @pytest.mark.crash(windows=["W2", "W3"])
    def test_my_agent_charges_once_wherever_it_is_killed(crash_lab):
        crash_lab.run(my_agent.run, env={"BILLING_URL": "{provider}"}).assert_once()

pytest loads this in every session where Semel is installed, so it imports nothing of the lab before a test
asks for it, and nothing beyond Python and pytest at all.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from semel.lab.own.report import Report

MARKER: Final = (
    "crash(windows): the gaps of a tool call (W1 to W4) at which `crash_lab.run` kills the program; "
    "without it, all of them"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("semel", "Semel's crash lab")
    group.addoption(
        "--crash-gap",
        action="append",
        default=[],
        metavar="NAME",
        help="kill only at this gap, as a failing `crash_lab` test names it; repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def crash_lab(request: pytest.FixtureRequest) -> CrashLab:
    """Kills a program at every gap of its tool calls, starts it again, and reports; see `CrashLab.run`."""
    return CrashLab(request)


class CrashLab:
    """What a test holds in its hands."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def run(
        self,
        program: str | Callable[[], Any],
        *,
        windows: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        provider: str = "honours-keys",
        effects: str | None = None,
        identity: str | Sequence[str] = (),
        resolver: str | Callable[..., Any] | None = None,
        preload: Sequence[str] = (),
        timeout: float = 60.0,
        patience: float = 120.0,
    ) -> Report:
        """Kill and resume; nothing is asserted yet.

        `program`   one whole run of your agent, called without arguments in a fresh process whose working
                    directory is the run's own folder; called again it resumes. A function at the top of a
                    module, or its name, `module:callable`.
        `windows`   instead of the marker's.
        `env`       for the program: `{provider}`, `{folder}`, `{cell}`, `{home}` are filled in.
        `provider`  `honours-keys`, `has-lookup` or `blind`.
        `effects`   the file in the run's folder into which your tools write a JSON line an effect.
        `identity`  the fields that name an effect in business terms, so that rewording hides no duplicate.
        `resolver`  plays the person: called with the `PausedForPerson`, it answers with `guard.resolve`.
        `preload`   modules to import once, so that processes start faster.
        `timeout`, `patience`  seconds: for one process, and for one that says itself when it can go on.
        """
        from semel.errors import UsageError
        from semel.lab.model import ProviderKind
        from semel.lab.own import campaign
        from semel.lab.own.model import Program
        from semel.lab.own.report import GAP, Report

        config = self._request.config
        try:
            found = campaign.run(
                Program(
                    target=_name_of(program),
                    home=config.invocation_params.dir,
                    environment=dict(env or {}),
                    provider=ProviderKind(provider),
                    effects=effects,
                    identity=(identity,) if isinstance(identity, str) else tuple(identity),
                    resolver=None if resolver is None else _name_of(resolver),
                    preload=tuple(preload),
                    seconds_max=timeout,
                    patience_seconds=patience,
                ),
                windows=self._windows(windows),
                only=config.getoption("--crash-gap"),
            )
        except (UsageError, ValueError) as problem:
            # its text says all; its stack is ours
            raise pytest.fail.Exception(f"crash_lab: {problem}", pytrace=False) from None
        return Report(campaign=found, again=f"pytest {shlex.quote(self._test())} --crash-gap {GAP}")

    def _test(self) -> str:
        """Its id as seen from where pytest was started, so that it can be typed there again."""
        node = self._request.node
        file = os.path.relpath(node.path, self._request.config.invocation_params.dir)
        return "::".join([file, *str(node.nodeid).split("::")[1:]])

    def _windows(self, given: Sequence[str] | None) -> tuple[Any, ...]:
        from semel.lab.model import Window

        marker = self._request.node.get_closest_marker("crash")
        if given is None and marker is not None:
            given = marker.kwargs.get(
                "windows", marker.args[0] if len(marker.args) == 1 else marker.args or None
            )
        if given is None:
            return tuple(Window)
        return tuple(Window(name) for name in ([given] if isinstance(given, str) else given))


def _name_of(program: str | Callable[..., Any]) -> str:
    """Sent to a fresh process by name, so it must be found again under it."""
    from semel.errors import UsageError

    if isinstance(program, str):
        return program
    module, name = getattr(program, "__module__", None), getattr(program, "__qualname__", None)
    if not module or not name or "<" in name:
        raise UsageError(
            f"{program!r} cannot be found by name in a fresh process. Nothing was started. Give a function that "
            "stands at the top of a module, or its name: 'module:callable'."
        )
    return f"{module}:{name}"
