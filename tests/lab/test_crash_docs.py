"""The page about one's own agent: its commands are run as a reader types them, and print what stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="pip install pydantic-ai-slim")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "crash-your-own-agent.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "crash"
PLUGIN = "semel.lab.pytest_plugin"
PREPARATIONS = ("pip install", "cd ")


def commands() -> list[str]:
    """In the order of the page, without those that only prepare."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith(PREPARATIONS)]


def promised_after(command: str) -> list[str]:
    """The lines of the `text` block that follows a command, if one does before the next command."""
    after = PAGE.partition(f"\n{command}\n```")[2].partition("```sh")[0]
    found = re.search(r"^```text\n(.*?)^```$", after, re.DOTALL | re.MULTILINE)
    return found[1].splitlines() if found else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The examples, as a reader has them; no configuration of this project above them."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "crash", ignore=shutil.ignore_patterns("__pycache__")))


def typed(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    words = {"semel": ["-m", "semel.cli.main"], "pytest": ["-m", "pytest", "-p", PLUGIN]}[program]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return subprocess.run(
        [sys.executable, *words, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=clean,
    )


COMMANDS = commands()
NAIVE, KEYED, GUARDED = (f"{name}_agent:run" for name in ("naive", "keyed", "guarded"))
STATUS = [2, 1, 1, 1, 0, 0, 1, 0, 0]


def test_every_command_of_the_page_is_known_here():
    assert len(COMMANDS) == len(STATUS)
    assert [w for c in COMMANDS for w in (NAIVE, KEYED, GUARDED, "-k", "amplification") if w in c] == [
        *[NAIVE] * 3,
        KEYED,
        GUARDED,
        "-k",
        "-k",
        GUARDED,
        "amplification",
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("command", "status"), list(zip(COMMANDS, STATUS, strict=True)))
def test_each_command_of_the_page_does_what_the_page_says(command, status, folder):
    ended = typed(command, folder)
    assert ended.returncode == status, ended.stdout + ended.stderr
    said = [line.removeprefix("E").strip() for line in ended.stdout.splitlines()]
    promised = [line.strip() for line in promised_after(command)]
    assert [line for line in promised if line not in said] == []
    if "--json" in command:
        assert json.loads(ended.stdout)["holds"]
    if "--out" in command:
        assert {file.name for file in (folder / "lab-out").iterdir()} == {"report.html", "crash.json"}
        (killed,) = re.findall(r"each of the (\d+) killed processes", PAGE)
        assert f"Holds: {killed} real processes killed" in ended.stdout


def test_the_page_promises_lines_for_the_commands_that_show_something():
    assert [bool(promised_after(command)) for command in COMMANDS].count(True) == 4


def test_code_on_the_page_is_that_of_the_examples():
    code = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    sources = "\n".join(file.read_text(encoding="utf-8") for file in EXAMPLES.glob("*.py"))
    assert len(code) == 2
    assert [block for block in code for part in block.split("\n\n\n") if part.strip() not in sources] == []


def test_each_file_that_is_linked_is_there():
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert len(targets) >= 4
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []


@pytest.mark.parametrize("agent", ["naive", "keyed", "guarded"])
def test_no_agent_imports_anything_of_the_lab(agent):
    source = (EXAMPLES / f"{agent}_agent.py").read_text(encoding="utf-8")
    assert not re.search(r"semel\.lab|SEMEL_LAB", source)
    assert ("import semel" in source) == (agent == "guarded")


def test_an_installed_semel_brings_the_fixture_under_the_name_of_its_module():
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"{PLUGIN}" = "{PLUGIN}"' in declared
    assert {ep.name for ep in entry_points(group="pytest11") if ep.value == PLUGIN} <= {PLUGIN}
