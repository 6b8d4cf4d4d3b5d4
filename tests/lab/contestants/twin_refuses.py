"""A contestant that never repeats anything: once it has begun, it refuses to go on."""

from semel.lab.contestants.stage import Stage, run_plan


def run(stage: Stage) -> None:
    begun = stage.folder / "begun"
    if begun.exists():
        raise RuntimeError("it may have happened; I refuse")
    begun.touch()
    run_plan(stage, lambda call: stage.perform(call.name, call.arguments))
