"""The simulator: the same courses as the engines drive, under a virtual clock and a virtual network.

A seed is a whole world: a provider of one kind, a plan, a few processes that crash, pause and come back late, a
network that delays and loses, a store that fails, a person who answers. Everything that can deviate from a smooth
run asks `Choices`; a failing seed is shrunk by taking deviations away.
"""
