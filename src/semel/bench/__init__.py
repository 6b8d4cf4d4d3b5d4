"""What a guarded call costs, measured beside the raw driver and beside what a user would pick instead.

Everything that is compared runs in one process tree, on one disk, in turns: absolute figures drift with the
machine, ratios of neighbours hold.
"""
