"""The claim on a run: of several processes given one run id, one asks the model and calls the tools.

It is an operation like any other, with a lease, a fence and a heartbeat, in a namespace of its own, so that no
sweep and no list of doubts shows it: that a run was interrupted is nothing to be in doubt about, since whoever
goes on with it replays what is recorded. A run that has ended is never claimed: it is only read.

Three things keep a process that was silent past its lease (paused, say) from writing when it wakes up: it looks
at its claim before each write and each question to the model; a lost claim is never renewed; and each further
claim begins with an event in the log (`RunLog.mark_resumed`), at the very position where it would write.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from semel import keys, lifecycle
from semel.agent.errors import RunHeld, RunTakenOver
from semel.engine.claims import HeldClaim
from semel.engine.core import Core
from semel.engine.sweeps import leave_in_doubt
from semel.errors import ClaimLost, CommitInDoubt, StoreError
from semel.model import Insert, Intent, Move, Operation, Safe, State

MOVES_MAX: Final = 100  # taking over needs four; a hundred means that others keep moving the record
NAME: Final = "semel.agent.run"
NOTHING: Final = "{}"


class RunClaim:
    """Held by this process until `release`."""

    def __init__(self, core: Core, held: HeldClaim) -> None:
        self._core = core
        self._held = held

    @property
    def fence(self) -> int:
        """How many lives the run has had, this one included."""
        return self._held.operation.fence

    def ensure_held(self) -> None:
        """Raise `RunTakenOver` once the claim has lapsed."""
        try:
            self._held.ensure_held()
        except ClaimLost:
            raise RunTakenOver(
                f"The claim on run {self._held.operation.run_id!r} lapsed while this process was silent, and "
                "another may have gone on with it. This one has recorded nothing since, and stops. Start it again."
            ) from None

    def release(self, *, has_ended: bool) -> None:
        """Let the next one in at once. If the store is down, the lease ends by itself."""
        self._core.heartbeat.release(self._held)
        operation, now = self._held.operation, self._core.store.now()
        if has_ended:
            move = lifecycle.commit(operation, result="null", now=now)
        else:
            move = lifecycle.not_sent(operation, error="the run stopped before its end", now=now)
        self._held.is_lost = True
        try:
            self._core.committer.submit(move)
        except StoreError:
            return


def try_to_claim(core: Core, run_id: str) -> RunClaim | Operation:
    """The claim, or the record that stands in its way: COMMITTED (the run has ended) or a live owner's."""
    intent = _intent(core.namespace, run_id)
    current = core.store.read(intent.key)
    for _ in range(MOVES_MAX):
        if current is not None and current.state in (State.COMMITTED, State.FAILED):
            return current
        if current is None or current.state is State.PENDING:
            claimed, current = _claim(core, intent, current)
            if claimed is not None:
                return RunClaim(core, claimed)
            continue
        move = _move_out_of_the_way(core, current)
        if move is None:
            return current
        current = core.committer.submit(move).operation
    raise StoreError(
        f"Others keep moving the claim on run {run_id!r}. Nothing was sent. Start it again later."
    )


def _claim(core: Core, intent: Intent, before: Operation | None) -> tuple[HeldClaim | None, Operation | None]:
    owner, now = core.owners.me(), core.store.now()
    write: Insert | Move
    if before is None:
        write = Insert(lifecycle.open_claim(intent, owner=owner, now=now, lease=core.lease))
    else:
        write = lifecycle.claim(before, owner=owner, now=now, lease=core.lease)
    try:
        outcome = core.committer.submit(write)
        is_ours, current = outcome.applied, outcome.operation
    except CommitInDoubt:
        current = core.store.read(intent.key)
        is_ours = current is not None and current.owner == owner
    if not is_ours or current is None:
        return None, current
    return core.heartbeat.hold(current, Safe()), current


def _move_out_of_the_way(core: Core, current: Operation) -> Move | None:
    """None: a live owner is at work."""
    if (
        current.state is State.UNKNOWN
    ):  # interrupted; what it recorded is replayed, and nothing else of it stands
        return lifecycle.find_absent(current, now=core.store.now())
    return leave_in_doubt(core, current)


def held_by_another(core: Core, held: Operation) -> RunHeld:
    ends_at = held.lease_expires_at or core.store.now()
    retry_after = max(ends_at - core.store.now(), timedelta(0))
    error = RunHeld(
        f"Run {held.run_id!r} is held by a live process ({held.owner}). This one asked no model and called no "
        f"tool. Wait for that one to end (wait=), or start it again: if it falls silent, within {retry_after}.",
        retry_after=retry_after,
    )
    error.owner = held.owner or ""
    return error


def _intent(namespace: str, run_id: str) -> Intent:
    apart = f"semel.agent.runs/{namespace}"
    return Intent(
        key=keys.idempotency_key(apart, run_id, "run", "claim"),
        namespace=apart,
        run_id=run_id,
        step="run",
        call_id="claim",
        tool=NAME,
        effect=Safe.name,
        fingerprint=keys.fingerprint_of_canonical(NAME, NOTHING),
        arguments=NOTHING,
    )
