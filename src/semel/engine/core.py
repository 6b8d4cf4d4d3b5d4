"""What every call of one guard shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from semel.actions import Action
from semel.decide import decide
from semel.engine.claims import Heartbeat
from semel.engine.group_commit import GroupCommit
from semel.ports import Checkpoint, Owners, Store, no_checkpoint

Decide = Callable[..., Action]


@dataclass(kw_only=True, slots=True)
class Core:
    """`wait` is how long a call waits for a live owner, or for evidence to count, before it says so.

    `decide` is an argument so that the lab can break it on purpose. `never_sent` holds the owner tokens of
    claims whose acknowledgement was lost in this process before anything was sent under them.
    """

    store: Store
    committer: GroupCommit
    heartbeat: Heartbeat
    owners: Owners
    namespace: str
    lease: timedelta
    wait: timedelta
    checkpoint: Checkpoint = no_checkpoint
    decide: Decide = decide
    never_sent: set[str] = field(default_factory=set)
