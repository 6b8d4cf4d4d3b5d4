"""The front of the library: its names, their words, its errors by the one question, and its types."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import semel

ROOT = Path(__file__).parents[1]
TYPING = ROOT / "tests" / "typing"
PUBLIC = [name for name in semel.__all__ if not name.startswith("__")]
ERRORS = [
    kind
    for kind in (getattr(semel, name) for name in PUBLIC)
    if isinstance(kind, type) and issubclass(kind, BaseException)
]


# ------------------------------------------------------------------ names


@pytest.mark.parametrize("name", semel.__all__)
def test_each_public_name_is_there(name):
    assert getattr(semel, name) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_says_what_it_is(name):
    words = getattr(semel, name).__doc__ or ""
    assert words.strip()
    assert not words.startswith(f"{name}("), (
        "that is the signature, which `dataclass` writes when nobody does"
    )


def test_the_list_of_names_is_sorted_whole_and_without_repetition():
    assert semel.__all__ == sorted(set(semel.__all__), key=lambda name: (name[0].islower(), name))
    ours = [
        name
        for name, value in vars(semel).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and str(getattr(value, "__module__", "")).startswith("semel")
    ]
    assert set(ours) - set(PUBLIC) == set(), "it can be had, and is not in the list"


@pytest.mark.parametrize(
    "kind", [semel.Guard, semel.Run, semel.AsyncRun, semel.Call, semel.Tool], ids=lambda kind: kind.__name__
)
def test_each_public_verb_of_what_a_program_holds_in_its_hands_says_what_it_does(kind):
    plain = {
        "run_id",
        "store",
        "namespace",
        "close",
        "bind",
        "business_identity",
        "injected",
        "read",
        "deadline_at",
    }
    verbs = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    said = {name for name, value in verbs.items() if getattr(value, "__doc__", None)}
    fields = set(getattr(kind, "__dataclass_fields__", ()))  # told in the docstring of the class
    assert verbs.keys() - said - plain - fields == set()
    assert all(f"`{name}" in (kind.__doc__ or "") for name in fields & {"key", "attempt", "arguments"})


def test_the_version_is_the_one_that_is_installed():
    assert semel.__version__ == version("semel")


# ------------------------------------------------------------------ errors, by the one question

DID_IT_HAPPEN = {
    semel.SemelError: "did_not_happen",
    semel.NotExecuted: "did_not_happen",
    semel.Rejected: "did_not_happen",
    semel.NotSent: "did_not_happen",
    semel.ClaimLost: "did_not_happen",
    semel.PreviouslyFailed: "did_not_happen",
    semel.ClaimHeld: "unknown",  # a live owner is at work on it
    semel.Reaped: "happened",  # unless it says otherwise: see below
    semel.Compensated: "did_not_happen",  # unless it says otherwise: see below
    semel.OutcomeUnknown: "unknown",
    semel.SagaOpen: "unknown",
    semel.PausedForPerson: "unknown",
    semel.ResultLost: "happened",
    semel.Diverged: "happened",
    semel.StoreError: "unknown",  # an earlier attempt may have
    semel.StoreUnavailable: "unknown",
    semel.CommitInDoubt: "unknown",
    semel.TransactionConflict: "unknown",
    semel.WriteRefused: "unknown",
    semel.StoreVanished: "unknown",
    semel.UsageError: "did_not_happen",
    semel.Unencodable: "did_not_happen",
    semel.KeyReused: "did_not_happen",
    semel.IllegalTransition: "did_not_happen",
}


def test_the_table_holds_every_public_error():
    assert set(DID_IT_HAPPEN) == set(ERRORS)


@pytest.mark.parametrize("kind", DID_IT_HAPPEN, ids=lambda kind: kind.__name__)
def test_each_error_answers_the_question(kind):
    assert kind("words").outcome == DID_IT_HAPPEN[kind]


@pytest.mark.parametrize(
    "group", [semel.NotExecuted, semel.OutcomeUnknown, semel.StoreError, semel.UsageError]
)
def test_whoever_catches_a_group_of_errors_learns_one_answer(group):
    """`except semel.NotExecuted:` must not catch what may have happened."""
    answers = {kind.__name__: kind("words").outcome for kind in ERRORS if issubclass(kind, group)}
    assert answers == dict.fromkeys(answers, group("words").outcome)


def test_what_is_past_retention_says_how_it_ended():
    assert semel.Reaped("words", outcome="did_not_happen").outcome == "did_not_happen"


def test_what_was_compensated_says_how_it_had_ended():
    assert semel.Compensated("words", outcome="happened").outcome == "happened"


def test_one_clause_catches_every_error_but_the_one_that_has_to_stop_a_run():
    assert [kind for kind in ERRORS if not issubclass(kind, semel.SemelError)] == [semel.PausedForPerson]
    assert not issubclass(semel.PausedForPerson, Exception)


# ------------------------------------------------------------------ types


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """Of `mypy --strict`, as `file:line`, each with its text."""
    pytest.importorskip("mypy", reason="pip install mypy")
    folder = tmp_path_factory.mktemp("types")
    readme = folder / "readme.py"
    (code,) = re.findall(
        r"<!-- example -->\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    readme.write_text(code)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(TYPING.glob("*.py")), readme],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stderr + ended.stdout
    assert ": error: " in ended.stdout, "it checked nothing"
    return [line for line in ended.stdout.splitlines() if ": error: " in line]


@pytest.mark.parametrize("name", ["example.py", "steps_and_sagas.py", "readme.py"])
def test_a_program_as_the_readme_has_it_passes_the_type_checker(complaints, name):
    assert [line for line in complaints if name in line] == []


def test_every_wrong_call_is_refused_by_the_type_checker_and_nothing_else_is(complaints):
    lines = (TYPING / "wrong_calls.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "  # wrong: " in line}
    assert len(wrong) > 20
    assert {int(line.split(":")[1]) for line in complaints if "wrong_calls.py" in line} == wrong


def test_the_package_tells_type_checkers_that_it_is_typed():
    assert (Path(semel.__file__).parent / "py.typed").exists()
