"""What the lab says of one's own agent: the command, the lines, the object, the page in a real browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import semel
from semel import connect
from semel.cli.main import main, parser
from semel.lab.model import ProviderKind, Window
from semel.lab.own.model import Campaign, Crash, Finding, Gap, Program, SeenBy
from semel.lab.own.report import Report

HERE = Path(__file__).parent
W1, W2, W3, W4 = Window


def crash(tool: str, window: Window, seen_by: SeenBy, finding: Finding, **more: object) -> Crash:
    gap = Gap(tool=tool, nth=1, window=window, seen_by=seen_by, passing=1)
    return Crash(gap=gap, finding=finding, killed_by_signal=9, processes=2, seconds=0.5, **more)


CRASHES = (
    *(crash("charge", window, SeenBy.GUARD, Finding.OK) for window in Window),
    crash("charge", W3, SeenBy.PROVIDER, Finding.ASKED, asks=1, because="it asked a person: who knows?"),
    crash("POST /mails", W2, SeenBy.PROVIDER, Finding.OK),
    crash(
        "POST /mails", W3, SeenBy.PROVIDER, Finding.DUPLICATE, twice=('POST /mails {"to":"<b>a</b>"}',) * 2
    ),
    crash("POST /mails", W4, SeenBy.PROVIDER, Finding.LOST, never=("charge {}",)),
)
PROGRAM = Program(target="my_agent:run", home=HERE, environment={})


def report_of(*crashes: Crash) -> Report:
    found = Campaign(
        program=PROGRAM,
        effects=Counter({"charge {}": 1, 'POST /mails {"to":"<b>a</b>"}': 1}),
        gaps=tuple(crash.gap for crash in crashes),
        crashes=crashes,
        seconds=2.0,
    )
    return Report(campaign=found, again="semel lab crash my_agent:run --gap {gap}")


# ------------------------------------------------------------------ the lines


def test_the_map_has_a_row_for_each_tool_with_the_worst_of_each_window():
    head, charge, mails = report_of(*CRASHES).lines()[:3]
    assert head.split() == ["W1", "W2", "W3", "W4"]
    assert charge.split() == ["charge", "OK", "OK", "ASKED", "OK"]
    assert mails.split() == ["POST", "/mails", "-", "OK", "DUPLICATE", "LOST"]


def test_what_is_wrong_names_tool_window_and_effect_and_how_to_see_it_again():
    lines = report_of(*CRASHES).lines()
    assert "POST /mails (call 1) killed at W3, seen by the provider: happened twice" in lines
    assert '    once too often: POST /mails {"to":"<b>a</b>"} (2 times)' in lines
    assert "    missing: charge {}" in lines
    assert "    again: semel lab crash my_agent:run --gap 'POST /mails#1@W3/provider'" in lines
    assert lines[-1] == "Does not hold. 8 real processes killed; happened twice: 1; never happened: 1."


def test_a_program_that_only_asked_holds_and_says_how_often():
    report = report_of(*CRASHES[:5])
    report.assert_once()
    assert report.conclusion() == (
        "Holds: 5 real processes killed; nothing happened twice, nothing is lost; 1 runs stopped for a person."
    )
    assert [gap.name for gap in report.asked] == ["charge#1@W3/provider"]


def test_a_person_who_was_asked_and_answered_is_told_apart_from_one_who_was_not():
    answered = crash("charge", W3, SeenBy.GUARD, Finding.OK, asks=1)
    assert report_of(answered).conclusion() == (
        "Holds: 1 real processes killed, and every effect happened once; a person was asked in 1 runs."
    )


@pytest.mark.parametrize("finding", [f for f in Finding if f > Finding.ASKED])
def test_every_grave_finding_fails_the_assertion(finding):
    with pytest.raises(AssertionError, match="Does not hold"):
        report_of(CRASHES[0], crash("mail", W3, SeenBy.GUARD, finding)).assert_once()


def test_nothing_tried_is_no_pass():
    assert not replace(report_of(*CRASHES[:1]).campaign, crashes=()).holds


# ------------------------------------------------------------------ the page


def test_the_page_has_a_square_for_every_tool_and_window(open_page):
    page = open_page(report_of(*CRASHES).to_html())
    squares = page.locator("button.square")
    assert [squares.nth(n).get_attribute("data-verdict") for n in range(8)] == [
        *["OK", "OK", "OK", "OK"],  # the colour of what asked a person is that of what is well
        *["", "OK", "DUPLICATE", "LOST"],
    ]
    assert "stopped for a person, 1 of 2" in squares.nth(2).inner_text()
    assert "cannot be seen without a guard" in squares.nth(4).inner_text()


def test_a_square_opens_its_processes_and_says_how_to_see_them_again(open_page):
    page = open_page(report_of(*CRASHES).to_html())
    page.locator("button.square").nth(6).click()
    runs = page.locator("[data-run]")
    assert runs.count() == 1
    runs.first.locator("summary").click()
    text = runs.first.locator("pre").text_content()
    assert 'once too often: POST /mails {"to":"<b>a</b>"} (2 times)' in text
    assert "again: semel lab crash my_agent:run --gap 'POST /mails#1@W3/provider'" in text
    page.locator("button.square").nth(2).click()
    assert page.locator("[data-run]").count() == 2


def test_the_page_of_a_real_run_is_one_file_that_fits_a_phone(open_page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(HERE)
    out = tmp_path / "out"
    assert main(["lab", "crash", "crash_programs:naive", "--windows", "W2,W3", "--out", str(out)]) == 1
    page = open_page((out / "report.html").read_text(encoding="utf-8"), width=360)
    page.locator("button.square").nth(2).click()
    assert page.locator("[data-run]").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.requests_made == [page.url]
    assert "does not hold" in page.title()
    assert json.loads((out / "crash.json").read_text())["verdicts"]["DUPLICATE"] == 3


# ------------------------------------------------------------------ the command


def test_the_command_prints_one_object_and_says_by_its_status_whether_it_holds(monkeypatch, capsys):
    monkeypatch.chdir(HERE)
    status = main(["lab", "crash", "crash_programs:naive", "--gap", "POST /charge#1@W3/provider", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert status == 1
    assert told["holds"] is False
    assert told["crash_free"] == {'POST /charge {"amount":1}': 1, 'POST /mail {"to":"somebody"}': 1}
    (row,) = told["crashes"]
    assert row["tool"] == "POST /charge"
    assert (row["window"], row["seen_by"], row["verdict"]) == ("W3", "provider", "DUPLICATE")
    assert row["killed_by_signal"] == 9
    assert row["twice"] == ['POST /charge {"amount":1}']


def test_what_cannot_be_tried_is_said_in_one_line_with_status_2(monkeypatch, capsys):
    monkeypatch.chdir(HERE)
    assert main(["lab", "crash", "crash_programs:has_no_effect"]) == 2
    assert capsys.readouterr().err.startswith("semel: The crash-free run had no effect")


def test_the_command_that_repeats_a_crash_carries_what_the_run_was_told(monkeypatch, capsys):
    monkeypatch.chdir(HERE)
    options = ["--provider", "blind", "--identity", "amount", "--env", "A={provider} b"]
    main(["lab", "crash", "crash_programs:naive", *options, "--windows", "W3"])
    assert (
        "again: semel lab crash crash_programs:naive --env 'A={provider} b' --provider blind --identity amount "
        "--gap 'POST /charge#1@W3/provider'"
    ) in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", [["--windows", "W9"], ["--env", "NOTHING"], ["--provider", "kind"], []], ids=str
)
def test_a_wrong_option_is_refused_before_anything_is_started(wrong, capsys):
    target = ["crash_programs:naive"] if wrong else []
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["lab", "crash", *target, *wrong])
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_ctrl_c_ends_the_lab_and_every_process_of_the_program(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    command = [sys.executable, "-m", "semel.cli.main", "lab", "crash", "--env", f"FIFO={tmp_path}/fifo"]
    target = "crash_programs:says_that_it_lives_and_waits_for_ever"
    with (
        subprocess.Popen([*command, target], cwd=HERE, stderr=subprocess.PIPE, text=True) as lab,
        (tmp_path / "fifo").open("rb", buffering=0) as fifo,
    ):
        assert fifo.read(5) == b"alive"
        lab.send_signal(signal.SIGINT)
        _, err = lab.communicate(timeout=60)
        assert fifo.read() in (b"", b"alive"), "it outlived the lab"
    assert lab.returncode == 130
    assert err.endswith("semel: interrupted\n")


def test_every_kind_of_provider_can_be_chosen():
    for kind in ProviderKind:
        assert parser().parse_args(["lab", "crash", "a:b", "--provider", kind]).provider == kind


# ------------------------------------------------------------------ how the lab gets into a guard


def test_whoever_watches_guards_passes_by_every_checkpoint_and_only_those_opened_meanwhile(tmp_path):
    seen: list[str] = []
    before = semel.open(f"sqlite:///{tmp_path}/before.db")
    connect.watch_guards(lambda store: lambda place, key: seen.append(place))
    try:
        watched = semel.open(
            f"sqlite:///{tmp_path}/watched.db", checkpoint=lambda place, key: seen.append("own")
        )
    finally:
        connect.watch_guards(None)
    after = semel.open(f"sqlite:///{tmp_path}/after.db")

    def call(guard):
        @guard.tool(effect=semel.Unsafe())
        def tool() -> None: ...

        with guard, guard.run("a run") as run:
            run.call(tool)

    call(before)
    call(after)
    assert seen == []
    call(watched)
    places = ["claiming", "claimed", "effect_done", "completed"]
    assert seen == [told for place in places for told in ("own", place)]


def test_a_program_that_no_lab_watches_loads_nothing_of_the_lab(tmp_path):
    program = (
        "import semel, sys; semel.open(':memory:').close(); print([m for m in sys.modules if 'lab' in m])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
