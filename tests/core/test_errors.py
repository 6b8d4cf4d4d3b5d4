"""What a caller is told: errors that travel, that answer the one question, and that come before any effect."""

from __future__ import annotations

import copy
import inspect
import pickle
import sqlite3
import threading
from datetime import timedelta

import pytest
from workbench import call, register, run_program

import semel
from semel import errors

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException) and kind.__module__ == "semel.errors"
]
SECOND = timedelta(seconds=1)


# ------------------------------------------------------------------ errors travel


def made(kind: type[BaseException]) -> BaseException:
    """One with every attribute that its constructor takes."""
    given = {
        "key": "k" * 64,
        "retry_after": SECOND,
        "result": {"id": 1},
        "fingerprint": "f" * 64,
        "outcome": "unknown",
    }
    taken = inspect.signature(kind.__init__).parameters
    return kind("what happened", **{name: value for name, value in given.items() if name in taken})


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_comes_through_pickle_with_all_it_carries(kind, protocol):
    error = made(kind)
    for travelled in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert type(travelled) is kind
        assert str(travelled) == "what happened"
        assert vars(travelled) == vars(error)
        assert travelled.outcome == error.outcome


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_can_be_raised_with_words_alone(kind):
    with pytest.raises(kind, match="what happened") as raised:
        raise kind("what happened")
    assert raised.value.outcome in ("did_not_happen", "happened", "unknown")


@pytest.mark.parametrize("kind", [semel.OutcomeUnknown, semel.Diverged])
def test_an_error_that_carries_a_result_which_cannot_travel_travels_without_it(kind):
    error = kind("what happened", key="k", result=threading.Lock())
    travelled = pickle.loads(pickle.dumps(error))
    assert (str(travelled), travelled.key) == ("what happened", "k")


def test_only_the_question_for_a_person_is_no_exception():
    assert [kind for kind in CLASSES if not issubclass(kind, Exception)] == [semel.PausedForPerson]


def test_every_error_is_public():
    assert [kind.__name__ for kind in CLASSES if not hasattr(semel, kind.__name__)] == []


def test_the_public_names_are_there_and_sorted():
    assert all(hasattr(semel, name) for name in semel.__all__)
    assert len(set(semel.__all__)) == len(semel.__all__)


# ------------------------------------------------------------------ import semel


def test_importing_semel_loads_no_third_party_module():
    code = (
        "import sys; before = set(sys.modules); import semel\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before} - {'semel'}\n"
        "print(sorted(loaded - sys.stdlib_module_names))"
    )
    assert run_program(code) == "[]\n"


def test_importing_semel_and_a_sync_call_load_neither_asyncio_nor_a_foreign_database_driver():
    code = (
        "import sys, semel\n"
        "with semel.open(':memory:') as guard, guard.run('run') as run:\n"
        "    run.call(guard.tool(effect=semel.Unsafe(), name='charge')(lambda: 1))\n"
        "print(sorted({'asyncio', 'psycopg', 'uuid'} & set(sys.modules)))"
    )
    assert run_program(code) == "[]\n"


# ------------------------------------------------------------------ usage errors at the opening


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("agent.db", "names no store.*Nothing was opened"),
        ("", "names no store"),
        ("mysql://localhost/x", "names no store.*Known: sqlite://"),
        ("sqlite://agent.db", "names no file.*Three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///nowhere/agent.db", "does not exist.*Create it first"),
        ("sqlite:////", "is a directory"),
        ("sqlite:////proc/agent.db", "Nothing was"),
    ],
)
def test_a_url_where_no_store_can_be_is_refused(tmp_path, monkeypatch, url, what):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((semel.UsageError, semel.StoreUnavailable), match=what):
        semel.open(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"lease": timedelta(0)},
        {"lease": -SECOND},
        {"lease": 30},
        {"lease": None},
        {"wait": -SECOND},
        {"wait": 10.0},
        {"namespace": None},
        {"namespace": "a\x00"},
        {"namespace": "\ud800"},
        {"durability": "sometimes"},
        {"existing": "refuze"},
        {"colour": "red"},
        {"busy_timeout_seconds": "5"},
    ],
    ids=lambda options: "-".join(options),
)
def test_an_option_that_means_nothing_is_refused_and_nothing_is_opened(tmp_path, options):
    with pytest.raises(semel.UsageError, match=r"Nothing was (opened|sent)"):
        semel.open(f"sqlite:///{tmp_path}/agent.db", **options)


