"""The guards broken on purpose, one an entry: what is wrong, and which hazard that opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.lab.mutants import deciding, hearing, storing
from semel.lab.mutants.mutant import Mutant

MUTANTS: Final = (
    Mutant(
        name="believes an early absent",
        broken="An absent counts however early it comes, whatever may still be on its way.",
        opens="a lookup whose index lags",
        decide=deciding.believing_an_early_absent,
    ),
    Mutant(
        name="ignores the lookup's lag",
        broken="A lookup is taken to show an effect at once.",
        opens="a lookup whose index lags",
        heeds=hearing.no_lookup_lag,
    ),
    Mutant(
        name="ignores the request's deadline",
        broken="A request is taken to land at once or never.",
        opens="the dead attempt's request lands late",
        heeds=hearing.no_request_deadline,
    ),
    Mutant(
        name="counts quiet from the first send",
        broken="Nothing is taken to leave after the claim was made, though its holder may be slow.",
        opens="the dead attempt's request lands late",
        store=storing.counting_quiet_from_the_first_send,
    ),
    Mutant(
        name="takes an inconclusive answer for absent",
        broken="A lookup that is down, or says that it is processing, counts as proof that nothing happened.",
        opens="a lookup that settles nothing",
        decide=deciding.taking_inconclusive_for_absent,
    ),
    Mutant(
        name="takes a falsy answer for absent",
        broken="A lookup that returns 0, an empty string or None counts as proof that nothing happened.",
        opens="a lookup that settles nothing",
        reads=hearing.falsy_is_absent,
    ),
    Mutant(
        name="takes any row for its own",
        broken="A row that the lookup finds settles the operation, whoever's it is.",
        opens="somebody else's row",
        reads=hearing.any_row_is_ours,
    ),
    Mutant(
        name="takes over a live owner",
        broken="Whatever is claimed and not done may be taken over at once.",
        opens="a second attempt while the first is alive",
        decide=deciding.overtaking_the_living,
    ),
    Mutant(
        name="takes silence for death",
        broken="An owner that has not renewed for half its lease counts as dead, though it is only slow.",
        opens="paused past the lease, then continues",
        decide=deciding.taking_silence_for_death,
    ),
    Mutant(
        name="believes in its own lease",
        broken="The holder of a claim sends however long it was paused.",
        opens="paused past the lease, then continues",
        store=storing.believing_in_its_lease,
    ),
    Mutant(
        name="lets two recoverers claim",
        broken="Only the first claim is a compare-and-set: two that recover at once both run.",
        opens="two recoverers at once",
        store=storing.letting_both_claim,
    ),
    Mutant(
        name="compares no fence",
        broken="A write compares the state alone, so that a fenced-out worker writes over its successor.",
        opens="a late loser writes",
        store=storing.without_fence,
    ),
    Mutant(
        name="overwrites a terminal state",
        broken="A late loser writes over what has ended.",
        opens="a late loser writes",
        store=storing.overwriting_the_end,
    ),
    Mutant(
        name="claims after the effect",
        broken="The claim is not durable before the request leaves; it is written with the completion.",
        opens="the store is down at the claim, or the process dies after the effect",
        store=storing.claiming_later,
    ),
    Mutant(
        name="completes before the effect",
        broken="The completion is written with the claim.",
        opens="a completion of what never happened",
        store=storing.completing_first,
    ),
    Mutant(
        name="runs again in doubt",
        broken="UNKNOWN is taken for: it did not happen.",
        opens="an answer that never came",
        decide=deciding.running_again_in_doubt,
    ),
    Mutant(
        name="trusts every provider with its key",
        broken="In doubt it resends under the same key, also where the provider ignores keys.",
        opens="a provider that ignores keys",
        heeds=hearing.a_key_that_is_honoured,
    ),
    Mutant(
        name="resends under a forgotten key",
        broken="A key is taken to be remembered for ever.",
        opens="a key older than the provider's memory",
        heeds=hearing.an_endless_key,
    ),
    Mutant(
        name="counts the key's age from its last send",
        broken="Each resend makes the key young again.",
        opens="a key older than the provider's memory",
        store=storing.counting_the_key_from_its_last_send,
    ),
    Mutant(
        name="makes a fresh key for each attempt",
        broken="The provider cannot tell that two attempts are one intent.",
        opens="a retry that the provider cannot tell from a new request",
        names=hearing.fresh_for_each_attempt,
    ),
    Mutant(
        name="makes the key of the arguments",
        broken="Two calls that are both meant have one key.",
        opens="two equal calls, both meant",
        names=hearing.made_of_the_arguments,
    ),
    Mutant(
        name="takes any error for not sent",
        broken="A time-out, a reset connection and a 503 are taken for: it never left.",
        opens="an answer that never came",
        hears=hearing.any_error_is_not_sent,
    ),
    Mutant(
        name="takes any error for final",
        broken="A time-out is recorded as failed for ever, though the request may have landed.",
        opens="an answer that never came",
        hears=hearing.any_error_is_final,
    ),
    Mutant(
        name="takes a refused connection for final",
        broken="Connection refused once is failed for ever.",
        opens="connection refused once",
        hears=hearing.not_sent_is_final,
    ),
    Mutant(
        name="believes a refused resend",
        broken="What the second attempt is told is taken to speak of the first one too.",
        opens="a refusal that speaks of one attempt alone",
        store=storing.forgetting_the_earlier_doubt,
    ),
    Mutant(
        name="drops late results",
        broken="A worker that comes back after its claim was taken keeps to itself what it knows.",
        opens="a late loser writes",
        store=storing.dropping_late_results,
    ),
    Mutant(
        name="never leaves doubt",
        broken="UNKNOWN is never settled.",
        opens="no way forward without a developer",
        decide=deciding.staying_in_doubt,
    ),
    Mutant(
        name="waits for the dead",
        broken="A claim is never taken from an owner that is gone.",
        opens="no way forward without a developer",
        decide=deciding.waiting_for_the_dead,
    ),
    Mutant(
        name="asks a person in every doubt",
        broken="A person is asked although the provider could have been.",
        opens="a person asked for nothing",
        decide=deciding.asking_in_every_doubt,
    ),
    Mutant(
        name="runs at once on a person's word",
        broken="A person who saw no effect is believed while an earlier request may still land.",
        opens="an approval of what is still on its way",
        decide=deciding.running_at_once_on_a_persons_word,
    ),
    Mutant(
        name="takes any arguments",
        broken="The fingerprint is not compared: one key serves two different calls.",
        opens="one key, other arguments",
        decide=deciding.taking_any_arguments,
    ),
    Mutant(
        name="ignores once_per",
        broken="A business event that is asked for under another id runs again.",
        opens="the same event under a new id",
        heeds_once_per=False,
    ),
    Mutant(
        name="runs names together",
        broken="Step and call id are joined by a colon: a:b and c is a and b:c.",
        opens="names that run together",
        places=hearing.run_together,
    ),
    Mutant(
        name="leaves the step out of the key",
        broken="Where a provider numbers the calls of each turn from 0, two of them are one intent.",
        opens="call ids that repeat",
        places=hearing.without_the_step,
    ),
)
NOT_SIMULATED: Final = (
    Mutant(
        name="keeps divergences to itself",
        broken="An effect beyond the first that it is shown, or comes back with, is not written down.",
        opens="a declaration that was false",
        store=storing.keeping_divergences_to_itself,
    ),
)  # the simulator has no audit, and takes a divergence that was raised for told
BY_NAME: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in MUTANTS}
