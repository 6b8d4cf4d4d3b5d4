-- fragment: operation
key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, once_key,
state, fence, owner, lease_expires_at, first_sent_at, send_deadline_at, earlier_in_doubt,
result, error, created_at, updated_at, reaped_at

-- fragment: history
key, event, from_state, to_state, fence, at, by, why

-- name: insert
-- The claim; of many, a row for each. Whatever is there already, under this key or for this business event, stays as it is.
INSERT INTO semel_operations ({operation}, apart)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: move
-- The only UPDATE. It says what it saw; if that is no longer so, it changes nothing.
UPDATE semel_operations
   SET arguments = ?, state = ?, fence = ?, owner = ?, lease_expires_at = ?, first_sent_at = ?,
       send_deadline_at = ?, earlier_in_doubt = ?, result = ?, error = ?, updated_at = ?, reaped_at = ?
 WHERE key = ? AND state = ? AND fence = ? AND (?16 IS NULL OR lease_expires_at = ?16);

-- name: commit
-- The move of the happy path, kept short: nothing else changes when a held claim is completed.
UPDATE semel_operations
   SET state = 'COMMITTED', lease_expires_at = NULL, result = ?, updated_at = ?
 WHERE key = ? AND state = 'INVOKED' AND fence = ?;

-- name: commit_many
-- The same for many, a row for each: result, updated_at, key, fence.
UPDATE semel_operations AS held
   SET state = 'COMMITTED', lease_expires_at = NULL, result = done.column1, updated_at = done.column2
  FROM (VALUES (?, ?, ?, ?)) AS done
 WHERE held.key = done.column3 AND held.state = 'INVOKED' AND held.fence = done.column4;

-- name: note
INSERT INTO semel_history ({history})
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: append
INSERT INTO semel_log (namespace, run_id, position, kind, payload, at)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: read
SELECT {operation}
  FROM semel_operations
 WHERE key = ?;

-- name: read_once
SELECT {operation}
  FROM semel_operations
 WHERE once_key = ? AND state <> 'FAILED';

-- name: read_run
-- From the run's name up to what no key that begins with it can reach; and those that stand apart.
SELECT {operation}
  FROM semel_operations
 WHERE namespace = ?1 AND run_id = ?2 AND ((key >= ?3 AND key < ?4) OR apart = 1)
 ORDER BY id;

-- name: read_invoked
SELECT {operation}
  FROM semel_operations
 WHERE lease_expires_at IS NOT NULL AND namespace = ? AND key > ?
 ORDER BY key
 LIMIT ?;

-- name: read_at_rest
-- PENDING or UNKNOWN. The literal list lets the partial index serve.
SELECT {operation}
  FROM semel_operations
 WHERE state IN ('PENDING', 'UNKNOWN') AND namespace = ? AND state = ? AND key > ?
 ORDER BY key
 LIMIT ?;

-- name: read_ended_before
SELECT {operation}
  FROM semel_operations
 WHERE state IN ('COMMITTED', 'FAILED') AND reaped_at IS NULL AND namespace = ? AND updated_at < ? AND key > ?
 ORDER BY key
 LIMIT ?;

-- name: read_history
SELECT {history}
  FROM semel_history
 WHERE key = ?
 ORDER BY id;

-- name: read_divergences
SELECT {history}
  FROM semel_history
 WHERE event = 'diverged'
   AND EXISTS (SELECT 1 FROM semel_operations AS op WHERE op.key = semel_history.key AND op.namespace = ?)
 ORDER BY id DESC
 LIMIT ?;

-- name: read_log
SELECT namespace, run_id, position, kind, payload, at
  FROM semel_log
 WHERE namespace = ? AND run_id = ?
 ORDER BY position;
