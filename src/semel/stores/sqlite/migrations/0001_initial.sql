-- The record. One row an intent; the coordinates that made the key stand beside it for people.
-- Times are microseconds since 1970 by the store's own clock (semel_clock).
CREATE TABLE semel_operations (
    id               INTEGER PRIMARY KEY,
    key              TEXT    NOT NULL,
    namespace        TEXT    NOT NULL,
    run_id           TEXT    NOT NULL,
    step             TEXT    NOT NULL,
    call_id          TEXT    NOT NULL,
    tool             TEXT    NOT NULL,
    effect           TEXT    NOT NULL,
    fingerprint      TEXT    NOT NULL,
    arguments        TEXT    NOT NULL,
    once_key         TEXT,
    state            TEXT    NOT NULL,
    fence            INTEGER NOT NULL,
    owner            TEXT,
    lease_expires_at INTEGER,
    first_sent_at    INTEGER,
    send_deadline_at INTEGER,
    earlier_in_doubt INTEGER NOT NULL,
    result           TEXT,
    error            TEXT,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    reaped_at        INTEGER,
    apart            INTEGER NOT NULL DEFAULT 0,  -- 1: its key does not begin with the name of its run
    CONSTRAINT state_is_known CHECK (state IN ('PENDING', 'INVOKED', 'COMMITTED', 'UNKNOWN', 'FAILED')),
    CONSTRAINT fence_counts_claims CHECK (fence >= 1),
    CONSTRAINT lease_exactly_while_invoked CHECK ((state = 'INVOKED') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT result_only_if_committed CHECK (result IS NULL OR state = 'COMMITTED'),
    CONSTRAINT committed_has_result_until_reaped
        CHECK (state <> 'COMMITTED' OR result IS NOT NULL OR reaped_at IS NOT NULL),
    CONSTRAINT reaped_only_when_ended CHECK (reaped_at IS NULL OR state IN ('COMMITTED', 'FAILED')),
    CONSTRAINT what_was_invoked_was_perhaps_sent CHECK (state <> 'INVOKED' OR first_sent_at IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX semel_one_record_a_key ON semel_operations (key);

-- A failed intent does not use up its business event: it certainly did not happen.
CREATE UNIQUE INDEX semel_one_open_record_a_business_event
    ON semel_operations (once_key) WHERE once_key IS NOT NULL AND state <> 'FAILED';

-- A run's operations stand side by side in the index by key, which begins with the run's name (semel.keys). Keys
-- that somebody made in another way are found by this one.
CREATE INDEX semel_operations_apart_from_their_run ON semel_operations (namespace, run_id) WHERE apart = 1;

-- Sweeps and people look only at what is open; the indexes hold nothing else. Each call enters the first one and
-- leaves it, so that one is kept as cheap as can be: a lease is there exactly while an operation is INVOKED.
CREATE INDEX semel_invoked_operations ON semel_operations (namespace, key) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX semel_operations_at_rest
    ON semel_operations (namespace, state, key) WHERE state IN ('PENDING', 'UNKNOWN');

-- Every move but the plain claim, renewal and completion, which the record itself tells.
CREATE TABLE semel_history (
    id         INTEGER PRIMARY KEY,
    key        TEXT    NOT NULL,
    event      TEXT    NOT NULL,
    from_state TEXT    NOT NULL,
    to_state   TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    by         TEXT,
    why        TEXT
) STRICT;

CREATE INDEX semel_history_of_a_key ON semel_history (key, id);
CREATE INDEX semel_divergences ON semel_history (event, id) WHERE event = 'diverged';

-- A run's own log: the model's turns, each as a unit.
CREATE TABLE semel_log (
    namespace TEXT    NOT NULL,
    run_id    TEXT    NOT NULL,
    position  INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    payload   TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (namespace, run_id, position)
) STRICT, WITHOUT ROWID;

-- Wall clock minus time since boot, fixed once a boot: within one boot the store's clock cannot jump,
-- and all processes of the host share it.
CREATE TABLE semel_clock (
    boot_id   TEXT    NOT NULL PRIMARY KEY,
    anchor_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
