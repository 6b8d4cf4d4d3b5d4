"""The bake-off: the lab's scenario and oracle over other people's guards, each in an environment of its own.

`entrants` says who takes part and how each package is used, `cases` what is done to them, `lives` starts, kills,
stops and continues their processes, `services` are the servers some of them need, `course` runs it all, `judging`
says what came of it, and `terminal`, `page` and `export` show it.
"""
