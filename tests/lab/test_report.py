"""Both reports of a run of the lab, on runs made by enumeration: a matrix is plain data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from semel.lab.headline import command, conclusion
from semel.lab.ladder import predict
from semel.lab.model import (
    Cell,
    Control,
    Coordinates,
    Matrix,
    ModelKind,
    ProviderKind,
    Selection,
    Verdict,
    Window,
)
from semel.lab.report_html import render
from semel.lab.report_terminal import Progress, print_headline

EVERYTHING = Selection()
CAUGHT = Control(name="claims after the effect", caught=True, verdict=Verdict.DUPLICATE)
NO_TEMPORAL = "Temporal's SDK is not installed (pip install 'semel[temporal]')"
MARKUP = "</script><script>document.title = 'owned'</script><img src=https://example.com/x> <!-- & \u2028"
SOMEWHERE = Coordinates(
    level=5, window=Window.W3, step=2, provider=ProviderKind.HAS_LOOKUP, model=ModelKind.REPEATS
)


def as_predicted(at: Coordinates) -> Cell:
    verdict = predict(at)
    return Cell(
        at=at,
        killed_by_signal=9,
        duplicates=int(verdict is Verdict.DUPLICATE),
        asks=int(must_ask(at)),
        recovery_seconds=0.031,
        requests=4,
        verdict=verdict,
        predicted=verdict,
    )


def must_ask(at: Coordinates) -> bool:
    return at.level == 5 and at.window in (Window.W2, Window.W3) and at.provider is ProviderKind.BLIND


def without_temporal(at: Coordinates) -> Cell:
    return Cell(at=at, skipped=NO_TEMPORAL) if at.level == 3 else as_predicted(at)


def with_a_false_ask(at: Coordinates) -> Cell:
    cell = as_predicted(at)
    if at == SOMEWHERE:
        return replace(cell, asks=1, false_asks=1, verdict=Verdict.FALSE_ASK, trace=MARKUP)
    return cell


def matrix_of(
    cell: Callable[[Coordinates], Cell] = as_predicted,
    *,
    selection: Selection = EVERYTHING,
    controls: tuple[Control, ...] = (CAUGHT,),
) -> Matrix:
    return Matrix(seed=7, cells=tuple(map(cell, selection.cells())), controls=controls, seconds=97.4)


# ---- the page


@pytest.fixture
def opened(open_page: Callable[..., Any]) -> Callable[..., Any]:
    """Open the report of a matrix."""

    def open_report(matrix: Matrix, *, width: int = 1280) -> Any:
        return open_page(render(matrix), width=width)

    return open_report


def test_the_heat_map_has_a_button_for_every_level_and_window(opened: Any) -> None:
    page = opened(matrix_of())
    assert page.locator("button.headline").count() == 24
    assert page.locator("#L0W1").inner_text().split("\n")[:2] == ["DUPLICATE", "12 of 18"]
    assert page.locator("#L2W3").inner_text().split("\n")[:2] == ["DUPLICATE", "12 of 18"]
    assert page.locator("#L5W4").inner_text().split("\n")[:2] == ["OK", "18 of 18"]


def test_a_click_opens_the_runs_behind_a_headline_and_another_closes_them(opened: Any) -> None:
    page = opened(matrix_of())
    headline, runs = page.locator("#L1W3"), page.locator("[data-cell]")
    assert headline.get_attribute("aria-expanded") == "false"
    headline.click()
    assert headline.get_attribute("aria-expanded") == "true"
    assert runs.count() == 18
    assert runs.get_by_text("DUPLICATE").count() == 15
    headline.click()
    assert headline.get_attribute("aria-expanded") == "false"
    assert runs.count() == 0


def test_the_runs_open_and_close_by_keyboard_alone(opened: Any) -> None:
    page = opened(matrix_of())
    page.locator("#L1W3").focus()
    page.keyboard.press("Enter")
    assert page.locator("[data-cell]").count() == 18
    page.keyboard.press("Escape")
    assert page.locator("[data-cell]").count() == 0
    assert page.evaluate("document.activeElement.id") == "L1W3"


def test_opening_one_headline_closes_the_one_before(opened: Any) -> None:
    page = opened(matrix_of())
    page.locator("#L0W1").click()
    page.locator("#L4W2").click()
    assert page.locator("[aria-expanded=true]").count() == 1
    assert page.locator(".behind:visible h4").inner_text() == "L4 killed at W2"


def test_the_page_asks_for_nothing_beyond_itself(opened: Any) -> None:
    page = opened(matrix_of(with_a_false_ask, controls=(replace(CAUGHT, name=MARKUP),)))
    page.locator("#L5W3").click()
    assert page.requests_made == [page.url]


def test_text_of_a_run_can_not_become_markup(opened: Any) -> None:
    page = opened(matrix_of(with_a_false_ask, controls=(replace(CAUGHT, name=MARKUP),)))
    page.locator("#L5W3").click()
    assert page.locator("details pre").text_content() == MARKUP
    assert page.locator("#controls li span").first.text_content() == MARKUP
    assert page.locator("img").count() == 0
    assert page.title() == "Semel crash lab: does not hold"


def test_a_skipped_cell_says_why_and_has_no_colour(opened: Any) -> None:
    page = opened(matrix_of(without_temporal))
    headline = page.locator("#L3W3")
    assert headline.inner_text() == f"skipped:\n{NO_TEMPORAL}"
    assert headline.evaluate("node => getComputedStyle(node).backgroundColor") == "rgba(0, 0, 0, 0)"
    headline.click()
    assert page.locator("[data-cell]").get_by_text(f"skipped: {NO_TEMPORAL}").count() == 18


def test_a_cell_not_as_predicted_is_named_at_the_top_and_marked_in_the_map(opened: Any) -> None:
    page = opened(matrix_of(with_a_false_ask))
    differing = page.locator("#differing").inner_text()
    assert differing.split("\n") == ["FALSE_ASK", "L5 W3 step 2 has-lookup repeats, expected OK"]
    assert "1 unexpected" in page.locator("#L5W3").inner_text()


def test_a_person_who_had_to_be_asked_is_marked_as_asked(opened: Any) -> None:
    page = opened(matrix_of())
    assert "6 asked" in page.locator("#L5W3").inner_text()
    page.locator("#L5W3").click()
    assert page.locator("[data-cell] .asked-tag").count() == 6


@pytest.mark.parametrize("headline", ["#L0W1", "#L3W3"])
def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Any, headline: str) -> None:
    page = opened(matrix_of(without_temporal), width=360)
    page.locator(headline).click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_a_window_that_was_not_run_can_not_be_opened(opened: Any) -> None:
    page = opened(matrix_of(selection=Selection(levels=(2,), windows=(Window.W3,))))
    assert page.locator("button.headline:enabled").count() == 1
    assert page.locator("#L0W1").inner_text() == "not run"


# ---- the terminal


def test_the_terminal_shows_the_worst_verdict_of_a_window_and_how_many_have_it(capsys: Any) -> None:
    print_headline(matrix_of())
    rows = {line[:2]: " ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert rows["L0"].endswith("DUPLICATE 12/18 DUPLICATE 12/18 DUPLICATE 18/18 DUPLICATE 18/18")
    assert rows["L2"].endswith("OK 18/18 OK 18/18 DUPLICATE 12/18 OK 18/18")


def test_the_terminal_says_why_cells_were_skipped(capsys: Any) -> None:
    print_headline(matrix_of(without_temporal))
    assert f"L3 skipped: {NO_TEMPORAL}" in capsys.readouterr().out.splitlines()


def test_through_a_pipe_the_terminal_report_has_no_colour_and_fits_eighty_columns(capsys: Any) -> None:
    print_headline(matrix_of(without_temporal))
    *lines, last = capsys.readouterr().out.splitlines()
    assert not any("\x1b" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert last == conclusion(matrix_of(without_temporal))


def test_the_last_line_says_that_the_run_holds(capsys: Any) -> None:
    print_headline(matrix_of())
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Holds: all 432 cells are as the ladder predicts; 1 of 1 negative controls caught."
    )


def test_what_differs_from_the_prediction_is_named_before_the_last_line(capsys: Any) -> None:
    print_headline(matrix_of(with_a_false_ask, controls=(replace(CAUGHT, caught=False),)))
    lines = capsys.readouterr().out.splitlines()
    assert "L5 W3 step 2 has-lookup repeats: expected OK, got FALSE_ASK" in lines
    assert any("NOT CAUGHT" in line for line in lines)
    assert lines[-1] == (
        "Does not hold: 1 of 432 cells is not as the ladder predicts; 0 of 1 negative controls caught."
    )


def test_without_a_terminal_progress_is_a_line_every_tenth(capsys: Any) -> None:
    cells = matrix_of(selection=Selection(levels=(0,))).cells
    with Progress(len(cells)) as progress:
        for cell in cells:
            progress.advance(cell)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 10
    assert captured.err.splitlines()[-1] == "72 of 72 cells"


def test_without_rich_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['rich.console'] = None; import semel.lab.report_terminal"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pip install 'semel[lab]'" in ended.stderr.splitlines()[-1]


# ---- what both say


def test_a_run_in_which_nothing_ran_does_not_claim_to_hold() -> None:
    matrix = matrix_of(without_temporal, selection=Selection(levels=(3,)), controls=())
    assert conclusion(matrix) == (
        "Nothing to judge: no cell was run (72 skipped); no negative control was run."
    )


def test_the_command_to_run_it_again_filters_only_where_the_run_did() -> None:
    assert command(matrix_of()) == "semel lab matrix --seed 7"
    part = Selection(levels=(0, 5), windows=(Window.W3,))
    assert command(matrix_of(selection=part)) == "semel lab matrix --level 0 --level 5 --window W3 --seed 7"
