"""A level that gets nowhere, for the tests of the matrix."""

from __future__ import annotations

from strange_levels import raises as run

__all__ = ["run"]
