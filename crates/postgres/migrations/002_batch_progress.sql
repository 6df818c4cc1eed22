-- Batches: the expected total and the time in which they are paused. Views for people's own monitoring queries, with the
-- same names and columns in both stores (docs/batch.md); no statement of ours reads them.

ALTER TABLE longshore_batch ADD COLUMN expected bigint;   -- the units that its initiator counted beforehand
ALTER TABLE longshore_batch ADD COLUMN paused_at bigint;  -- since when it is paused
ALTER TABLE longshore_batch ADD COLUMN paused_ms bigint NOT NULL DEFAULT 0;  -- how long it was paused before that

CREATE VIEW longshore_batches AS
SELECT b.name AS BATCH_ID, b.kind AS BATCH_TYPE, b.tenant AS TENANT, b.initiated_by AS INITIATED_BY,
       to_timestamp(b.initiated_at / 1e6) AS INITIATED_AT, to_timestamp(b.started_at / 1e6) AS STARTED_AT,
       to_timestamp(b.completed_at / 1e6) AS COMPLETED_AT,
       b.status AS STATUS, b.reason AS REASON, t.total AS TOTAL_UNITS, c.done AS PROCESSED_UNITS,
       c.failed AS FAILED_UNITS, c.cancelled AS CANCELLED_UNITS, b.workers AS WORKER_COUNT, b.notes AS NOTES,
       (c.done + c.failed + c.cancelled) * 100 / nullif(t.total, 0) AS PCT,
       CASE WHEN b.started_at IS NOT NULL THEN greatest(t.until - b.started_at - p.paused, 0) / 1000000 END AS SECONDS_RUNNING,
       p.paused / 1000000 AS SECONDS_PAUSED, b.generation AS GENERATION, m.picos / 1e12 AS COST_USD
FROM longshore_batch b
CROSS JOIN LATERAL (
    SELECT coalesce(sum(n.blocked + n.scheduled + n.ready + n.leased + n.done + n.failed + n.cancelled), 0)::bigint AS units,
           coalesce(sum(n.done), 0)::bigint AS done, coalesce(sum(n.failed), 0)::bigint AS failed,
           coalesce(sum(n.cancelled), 0)::bigint AS cancelled
    FROM (SELECT s.blocked, s.scheduled, s.ready, s.leased, s.done, s.failed, s.cancelled
          FROM longshore_stream s WHERE s.batch = b.num AND s.batch <> 0
          UNION ALL SELECT d.blocked, d.scheduled, d.ready, d.leased, d.done, d.failed, d.cancelled
          FROM longshore_stream_delta d WHERE d.stream = ANY(ARRAY(
            SELECT s.num FROM longshore_stream s WHERE s.batch = b.num AND s.batch <> 0))) n) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(a.amount), 0) AS picos
    FROM (SELECT s.amount::numeric AS amount FROM longshore_batch_sum s WHERE s.batch = b.num AND s.name = 'cost_picos'
          UNION ALL SELECT (d.sums::json ->> 'cost_picos')::numeric FROM longshore_stream_delta d
          WHERE d.sums IS NOT NULL AND d.stream = ANY(ARRAY(
            SELECT s.num FROM longshore_stream s WHERE s.batch = b.num AND s.batch <> 0))) a) m
CROSS JOIN LATERAL (
    SELECT greatest(c.units, CASE WHEN b.sealed OR b.status IN ('complete', 'failed', 'cancelled') THEN 0
                             ELSE coalesce(b.expected, 0) END) AS total,
           coalesce(b.completed_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS until) t
CROSS JOIN LATERAL (SELECT b.paused_ms * 1000 + coalesce(greatest(t.until - b.paused_at, 0), 0) AS paused) p;

-- The queues, with a row per tenant in each.
CREATE VIEW longshore_queues AS
SELECT q.name AS QUEUE_NAME, l.tenant AS TENANT,
       coalesce(sum(s.blocked + s.scheduled + s.ready), 0)::bigint AS MESSAGES_ON_QUEUE,
       coalesce(sum(s.ready), 0)::bigint AS READY, coalesce(sum(s.scheduled), 0)::bigint AS SCHEDULED,
       coalesce(sum(s.blocked), 0)::bigint AS BLOCKED, coalesce(sum(s.leased), 0)::bigint AS LEASED,
       q.paused OR l.paused AS PAUSED
FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue LEFT JOIN longshore_stream_count s ON s.lane = l.num
GROUP BY l.num, q.num;

-- The worker processes.
CREATE VIEW longshore_workers AS
SELECT w.label AS JOB_NAME, CASE w.command WHEN 'work' THEN 'active' ELSE w.command END AS JOB_STATUS,
       (SELECT string_agg(k.kind, ' ' ORDER BY k.kind) FROM json_object_keys(w.kinds::json) k (kind)) AS FUNCTION,
       w.cpu / 1000 AS CPU_TIME, w.slots AS SLOTS, w.version AS VERSION,
       to_timestamp(w.opened_at / 1e6) AS STARTED_AT, to_timestamp(w.heartbeat_at / 1e6) AS HEARTBEAT_AT
FROM longshore_session w;
