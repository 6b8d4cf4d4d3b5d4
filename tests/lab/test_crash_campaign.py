"""One's own program in the lab: real processes, killed where the report says, and what is found of each."""

from __future__ import annotations

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import crash_programs
import pytest

from semel.errors import UsageError
from semel.lab.model import ProviderKind, Window
from semel.lab.own import campaign, run
from semel.lab.own.model import Campaign, Finding, Program, SeenBy

HERE = Path(__file__).parent
W1, W2, W3, W4 = Window


def crash(name: str, **how: object) -> Campaign:
    windows = how.pop("windows", tuple(Window))
    only = how.pop("only", ())
    program = Program(target=f"crash_programs:{name}", home=HERE, environment=how.pop("env", {}), **how)
    return campaign.run(program, windows=windows, only=only)


def findings(found: Campaign) -> dict[str, Finding]:
    return {crash.gap.name: crash.finding for crash in found.crashes}


def test_a_naive_program_repeats_whatever_it_had_done_when_it_was_killed():
    found = crash("naive")
    assert findings(found) == {
        "POST /charge#1@W2/provider": Finding.OK,
        "POST /charge#1@W3/provider": Finding.DUPLICATE,
        "POST /charge#1@W4/provider": Finding.DUPLICATE,
        "POST /mail#1@W2/provider": Finding.DUPLICATE,
        "POST /mail#1@W3/provider": Finding.DUPLICATE,
        "POST /mail#1@W4/provider": Finding.DUPLICATE,
    }
    assert {crash.killed_by_signal for crash in found.crashes} == {signal.SIGKILL}
    (at_w3_of_mail,) = (c for c in found.crashes if c.gap.name == "POST /mail#1@W3/provider")
    assert at_w3_of_mail.twice == ('POST /charge {"amount":1}', 'POST /mail {"to":"somebody"}')


def test_a_guarded_program_does_everything_once_at_every_gap_that_guard_and_provider_see():
    found = crash("guarded")
    at_guard = {f"{tool}#1@{window}/guard" for tool in ("charge", "mail") for window in Window}
    outside = {f"{tool}#1@{window}/provider" for tool in ("charge", "mail") for window in (W2, W3, W4)}
    assert findings(found) == dict.fromkeys(at_guard | outside, Finding.OK)
    assert {crash.killed_by_signal for crash in found.crashes} == {signal.SIGKILL}
    assert found.holds


def test_a_guard_whose_store_does_not_survive_is_caught():
    found = findings(crash("guarded_and_forgets_its_store"))
    assert found["charge#1@W3/guard"] is Finding.DUPLICATE
    assert found["charge#1@W4/guard"] is Finding.DUPLICATE
    assert found["charge#1@W2/guard"] is Finding.OK


def test_what_is_noted_before_it_is_done_is_lost():
    found = crash("keeps_a_note_of_what_it_did")
    assert findings(found)["POST /charge#1@W2/provider"] is Finding.LOST
    assert found.crashes[0].never == ('POST /charge {"amount":1}',)
    assert findings(found)["POST /charge#1@W3/provider"] is Finding.OK


def test_a_program_that_cannot_be_started_again_is_stuck_and_says_why():
    found = crash("cannot_be_resumed", windows=(W2,))
    assert {crash.finding for crash in found.crashes} == {Finding.STUCK}
    assert all("FileExistsError" in (crash.because or "") for crash in found.crashes)
    assert {crash.processes for crash in found.crashes} == {1 + run.BREAKS_MAX}


def test_a_program_that_waits_for_what_never_comes_is_stuck():
    found = crash("waits_for_ever_when_resumed", only=("POST /charge#1@W2/provider",), seconds_max=0.5)
    assert found.finding is Finding.STUCK
    assert "0.5 seconds" in (found.crashes[0].because or "")


def test_two_equal_effects_that_were_both_meant_are_no_duplicate():
    found = crash("sends_the_same_twice_and_means_it")
    assert found.effects == Counter({'POST /charge {"amount":1}': 2})
    assert found.holds


