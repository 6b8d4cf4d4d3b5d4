"""A contestant whose tools go round the lab's: it can't be killed where it is to be."""

from semel.lab.contestants.stage import Stage, run_plan


def run(stage: Stage) -> None:
    run_plan(stage, lambda call: stage.world.provider.perform(call.name, call.arguments))
