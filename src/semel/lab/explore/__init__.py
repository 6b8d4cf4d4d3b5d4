"""`semel lab explore`: every place of a run, every kill, every pair of kills, and whatever else can go wrong there.

plan      what is done to one run: a sequence of disturbances, and the world it runs in
places    where a run can be disturbed, in the order in which it passes them
telling   a store that tells of its writes
agent     the run itself, in a child process
faults    the catalogue: what goes wrong, where, and what was declared
drive     carries out one plan with real processes
verdict   judges what came of it
campaign  which plans there are, which of them to run, and the tally
controls  guards broken on purpose, which the campaign must catch
record    one run as a file, and its replay
report    what people, programs and browsers are shown
"""
