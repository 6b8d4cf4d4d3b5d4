"""Your own agent in the crash lab: any program that can be started again is killed at every gap of its tool calls.

The contract is small. The program is a callable, named `module:callable`, called without an argument (what it
gives to await is awaited). It does one whole run of the agent. Called again in a fresh process it resumes:
it finds whatever the killed one left on disk, and comes to the end. Each run has an empty folder of its own
as working directory, so a store at a relative path is found again by the next process of the same run and by
no other. The lab tells the program through its environment:

    SEMEL_LAB_PROVIDER   base address of the recording provider: every path below it is a tool's endpoint
    SEMEL_LAB_FOLDER     the run's own folder (the working directory)
    SEMEL_LAB_CELL       a name that is the run's alone: for a schema, a namespace, a table
    SEMEL_LAB_HOME       where the lab was started

Parts, each knowing only those above it:

    model      the words: a gap, an effect, a crash, what was found
    recorder   the provider's inside; `provider` is its process and how the lab speaks to it
    watch      what sees, inside the program's process, that a gap is passed
    life       one process of the program, from its start to its end
    plan       from two crash-free runs to the gaps worth a kill
    judge      what happened twice, and what never
    run        one run: its folder, and as many processes as it takes
    campaign   the whole of it
    report     the words, the JSON and the page
"""
