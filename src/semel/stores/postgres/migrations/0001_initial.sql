-- The record. One row an intent; the coordinates that made the key stand beside it for people.
-- Times are the database's own clock, as its clients know it (semel.stores.postgres.clock).
--
-- To spread it later, partition by hash of `key`: a key is a digest, so the parts are even; the primary key
-- already is the partition key; and every statement but two names one key. `read_run` and the sweeps then
-- probe every part, by index. What cannot follow is the uniqueness of a business event, which spans keys: it
-- moves to a table of its own (once_key, key), itself hash-partitioned by once_key. Whole shards need none of
-- this: an intent lives and dies on one, chosen by run id.
--
-- What each state has, and has not. A function, since PostgreSQL reads a constraint anew for every write, all of its
-- text, and what a function says only once a session.
CREATE FUNCTION semel_is_whole(
    state text, fence bigint, lease_expires_at timestamptz, first_sent_at timestamptz, result text,
    reaped_at timestamptz
) RETURNS boolean IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN
    RETURN fence >= 1 AND CASE state
        WHEN 'INVOKED' THEN lease_expires_at IS NOT NULL AND first_sent_at IS NOT NULL
                            AND result IS NULL AND reaped_at IS NULL
        WHEN 'COMMITTED' THEN lease_expires_at IS NULL AND (result IS NOT NULL OR reaped_at IS NOT NULL)
        WHEN 'FAILED' THEN lease_expires_at IS NULL AND result IS NULL
        WHEN 'PENDING' THEN lease_expires_at IS NULL AND result IS NULL AND reaped_at IS NULL
        WHEN 'UNKNOWN' THEN lease_expires_at IS NULL AND result IS NULL AND reaped_at IS NULL
        ELSE false
    END;
END
$$;

CREATE TABLE semel_operations (
    key              text COLLATE "C" NOT NULL,
    namespace        text        NOT NULL,
    run_id           text        NOT NULL,
    step             text        NOT NULL,
    call_id          text        NOT NULL,
    tool             text        NOT NULL,
    effect           text        NOT NULL,
    fingerprint      text        NOT NULL,
    arguments        text        NOT NULL,
    once_key         text COLLATE "C",
    state            text COLLATE "C" NOT NULL,
    fence            bigint      NOT NULL,
    owner            text,
    lease_expires_at timestamptz,
    first_sent_at    timestamptz,
    send_deadline_at timestamptz,
    earlier_in_doubt boolean     NOT NULL,
    result           text,
    error            text,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    reaped_at        timestamptz,
    apart            boolean     NOT NULL DEFAULT false,  -- its key does not begin with the name of its run
    CONSTRAINT semel_one_record_a_key PRIMARY KEY (key),
    CONSTRAINT each_state_has_its_columns_and_no_others
        CHECK (semel_is_whole(state, fence, lease_expires_at, first_sent_at, result, reaped_at))
) WITH (
    autovacuum_vacuum_scale_factor = 0.02  -- each call leaves one dead row version, and sweeps step over them
);

-- A failed intent does not use up its business event: it certainly did not happen.
CREATE UNIQUE INDEX semel_one_open_record_a_business_event
    ON semel_operations (once_key) WHERE once_key IS NOT NULL AND state <> 'FAILED';

-- A run's operations stand side by side in the index by key, which begins with the run's name (semel.keys). Keys
-- that somebody made in another way are found by this one.
CREATE INDEX semel_operations_apart_from_their_run ON semel_operations (namespace, run_id) WHERE apart;

-- Sweeps and people look only at what is open; the indexes hold nothing else. Each call enters the first one and
-- leaves it, so that one is kept as cheap as can be: a lease is there exactly while an operation is INVOKED.
CREATE INDEX semel_invoked_operations ON semel_operations (namespace, key) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX semel_operations_at_rest
    ON semel_operations (namespace, state, key) WHERE state IN ('PENDING', 'UNKNOWN');

-- What retention looks for; what is reaped drops out, so a sweep costs what is due and not what there is.
CREATE INDEX semel_ended_operations
    ON semel_operations (namespace, updated_at) WHERE state IN ('COMMITTED', 'FAILED') AND reaped_at IS NULL;

-- Every move but the plain claim, renewal and completion, which the record itself tells.
CREATE TABLE semel_history (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    key        text COLLATE "C" NOT NULL,
    event      text        NOT NULL,
    from_state text        NOT NULL,
    to_state   text        NOT NULL,
    fence      bigint      NOT NULL,
    at         timestamptz NOT NULL,
    by         text,
    why        text
);

CREATE INDEX semel_history_of_a_key ON semel_history (key, id);
CREATE INDEX semel_divergences ON semel_history (id) WHERE event = 'diverged';

-- A run's own log: the model's turns, each as a unit.
CREATE TABLE semel_log (
    namespace text        NOT NULL,
    run_id    text        NOT NULL,
    position  bigint      NOT NULL,
    kind      text        NOT NULL,
    payload   text        NOT NULL,
    at        timestamptz NOT NULL,
    CONSTRAINT semel_one_event_a_position PRIMARY KEY (namespace, run_id, position)
);

