"""A contestant that writes "done" down before it does anything: what was interrupted never happens."""

from semel.lab.contestants.stage import Stage, run_plan


def run(stage: Stage) -> None:
    def call_tool(call):
        done = stage.folder / call.name
        if done.exists():
            return {"status": "done"}
        done.touch()
        return stage.perform(call.name, call.arguments)

    run_plan(stage, call_tool)
