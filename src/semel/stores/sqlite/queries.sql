-- fragment: operation
key, namespace, run_id, step, call_id, tool, effect, fingerprint, arguments, once_key,
state, fence, owner, lease_expires_at, first_sent_at, send_deadline_at, earlier_in_doubt,
result, error, created_at, updated_at, reaped_at

-- fragment: history
key, event, from_state, to_state, fence, at, by, why

-- name: insert
-- The claim. Whatever is there already, under this key or for this business event, stays as it is.
INSERT INTO semel_operations ({operation})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
SELECT {operation}
  FROM semel_operations
 WHERE namespace = ? AND run_id = ?
 ORDER BY id;

-- name: read_open
-- The literal list lets the partial index serve.
SELECT {operation}
  FROM semel_operations
 WHERE state IN ('PENDING', 'INVOKED', 'UNKNOWN') AND namespace = ? AND state = ? AND key > ?
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
 WHERE event = 'diverged' AND key IN (SELECT key FROM semel_operations WHERE namespace = ?)
 ORDER BY id DESC
 LIMIT ?;

-- name: read_log
SELECT namespace, run_id, position, kind, payload, at
  FROM semel_log
 WHERE namespace = ? AND run_id = ?
 ORDER BY position;
