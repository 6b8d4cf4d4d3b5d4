"""The whole prediction, written out: a row a window, a column a step; D is a duplicate."""

from __future__ import annotations

import pytest

from semel.lab.ladder import MEANINGS, TITLES, TOOLS, predict
from semel.lab.model import LEVELS, STEPS, Coordinates, ModelKind, ProviderKind, Selection, Verdict, Window

STARTS_AGAIN = """
W1 . D D
W2 . D D
W3 D D D
W4 D D D
"""
ONLY_W3 = """
W1 . . .
W2 . . .
W3 D D D
W4 . . .
"""
CLEAN = """
W1 . . .
W2 . . .
W3 . . .
W4 . . .
"""
EXPECTED = {
    (0, "honours-keys", "repeats"): STARTS_AGAIN,
    (0, "honours-keys", "rewords"): STARTS_AGAIN,
    (0, "has-lookup", "repeats"): STARTS_AGAIN,
    (0, "has-lookup", "rewords"): STARTS_AGAIN,
    (0, "blind", "repeats"): STARTS_AGAIN,
    (0, "blind", "rewords"): STARTS_AGAIN,
    (1, "honours-keys", "repeats"): CLEAN,
    (1, "honours-keys", "rewords"): STARTS_AGAIN,
    (1, "has-lookup", "repeats"): STARTS_AGAIN,
    (1, "has-lookup", "rewords"): STARTS_AGAIN,
    (1, "blind", "repeats"): STARTS_AGAIN,
    (1, "blind", "rewords"): STARTS_AGAIN,
    **{(level, "honours-keys", model): CLEAN for level in (2, 3) for model in ModelKind},
    **{(level, "has-lookup", model): ONLY_W3 for level in (2, 3) for model in ModelKind},
    **{(level, "blind", model): ONLY_W3 for level in (2, 3) for model in ModelKind},
    **{
        (level, provider, model): CLEAN
        for level in (4, 5)
        for provider in ProviderKind
        for model in ModelKind
    },
}


@pytest.mark.parametrize(("kind", "grid"), list(EXPECTED.items()), ids=str)
def test_the_ladder_predicts(kind, grid):
    level, provider, model = kind

    def row(window):
        cells = [
            Coordinates(
                level=level,
                window=window,
                step=step,
                provider=ProviderKind(provider),
                model=ModelKind(model),
            )
            for step in STEPS
        ]
        return " ".join([window, *("D" if predict(at) is Verdict.DUPLICATE else "." for at in cells)])

    assert "\n".join(map(row, Window)) == grid.strip()


def test_the_table_covers_the_grid():
    cells = Selection().cells()
    assert {(at.level, at.provider, at.model) for at in cells} == set(EXPECTED)
    assert len(cells) == 6 * 4 * 3 * 3 * 2


def test_every_level_has_a_title_and_says_what_it_means():
    assert set(TITLES) == set(MEANINGS) == set(LEVELS)


def test_the_steps_are_the_three_tools():
    assert TOOLS == {1: "charge", 2: "send_email", 3: "grant_entitlement"}
