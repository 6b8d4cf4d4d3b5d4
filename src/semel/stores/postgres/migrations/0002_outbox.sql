-- Messages that Atomic tools left, each written in the transaction of its operation's effect and record.
-- What is delivered stays until it is reaped, for people to look at.
-- `id` is the order within a topic. Two transactions at once may commit in another order than they took their
-- numbers in; of such two neither came first.
CREATE TABLE semel_outbox (
    id               bigint GENERATED ALWAYS AS IDENTITY,
    key              text COLLATE "C" NOT NULL,
    namespace        text COLLATE "C" NOT NULL,
    topic            text COLLATE "C" NOT NULL,
    operation        text COLLATE "C" NOT NULL,
    number           bigint      NOT NULL,
    payload          text        NOT NULL,
    fence            bigint      NOT NULL,
    owner            text,
    lease_expires_at timestamptz,
    failures         bigint      NOT NULL,
    error            text,
    enqueued_at      timestamptz NOT NULL,
    due_at           timestamptz NOT NULL,
    delivered_at     timestamptz,
    CONSTRAINT semel_one_message_a_key PRIMARY KEY (key),
    CONSTRAINT what_is_leased_has_an_owner CHECK (lease_expires_at IS NULL OR owner IS NOT NULL),
    CONSTRAINT what_is_delivered_is_not_leased CHECK (delivered_at IS NULL OR lease_expires_at IS NULL)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02  -- each delivery leaves two dead row versions at the head of its topic
);

-- The relay looks only at what is undelivered, oldest first in each topic; the index holds nothing else.
CREATE INDEX semel_undelivered_messages ON semel_outbox (namespace, topic, id) WHERE delivered_at IS NULL;

CREATE INDEX semel_delivered_messages ON semel_outbox (namespace, delivered_at) WHERE delivered_at IS NOT NULL;
