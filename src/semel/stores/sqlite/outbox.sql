-- fragment: message
key, namespace, topic, operation, number, payload, fence, owner, lease_expires_at, failures, error, enqueued_at,
due_at, delivered_at

-- fragment: of_table
semel_outbox.key, semel_outbox.namespace, semel_outbox.topic, semel_outbox.operation, semel_outbox.number,
semel_outbox.payload, semel_outbox.fence, semel_outbox.owner, semel_outbox.lease_expires_at,
semel_outbox.failures, semel_outbox.error, semel_outbox.enqueued_at, semel_outbox.due_at,
semel_outbox.delivered_at

-- name: enqueue
INSERT INTO semel_outbox ({message})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: claim_message
-- It says what it saw: of two relays one gets it.
UPDATE semel_outbox
   SET fence = ?, owner = ?, lease_expires_at = ?
 WHERE key = ? AND fence = ? AND delivered_at IS NULL;

-- name: mark_delivered
-- Whoever has delivered it has: that another relay has claimed it meanwhile makes it no less so.
UPDATE semel_outbox
   SET delivered_at = ?, error = ?, owner = NULL, lease_expires_at = NULL
 WHERE key = ? AND delivered_at IS NULL;

-- name: put_off
-- By the relay that holds it, and by no other.
UPDATE semel_outbox
   SET failures = ?, error = ?, due_at = ?, owner = NULL, lease_expires_at = NULL
 WHERE key = ? AND fence = ? AND delivered_at IS NULL;

-- name: read_heads
-- The oldest undelivered message of each topic. It skips from topic to topic along the index, so that it costs by
-- the number of topics and not of messages.
WITH RECURSIVE topics (topic) AS (
    SELECT (SELECT min(topic) FROM semel_outbox WHERE namespace = ?1 AND delivered_at IS NULL)
    UNION ALL
    SELECT (SELECT min(later.topic) FROM semel_outbox AS later
             WHERE later.namespace = ?1 AND later.topic > topics.topic AND later.delivered_at IS NULL)
      FROM topics
     WHERE topics.topic IS NOT NULL
)
SELECT {of_table}
  FROM topics
  JOIN semel_outbox
    ON semel_outbox.id = (SELECT min(first.id) FROM semel_outbox AS first
                           WHERE first.namespace = ?1 AND first.topic = topics.topic AND first.delivered_at IS NULL)
 ORDER BY semel_outbox.id;

-- name: read_message
SELECT {message}
  FROM semel_outbox
 WHERE key = ?;

-- name: read_undelivered
SELECT {message}
  FROM semel_outbox
 WHERE namespace = ? AND delivered_at IS NULL
 ORDER BY id
 LIMIT ?;

-- name: delete_delivered
DELETE FROM semel_outbox
 WHERE key IN (
    SELECT key FROM semel_outbox WHERE namespace = ? AND delivered_at < ? ORDER BY delivered_at LIMIT ?
 );
