-- Batches: the expected total and the time in which they are paused. Views for people's own monitoring queries, with the
-- same names and columns in both stores (docs/batch.md); no statement of ours reads them.

ALTER TABLE longshore_batch ADD COLUMN expected INTEGER;   -- the units that its initiator counted beforehand
ALTER TABLE longshore_batch ADD COLUMN paused_at INTEGER;  -- since when it is paused
ALTER TABLE longshore_batch ADD COLUMN paused_ms INTEGER NOT NULL DEFAULT 0;  -- how long it was paused before that

CREATE VIEW longshore_batches AS
SELECT b.name AS BATCH_ID, b.kind AS BATCH_TYPE, b.tenant AS TENANT, b.initiated_by AS INITIATED_BY,
       datetime(b.initiated_at / 1000000, 'unixepoch') AS INITIATED_AT,
       datetime(b.started_at / 1000000, 'unixepoch') AS STARTED_AT,
       datetime(b.completed_at / 1000000, 'unixepoch') AS COMPLETED_AT,
       b.status AS STATUS, b.reason AS REASON, b.total AS TOTAL_UNITS, b.done AS PROCESSED_UNITS,
       b.failed AS FAILED_UNITS, b.cancelled AS CANCELLED_UNITS, b.workers AS WORKER_COUNT, b.notes AS NOTES,
       (b.done + b.failed + b.cancelled) * 100 / nullif(b.total, 0) AS PCT,
       max(b.until - b.started_at - b.paused, 0) / 1000000 AS SECONDS_RUNNING,
       b.paused / 1000000 AS SECONDS_PAUSED, b.generation AS GENERATION,
       coalesce((SELECT s.amount FROM longshore_batch_sum s WHERE s.batch = b.num AND s.name = 'cost_picos'), 0)
         / 1e12 AS COST_USD
FROM (SELECT a.*, max(a.units, iif(a.sealed OR a.status IN ('complete', 'failed', 'cancelled'), 0,
                                   coalesce(a.expected, 0))) AS total,
             a.paused_ms * 1000 + coalesce(max(a.until - a.paused_at, 0), 0) AS paused
      FROM (SELECT r.*, coalesce(r.completed_at, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)) AS until,
                   coalesce(c.units, 0) AS units, coalesce(c.done, 0) AS done, coalesce(c.failed, 0) AS failed,
                   coalesce(c.cancelled, 0) AS cancelled
            FROM longshore_batch r
            LEFT JOIN (SELECT batch, sum(blocked + scheduled + ready + leased + done + failed + cancelled) AS units,
                              sum(done) AS done, sum(failed) AS failed, sum(cancelled) AS cancelled
                       FROM longshore_stream WHERE batch <> 0 GROUP BY batch) c ON c.batch = r.num) a) b;

-- The queues, with a row per tenant in each.
CREATE VIEW longshore_queues AS
SELECT q.name AS QUEUE_NAME, l.tenant AS TENANT,
       coalesce(sum(s.blocked + s.scheduled + s.ready), 0) AS MESSAGES_ON_QUEUE,
       coalesce(sum(s.ready), 0) AS READY, coalesce(sum(s.scheduled), 0) AS SCHEDULED,
       coalesce(sum(s.blocked), 0) AS BLOCKED, coalesce(sum(s.leased), 0) AS LEASED,
       max(q.paused, l.paused) AS PAUSED
FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue LEFT JOIN longshore_stream s ON s.lane = l.num
GROUP BY l.num;

-- The worker processes.
CREATE VIEW longshore_workers AS
SELECT w.label AS JOB_NAME, iif(w.command = 'work', 'active', w.command) AS JOB_STATUS,
       (SELECT group_concat(k.key, ' ') FROM json_each(w.kinds) k) AS FUNCTION,
       w.cpu / 1000 AS CPU_TIME, w.slots AS SLOTS, w.version AS VERSION,
       datetime(w.opened_at / 1000000, 'unixepoch') AS STARTED_AT,
       datetime(w.heartbeat_at / 1000000, 'unixepoch') AS HEARTBEAT_AT
FROM longshore_session w;
