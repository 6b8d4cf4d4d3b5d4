"""`semel doubts`, `semel show`, `semel resolve`: as a person on call types them."""

from __future__ import annotations

import pytest

import semel
from semel.cli.main import main


@pytest.fixture
def store(tmp_path):
    """The URL of a store with one operation in doubt."""
    url = f"sqlite:///{tmp_path}/agent.db"
    with semel.open(url) as guard:

        @guard.tool(effect=semel.Unsafe())
        def charge(customer: str) -> str:
            raise TimeoutError("no answer")

        with guard.run("renewal") as run, pytest.raises(semel.PausedForPerson):
            run.call(charge, customer="ann")
    return url


def key_of(store, capsys):
    assert main(["doubts", "--store", store]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert last == "1 in doubt"
    return first.split()[0]


def test_what_is_in_doubt_is_listed_shown_and_resolved(store, capsys):
    key = key_of(store, capsys)
    answer = ["--happened", '{"id": "ch_1"}', "--by", "ann", "--why", "in the books"]
    assert main(["resolve", key, "--store", store, *answer]) == 0
    assert f"{key} COMMITTED charge" in capsys.readouterr().out
    assert main(["show", key, "--store", store]) == 0
    shown = capsys.readouterr().out
    assert 'result {"id":"ch_1"}' in shown
    assert "by ann: in the books" in shown
    assert "None" not in shown
    assert main(["doubts", "--store", store]) == 0
    assert capsys.readouterr().out == "nothing is in doubt\n"


def test_an_answer_that_is_no_json_is_refused_before_the_store_is_opened(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "resolve",
                "k",
                "--store",
                f"sqlite:///{tmp_path}/no.db",
                "--happened",
                "{",
                "--by",
                "a",
                "--why",
                "b",
            ]
        )
    assert ended.value.code == 2
    assert "is not JSON" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", [["doubts"], ["show", "k"], ["resolve", "k", "--run-it", "--by", "a", "--why", "b"]]
)
def test_a_question_to_a_store_that_is_not_there_makes_none(tmp_path, capsys, command):
    assert main([*command, "--store", f"sqlite:///{tmp_path}/no.db"]) == 2
    assert "Nothing was changed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_not_there_is_said_to_be_missing(store, capsys):
    assert main(["show", "k", "--store", store]) == 1
    assert "no operation has the key k" in capsys.readouterr().err
