"""The grid on PostgreSQL: same cells, same verdicts, and what must survive is kept there and nowhere else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import semel
from semel.cli.main import main
from semel.lab import durable, injector, matrix
from semel.lab.client import World
from semel.lab.injector import Finished, Kill
from semel.lab.levels import l2_stable_key, l4_atomic, l5_semel
from semel.lab.model import ProviderKind, Selection, StoreKind, Window
from semel.lab.wire import Settings

SELECTION = Selection(levels=(2, 4, 5), windows=(Window.W2, Window.W3), steps=(2,))


def no_controls(address: str, seed: int, postgres_url: str | None) -> tuple[()]:
    assert postgres_url is not None
    return ()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with durable.server_for(StoreKind.POSTGRES) as url:
        assert url is not None
        yield url


@pytest.fixture
def cell(begin: Callable[[Settings], World], url: str) -> World:
    begun = begin(Settings(provider=ProviderKind.HONOURS_KEYS))
    return World(address=begun.address, cell_id=begun.cell_id, postgres_url=url)


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def test_every_cell_was_killed_and_is_as_the_ladder_predicts() -> None:
    found = matrix.run(SELECTION, store=StoreKind.POSTGRES, controls=no_controls)
    assert {cell.killed_by_signal for cell in found.cells} == {signal.SIGKILL}
    assert [cell for cell in found.cells if not cell.is_as_predicted] == []
    assert found.store is StoreKind.POSTGRES


@pytest.mark.parametrize("level", [l2_stable_key, l4_atomic, l5_semel])
def test_what_must_survive_is_in_the_database_and_no_file_is_written(
    level: object, cell: World, url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "durable"
    folder.mkdir()
    injector.kill(level.run, cell, folder, Kill(window=Window.W3, step=2))  # type: ignore[attr-defined]
    assert list(folder.iterdir()) == []
    assert isinstance(injector.resume(level.run, cell, folder), Finished)  # type: ignore[attr-defined]
    assert list(folder.iterdir()) == []
    if level is l5_semel:
        assert rows(url, "SELECT DISTINCT namespace FROM semel_operations") == [(cell.cell_id,)]


def test_two_cells_share_a_server_and_see_nothing_of_each_other(url: str, tmp_path: Path) -> None:
    one, other = (World(address="127.0.0.1:1", cell_id=name, postgres_url=url) for name in ("one", "other"))
    for world in (one, other):
        database = durable.connect(world, tmp_path)
        database.execute("CREATE TABLE mine (n INTEGER)")
        database.execute("INSERT INTO mine VALUES (?)", [7])
        assert database.rows("SELECT n FROM mine") == [{"n": 7}]
        database.close()


def test_the_databases_of_a_run_are_gone_when_it_ends(url: str) -> None:
    server = url.rpartition("/")[0] + "/postgres"
    names = "SELECT datname FROM pg_database WHERE datname LIKE 'semel_lab_%' ORDER BY 1"
    before = rows(server, names)
    with durable._fresh_database(server) as fresh:
        assert len(rows(server, names)) == len(before) + 1
        semel.open(fresh).close()
    assert rows(server, names) == before


def test_a_server_that_does_not_answer_is_named_before_anything_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(os.environ, "SEMEL_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert main(["lab", "matrix", "--level", "4", "--window", "W3", "--store", "postgres", "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "SEMEL_POSTGRES_URL" in said.err
