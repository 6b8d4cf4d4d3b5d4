"""What `import semel` brings along: nothing but a part of Python, and no adapter before it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import semel

SOURCE = Path(semel.__file__).parents[1]


def fresh(code: str, *options: str, **environment: str) -> list[str]:
    """The lines that a fresh interpreter prints; a warning is an error there."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def loaded_by(code: str) -> set[str]:
    """The modules that this brings along, beyond those of a bare interpreter."""
    return set(
        fresh(f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))")[
            0
        ].split()
    )


def test_import_semel_loads_no_third_party_module():
    roots = {name.partition(".")[0] for name in loaded_by("import semel")}
    assert "semel" in roots
    assert roots - {"semel"} - set(sys.stdlib_module_names) == set()


def test_import_semel_loads_no_store_no_agent_no_lab_and_no_command():
    rooms = {name.split(".")[1] for name in loaded_by("import semel") if name.startswith("semel.")}
    assert rooms & {"stores", "agent", "testing", "lab", "cli", "web", "integrations"} == set()


def test_import_semel_loads_nothing_of_the_library_that_is_slow_to_import():
    slow = {
        "asyncio",
        "concurrent.futures",
        "sqlite3",
        "uuid",
        "http.client",
        "urllib.request",
        "socket",
        "ssl",
    }
    slow |= {"email", "logging", "pickle", "tempfile", "shutil", "subprocess", "multiprocessing", "unittest"}
    assert loaded_by("import semel") & slow == set()


def test_opening_a_store_loads_that_store_and_no_other():
    loaded = loaded_by("import semel; semel.open(':memory:').close()")
    assert "semel.stores.sqlite.store" in loaded
    assert [name for name in loaded if "postgres" in name or "psycopg" in name] == []


def test_a_sync_program_never_loads_asyncio():
    program = (
        "import semel\n"
        "with semel.open(':memory:') as guard, guard.run('run') as run:\n"
        "    run.call(guard.tool(effect=semel.Unsafe(), name='charge')(lambda: 'charged'))"
    )
    assert "asyncio" not in loaded_by(program)


def test_semel_guards_a_call_on_a_python_that_has_nothing_installed():
    program = (
        "import semel, sys\n"
        "with semel.open(':memory:') as guard, guard.run('run') as run:\n"
        "    print(run.call(guard.tool(effect=semel.Unsafe(), name='charge')(lambda: 'charged')))\n"
        "print([path for path in sys.path if 'site-packages' in path])"
    )
    assert fresh(program, "-S", PYTHONPATH=str(SOURCE)) == ["charged", "[]"]


def test_a_store_whose_driver_is_missing_is_missed_politely_and_only_when_it_is_asked_for():
    program = (
        "import semel\n"
        "try:\n"
        "    semel.open('postgresql://nowhere/db')\n"
        "except semel.UsageError as refused:\n"
        "    print(refused)"
    )
    (said,) = fresh(program, "-S", PYTHONPATH=str(SOURCE))
    assert "Nothing was opened" in said
    assert "pip install 'semel[postgres]'" in said


def test_http_rules_are_there_after_a_plain_import_of_semel():
    assert fresh("import semel; print(semel.http.STRIPE.name)") == ["stripe"]
