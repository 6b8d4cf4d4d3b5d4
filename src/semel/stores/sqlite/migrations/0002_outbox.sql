-- Messages that Atomic tools left, each written in the transaction of its operation's effect and record.
-- What is delivered stays until it is reaped, for people to look at.
CREATE TABLE semel_outbox (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    key              TEXT    NOT NULL,
    namespace        TEXT    NOT NULL,
    topic            TEXT    NOT NULL,
    operation        TEXT    NOT NULL,
    number           INTEGER NOT NULL,
    payload          TEXT    NOT NULL,
    fence            INTEGER NOT NULL,
    owner            TEXT,
    lease_expires_at INTEGER,
    failures         INTEGER NOT NULL,
    error            TEXT,
    enqueued_at      INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    delivered_at     INTEGER,
    CONSTRAINT what_is_leased_has_an_owner CHECK (lease_expires_at IS NULL OR owner IS NOT NULL),
    CONSTRAINT what_is_delivered_is_not_leased CHECK (delivered_at IS NULL OR lease_expires_at IS NULL)
) STRICT;

CREATE UNIQUE INDEX semel_one_message_a_key ON semel_outbox (key);

-- The relay looks only at what is undelivered, oldest first in each topic; the index holds nothing else.
CREATE INDEX semel_undelivered_messages ON semel_outbox (namespace, topic, id) WHERE delivered_at IS NULL;

CREATE INDEX semel_delivered_messages ON semel_outbox (namespace, delivered_at) WHERE delivered_at IS NOT NULL;
