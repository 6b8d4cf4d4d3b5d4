"""A sweep beside the calls: recover and reconcile, as an operator or a timer has them done in some process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.engine import sweeps
from semel.errors import StoreError
from semel.lab.simulate.setting import TOOL
from semel.lab.simulate.steps import Steps

if TYPE_CHECKING:
    from semel.lab.simulate.process import Process


class Sweep:
    """One sweep of one process. It dies with it, and stops with it."""

    def __init__(self, process: Process) -> None:
        self.name = f"sweep of {process.number}"
        self._process = process
        self._steps = Steps(process, self)

    def start(self) -> None:
        world, process = self._process.world, self._process
        if not process.is_alive:
            return
        recovered = sweeps.recover(process.core)
        world.tell(self.name, "recovers %s, reconciles the rest", len(recovered))
        self._turns = sweeps.reconcile(process.core, {TOOL: world.tool})
        self.go_on(None)

    def go_on(self, answer: Any) -> None:
        try:
            step = self._turns.send(answer)
        except StopIteration:
            return
        self._steps.take(step)

    def throw(self, problem: StoreError) -> None:
        """The next sweep sees to what this one has left."""
        self._process.world.tell(self.name, "%s", problem)
        self._turns.close()
