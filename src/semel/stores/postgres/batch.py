"""Many writes as few statements.

Claims and completions, which are nearly all there is, are put together into one statement; whatever touches a
record that is already in such a group starts a new one, so each record sees its writes in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from semel.errors import WriteRefused
from semel.lifecycle import UNREMARKABLE
from semel.model import Append, Event, Insert, Move, Note, Write
from semel.stores.records import Row, Rows, entry_of, is_fresh_claim

LARGE: Final = 1 << 20  # characters; a larger write travels alone, since an array holds at most a gigabyte
TOO_LARGE: Final = 400_000_000  # a row with arguments and a result of this size can still be read: a gigabyte
CLAIM_COLUMNS: Final = 14  # what `write_many` takes of each claim, and of each completion
COMPLETION_COLUMNS: Final = 4


@dataclass(frozen=True, slots=True)
class Statement:
    """`positions`: of the writes that it carries, by what it returns for each that changed something."""

    name: str
    parameters: Sequence[Any]
    positions: Mapping[str, int]
    is_large: bool = False

    def changed(self, rows: Sequence[Row]) -> list[int]:
        if self.name == "claim":
            return list(self.positions.values()) if rows[0][0] is None else []
        return [self.positions[row[0]] for row in rows if row[0] is not None]

    def in_the_way(self, rows: Sequence[Row]) -> str:
        """Of a claim, as JSON; empty if that is not known, or nothing was in its way."""
        return rows[0][0] or "" if self.name == "claim" else ""


def single(write: Write, rows: Rows, position: int = 0) -> Statement:
    """Raises `WriteRefused`."""
    size = _size(write)
    if size > TOO_LARGE:
        raise WriteRefused(
            f"The store cannot hold this: {size} characters, and {TOO_LARGE} are the most. Nothing was recorded."
        )
    name, row, returned = _parts(write, rows)
    return Statement(name, row, {returned: position}, size > LARGE)


def _parts(write: Write, rows: Rows) -> tuple[str, Row, str]:
    """The statement's name, its parameters, and what it returns if it changed something."""
    match write:
        case Insert(operation) if is_fresh_claim(operation):
            return "claim", rows.claim_row(operation), operation.key
        case Insert(operation):
            return "insert", rows.operation_row(operation), operation.key
        case Move(event=Event.COMMITTED, before=before):
            return "commit", rows.commit_row(write), before.key
        case Move(event=event, before=before) if event in UNREMARKABLE:
            return "move_unnoted", rows.move_row(write), before.key
        case Move(before=before):
            return "move", rows.move_row(write) + rows.history_row(entry_of(write)), before.key
        case Note(entry):
            return "note", rows.history_row(entry), entry.key
        case Append(events):
            first, *rest = [rows.event_row(event) for event in events]
            return "append", (*first, *(_columns(rest) or [[]] * len(first))), events[0].run_id


def statements_for(writes: Sequence[Write], positions: Sequence[int], rows: Rows) -> list[Statement]:
    """For the writes at these positions. Raises `WriteRefused`."""
    if len(positions) == 1:
        return [single(writes[positions[0]], rows, positions[0])]
    return list(_Grouping(writes, rows).statements(positions))


class _Grouping:
    def __init__(self, writes: Sequence[Write], rows: Rows) -> None:
        self._writes = writes
        self._rows = rows
        self._claims: list[int] = []
        self._completions: list[int] = []
        self._touched: set[str] = set()

    def statements(self, positions: Sequence[int]) -> Iterator[Statement]:
        for position in positions:
            write = self._writes[position]
            names = _touches(write)
            if not self._touched.isdisjoint(names):
                yield from self._close()
            group = self._group_of(write)
            if group is None:
                yield single(write, self._rows, position)
            else:
                group.append(position)
                self._touched.update(names)
        yield from self._close()

    def _group_of(self, write: Write) -> list[int] | None:
        if _size(write) > LARGE:
            return None
        if isinstance(write, Insert):
            return self._claims if is_fresh_claim(write.operation) else None
        return self._completions if isinstance(write, Move) and write.event is Event.COMMITTED else None

    def _close(self) -> Iterator[Statement]:
        claims, completions = self._claims, self._completions
        self._claims, self._completions, self._touched = [], [], set()
        if len(claims) + len(completions) > 1:
            yield self._together(claims, completions)
        else:
            for position in (*claims, *completions):
                yield single(self._writes[position], self._rows, position)

    def _together(self, claims: Sequence[int], completions: Sequence[int]) -> Statement:
        """One statement whose parameters are columns of what the single ones would have."""
        of_claims, of_completions = self._in_order(claims), self._in_order(completions)
        positions = {key: at for one in (*of_claims, *of_completions) for key, at in one.positions.items()}
        columns = [
            *(_columns(one.parameters for one in of_claims) or [[]] * CLAIM_COLUMNS),
            *(_columns(one.parameters for one in of_completions) or [[]] * COMPLETION_COLUMNS),
        ]
        return Statement("write_many", [array_literal(column) for column in columns], positions)

    def _in_order(self, positions: Sequence[int]) -> list[Statement]:
        """By key: two workers whose batches overlap take their locks in one order, and so never in a circle."""
        parts = [single(self._writes[position], self._rows, position) for position in positions]
        return sorted(parts, key=lambda part: next(iter(part.positions)))


def _columns(table: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*table, strict=True)]


def array_literal(values: Iterable[Any]) -> str:
    """An array as PostgreSQL reads it. Written here because the driver takes its time over each of them."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if type(value) is str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value.isoformat() if isinstance(value, datetime) else str(value)


def key_of(write: Write) -> str | None:
    match write:
        case Insert(operation):
            return operation.key
        case Move(before=before):
            return before.key
        case _:
            return None


def _touches(write: Write) -> tuple[str, ...]:
    """The names of what the write could change or run into."""
    match write:
        case Insert(operation) | Move(before=operation):
            once_key = operation.once_key
            return (operation.key,) if once_key is None else (operation.key, once_key)
        case _:
            return ()


def _size(write: Write) -> int:
    match write:
        case Insert(operation):
            return len(operation.arguments)
        case Move(after=after):
            return len(after.arguments) + len(after.result or "")
        case Append(events):
            return sum(len(event.payload) for event in events)
        case _:
            return 0
