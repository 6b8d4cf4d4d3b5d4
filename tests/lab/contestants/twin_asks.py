"""A contestant that asks a person before every call, whatever the provider could tell."""

from semel.lab.contestants.stage import Stage, name_of_step, run_plan


def run(stage: Stage) -> None:
    def call_tool(call):
        name = name_of_step(call.name)
        return stage.ask_person(call.name, name) or stage.perform(call.name, call.arguments, reference=name)

    run_plan(stage, call_tool)
