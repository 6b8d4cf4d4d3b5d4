"""The model of one cell: stateless towards its caller, but it remembers how often it was asked.

It lives in the world's process, so that its memory survives the crash of the agent: a turn asked for again
comes back under a new call id and, if the model rewords, in other words.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from semel.lab.scenario import Message, call_id, turn, turn_asked_for
from semel.lab.wire import Settings, Turn


class ScriptedModel:
    def __init__(self, cell_id: str, settings: Settings) -> None:
        self._cell_id = cell_id
        self._settings = settings
        self._asked: Counter[int] = Counter()
        self._lock = threading.Lock()

    def next_turn(self, messages: Sequence[Message]) -> Turn:
        number = turn_asked_for(messages)
        with self._lock:
            self._asked[number] += 1
            asked, model_call = self._asked[number], self._asked.total()
        return turn(
            self._settings.plan,
            number,
            asked=asked,
            model=self._settings.model,
            call_id=call_id(self._settings.seed, self._cell_id, model_call),
        )

    def calls_by_turn(self) -> Mapping[int, int]:
        with self._lock:
            return dict(self._asked)