@pytest.mark.parametrize("name", ["ends_with_sys_exit", "awaits", "charges_in_a_thread_it_does_not_wait_for"])
def test_a_program_may_end_as_programs_do(name):
    assert crash(name).holds


def test_what_the_program_is_told_stands_in_its_environment():
    assert crash(
        "tells_what_it_was_given", env={"OWN": "{provider}/billing in {folder}"}, windows=(W3,)
    ).holds


def test_only_the_chosen_windows_are_tried():
    found = crash("guarded", windows=(W3,))
    assert {crash.gap.window for crash in found.crashes} == {W3}
    assert len(found.crashes) == 4


def test_one_gap_can_be_tried_again_by_its_name():
    found = crash("naive", only=("POST /mail#1@W2/provider",))
    assert findings(found) == {"POST /mail#1@W2/provider": Finding.DUPLICATE}


def test_a_gap_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"POST /charge#1@W2/provider"):
        crash("naive", only=("charge#7@W2/guard",))


def test_each_call_of_a_tool_has_gaps_of_its_own():
    found = findings(crash("calls_one_tool_thrice", windows=(W3,)))
    assert found == {
        f"charge#{nth}@W3/{seen_by}": Finding.OK
        for nth in (1, 2, 3)
        for seen_by in (SeenBy.GUARD, SeenBy.PROVIDER)
    }


def test_calls_side_by_side_are_told_apart_by_their_keys():
    found = crash("calls_two_tools_side_by_side")
    at_guard = {crash.gap.name: crash for crash in found.crashes if crash.gap.seen_by is SeenBy.GUARD}
    assert set(at_guard) == {f"{tool}#1@{window}/guard" for tool in ("charge", "mail") for window in Window}
    assert len({crash.gap.key for crash in at_guard.values()}) == 2
    assert found.holds, findings(found)


def test_a_store_elsewhere_is_kept_apart_by_the_name_of_the_run_also_between_campaigns(tmp_path):
    env = {"STORE": f"sqlite:///{tmp_path}/shared.db"}
    for _ in range(2):
        assert crash("guarded_in_a_store_that_all_runs_share", env=env, windows=(W3,)).holds


# ------------------------------------------------------------------ where there is nothing to judge


def test_a_store_that_runs_share_under_one_name_is_no_measure_and_is_refused(tmp_path):
    env = {"STORE": f"sqlite:///{tmp_path}/shared.db"}
    with pytest.raises(UsageError, match=r"did not do the same|no effect that the lab could see"):
        crash("guarded_in_a_store_that_all_runs_share_under_one_name", env=env, windows=(W3,))


def test_a_gap_that_is_not_reached_again_is_no_pass():
    found = crash("takes_another_way_after_two_runs", windows=(W3,))
    assert {crash.finding for crash in found.crashes} == {Finding.UNKNOWN}
    assert {crash.killed_by_signal for crash in found.crashes} == {None}
    assert not found.holds


def test_a_program_without_effects_is_refused():
    with pytest.raises(UsageError, match="no effect that the lab could see"):
        crash("has_no_effect")


def test_a_program_that_fails_by_itself_is_refused_in_its_own_words():
    with pytest.raises(UsageError, match="cannot even begin"):
        crash("fails")


@pytest.mark.parametrize("target", ["crash_programs", "crash_programs:", ":naive"])
def test_a_target_that_names_no_callable_is_refused_before_anything_is_started(target):
    with pytest.raises(UsageError, match="module:callable"):
        campaign.run(Program(target=target, home=HERE, environment={}))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_module:run", "No module named 'no_such_module'"),
        ("crash_programs:no_such_name", "there is no 'no_such_name'"),
        ("crash_programs:__name__", "cannot be called"),
    ],
)
def test_a_target_that_is_not_there_is_said_to_be_missing_without_a_stack(target, words):
    with pytest.raises(UsageError, match=words) as refused:
        campaign.run(Program(target=target, home=HERE, environment={}))
    assert "Traceback" not in str(refused.value)


def test_a_field_of_the_identity_that_no_effect_has_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match=r"names customr, and no effect .* There are: .*to"):
        crash("words_it_differently_each_time", identity=("to", "customr"))


