-- Every write (but `claim`) returns the key of each record that it changed, and on the way says how its own transaction is
-- flushed (`{how}`: flushed, unflushed or untouched): a statement that is a transaction of its own then costs
-- one round trip, and nothing stays behind in a session that a pooler hands to somebody else.

-- fragment: operation
key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, once_key,
state, fence, owner, lease_expires_at, first_sent_at, send_deadline_at, earlier_in_doubt,
result, error, created_at, updated_at, reaped_at

-- fragment: history
key, event, from_state, to_state, fence, at, by, why

-- fragment: compare_and_set
-- The only UPDATE. It says what it saw; if that is no longer so, it changes nothing.
UPDATE semel_operations
   SET arguments = %s, state = %s, fence = %s, owner = %s, lease_expires_at = %s, first_sent_at = %s,
       send_deadline_at = %s, earlier_in_doubt = %s, result = %s, error = %s, updated_at = %s, reaped_at = %s
 WHERE key = %s AND state = %s AND fence = %s
   AND lease_expires_at IS NOT DISTINCT FROM coalesce(%s, lease_expires_at)
RETURNING key, semel_flush('{how}')

-- name: set_flush
SELECT semel_flush('{how}');

-- name: claim
SELECT semel_claim('{how}', %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: insert
-- Of a record that is not a fresh claim.
INSERT INTO semel_operations ({operation}, apart)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING
RETURNING key, semel_flush('{how}');

-- name: write_many
-- Claims and completions, as many as there are of each; arrays are given as text.
SELECT semel_write('{how}', %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
                   %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
                   %s::boolean[], %s::text[], %s::timestamptz[], %s::text[], %s::bigint[]);

-- name: move
-- It notes what it did in the history, and nothing if it did nothing.
WITH moved AS (
{compare_and_set}
), noted AS (
    INSERT INTO semel_history ({history})
    SELECT %s, %s, %s, %s, %s, %s, %s, %s
      FROM moved
)
SELECT key FROM moved;

-- name: move_unnoted
-- Of a move that the record itself tells.
{compare_and_set};

-- name: commit
SELECT semel_commit('{how}', %s, %s, %s, %s);

-- name: note
INSERT INTO semel_history ({history})
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
RETURNING key, semel_flush('{how}');

-- name: append
-- All or none: the rest is written only if the first position was free.
WITH first AS (
    INSERT INTO semel_log (namespace, run_id, position, kind, payload, at)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING
    RETURNING run_id, semel_flush('{how}')
), rest AS (
    INSERT INTO semel_log (namespace, run_id, position, kind, payload, at)
    SELECT later.*
      FROM first, unnest(%b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[], %b::timestamptz[])
           AS later
)
SELECT run_id FROM first;

-- name: read
SELECT {operation}
  FROM semel_operations
 WHERE key = %s;

-- name: read_once
SELECT {operation}
  FROM semel_operations
 WHERE once_key = %s AND once_key IS NOT NULL AND state <> 'FAILED';

-- name: read_many
SELECT {operation}
  FROM semel_operations
 WHERE key = ANY (%s);

-- name: read_run
-- From the run's name up to what no key that begins with it can reach; and those that stand apart.
SELECT {operation}
  FROM semel_operations
 WHERE key >= %(first)s AND key < %(past)s AND namespace = %(namespace)s AND run_id = %(run_id)s
UNION ALL
SELECT {operation}
  FROM semel_operations
 WHERE apart AND namespace = %(namespace)s AND run_id = %(run_id)s
 ORDER BY created_at, key;

-- name: read_invoked
SELECT {operation}
  FROM semel_operations
 WHERE lease_expires_at IS NOT NULL AND namespace = %s AND key > %s
 ORDER BY key
 LIMIT %s;

-- name: read_at_rest
-- PENDING or UNKNOWN. The literal list lets the partial index serve.
SELECT {operation}
  FROM semel_operations
 WHERE state IN ('PENDING', 'UNKNOWN') AND namespace = %s AND state = %s AND key > %s
 ORDER BY key
 LIMIT %s;

-- name: read_ended_before
SELECT {operation}
  FROM semel_operations
 WHERE state IN ('COMMITTED', 'FAILED') AND reaped_at IS NULL AND namespace = %s AND updated_at < %s AND key > %s
 ORDER BY key
 LIMIT %s;

-- name: read_history
SELECT {history}
  FROM semel_history
 WHERE key = %s
 ORDER BY id;

-- name: read_divergences
SELECT {history}
  FROM semel_history
 WHERE event = 'diverged'
   AND EXISTS (SELECT FROM semel_operations AS op WHERE op.key = semel_history.key AND op.namespace = %s)
 ORDER BY id DESC
 LIMIT %s;

-- name: read_log
SELECT namespace, run_id, position, kind, payload, at
  FROM semel_log
 WHERE namespace = %s AND run_id = %s
 ORDER BY position;
