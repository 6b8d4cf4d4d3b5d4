"""What stacked retries make of one intent, counted by a provider that does it and never answers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from semel.cli.main import main
from semel.lab import amplification
from semel.lab import amplification_report as report
from semel.lab.amplification import TRIES, Amplification, KeyFrom, Layer, Row, Setting
from semel.lab.model import ProviderKind


@pytest.fixture(scope="module")
def found() -> Amplification:
    return amplification.run()


def row_of(found: Amplification, provider: ProviderKind, key_from: KeyFrom | None, client_tries: int) -> Row:
    """Of the settings that declare the business event."""
    wanted = Setting(provider=provider, key_from=key_from, client_tries=client_tries)
    (row,) = (row for row in found.rows if row.setting == wanted)
    return row


@pytest.mark.parametrize("provider", ProviderKind)
def test_without_semel_and_without_a_key_four_layers_make_81_effects_of_one_intent(found, provider):
    row = row_of(found, provider, KeyFrom.NOBODY, TRIES)
    assert (row.requests, row.effects) == (81, 81)
    assert row.tries == {Layer.MODEL: 3, Layer.STEP: 9, Layer.WRAPPER: 27, Layer.CLIENT: 81}


@pytest.mark.parametrize(
    ("key_from", "effects"),
    [
        (KeyFrom.CLIENT, 81),
        (KeyFrom.WRAPPER, 27),
        (KeyFrom.STEP, 9),
        (KeyFrom.MODEL, 3),
        (KeyFrom.EVENT, 1),
    ],
)
def test_a_key_helps_as_far_as_the_layer_that_makes_it_reaches(found, key_from, effects):
    row = row_of(found, ProviderKind.HONOURS_KEYS, key_from, TRIES)
    assert (row.requests, row.effects) == (81, effects)


@pytest.mark.parametrize(
    ("provider", "requests", "lookups", "asked"),
    [
        (ProviderKind.HONOURS_KEYS, 27, 0, False),
        (ProviderKind.HAS_LOOKUP, 1, 1, False),
        (ProviderKind.BLIND, 1, 0, True),
    ],
)
def test_with_semel_at_the_innermost_layer_there_is_one_effect(found, provider, requests, lookups, asked):
    row = row_of(found, provider, None, 1)
    assert (row.effects, row.requests, row.lookups, row.asked_a_person) == (1, requests, lookups, asked)


@pytest.mark.parametrize(
    ("provider", "requests", "effects", "asked"),
    [
        (ProviderKind.HONOURS_KEYS, 81, 1, False),
        (ProviderKind.HAS_LOOKUP, 3, 3, True),
        (ProviderKind.BLIND, 3, 3, True),
    ],
)
def test_a_retry_below_the_guard_is_shown_for_what_it_is(found, provider, requests, effects, asked):
    row = row_of(found, provider, None, TRIES)
    assert (row.requests, row.effects, row.asked_a_person) == (requests, effects, asked)
    assert any("a retry below the guard" in line for line in report.lines(found))


def test_where_the_business_event_is_not_declared_each_call_id_is_an_intent(found):
    (row,) = (row for row in found.rows if row.setting.once_per is None)
    assert (row.requests, row.effects) == (27, 3)


def test_what_the_provider_counts_is_what_the_client_sent(found):
    assert [row.tries[Layer.CLIENT] for row in found.rows] == [row.requests for row in found.rows]


def test_the_command_prints_one_object_and_says_by_its_status_whether_it_holds(capsys, tmp_path):
    assert main(["lab", "amplification", "--json", "--out", str(tmp_path)]) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"report.html", "amplification.json"}
    told = json.loads(capsys.readouterr().out)
    assert told["holds"]
    assert len(told["rows"]) == len(amplification.SETTINGS)
    assert {row["guard"] for row in told["rows"]} == {"none", "semel"}
    assert {"requests", "effects", "lookups", "provider", "client_retries"} <= set(told["rows"][0])


def test_a_row_that_is_not_as_it_should_be_is_named_and_does_not_hold(found):
    wrong = replace(found, rows=(replace(found.rows[0], effects=80), *found.rows[1:]))
    assert not wrong.holds
    assert report.lines(wrong)[-1].startswith("Does not hold")
    assert "expected 81 effects" in "\n".join(report.lines(wrong))


def test_the_last_line_says_what_was_measured(found):
    assert report.lines(found)[-1] == (
        "Measured: 81 requests and 81 effects of one intent without Semel; 1 effect with it."
    )


def test_the_page_has_a_square_for_each_setting_and_opens_what_was_tried(found, open_page):
    page = open_page(report.to_html(found), width=360)
    bare = page.locator("button.square").first
    assert bare.get_attribute("data-verdict") == "DUPLICATE"
    assert "81 requests, 81 effects" in bare.inner_text()
    bare.click()
    run = page.locator("[data-run]")
    run.locator("summary").click()
    assert "HTTP client: 81 tries" in run.locator("pre").text_content()
    assert page.locator("button.square:enabled").count() == len(found.rows)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.requests_made == [page.url]