def test_runs_that_differ_by_themselves_are_refused_until_the_identity_is_named():
    with pytest.raises(UsageError, match="--identity"):
        crash("words_it_differently_each_time")
    assert crash("words_it_differently_each_time", identity=("to",)).holds


def test_whoever_ends_the_lab_ends_every_process_and_nothing_is_concluded():
    children = run.Children(campaign._nursery_with(()))
    with ThreadPoolExecutor() as pool:
        lives = pool.submit(children.live, crash_programs.waits_for_ever, 60.0)
        waits = pool.submit(children.wait, 60.0)
        children.end()
        for future in (lives, waits):
            with pytest.raises(run.GivenUp):
                future.result(timeout=20)


# ------------------------------------------------------------------ a person


@pytest.mark.parametrize("name", ["guarded_where_only_a_person_knows", "wraps_the_pause"])
def test_a_program_that_stops_for_a_person_is_not_stuck(name):
    found = findings(crash(name, provider=ProviderKind.BLIND))
    assert found["charge#1@W2/guard"] is Finding.ASKED
    assert found["charge#1@W3/guard"] is Finding.ASKED
    assert found["charge#1@W3/provider"] is Finding.ASKED
    assert found["charge#1@W1/guard"] is Finding.OK
    assert found["charge#1@W4/guard"] is Finding.OK


def test_with_somebody_who_answers_the_run_comes_to_its_end():
    found = crash("guarded_where_only_a_person_knows", resolver="crash_programs:a_person")
    assert set(findings(found).values()) == {Finding.OK}
    asked = {crash.gap.name for crash in found.crashes if crash.asks}
    assert asked == {
        f"charge#1@{window}/{by}" for window in (W2, W3) for by in (SeenBy.GUARD, SeenBy.PROVIDER)
    }


def test_a_person_who_answers_wrongly_makes_a_duplicate_and_it_is_seen():
    resolver = "crash_programs:a_person_who_says_run_it"
    found = findings(crash("guarded_where_only_a_person_knows", resolver=resolver, windows=(W3,)))
    assert set(found.values()) == {Finding.DUPLICATE}


# ------------------------------------------------------------------ a program that says when it can go on


def test_a_program_that_says_when_to_come_back_is_started_again_then():
    found = crash("guarded_and_says_when_to_come_back")
    assert found.holds
    assert max(crash.processes for crash in found.crashes) > 2, "nobody was told to come back"


def test_a_program_that_wants_longer_than_the_lab_waits_is_stuck_and_says_so():
    found = crash("guarded_with_an_hour_to_wait", windows=(W2,), only=("charge#1@W2/guard",))
    assert found.finding is Finding.STUCK
    assert "--patience" in (found.crashes[0].because or "")


# ------------------------------------------------------------------ tools that write their own evidence


def test_without_a_provider_the_growth_of_the_ledger_shows_the_gaps():
    found = crash("naive_with_a_ledger", effects="ledger.jsonl")
    assert findings(found) == {
        "charge#1@W2/ledger": Finding.OK,
        "charge#1@W3/ledger": Finding.DUPLICATE,
        "charge#1@W4/ledger": Finding.DUPLICATE,
        "mail#1@W2/ledger": Finding.DUPLICATE,
        "mail#1@W3/ledger": Finding.DUPLICATE,
        "mail#1@W4/ledger": Finding.DUPLICATE,
    }
    assert {crash.killed_by_signal for crash in found.crashes} == {signal.SIGKILL}
    assert found.effects == Counter(['charge {"amount":1}', 'mail "tell somebody"'])


def test_a_program_that_reads_its_ledger_first_passes():
    assert crash("looks_before_it_writes", effects="ledger.jsonl").holds


def test_an_atomic_tool_is_killed_inside_its_transaction_and_has_its_effect_once():
    found = crash("atomic", effects="ledger.jsonl")
    assert {f"grant#1@{window}/guard" for window in Window} <= set(findings(found))
    assert found.holds, findings(found)


def test_a_ledger_outside_the_run_s_folder_is_refused():
    with pytest.raises(UsageError, match="relative"):
        crash("naive_with_a_ledger", effects="/somewhere/ledger.jsonl")
