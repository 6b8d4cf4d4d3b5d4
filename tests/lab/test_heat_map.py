"""The page that every campaign of the lab is shown on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel.lab.heat_map import Page, Run, Square, render

MARKUP = "</script><script>document.title = 'owned'</script><img src=https://example.com/x> <!-- & \u2028"
BAD = Square(
    row="naive",
    column="killed at W3",
    verdict="DUPLICATE",
    text="2 of 3",
    runs=(
        Run(title="step 1", verdict="DUPLICATE", lines=("killed", "charged again")),
        Run(title="step 2", verdict="DUPLICATE"),
        Run(title="step 3", verdict="OK"),
    ),
)
GOOD = replace(BAD, row="Semel", verdict="OK", text="3 of 3", runs=(Run(title="step 1", verdict="OK"),))
EMPTY = Square(row="Semel", column="zombie", verdict="", text="not installed: no network")
PAGE = Page(
    title="A bake-off",
    lead="Who repeats what.",
    conclusion="One of two repeats an effect.",
    holds=False,
    rows=("naive", "Semel"),
    columns=("killed at W3", "zombie"),
    squares=(BAD, GOOD, EMPTY),
    about={"naive": "starts again"},
    figures=(("runs", "4"),),
    notes=("A note.",),
    command="semel lab bakeoff",
)


def test_every_place_of_the_map_has_a_square_in_the_colour_of_its_verdict(open_page):
    page = open_page(render(PAGE))
    squares = page.locator("button.square")
    assert [squares.nth(n).get_attribute("data-verdict") for n in range(4)] == ["DUPLICATE", "", "OK", ""]
    assert page.locator("button.square:enabled").count() == 2


def test_a_square_opens_its_runs_and_another_click_closes_them(open_page):
    page = open_page(render(PAGE))
    square, runs = page.locator("button.square").first, page.locator("[data-run]")
    square.click()
    assert runs.count() == 3
    assert page.locator(".behind:visible h4").inner_text() == "naive, killed at W3"
    runs.first.locator("summary").click()
    assert runs.first.locator("pre").inner_text() == "killed\ncharged again"
    square.click()
    assert runs.count() == 0


def test_escape_closes_and_gives_the_focus_back(open_page):
    page = open_page(render(PAGE))
    page.locator("button.square").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("[data-run]").count() == 3
    page.keyboard.press("Escape")
    assert page.locator("[data-run]").count() == 0
    assert "naive, killed at W3" in page.evaluate("document.activeElement.ariaLabel")


def test_what_was_not_run_says_why_and_has_no_colour(open_page):
    page = open_page(render(PAGE))
    assert page.locator("button.square").nth(3).inner_text().strip() == "not installed: no network"
    assert page.locator("button.square").nth(1).inner_text().strip() == "not run"


def test_text_of_a_run_can_not_become_markup_and_nothing_is_fetched(open_page):
    run = Run(title=MARKUP, verdict="LOST", lines=(MARKUP,))
    page = open_page(render(replace(PAGE, lead=MARKUP, squares=(replace(BAD, runs=(run,)),))))
    page.locator("button.square").first.click()
    assert page.locator("[data-run] pre").text_content() == MARKUP
    assert page.locator("img").count() == 0
    assert page.title() == "A bake-off · Semel crash lab: does not hold"
    assert page.requests_made == [page.url]


@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone_nothing_is_wider_than_the_screen_and_a_square_names_its_column(open_page, width):
    wide = tuple(f"column number {n}" for n in range(12))
    squares = tuple(replace(BAD, column=column) for column in wide)
    page = open_page(render(replace(PAGE, columns=wide, squares=squares)), width=width)
    page.locator("button.square").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("button.square .column:visible").count() == 24


@pytest.mark.parametrize("stray", [replace(BAD, row="nobody"), replace(BAD, column="nowhere"), BAD])
def test_a_square_without_a_place_of_its_own_is_refused(stray):
    with pytest.raises(ValueError, match="place"):
        render(replace(PAGE, squares=(BAD, stray)))