# ------------------------------------------------------------------ usage errors at the registration


def plain(to):
    return to


async def awaited(to, *, tx):
    return to


class Desk:
    def charge(self, to):
        return to


@pytest.mark.parametrize(
    ("fn", "options", "what"),
    [
        (lambda *args: None, {"name": "t"}, "no fixed name"),
        (lambda **kwargs: None, {"name": "t"}, "no fixed name"),
        (lambda a, /: None, {"name": "t"}, "no fixed name"),
        (Desk.charge, {}, "it is a method"),
        (plain, {"effect": semel.Unsafe}, "is not Safe"),
        (plain, {"effect": "unsafe"}, "is not Safe"),
        (plain, {"effect": None}, "is not Safe"),
        (plain, {"effect": semel.Atomic()}, "takes `tx`"),
        (awaited, {"effect": semel.Atomic()}, "plain function"),
        (lambda tx: None, {"name": "t"}, "takes `tx`"),
        (plain, {"attempts": 0}, "attempts=0"),
        (plain, {"attempts": "2"}, "attempts="),
        (plain, {"attempts": True}, "attempts="),
        (plain, {"name": ""}, "no name"),
        (plain, {"once_per": "customer"}, "once_per="),
        (plain, {"once_per": ()}, "once_per="),
        ("plain", {}, "not a function"),
    ],
)
def test_a_tool_that_cannot_be_guarded_is_refused(guard, fn, options, what):
    with pytest.raises(semel.UsageError, match=rf"{what}.*Nothing was registered"):
        guard.tool(**({"effect": semel.Unsafe()} | options))(fn)
    guard.tool(effect=semel.Unsafe(), name="t")(plain)


def test_two_tools_of_one_name_are_refused(guard):
    guard.tool(effect=semel.Unsafe())(plain)
    with pytest.raises(semel.UsageError, match=r"is registered already.*Pass name="):
        guard.tool(effect=semel.Unsafe())(plain)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: semel.Idempotent(key_ttl=3600), "must be a datetime.timedelta"),
        (lambda: semel.Idempotent(key_ttl=-SECOND), "not be negative"),
        (lambda: semel.Idempotent(key_ttl=SECOND), "not longer than request_deadline"),
        (lambda: semel.Idempotent(key_ttl=60 * SECOND), "not longer than request_deadline"),
        (
            lambda: semel.Idempotent(key_ttl=3600 * SECOND, request_deadline=None),
            "must be a datetime.timedelta",
        ),
        (lambda: semel.Unsafe(lookup_lag=30), "must be a datetime.timedelta"),
        (lambda: semel.Unsafe(request_deadline=-SECOND), "not be negative"),
        (lambda: semel.Unsafe(lookup="find"), "must be a function"),
        (lambda: semel.Inconclusive("busy", retry_after=5), "must be a timedelta"),
    ],
)
def test_a_declaration_that_cannot_be_true_is_refused(make, what):
    with pytest.raises(semel.UsageError, match=what):
        make()


# ------------------------------------------------------------------ usage errors at the call


@pytest.mark.parametrize("run_id", ["", None, 7, "a\x00b", "\ud800"])
def test_a_run_that_has_no_name_is_refused(guard, run_id):
    with pytest.raises(semel.UsageError, match="Nothing was sent"):
        guard.run(run_id)


def test_a_tool_that_is_not_registered_is_refused(guard, ledger):
    with guard.run("run") as run, pytest.raises(semel.UsageError, match=r"not registered.*Decorate it"):
        run.call(lambda: ledger.enter("charge"))
    assert ledger.lines() == []


def test_a_tool_outside_a_run_is_refused(guard, ledger):
    tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda: ledger.enter("charge"))
    with pytest.raises(semel.UsageError, match=r"outside a run.*`\.fn`"):
        tool()
    with guard.run("run"):
        tool()
    with pytest.raises(semel.UsageError, match="outside a run"):
        tool()
    tool.fn()
    assert len(ledger.lines()) == 2


def test_an_async_tool_in_a_sync_run_is_refused(guard, ledger):
    tool = register(guard, "async", lambda: ledger.enter("charge"), name="charge", effect=semel.Unsafe())
    with guard.run("run") as run, pytest.raises(semel.UsageError, match=r"is async.*`async with`"):
        run.call(tool)
    assert (ledger.lines(), guard.store.read_run("", "run")) == ([], [])


