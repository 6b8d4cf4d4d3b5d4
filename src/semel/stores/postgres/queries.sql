-- Every write returns the key of each record that it changed, and on the way says how its own transaction is
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

-- name: insert
SELECT semel_claim('{how}', %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: insert_many
INSERT INTO semel_operations ({operation})
SELECT claims.*
  FROM semel_flush('{how}'),
       unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
              %b::text[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::timestamptz[],
              %b::timestamptz[], %b::timestamptz[], %b::boolean[], %b::text[], %b::text[], %b::timestamptz[],
              %b::timestamptz[], %b::timestamptz[]) AS claims
ON CONFLICT DO NOTHING
RETURNING key;

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

-- name: commit_many
UPDATE semel_operations AS held
   SET state = 'COMMITTED', lease_expires_at = NULL, result = done.result, updated_at = done.updated_at
  FROM semel_flush('{how}'),
       unnest(%b::text[], %b::timestamptz[], %b::text[], %b::bigint[])
           AS done (result, updated_at, key, fence)
 WHERE held.key = done.key AND held.state = 'INVOKED' AND held.fence = done.fence
RETURNING held.key;

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
SELECT {operation}
  FROM semel_operations
 WHERE namespace = %s AND run_id = %s
 ORDER BY created_at, key;

-- name: read_open
-- The literal list lets the partial index serve.
SELECT {operation}
  FROM semel_operations
 WHERE state IN ('PENDING', 'INVOKED', 'UNKNOWN') AND namespace = %s AND state = %s AND key > %s
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
