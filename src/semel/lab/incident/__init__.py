"""The 60-point experiment: one incident, fifteen tool calls, a kill in each of the four windows of each.

The shape is that of a published evaluation of crash recovery; the scenario is our own. `plan` is what the agent
does, `provider` what it does it to, `agents` are a naive one, one with checkpoints and one with Semel, `experiment`
kills and counts, and `report` shows it.
"""
