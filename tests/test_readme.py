"""What the README says is so: its example survives a kill, its commands and names exist."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import semel
from semel.cli.main import parser
from semel.lab.levels import MODULES
from semel.lab.model import Selection

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATIENCE_SECONDS = 20.0  # far above anything seen


def between(start: str, end: str, text: str = README) -> str:
    found = re.findall(re.escape(start) + "(.*?)" + re.escape(end), text, re.DOTALL)
    assert len(found) == 1, f"{start} … {end} stands {len(found)} times in the text"
    return found[0]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


# ------------------------------------------------------------------ the example


@pytest.fixture
def example(tmp_path):
    """The example, as a reader saves it."""
    (code,) = blocks("python", between("<!-- example -->", "<!-- /example -->"))
    (tmp_path / "agent.py").write_text(code, encoding="utf-8")
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "agent.py"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def charges(folder: Path) -> list[str]:
    books = folder / "books.txt"
    return books.read_text().splitlines() if books.exists() else []


def wait_for_the_charge(folder: Path, process: subprocess.Popen[str]) -> None:
    """The process then stands at its prompt. Polls: a file tells nobody that it was written to."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not charges(folder):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends_at, "nothing was charged"
        time.sleep(0.005)


def kill_at_the_prompt(folder: Path) -> None:
    with start(folder) as process:
        wait_for_the_charge(folder, process)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGKILL


def run(folder: Path) -> str:
    """To the end; whoever is asked for Enter gets it, so that a second charge would not go unseen."""
    with start(folder) as process:
        out, err = process.communicate("\n" * 10, timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (0, "")
    return out


def test_the_example_survives_a_kill_and_charges_once(example):
    kill_at_the_prompt(example)
    assert len(charges(example)) == 1
    assert run(example) == "charged\n"
    assert len(charges(example)) == 1
    assert run(example) == "charged\n"
    assert len(charges(example)) == 1


def test_the_example_without_the_guard_charges_twice(example):
    """So the test above can fail: the bare function, killed in the same place, repeats itself."""
    program = (example / "agent.py").read_text()
    unguarded = re.sub(r"run\.call\(charge, (.*)\)\)", r"charge.fn(\1, call=Anybody))", program)
    assert unguarded != program
    unguarded = unguarded.replace("import semel\n", "import semel\n\nclass Anybody:\n    key = 'k'\n")
    (example / "agent.py").write_text(unguarded)
    kill_at_the_prompt(example)
    run(example)
    assert len(charges(example)) == 2


def test_the_example_that_nobody_kills_charges_once_and_is_only_told_again(example):
    assert run(example).endswith("charged\n")
    assert run(example) == "charged\n"
    assert len(charges(example)) == 1


def test_the_example_is_the_first_code_on_the_page_and_fits_on_a_screen():
    code = blocks("python")[0]
    assert code in between("<!-- example -->", "<!-- /example -->")
    assert len(code.splitlines()) <= 40


# ------------------------------------------------------------------ commands

COMMANDS = [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]


def test_the_two_commands_stand_at_the_top():
    assert COMMANDS[:2] == ["make lab", "make test"]
    assert README.index("make lab") < README.index("<!-- example -->")


@pytest.mark.parametrize("target", ["lab", "test", "lint"])
def test_each_make_command_has_a_rule_and_does_its_own_set_up(target, tmp_path):
    said = make("--dry-run", target, f"VENV={tmp_path}/venv")
    assert f"-m venv {tmp_path}/venv" in said, "it relies on what somebody else has set up"
    assert "pip install" in said


def test_make_alone_tells_what_there_is():
    said = make()
    assert all(f"make {target}" in said for target in ("lab", "test", "lint"))


def make(*arguments: str) -> str:
    given = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ended = subprocess.run(
        ["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, env=given
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`semel ((?:[a-z]+ ?)+)", README))))
def test_each_semel_command_that_is_named_exists(command, capsys):
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"semel {command.strip()}" in capsys.readouterr().out


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z]+)[ `]", README))))
def test_each_option_that_is_named_belongs_to_the_lab(option):
    assert option in help_of("lab", "matrix")


@pytest.mark.parametrize(
    "experiment", sorted(set(re.findall(r"^\| `semel lab ([a-z]+)` \|", README, re.MULTILINE)))
)
def test_each_experiment_prints_json_and_writes_a_page(experiment):
    assert {"--json", "--out"} <= set(help_of("lab", experiment).split())


def help_of(*command: str) -> str:
    at = parser()
    for name in command:
        (choices,) = (a.choices for a in at._actions if isinstance(a, argparse._SubParsersAction))
        at = choices[name]
    return at.format_help()


# ------------------------------------------------------------------ names, numbers, files


def test_each_public_name_that_is_named_is_there_once_semel_is_imported():
    named = set(re.findall(r"(?<!from )\bsemel\.([A-Za-z_]+(?:\.[a-z_]+)*)", README)) - {
        "db"
    }  # a file, in an example
    assert {"open", "Unsafe", "http.check"} <= named
    program = "import semel\n" + "".join(f"semel.{name}\n" for name in sorted(named))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bguard\.([a-z_]+)", README))))
def test_each_verb_of_the_guard_that_is_named_exists(name):
    assert callable(getattr(semel.Guard, name))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bcall\.([a-z_]+)", README))))
def test_each_field_of_the_call_that_is_named_exists(name):
    assert name in dir(semel.Call)


def test_the_guarantee_table_has_a_row_for_every_kind_of_effect():
    table = between("| effect | who dedupes |", "\n\n")
    rows = re.findall(r"^\| `([A-Z][a-z]+)\(", table, re.MULTILINE)
    assert rows == ["Safe", "Idempotent", "Atomic", "Unsafe", "Unsafe", "Steps"]
    kinds = (semel.Safe, semel.Idempotent, semel.Atomic, semel.Unsafe, semel.Steps)
    assert set(rows) == {kind.__name__ for kind in kinds}


def test_the_number_of_cells_and_the_levels_are_as_they_are():
    (number,) = re.findall(r"each of (\d+) cells", README)
    assert int(number) == len(Selection().cells())
    assert re.findall(r"^\| (L\d) \|", README, re.MULTILINE) == [f"L{level}" for level in MODULES]


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_each_file_that_is_linked_is_there(target):
    assert (ROOT / target).exists()


def test_the_page_opens_with_one_sentence_and_four_lines_of_what_goes_wrong():
    title, sentence, wrong = README.split("\n\n")[:3]
    assert title == "# Semel"
    assert sentence.startswith("**One intent, one effect")
    assert "\n" not in sentence
    assert len(wrong.splitlines()) == 4
