"""Two processes on one run id: one asks the model and calls the tools, the other waits, or is told who holds it."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
from datetime import timedelta

import pytest
from bureau import OPENING, RUN_ID, Bureau, Counted, answers, pick, say
from workbench import FORKS, PATIENCE_SECONDS, Child, Ledger, kill, stop_myself, wait_until

import semel
from semel.agent import ProgramChanged, RunHeld, RunTakenOver, ScriptedModel
from semel.agent.life import core_of
from semel.agent.log import RESUMED, RunLog
from semel.agent.stop import Stop
from semel.agent.sync import _carry_out as carry_out

LONG = timedelta(seconds=PATIENCE_SECONDS)
NO_TIME = timedelta(0)
SCRIPT = [say(pick("send", to="ann")), say(pick("charge", to="bob")), say(text="done")]
CLAIMS = "semel.agent.runs/"


class Asked:
    """A model whose questions are counted in a file, and which does something before it answers."""

    def __init__(self, folder, before=lambda turn: None):
        self.ledger = Ledger(folder / "model")
        self._before = before
        self._script = ScriptedModel(SCRIPT)

    def next_turn(self, messages, tools, *, on_text=None):
        turn = 1 + [message["role"] for message in messages].count("assistant")
        self.ledger.enter("model", turn=turn)
        self._before(turn)
        return self._script.next_turn(messages, tools)

    def turns(self):
        return [line["turn"] for line in self.ledger.lines()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path


def run_in(folder, *, before=lambda turn: None, wait=LONG, **options):
    mine = Bureau(folder, **options)
    try:
        return mine.agent(Asked(folder, before), wait=wait).run(OPENING, run_id=RUN_ID)
    finally:
        mine.guard.close()


# ------------------------------------------------------------------ both alive


def run_beside(folder, barrier):
    barrier.wait(PATIENCE_SECONDS)
    return run_in(folder)


def test_of_several_processes_that_begin_at_once_one_asks_the_model_and_all_end_alike(folder):
    barrier = FORKS.Barrier(3)
    children = [Child(run_beside, folder, barrier) for _ in range(3)]
    ended = [child.result() for child in children]
    assert [one.text for one in ended] == ["done"] * 3
    assert ended[0].transcript == ended[1].transcript == ended[2].transcript
    assert Asked(folder).turns() == [1, 2, 3]
    assert sorted(one.model_calls for one in ended) == [0, 0, 3]


def run_until_told(folder, reader):
    def before(turn):
        if turn == 2:
            reader.recv()

    return run_in(folder, before=before)


def test_who_does_not_want_to_wait_is_told_who_holds_the_run(folder):
    reader, writer = FORKS.Pipe(duplex=False)
    first = Child(run_until_told, folder, reader)
    wait_until(lambda: 2 in Asked(folder).turns())
    with pytest.raises(RunHeld, match=r"held by a live process") as held:
        run_in(folder, wait=NO_TIME)
    assert f"/{first.pid}/" in held.value.owner
    assert held.value.retry_after > NO_TIME
    assert pickle.loads(pickle.dumps(held.value)).owner == held.value.owner
    writer.send("go on")
    ended = first.result()
    assert run_in(folder, wait=NO_TIME).transcript == ended.transcript
    assert Asked(folder).turns() == [1, 2, 3]


def test_two_threads_of_one_process_on_one_run_id_are_no_different(folder):
    mine, model = Bureau(folder), Asked(folder)
    agent = mine.agent(model, wait=LONG)
    ended = []
    threads = [
        threading.Thread(target=lambda: ended.append(agent.run(OPENING, run_id=RUN_ID))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mine.guard.close()
    assert len(ended) == 4
    assert model.turns() == [1, 2, 3]


# ------------------------------------------------------------------ one is dead


def die_when_asked_for(folder, turn):
    run_in(folder, before=lambda now: os.kill(os.getpid(), signal.SIGKILL) if now == turn else None)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_dead_process_is_taken_over_from_at_once_though_its_lease_is_long(folder, turn):
    kill(die_when_asked_for, folder, turn)
    ended = run_in(folder, wait=NO_TIME, lease=timedelta(days=1))
    assert ended.text == "done"
    assert Asked(folder).turns() == sorted([1, 2, 3, turn])


def test_the_claim_on_a_run_is_no_doubt_of_anybodys_and_no_sweep_shows_it(folder):
    kill(die_when_asked_for, folder, 2)
    mine = Bureau(folder)
    assert (mine.guard.in_doubt(), mine.guard.recover()) == ([], [])
    assert mine.guard.reconcile() == semel.Reconciled()
    assert [operation.tool for operation in mine.guard.store.read_run("", RUN_ID)] == ["send"]
    run_in(folder)
    assert (mine.guard.in_doubt(), mine.guard.recover()) == ([], [])
    mine.guard.close()


# ------------------------------------------------------------------ one is paused, and wakes up late

SHORT = timedelta(seconds=1)


def stop_when_asked_for(folder, turn):
    return run_in(folder, before=lambda now: stop_myself() if now == turn else None, lease=SHORT)


def written(folder):
    mine = Bureau(folder)
    try:
        return mine.guard.store.read_log("", RUN_ID)
    finally:
        mine.guard.close()


@pytest.mark.parametrize("turn", [1, 2])
def test_one_that_wakes_up_after_its_lease_writes_nothing_and_asks_nobody(folder, turn):
    paused = Child(stop_when_asked_for, folder, turn)
    paused.wait_until_stopped()
    ended = run_in(folder)
    log = written(folder)
    asked = Asked(folder).turns()
    paused.resume()
    with pytest.raises(RunTakenOver):
        paused.result()
    assert written(folder) == log
    assert Asked(folder).turns() == asked == sorted([1, 2, 3, turn])
    assert run_in(folder).transcript == ended.transcript


def stop_before_the_call(folder):
    mine = Bureau(folder, lease=SHORT)

    def checkpoint(place, name):
        if (place, name) == ("recorded", "1"):
            stop_myself()

    return mine.agent(Asked(folder), checkpoint=checkpoint).run(OPENING, run_id=RUN_ID)


def test_one_that_wakes_up_before_a_call_does_not_make_it(folder):
    paused = Child(stop_before_the_call, folder)
    paused.wait_until_stopped()
    run_in(folder)
    paused.resume()
    with pytest.raises(RunTakenOver):
        paused.result()
    assert [line["tool"] for line in Ledger(folder).lines()] == ["send", "charge"]


def test_a_paused_process_is_not_taken_for_dead_before_its_lease_ends(folder):
    paused = Child(stop_when_asked_for_with_a_long_lease, folder)
    paused.wait_until_stopped()
    with pytest.raises(RunHeld):
        run_in(folder, wait=NO_TIME)
    paused.resume()
    assert paused.result().text == "done"
    assert Asked(folder).turns() == [1, 2, 3]


def stop_when_asked_for_with_a_long_lease(folder):
    return run_in(folder, before=lambda now: stop_myself() if now == 2 else None)


def test_the_claim_is_renewed_while_the_model_takes_its_time(folder):
    """Longer than its lease: whoever comes meanwhile is still told that it is held."""
    came = []

    def before(turn):
        if turn == 1:
            mine = Bureau(folder)
            core, key = core_of(mine.guard), claim_key()
            first = core.store.read(key).lease_expires_at
            wait_until(lambda: core.store.now() > first)
            with pytest.raises(RunHeld) as held:
                mine.agent(ScriptedModel([]), wait=NO_TIME).run(OPENING, run_id=RUN_ID)
            came.append(held.value)
            mine.guard.close()

    assert run_in(folder, before=before, lease=timedelta(seconds=2)).text == "done"
    assert len(came) == 1


def claim_key():
    return semel.keys.idempotency_key(CLAIMS, RUN_ID, "run", "claim")


# ------------------------------------------------------------------ the log alone fences, too


def test_what_stands_behind_another_lifes_beginning_is_not_written_to(folder):
    """Even with a claim that it takes for its own, an old writer's position is taken."""
    mine = Bureau(folder)
    old = RunLog(mine.guard, RUN_ID)
    old.record("input", ["a"])
    RunLog(mine.guard, RUN_ID).mark_resumed(2)
    with pytest.raises(RunTakenOver):
        old.record("turn", {"text": "late", "calls": []})
    with pytest.raises(RunTakenOver):
        old.record_answer("1", "id:a", "read", "late")
    assert [event.kind for event in mine.guard.store.read_log("", RUN_ID)] == ["input", RESUMED]
    mine.guard.close()


