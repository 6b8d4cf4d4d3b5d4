"""What a user would pick instead, one small script each.

A script runs in a virtual environment of its own, where Semel is not: it imports its package and `protocol`
beside it, and nothing else.
"""
