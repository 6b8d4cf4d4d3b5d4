"""Recovery points inside a tool: a crash resumes at the last one, and none repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from workbench import ENGINES, NO_TIME, WINDOWS, Child, Ledger, call, kill, kill_at, stop_myself

import semel
from semel import decide as decisions
from semel import keys
from semel.engine import steps
from semel.model import Event, Intent, State
from semel.ports import no_checkpoint

NAMES = ("reserve", "capture", "notify")
Body = Callable[..., Any]


class Shop:
    """One process's guard with one tool, `checkout`, that makes three changes; each can be looked up."""

    def __init__(self, folder: Path, engine: str = "sync", *, body: str = "by steps", **options: Any) -> None:
        self.ledger = Ledger(folder)
        self.engine = engine
        options.setdefault("wait", NO_TIME)
        options.setdefault("checkpoint", no_checkpoint)
        self.guard = semel.open(f"sqlite:///{folder}/agent.db", **options)
        self.each: Any = semel.Unsafe(lookup=self.find, lookup_lag=NO_TIME, request_deadline=NO_TIME)
        bodies = {"by steps": self._by_steps, "careless": self._careless}
        effects = {
            "by steps": semel.Steps(each=self.each),
            "careless": semel.Idempotent(key_ttl=timedelta(days=1)),
        }
        self.checkout = self.tool(bodies[body](), effect=effects[body], name="checkout")

    def tool(self, body: Body, **options: Any) -> semel.Tool:
        return self.guard.tool(**options)(body)

    def find(self, call: semel.Call) -> semel.Evidence:
        is_there = any(line["key"] == call.key for line in self.ledger.lines())
        return semel.Found(f"{call.arguments['what']} done", key=call.key) if is_there else semel.Absent()

    def do(self, what: str, *, call: semel.Call) -> str:
        self.ledger.enter(what, call.key, attempt=call.attempt)
        return f"{what} done"

    async def do_async(self, what: str, *, call: semel.Call) -> str:
        return self.do(what, call=call)

    def _by_steps(self) -> Body:
        def plain(*, call: semel.Call) -> list[str]:
            return [call.step(name, self.do, what=name) for name in NAMES]

        async def awaited(*, call: semel.Call) -> list[str]:
            return [await call.step(name, self.do_async, what=name) for name in NAMES]

        return plain if self.engine == "sync" else awaited

    def _careless(self) -> Body:
        """The same changes, and no recovery point between them."""

        def plain(*, call: semel.Call) -> list[str]:
            return [self.do(name, call=call) for name in NAMES]

        async def awaited(*, call: semel.Call) -> list[str]:
            return plain(call=call)

        return plain if self.engine == "sync" else awaited

    def call(self, tool: semel.Tool | None = None, **arguments: Any) -> Any:
        return call(self.guard, self.engine, "run", tool or self.checkout, **arguments)

    def operations(self) -> dict[str, semel.Operation]:
        """By the step's name; the tool's own under ''."""
        return {op.call_id: op for op in self.guard.store.read_run("", "run")}

    def states(self) -> dict[str, str]:
        return {name: str(op.state) for name, op in self.operations().items()}