def test_a_resumed_run_says_so_in_its_log_and_one_that_ended_is_not_resumed(folder):
    kill(die_when_asked_for, folder, 2)
    run_in(folder)
    run_in(folder)
    mine = Bureau(folder)
    assert mine.log() == ["input", "turn", RESUMED, "turn", "turn"]
    mine.guard.close()


def test_a_run_that_has_ended_is_never_written_to_again(folder):
    run_in(folder)
    mine = Bureau(folder)
    mine.register("look", semel.Safe(), lambda at: at)
    kept = mine.guard.store.read_log("", RUN_ID)
    log = RunLog(mine.guard, RUN_ID)
    assert log.has_ended
    assert answers(mine.agent(Asked(folder)).run(OPENING, run_id=RUN_ID)) == ["send ann", "charge bob"]
    assert mine.guard.store.read_log("", RUN_ID) == kept
    with pytest.raises(ProgramChanged):
        mine.agent(Asked(folder), tools={"look": mine.tools["look"]}).run(OPENING, run_id=RUN_ID)
    mine.guard.close()


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_a_run_that_is_interrupted_between_any_two_steps_lets_go_of_it(tmp_path, fails):
    """As a Ctrl-C does it: the claim would otherwise be renewed for as long as the process lives."""
    mine = Bureau(tmp_path)
    agent = mine.agent(Counted([say(pick("send", to="ann"))]), wait=timedelta(0))
    broken = mine.agent(Counted([lambda messages: 1 / 0]), wait=timedelta(0))
    for steps in itertools.count():
        run_id = f"run-{steps}"
        course = (broken if fails else agent).course(OPENING, run_id, stop=Stop(run_id))
        has_ended = follow(course, steps)
        assert mine.run(agent, run_id=run_id).text == "done"
        if has_ended:
            break
    assert steps > 4, "it was hardly begun"
    mine.guard.close()


def follow(course, steps):
    """So many steps, and then an end to it; whether it had come to its own end."""
    resume, answer = course.send, None
    try:
        for _ in range(steps):
            step = resume(answer)
            try:
                answer, resume = carry_out(step), course.send
            except Exception as problem:
                answer, resume = problem, course.throw
        resume(answer)
    except (StopIteration, ZeroDivisionError):
        return True
    finally:
        course.close()
    return False
