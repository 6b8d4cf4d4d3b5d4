"""No guard: after a crash the plan starts again. The control that every column must catch somewhere."""

from __future__ import annotations

from semel.lab.contestants.stage import Stage, run_plan


def run(stage: Stage) -> None:
    run_plan(stage, lambda call: stage.perform(call.name, call.arguments))