@pytest.fixture
def shop(tmp_path):
    opened: list[Shop] = []

    def open_one(engine: str = "sync", **options: Any) -> Shop:
        opened.append(Shop(tmp_path, engine, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.guard.close()


# ------------------------------------------------------------------ a crash in each gap


def check_out_and_die(folder: Path, engine: str, place: str, nth: int, body: str = "by steps") -> None:
    Shop(folder, engine, body=body, checkpoint=kill_at(place, nth=nth)).call()


def repeated(ledger: Ledger) -> list[str]:
    """What the provider did more than once."""
    done = [line["tool"] for line in ledger.lines()]
    return [name for name in NAMES if done.count(name) > 1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", WINDOWS)
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_crash_in_any_gap_of_a_tool_resumes_at_the_last_step_and_repeats_none(
    tmp_path, shop, place, nth, engine
):
    kill(check_out_and_die, tmp_path, engine, place, nth)
    before = Ledger(tmp_path).lines()
    mine = shop(engine)
    assert mine.call() == ["reserve done", "capture done", "notify done"]
    lines = mine.ledger.lines()
    assert lines[: len(before)] == before
    assert [line["tool"] for line in lines] == list(NAMES)
    assert set(mine.states().values()) == {"COMMITTED"}


def test_the_same_body_without_steps_is_caught_repeating(tmp_path, shop):
    kill(check_out_and_die, tmp_path, "sync", "effect_done", 1, "careless")
    mine = shop(body="careless")
    mine.call()
    assert repeated(mine.ledger) == list(NAMES)


@pytest.mark.parametrize("engine", ENGINES)
def test_killed_again_and_again_each_step_still_happens_once(tmp_path, shop, engine):
    for place, nth in [
        ("effect_done", 1),
        ("claimed", 2),
        ("looked_up", 1),
        ("effect_done", 1),
        ("completed", 1),
    ]:
        kill(check_out_and_die, tmp_path, engine, place, nth)
    mine = shop(engine)
    mine.call()
    assert [line["tool"] for line in mine.ledger.lines()] == list(NAMES)


# ------------------------------------------------------------------ what a step is


def test_a_step_has_a_key_of_its_own_that_follows_from_the_tools_key_and_its_name(shop):
    mine = shop()
    mine.call()
    recorded = mine.operations()
    parent = recorded[""].key
    assert [line["key"] for line in mine.ledger.lines()] == [keys.step_key(parent, name) for name in NAMES]
    assert all(
        len(op.key) == 64 and op.key == int(op.key, 16).to_bytes(32, "big").hex() for op in recorded.values()
    )
    assert len({op.key for op in recorded.values()}) == 4
    assert keys.step_key("a", "bc") != keys.step_key("ab", "c")


def test_no_coordinates_of_a_program_can_pass_for_a_step(shop):
    mine = shop()
    mine.call()
    parent = mine.operations()[""].key
    other = mine.tool(lambda: "other", effect=semel.Unsafe(), name="other")
    with mine.guard.run("run") as run:
        assert run.call_at(other, {}, step=parent, call_id="reserve") == "other"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_finished_step_gives_back_what_it_recorded_and_does_not_run(shop, engine):
    mine, drawn = shop(engine), iter(range(10))

    def draw() -> int:
        return next(drawn)

    def plain(*, call: semel.Call) -> int:
        number = call.step("draw", draw)
        if call.attempt == 1:
            raise TimeoutError
        return number

    async def awaited(*, call: semel.Call) -> int:
        number = await call.step("draw", draw)
        if call.attempt == 1:
            raise TimeoutError
        return number

    tool = mine.tool(
        plain if engine == "sync" else awaited, effect=semel.Steps(each=mine.each), name="lottery"
    )
    with pytest.raises(semel.OutcomeUnknown, match="Repeat the same call"):
        mine.call(tool)
    assert mine.call(tool) == 0
    assert next(drawn) == 1


def test_a_tool_can_try_again_within_one_call_where_it_says_how_often(shop):
    mine = shop()
    left = iter([semel.NotSent("refused"), None])

    def capture() -> str:
        if (problem := next(left)) is not None:
            raise problem
        return "captured"

    def body(*, call: semel.Call) -> list[str]:
        return [call.step("reserve", mine.do, what="reserve"), call.step("capture", capture)]

    tool = mine.tool(body, effect=semel.Steps(each=mine.each), name="retrying", attempts=2)
    assert mine.call(tool) == ["reserve done", "captured"]
    assert len(mine.ledger.lines()) == 1


def test_a_step_may_be_of_another_kind_than_the_tools_others(shop):
    mine = shop()

    def grant(tx: Any) -> str:
        tx.execute("CREATE TABLE grants (customer TEXT)")
        return "granted"

    def body(*, call: semel.Call) -> list[str]:
        return [
            call.step("charge", mine.do, what="charge", effect=semel.Idempotent(key_ttl=timedelta(days=1))),
            call.step("grant", grant, effect=semel.Atomic()),
        ]

    tool = mine.tool(body, effect=semel.Steps(), name="mixed")
    assert mine.call(tool) == ["charge done", "granted"]
    assert [op.effect for op in mine.guard.store.read_run("", "run")] == ["steps", "idempotent", "atomic"]


def test_a_registered_tool_can_be_a_step(shop):
    mine = shop()
    charge = mine.tool(mine.do, effect=mine.each, name="charge")
    tool = mine.tool(
        lambda call: call.step("first", charge, what="charge"), effect=semel.Steps(), name="with a tool"
    )
    assert mine.call(tool) == "charge done"
    assert mine.operations()["first"].tool == "charge"


def test_steps_can_be_taken_within_steps(tmp_path, shop):
    mine = shop()

    def inner(call: semel.Call) -> str:
        return call.step("reserve", mine.do, what="reserve")

    tool = mine.tool(
        lambda call: call.step("outer", inner, effect=semel.Steps(each=mine.each)),
        effect=semel.Steps(),
        name="nested",
    )
    assert mine.call(tool) == "reserve done"
    outer = mine.operations()["outer"]
    assert mine.ledger.keys() == [keys.step_key(outer.key, "reserve")]


def test_async_steps_can_be_taken_at_once(shop):
    mine = shop("async")

    async def body(*, call: semel.Call) -> list[str]:
        return await asyncio.gather(*[call.step(name, mine.do_async, what=name) for name in NAMES])

    tool = mine.tool(body, effect=semel.Steps(each=mine.each), name="at once")
    assert mine.call(tool) == [f"{name} done" for name in NAMES]
    assert repeated(mine.ledger) == []


def test_code_without_a_call_parameter_takes_steps_too(shop):
    mine = shop()
    tool = mine.tool(
        lambda: semel.current_call().step("reserve", mine.do, what="reserve"),
        effect=semel.Steps(each=mine.each),
        name="deep",
    )
    assert mine.call(tool) == "reserve done"


# ------------------------------------------------------------------ a step in doubt


def in_doubt_once(mine: Shop, engine: str, swallow: bool, *, kind: Any) -> semel.Tool:
    """`capture` times out at its first attempt, after the effect; the body may ignore it."""

    def capture(what: str, *, call: semel.Call) -> str:
        mine.do(what, call=call)
        raise TimeoutError

    async def capture_async(what: str, *, call: semel.Call) -> str:
        return capture(what, call=call)

    def plain(*, call: semel.Call) -> str:
        try:
            call.step("capture", capture, what="capture", effect=kind)
        except BaseException:
            if not swallow:
                raise
        return call.step("notify", mine.do, what="notify")

    async def awaited(*, call: semel.Call) -> str:
        try:
            await call.step("capture", capture_async, what="capture", effect=kind)
        except BaseException:
            if not swallow:
                raise
        return await call.step("notify", mine.do_async, what="notify")

    return mine.tool(
        plain if engine == "sync" else awaited, effect=semel.Steps(each=mine.each), name="doubtful"
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("swallow", [False, True], ids=["let through", "swallowed"])
def test_a_tool_does_not_get_past_a_step_that_only_a_person_can_settle(shop, engine, swallow):
    mine = shop(engine)
    tool = in_doubt_once(mine, engine, swallow, kind=semel.Unsafe(request_deadline=NO_TIME))
    for _ in range(3):
        with pytest.raises((semel.PausedForPerson, semel.OutcomeUnknown)):
            mine.call(tool)
        assert mine.states() == {"": "UNKNOWN", "capture": "UNKNOWN"}
    step = mine.operations()["capture"]
    mine.guard.resolve(step.key, semel.ItHappened("by hand"), by="ann", why="saw it")
    assert mine.call(tool) == "notify done"
    assert [line["tool"] for line in mine.ledger.lines()] == ["capture", "notify"]
    assert mine.states() == {"": "COMMITTED", "capture": "COMMITTED", "notify": "COMMITTED"}


def test_without_the_rule_a_body_that_swallows_its_doubt_is_caught_going_past_it(shop, monkeypatch):
    monkeypatch.setattr(steps.StepBook, "_see", lambda self, error: None)
    mine = shop()
    tool = in_doubt_once(mine, "sync", True, kind=semel.Unsafe(request_deadline=NO_TIME))
    mine.call(tool)
    assert mine.states() == {"": "COMMITTED", "capture": "UNKNOWN", "notify": "COMMITTED"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_in_doubt_is_settled_by_its_own_lookup(shop, engine):
    mine = shop(engine)
    tool = in_doubt_once(mine, engine, False, kind=None)
    assert mine.call(tool) == "notify done"
    assert [line["tool"] for line in mine.ledger.lines()] == ["capture", "notify"]


def test_a_step_that_takes_time_to_settle_says_when_to_call_the_tool_again(shop):
    mine = shop()
    lagging = semel.Unsafe(
        lookup=lambda call: semel.Absent(), lookup_lag=timedelta(hours=1), request_deadline=NO_TIME
    )
    tool = in_doubt_once(mine, "sync", False, kind=lagging)
    with pytest.raises(semel.OutcomeUnknown):
        mine.call(tool)
    with pytest.raises(semel.OutcomeUnknown) as told:
        mine.call(tool)
    assert told.value.retry_after > timedelta(minutes=50)


def check_out_two_ways(folder: Path, names: tuple[str, ...], place: str, nth: int) -> Any:
    mine = Shop(folder, checkpoint=kill_at(place, nth=nth))
    tool = mine.tool(
        lambda call: [call.step(name, mine.do, what=name) for name in names],
        effect=semel.Steps(each=semel.Unsafe(request_deadline=NO_TIME)),
        name="changing",
    )
    return mine.call(tool)


def test_a_program_that_no_longer_comes_to_a_step_left_open_does_not_end_as_committed(tmp_path, shop):
    kill(check_out_two_ways, tmp_path, ("reserve", "capture"), "effect_done", 2)
    with pytest.raises(semel.OutcomeUnknown, match="'capture'"):
        Child(check_out_two_ways, tmp_path, ("reserve",), "nowhere", 1).result()
    assert shop().states()[""] == "UNKNOWN"


# ------------------------------------------------------------------ what it says of the whole


def refusing(mine: Shop, at: str) -> semel.Tool:
    def refuse() -> None:
        raise semel.Rejected("card declined")

    def body(*, call: semel.Call) -> None:
        if at == "second":
            call.step("reserve", mine.do, what="reserve")
        if at == "body":
            call.step("reserve", mine.do, what="reserve")
            raise semel.Rejected("changed its mind")
        call.step("capture", refuse)

    return mine.tool(body, effect=semel.Steps(each=mine.each), name=f"refused at {at}")


def test_a_tool_whose_first_step_was_refused_did_not_happen(shop):
    mine = shop()
    with pytest.raises(semel.Rejected, match="card declined"):
        mine.call(refusing(mine, "first"))
    assert mine.states() == {"": "FAILED", "capture": "FAILED"}


@pytest.mark.parametrize("at", ["second", "body"])
def test_a_tool_does_not_certainly_not_happen_while_a_step_of_it_stands(shop, at):
    mine = shop()
    with pytest.raises(semel.OutcomeUnknown) as told:
        mine.call(refusing(mine, at))
    assert "'reserve'" in str(told.value.__cause__)
    assert mine.states()[""] == "UNKNOWN"
    assert mine.states()["reserve"] == "COMMITTED"


# ------------------------------------------------------------------ refused


def test_one_name_for_two_steps_of_one_attempt_is_refused_and_the_second_sends_nothing(shop):
    mine = shop()

    def body(*, call: semel.Call) -> None:
        for _ in range(2):
            call.step("reserve", mine.do, what="reserve")

    with pytest.raises(semel.OutcomeUnknown) as told:
        mine.call(mine.tool(body, effect=semel.Steps(each=mine.each), name="twice"))
    assert isinstance(told.value.__cause__, semel.UsageError)
    assert "twice in one attempt" in str(told.value.__cause__)
    assert len(mine.ledger.lines()) == 1


def test_a_step_with_other_arguments_than_before_is_refused_and_sends_nothing(shop):
    mine, amounts = shop(), iter([1, 2])

    def body(*, call: semel.Call) -> None:
        call.step(
            "capture", lambda amount: mine.ledger.enter("capture", "", amount=amount), amount=next(amounts)
        )
        raise TimeoutError

    tool = mine.tool(body, effect=semel.Steps(each=mine.each), name="rewording")
    for _ in range(2):
        with pytest.raises(semel.OutcomeUnknown) as told:
            mine.call(tool)
    assert isinstance(told.value.__cause__, semel.KeyReused)
    assert [line["amount"] for line in mine.ledger.lines()] == [1]


@pytest.mark.parametrize(
    ("kind", "step", "why"),
    [
        (semel.Unsafe(), {}, "takes no steps"),
        (semel.Idempotent(key_ttl=timedelta(days=1)), {}, "takes no steps"),
        (semel.Steps(), {}, "effect is not declared"),
        (semel.Steps(), {"effect": semel.Safe()}, "only reads"),
    ],
)
def test_a_step_where_none_can_be_is_refused_and_sends_nothing(shop, kind, step, why):
    mine = shop()
    tool = mine.tool(lambda call: call.step("one", mine.do, what="one", **step), effect=kind, name="wrong")
    with pytest.raises((semel.OutcomeUnknown, semel.PausedForPerson)) as told:
        mine.call(tool)
    assert why in str(told.value.__cause__)
    assert mine.ledger.lines() == []


def test_an_async_step_in_a_plain_tool_is_refused_and_sends_nothing(shop):
    mine = shop()
    tool = mine.tool(
        lambda call: call.step("one", mine.do_async, what="one"), effect=semel.Steps(each=mine.each), name="x"
    )
    with pytest.raises(semel.OutcomeUnknown) as told:
        mine.call(tool)
    assert "needs an async tool" in str(told.value.__cause__)
    assert mine.ledger.lines() == []


def test_a_kind_that_no_step_can_have_is_refused_when_the_tool_is_declared():
    with pytest.raises(semel.UsageError, match="Nothing was registered"):
        semel.Steps(each=semel.Safe())  # type: ignore[arg-type]


# ------------------------------------------------------------------ what decide says of it, and of a late result


def an_operation(store: Any, **changes: Any) -> semel.Operation:
    from semel import lifecycle

    intent = Intent(
        key="k" * 64,
        namespace="",
        run_id="run",
        step="1",
        call_id="",
        tool="checkout",
        effect="steps",
        fingerprint="f",
        arguments="{}",
    )
    return lifecycle.open_claim(intent, owner="me/1", now=store.now(), lease=timedelta(seconds=30))


def test_a_tool_of_steps_is_entered_again_after_a_crash_but_not_beside_a_live_owner(clock):
    from semel import actions, lifecycle

    held = an_operation(clock)
    decide = lambda op: decisions.decide(op, semel.Steps(), None, clock.now(), fingerprint="f")  # noqa: E731
    assert isinstance(decide(held), actions.Wait)
    dead = lifecycle.declare_owner_dead(held, now=clock.now()).after
    assert dead.state is State.UNKNOWN
    assert isinstance(decide(dead), actions.Claim)


def test_a_late_end_of_a_tool_of_steps_contradicts_nothing_since_each_step_has_one_result(clock):
    from semel import actions, lifecycle

    held = an_operation(clock)
    lost = lifecycle.expire(held, now=clock.now()).after
    again = lifecycle.claim(lost, owner="you/1", now=clock.now(), lease=timedelta(seconds=30)).after
    late = lambda op: decisions.decide_late_result(op, semel.Steps(), fence=1)  # noqa: E731
    assert isinstance(late(lost), actions.Report)
    assert isinstance(late(again), actions.Accept)
    assert again.fence == 2
    assert Event.RESENT in {
        move.event for move in [lifecycle.claim(lost, owner="x", now=clock.now(), lease=NO_TIME)]
    }


# ------------------------------------------------------------------ paused past the lease


def check_out_and_freeze(folder: Path) -> Any:
    """It stops right after its first step has taken effect, and its leases run out."""
    mine = Shop(folder, lease=timedelta(seconds=0.3))
    do = mine.do

    def do_and_freeze(what: str, *, call: semel.Call) -> str:
        done = do(what, call=call)
        if what == "reserve":
            stop_myself()
        return done

    mine.do = do_and_freeze  # type: ignore[method-assign]
    return mine.call()


def test_a_zombie_of_a_tool_of_steps_repeats_none_that_its_successor_has_taken(tmp_path, shop):
    zombie = Child(check_out_and_freeze, tmp_path)
    zombie.wait_until_stopped()
    mine = shop(wait=timedelta(seconds=20))
    result = ["reserve done", "capture done", "notify done"]
    assert mine.call() == result
    zombie.resume()
    assert zombie.result() == result
    assert [line["tool"] for line in mine.ledger.lines()] == list(NAMES)
    assert mine.guard.divergences() == []
