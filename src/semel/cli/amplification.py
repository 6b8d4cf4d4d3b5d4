"""`semel lab amplification`: what stacked retries make of one intent."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_to(experiments: Commands) -> None:
    """See below."""
