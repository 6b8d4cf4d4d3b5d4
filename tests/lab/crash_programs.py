"""Small programs for the lab of one's own agent. Each is called in a fresh process, in its run's own folder."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import urllib.parse
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel

DEADLINE = timedelta(milliseconds=100)  # over loopback a request lands at once or never
LEDGER = Path("ledger.jsonl")


def post(tool: str, key: str | None = None, **fields: Any) -> str:
    headers = {} if key is None else {"Idempotency-Key": key}
    url = f"{os.environ['SEMEL_LAB_PROVIDER']}/{tool}"
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)["id"]


def find(call: semel.Call) -> semel.Evidence:
    query = urllib.parse.urlencode({"key": call.key})
    url = f"{os.environ['SEMEL_LAB_PROVIDER']}/{call.tool}?{query}"
    with urllib.request.urlopen(url, timeout=10) as response:
        found = json.load(response)["effects"]
    return semel.Found(found[0]["id"]) if found else semel.Absent()


# ------------------------------------------------------------------ without a guard


def naive() -> None:
    post("charge", amount=1)
    post("mail", to="somebody")


def keeps_a_note_of_what_it_did() -> None:
    """At most once: noted before it is done, so what is cut off is lost."""
    for tool in ("charge", "mail"):
        note = Path(f"{tool}.noted")
        if not note.exists():
            note.touch()
            post(tool, amount=1)


def sends_the_same_twice_and_means_it() -> None:
    for number in (1, 2):
        post("charge", key=f"charge {number}", amount=1)


def cannot_be_resumed() -> None:
    Path("started").mkdir()
    naive()


def waits_for_ever_when_resumed() -> None:
    if Path("started").exists():
        threading.Event().wait()
    Path("started").touch()
    naive()


def waits_for_ever() -> None:
    threading.Event().wait()


def says_that_it_lives_and_waits_for_ever() -> None:
    with open(os.environ["FIFO"], "wb", buffering=0) as fifo:
        fifo.write(b"alive")
        threading.Event().wait()


def words_it_differently_each_time() -> None:
    post("mail", key="the mail", to="somebody", body=str(random.random()))


def has_no_effect() -> None:
    pass


def fails() -> None:
    raise RuntimeError("cannot even begin")


def takes_another_way_after_two_runs() -> None:
    """What it remembers lies outside the run's folder, as no program's state should."""
    seen = Path(os.environ["SEMEL_LAB_FOLDER"]).parents[1] / "seen"
    with seen.open("a") as marks:
        marks.write(".")
    if len(seen.read_text()) <= 2:
        naive()


def ends_with_sys_exit() -> None:
    post("charge", key="the charge", amount=1)
    sys.exit(0)


def charges_in_a_thread_it_does_not_wait_for() -> None:
    threading.Thread(target=post, args=("charge", "the charge")).start()


async def awaits() -> None:
    post("charge", key="the charge", amount=1)


def tells_what_it_was_given() -> None:
    names = ("SEMEL_LAB_PROVIDER", "SEMEL_LAB_FOLDER", "SEMEL_LAB_CELL", "SEMEL_LAB_HOME", "OWN")
    given = {name: os.environ[name] for name in names}
    assert given["OWN"] == f"{given['SEMEL_LAB_PROVIDER']}/billing in {given['SEMEL_LAB_FOLDER']}"
    assert os.getcwd() == given["SEMEL_LAB_FOLDER"]
    assert given["SEMEL_LAB_CELL"] in given["SEMEL_LAB_FOLDER"]
    assert Path(given["SEMEL_LAB_HOME"]).is_dir()
    post("charge", key="the charge", amount=1)


# ------------------------------------------------------------------ with tools that write their own evidence


def write_down(tool: str, **fields: Any) -> None:
    with LEDGER.open("a") as lines:
        lines.write(json.dumps({"tool": tool, **fields}) + "\n")


def naive_with_a_ledger() -> None:
    write_down("charge", amount=1)
    write_down("mail", to="somebody", intent="tell somebody", body=str(random.random()))


def looks_before_it_writes() -> None:
    written = LEDGER.read_text() if LEDGER.exists() else ""
    for tool in ("charge", "mail"):
        if f'"{tool}"' not in written:
            write_down(tool, amount=1)


# ------------------------------------------------------------------ with a guard


def guarded() -> None:
    with semel.open("sqlite:///agent.db") as guard:

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=call.key, amount=amount)

        @guard.tool(effect=semel.Unsafe(lookup=find, lookup_lag=timedelta(0), request_deadline=DEADLINE))
        def mail(to: str, *, call: semel.Call) -> str:
            return post("mail", key=call.key, to=to)

        with guard.run("renewal") as run:
            run.call(charge, amount=1)
            run.call(mail, to="somebody")


def guarded_in_a_store_that_all_runs_share() -> None:
    _guarded_at(os.environ["STORE"], namespace=os.environ["SEMEL_LAB_CELL"])


def guarded_in_a_store_that_all_runs_share_under_one_name() -> None:
    """The broken twin: the second run finds the first one's records, and replays them."""
    _guarded_at(os.environ["STORE"], namespace="")