@pytest.mark.parametrize("arguments", [{}, {"to": 1, "cc": 2}, {"cc": 2}])
def test_a_call_that_does_not_fit_the_tool_is_refused(guard, ledger, engine, arguments):
    tool = register(guard, engine, lambda to: ledger.enter("charge"), name="charge", effect=semel.Unsafe())
    with pytest.raises(semel.UsageError, match=r"called wrongly.*Nothing was sent"):
        call(guard, engine, "run", tool, **arguments)
    assert (ledger.lines(), guard.store.read_run("", "run")) == ([], [])


@pytest.mark.parametrize(
    "effect", [semel.Unsafe(), semel.Idempotent(key_ttl=3600 * SECOND)], ids=lambda e: e.name
)
def test_an_argument_without_a_faithful_form_is_refused_with_its_path(guard, ledger, engine, effect):
    tool = register(guard, engine, lambda to: ledger.enter("charge"), name="charge", effect=effect)
    with pytest.raises(semel.Unencodable, match=r"\$\.to\.cards\[1\] is a .*lock.*Pass plain values"):
        call(guard, engine, "run", tool, to={"cards": [1, threading.Lock()]})
    assert (ledger.lines(), guard.store.read_run("", "run")) == ([], [])


def test_the_name_given_to_call_at_must_be_text(guard, ledger):
    tool = guard.tool(effect=semel.Unsafe(), name="charge")(lambda: ledger.enter("charge"))
    for step, call_id in ((1, "a"), ("1", None), ("1", "\ud800")):
        with guard.run("run") as run, pytest.raises(semel.UsageError, match="Nothing was sent"):
            run.call_at(tool, {}, step=step, call_id=call_id)
    assert ledger.lines() == []


def test_an_atomic_tool_that_ends_the_transaction_is_refused_and_did_nothing(guard):
    with guard.store.transaction() as transaction:
        transaction.handle.execute("CREATE TABLE grants (customer TEXT)")

    @guard.tool(effect=semel.Atomic())
    def grant(statement, *, tx):
        tx.execute("INSERT INTO grants VALUES ('ann')")
        tx.execute(statement)

    for number, statement in enumerate(("COMMIT", "/* and */ COMMIT", "END", "ROLLBACK", "BEGIN")):
        with guard.run(f"run {number}") as run, pytest.raises(semel.UsageError, match="may not execute"):
            run.call(grant, statement)
        assert guard.store.read_run("", f"run {number}") == []
    with guard.store.transaction() as transaction:
        assert transaction.handle.execute("SELECT count(*) FROM grants").fetchone() == (0,)


# ------------------------------------------------------------------ the words


def test_every_refusal_says_what_happened_what_the_record_says_and_what_to_do(guard, engine):
    said = {}
    for name, error in {"unknown": TimeoutError(), "failed": semel.Rejected("no"), "fine": None}.items():
        tool = register(guard, engine, _raising(error), name=name, effect=semel.Unsafe())
        for arguments in ({"n": 1}, {"n": 1}, {"n": 2}):
            try:
                call(guard, engine, name, tool, **arguments)
            except (semel.SemelError, semel.PausedForPerson) as problem:
                said[type(problem)] = str(problem)
    assert "may or may not have happened" in said[semel.PausedForPerson]
    assert "The record says UNKNOWN" in said[semel.PausedForPerson]
    assert "guard.resolve(" in said[semel.PausedForPerson]
    assert "The record says FAILED; nothing was sent" in said[semel.PreviouslyFailed]
    assert "start a new run" in said[semel.PreviouslyFailed]
    assert "Nothing was sent" in said[semel.KeyReused]
    assert "Repeat the call as it was" in said[semel.KeyReused]


def _raising(error):
    def tool(n):
        if error is not None:
            raise error

    return tool


def test_a_tools_own_error_keeps_its_type_and_its_cause(guard, engine):
    def charge():
        try:
            raise sqlite3.OperationalError("no funds table")
        except sqlite3.OperationalError as problem:
            raise semel.Rejected("card declined") from problem

    with pytest.raises(semel.Rejected, match="card declined") as rejected:
        call(guard, engine, "run", register(guard, engine, charge, effect=semel.Unsafe()))
    assert isinstance(rejected.value.__cause__, sqlite3.OperationalError)
