-- fragment: message
key, namespace, topic, operation, number, payload, fence, owner, lease_expires_at, failures, error, enqueued_at,
due_at, delivered_at

-- fragment: head
head.key, head.namespace, head.topic, head.operation, head.number, head.payload, head.fence, head.owner,
head.lease_expires_at, head.failures, head.error, head.enqueued_at, head.due_at, head.delivered_at

-- name: enqueue
INSERT INTO semel_outbox ({message})
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: claim_message
-- It says what it saw: of two relays one gets it.
UPDATE semel_outbox
   SET fence = %s, owner = %s, lease_expires_at = %s
 WHERE key = %s AND fence = %s AND delivered_at IS NULL;

-- name: mark_delivered
-- Whoever has delivered it has: that another relay has claimed it meanwhile makes it no less so.
UPDATE semel_outbox
   SET delivered_at = %s, error = %s, owner = NULL, lease_expires_at = NULL
 WHERE key = %s AND delivered_at IS NULL;

-- name: put_off
-- By the relay that holds it, and by no other.
UPDATE semel_outbox
   SET failures = %s, error = %s, due_at = %s, owner = NULL, lease_expires_at = NULL
 WHERE key = %s AND fence = %s AND delivered_at IS NULL;

-- name: read_heads
-- The oldest undelivered message of each topic. It skips from topic to topic along the index, so that it costs by
-- the number of topics and not of messages.
WITH RECURSIVE topics (topic) AS (
    SELECT (SELECT min(topic) FROM semel_outbox WHERE namespace = %(namespace)s AND delivered_at IS NULL)
    UNION ALL
    SELECT (SELECT min(later.topic) FROM semel_outbox AS later
             WHERE later.namespace = %(namespace)s AND later.topic > topics.topic AND later.delivered_at IS NULL)
      FROM topics
     WHERE topics.topic IS NOT NULL
)
SELECT {head}
  FROM topics
 CROSS JOIN LATERAL (
    SELECT *
      FROM semel_outbox AS oldest
     WHERE oldest.namespace = %(namespace)s AND oldest.topic = topics.topic AND oldest.delivered_at IS NULL
     ORDER BY oldest.id
     LIMIT 1
 ) AS head
 ORDER BY head.id;

-- name: read_message
SELECT {message}
  FROM semel_outbox
 WHERE key = %s;

-- name: read_undelivered
SELECT {message}
  FROM semel_outbox
 WHERE namespace = %s AND delivered_at IS NULL
 ORDER BY id
 LIMIT %s;

-- name: delete_delivered
DELETE FROM semel_outbox
 WHERE key IN (
    SELECT key FROM semel_outbox WHERE namespace = %s AND delivered_at < %s ORDER BY delivered_at LIMIT %s
 );