def _guarded_at(store: str, *, namespace: str) -> None:
    with semel.open(store, namespace=namespace) as guard:

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=call.key, amount=amount)

        with guard.run("renewal") as run:
            run.call(charge, amount=1)


def guarded_and_forgets_its_store() -> None:
    """The broken twin of `guarded`: a store that the next process does not find."""
    with semel.open(":memory:") as guard:

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=str(random.random()), amount=amount)

        with guard.run("renewal") as run:
            run.call(charge, amount=1)


def guarded_where_only_a_person_knows() -> None:
    with semel.open("sqlite:///agent.db") as guard:

        @guard.tool(effect=semel.Unsafe(request_deadline=DEADLINE))
        def charge(amount: int) -> str:
            return post("charge", amount=amount)

        with guard.run("renewal") as run:
            run.call(charge, amount=1)


def wraps_the_pause() -> None:
    """As a framework's task group does."""
    try:
        guarded_where_only_a_person_knows()
    except semel.PausedForPerson as pause:
        raise BaseExceptionGroup("in a task group", [pause]) from None


def a_person(pause: semel.PausedForPerson) -> None:
    """Looks into the provider's books, and answers truly."""
    with urllib.request.urlopen(f"{os.environ['SEMEL_LAB_PROVIDER']}/charge", timeout=10) as response:
        found = json.load(response)["effects"]
    answer = semel.ItHappened(found[0]["id"]) if found else semel.RunIt()
    with semel.open("sqlite:///agent.db") as guard:
        guard.resolve(pause.key, answer, by="a test", why="looked", fingerprint=pause.fingerprint)


def a_person_who_says_run_it(pause: semel.PausedForPerson) -> None:
    with semel.open("sqlite:///agent.db") as guard:
        guard.resolve(pause.key, semel.RunIt(), by="a test", why="did not look")


def guarded_and_says_when_to_come_back() -> None:
    """It does not wait itself: it is told to come back, and the lab does."""
    with semel.open("sqlite:///agent.db", wait=timedelta(0)) as guard:

        @guard.tool(effect=semel.Unsafe(lookup=find, lookup_lag=timedelta(0), request_deadline=DEADLINE))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=call.key, amount=amount)

        with guard.run("renewal") as run:
            run.call(charge, amount=1)


def guarded_with_an_hour_to_wait() -> None:
    hour = timedelta(hours=1)
    with semel.open("sqlite:///agent.db") as guard:

        @guard.tool(effect=semel.Unsafe(lookup=find, lookup_lag=hour, request_deadline=hour))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=call.key, amount=amount)

        with guard.run("renewal") as run:
            run.call(charge, amount=1)


def atomic() -> None:
    """The effect lives in the guard's own database; the ledger is written from it at the end."""
    with semel.open("sqlite:///agent.db") as guard:

        @guard.tool(effect=semel.Atomic())
        def grant(customer: str, *, tx: Any) -> str:
            tx.execute("CREATE TABLE IF NOT EXISTS grants (customer)")
            tx.execute("INSERT INTO grants VALUES (?)", (customer,))
            return "granted"

        @guard.tool(effect=semel.Atomic())
        def granted(*, tx: Any) -> list[str]:
            return [row[0] for row in tx.execute("SELECT customer FROM grants")]

        with guard.run("renewal") as run:
            run.call(grant, customer="cus_42")
            customers = run.call(granted)
    lines = [json.dumps({"tool": "grant", "customer": customer}) + "\n" for customer in customers]
    LEDGER.write_text("".join(lines))


async def calls_two_tools_side_by_side() -> None:
    with semel.open("sqlite:///agent.db") as guard:

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=call.key, amount=amount)

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
        def mail(to: str, *, call: semel.Call) -> str:
            return post("mail", key=call.key, to=to)

        async with guard.run("renewal") as run:
            await asyncio.gather(run.call(charge, amount=1), run.call(mail, to="somebody"))


def calls_one_tool_thrice() -> None:
    with semel.open("sqlite:///agent.db") as guard:

        @guard.tool(effect=semel.Idempotent(key_ttl=timedelta(hours=24)))
        def charge(amount: int, *, call: semel.Call) -> str:
            return post("charge", key=call.key, amount=amount)

        with guard.run("renewal") as run:
            for amount in (1, 2, 2):
                run.call(charge, amount=amount)
