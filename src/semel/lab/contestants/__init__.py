"""Other people's guards, one file each, and Semel among them: the contestants of `semel lab bakeoff`.

A file has a function `run(stage)`, which runs the plan to its end from whatever lies in the stage's folder:
starting and resuming are the same, always in a fresh process. It runs in an environment of its own, where its
package is installed and Semel is not (the lab lends it this folder and what stands around it, which need
nothing but Python). `stage` is what all of them share: the model, the tools, the gaps in which a process dies.
A file says only how the package is used, and follows the package's own documentation in that. One whose effects
are in its own database also has `ledger(stage)`, which tells them.

To add one: write the file, and add its line to `semel.lab.bakeoff.entrants`.
"""