-- Tells this store from every other, so that a caller's own connection can be seen to lead to it.
CREATE TABLE semel_store (
    identity   uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO semel_store DEFAULT VALUES;

-- How the transaction around it is flushed, for as long as that lasts and no longer:
--   flushed    at least to the local disk, whatever the server, the role or a neighbour on the session has set
--   unflushed  in order, but not waited for
--   untouched  as it is (the caller's own transaction)
CREATE FUNCTION semel_flush(how text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF how = 'unflushed' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF how = 'flushed' AND current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN true;
END
$$;

-- The writes of the happy path are functions because a function keeps its plan for as long as the session
-- lives, whoever uses that session: prepared statements without preparing any, so it works behind a pooler.
-- Planning costs as much as the rest of such a write. Settings are assigned to a variable, and not PERFORMed, which
-- would run a query for it.

-- The claim of a new intent. Whatever is there already, under this key or for this business event, stays as it is,
-- and is given back as JSON, so that a call that was made before costs one round trip: empty if it cannot be seen (any
-- more), or is large and better read as it is. NULL if the claim was made.
CREATE FUNCTION semel_claim(
    how text, p_key text, p_namespace text, p_run_id text, p_step text, p_call_id text, p_tool text, p_effect text,
    p_fingerprint text, p_arguments text, p_once_key text, p_owner text, p_now timestamptz,
    p_lease_expires_at timestamptz, p_apart boolean
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    in_the_way semel_operations;
    setting text;
BEGIN
    INSERT INTO semel_operations (
        key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, once_key,
        state, fence, owner, lease_expires_at, first_sent_at, send_deadline_at, earlier_in_doubt,
        created_at, updated_at, apart
    ) VALUES (
        p_key, p_namespace, p_run_id, p_step, p_call_id, p_tool, p_effect, p_fingerprint, p_arguments, p_once_key,
        'INVOKED', 1, p_owner, p_lease_expires_at, p_now, p_lease_expires_at, false, p_now, p_now, p_apart
    ) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        IF how = 'flushed' AND current_setting('synchronous_commit') = 'off' THEN
            setting := set_config('synchronous_commit', 'on', true);
        END IF;
        RETURN NULL;
    END IF;
    SELECT * INTO in_the_way FROM semel_operations WHERE key = p_key;
    IF NOT FOUND AND p_once_key IS NOT NULL THEN
        SELECT * INTO in_the_way FROM semel_operations WHERE once_key = p_once_key AND state <> 'FAILED';
    END IF;
    IF in_the_way.key IS NULL OR length(in_the_way.arguments) + coalesce(length(in_the_way.result), 0) > 1000000 THEN
        RETURN '';
    END IF;
    RETURN row_to_json(in_the_way)::text;
END
$$;

-- The completion: it says what it saw; if that is no longer so, it changes nothing and gives NULL.
-- No plan made while the table was small may scan it when it has grown.
CREATE FUNCTION semel_commit(how text, p_result text, p_updated_at timestamptz, p_key text, p_fence bigint)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    setting text;
BEGIN
    UPDATE semel_operations
       SET state = 'COMMITTED', lease_expires_at = NULL, result = p_result, updated_at = p_updated_at
     WHERE key = p_key AND state = 'INVOKED' AND fence = p_fence;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF how = 'unflushed' THEN
        setting := set_config('synchronous_commit', 'off', true);
    ELSIF how = 'flushed' AND current_setting('synchronous_commit') = 'off' THEN
        setting := set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN p_key;
END
$$;

-- Many of both, each a row of parallel arrays, in one round trip. The keys of those that changed something.
CREATE FUNCTION semel_write(
    how text, p_keys text[], p_namespaces text[], p_run_ids text[], p_steps text[], p_call_ids text[], p_tools text[],
    p_effects text[], p_fingerprints text[], p_arguments text[], p_once_keys text[], p_owners text[],
    p_nows timestamptz[], p_leases timestamptz[], p_aparts boolean[],
    p_results text[], p_ended_at timestamptz[], p_ended text[], p_fences bigint[]
) RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    setting text;
BEGIN
    IF how = 'unflushed' THEN
        setting := set_config('synchronous_commit', 'off', true);
    ELSIF how = 'flushed' AND current_setting('synchronous_commit') = 'off' THEN
        setting := set_config('synchronous_commit', 'on', true);
    END IF;
    IF p_ended <> '{}' THEN
        RETURN QUERY
        UPDATE semel_operations AS held
           SET state = 'COMMITTED', lease_expires_at = NULL, result = done.result, updated_at = done.updated_at
          FROM unnest(p_results, p_ended_at, p_ended, p_fences) AS done (result, updated_at, key, fence)
         WHERE held.key = done.key AND held.state = 'INVOKED' AND held.fence = done.fence
        RETURNING held.key;
    END IF;
    IF p_keys <> '{}' THEN
        RETURN QUERY
        INSERT INTO semel_operations AS made (
            key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, once_key,
            state, fence, owner, lease_expires_at, first_sent_at, send_deadline_at, earlier_in_doubt,
            created_at, updated_at, apart
        )
        SELECT new.key, new.namespace, new.run_id, new.step, new.call_id, new.tool, new.effect, new.fingerprint,
               new.arguments, new.once_key, 'INVOKED', 1, new.owner, new.lease, new.at, new.lease, false, new.at,
               new.at, new.apart
          FROM unnest(p_keys, p_namespaces, p_run_ids, p_steps, p_call_ids, p_tools, p_effects, p_fingerprints,
                      p_arguments, p_once_keys, p_owners, p_nows, p_leases, p_aparts)
               AS new (key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, once_key, owner,
                       at, lease, apart)
        ON CONFLICT DO NOTHING
        RETURNING made.key;
    END IF;
END
$$;
