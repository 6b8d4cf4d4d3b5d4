"""`crash_lab` in somebody's test suite: a session of pytest of its own, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="pip install pydantic-ai-slim")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "crash"
PLUGIN = "semel.lab.pytest_plugin"

HOW = 'env={"BILLING_URL": "{provider}"}, identity=["customer", "period", "to", "subject"], preload=["pydantic_ai"]'


@pytest.fixture
def session(tmp_path):
    """Start pytest over a test file; strict about markers and warnings, as this project is."""

    def start(tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_mine.py").write_text(tests, encoding="utf-8")
        strict = ["-p", PLUGIN, "--strict-markers", "-W", "error", "-p", "no:cacheprovider"]
        places = os.pathsep.join(
            [str(EXAMPLES), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        )
        return subprocess.run(
            [sys.executable, "-m", "pytest", *strict, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={n: v for n, v in os.environ.items() if not n.startswith("PYTEST")} | {"PYTHONPATH": places},
        )

    return start


def said(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.removeprefix("E").strip() for line in ended.stdout.splitlines()]


def test_the_plugin_catches_the_naive_agent_and_says_what_happened_where_and_how_to_see_it_again(session):
    tests = f"""
import pytest

@pytest.mark.crash(windows=["W3"])
def test_my_agent(crash_lab):
    crash_lab.run("naive_agent:run", {HOW}).assert_once()
"""
    ended = session(tests)
    assert ended.returncode == 1
    assert "AssertionError: Does not hold. 2 real processes killed; happened twice: 2." in said(ended)
    assert "POST /charges (call 1) killed at W3, seen by the provider: happened twice" in said(ended)
    assert 'once too often: POST /charges {"customer":"cus_42","period":"2026-12"}' in said(ended)
    again = "pytest test_mine.py::test_my_agent --crash-gap 'POST /charges#1@W3/provider'"
    assert f"again: {again}" in said(ended)
    repeated = session(tests, "test_mine.py::test_my_agent", "--crash-gap", "POST /charges#1@W3/provider")
    assert "AssertionError: Does not hold. 1 real processes killed; happened twice: 1." in said(repeated)


def test_the_plugin_passes_the_guarded_agent(session):
    ended = session(f"""
import pytest

@pytest.mark.crash(windows=["W2", "W3"])
def test_my_agent(crash_lab):
    report = crash_lab.run("guarded_agent:run", {HOW})
    report.assert_once()
    assert {{crash.killed_by_signal for crash in report.crashes}} == {{9}}
    assert {{(gap.tool, gap.window) for gap in (crash.gap for crash in report.crashes)}} == {{
        (tool, window) for tool in ("ask_model", "charge", "send_email") for window in ("W2", "W3")
    }}
    assert report.asked == ()
""")
    assert ended.returncode == 0, ended.stdout


def test_a_function_of_the_test_module_itself_can_be_given(session):
    ended = session("""
import os, urllib.request

def program():
    request = urllib.request.Request(os.environ["SEMEL_LAB_PROVIDER"] + "/charge", b"{}", {"Idempotency-Key": "k"})
    urllib.request.urlopen(request).close()

def test_my_agent(crash_lab):
    crash_lab.run(program, windows=["W2", "W3", "W4"]).assert_once()

def test_my_agent_where_keys_are_ignored(crash_lab):
    report = crash_lab.run(program, provider="has-lookup", windows="W3")
    assert [crash.finding.name for crash in report.crashes] == ["DUPLICATE"]
""")
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("crash_lab.run(lambda: None)", "cannot be found by name"),
        ("crash_lab.run('crash_programs:naive', windows=['W9'])", "'W9' is not a valid Window"),
        ("crash_lab.run('crash_programs:has_no_effect')", "no effect that the lab could see"),
        ("crash_lab.run('crash_programs:naive', provider='kind')", "'kind' is not a valid ProviderKind"),
    ],
)
def test_what_cannot_be_tried_fails_in_one_line_without_a_stack(session, call, complaint):
    ended = session(f"def test_my_agent(crash_lab):\n    {call}\n")
    assert ended.returncode == 1
    assert ended.stdout.count("crash_lab: ") == 2, "once as the failure, once in the summary"
    assert complaint in ended.stdout
    assert "another exception" not in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "campaign.py" not in ended.stdout


def test_windows_named_one_by_one_in_the_marker_all_count(session):
    ended = session("""
import pytest

@pytest.mark.crash("W2", "W9")
def test_my_agent(crash_lab):
    crash_lab.run("crash_programs:naive")
""")
    assert ended.returncode == 1
    assert "'W9' is not a valid Window" in ended.stdout


def test_the_marker_is_registered_and_shown(session):
    ended = session("", "--markers")
    assert "@pytest.mark.crash(windows)" in ended.stdout
    fixtures = session("", "--fixtures")
    assert "crash_lab" in fixtures.stdout


def test_loading_the_plugin_brings_nothing_of_the_lab_along():
    """pytest loads it in every session where Semel is installed."""
    program = f"import pytest, sys; import {PLUGIN}; print(*sorted(m for m in sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(ended.stdout.split())
    assert {name for name in loaded if name.startswith("semel.lab")} == {"semel.lab", PLUGIN}
    assert "rich" not in loaded


def test_the_fixture_needs_no_rich(session):
    ended = session("""
import sys
sys.modules["rich"] = None

def test_my_agent(crash_lab):
    report = crash_lab.run("crash_programs:naive", windows=["W2"])
    assert report.lines() and report.to_json() and report.to_html()
""")
    assert ended.returncode == 0, ended.stdout
