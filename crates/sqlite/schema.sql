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

CREATE VIEW longshore_queues AS
SELECT q.name AS QUEUE_NAME, l.tenant AS TENANT,
       coalesce(sum(s.blocked + s.scheduled + s.ready), 0) AS MESSAGES_ON_QUEUE,
       coalesce(sum(s.ready), 0) AS READY, coalesce(sum(s.scheduled), 0) AS SCHEDULED,
       coalesce(sum(s.blocked), 0) AS BLOCKED, coalesce(sum(s.leased), 0) AS LEASED,
       max(q.paused, l.paused) AS PAUSED
FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue LEFT JOIN longshore_stream s ON s.lane = l.num
GROUP BY l.num;

CREATE VIEW longshore_workers AS
SELECT w.label AS JOB_NAME, iif(w.command = 'work', 'active', w.command) AS JOB_STATUS,
       (SELECT group_concat(k.key, ' ') FROM json_each(w.kinds) k) AS FUNCTION,
       w.cpu / 1000 AS CPU_TIME, w.slots AS SLOTS, w.version AS VERSION,
       datetime(w.opened_at / 1000000, 'unixepoch') AS STARTED_AT,
       datetime(w.heartbeat_at / 1000000, 'unixepoch') AS HEARTBEAT_AT
FROM longshore_session w;

CREATE TABLE longshore_api_token (
    id         BLOB PRIMARY KEY CHECK (length(id) = 16),
    hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    tenant     TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('read', 'submit', 'operate', 'admin')),
    label      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE TABLE longshore_audit_entry (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    recorded_at INTEGER NOT NULL,
    token       BLOB CHECK (length(token) = 16),
    actor       TEXT NOT NULL,  -- the token's label, or the client's address
    tenant      TEXT,
    action      TEXT NOT NULL,  -- as batch.pause
    target      TEXT NOT NULL,
    detail      TEXT NOT NULL
);

CREATE TABLE longshore_batch (
    num          INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    tenant       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN
                 ('queued', 'running', 'paused', 'complete', 'failed', 'cancelled')),
    reason       TEXT,
    initiated_by TEXT NOT NULL,
    initiated_at INTEGER NOT NULL,
    started_at   INTEGER,
    completed_at INTEGER,
    workers      INTEGER,
    notes        TEXT NOT NULL,
    cursor       TEXT NOT NULL DEFAULT '',  -- how far the sender has read its source
    sealed       INTEGER NOT NULL DEFAULT 0,
    generation   INTEGER NOT NULL DEFAULT 1,
    threshold    TEXT,                        -- JSON: the failures that pause or fail the batch
    forgiven     INTEGER NOT NULL DEFAULT 0,  -- failures before the last resume: the threshold ignores them
    callback     TEXT,                        -- JSON: the unit to send at the end
    announced    INTEGER NOT NULL DEFAULT 0 CHECK (announced <= generation),  -- last generation with a callback sent
    definition   BLOB                         -- what the batch's workers need to know; opaque to the store
, expected INTEGER, paused_at INTEGER, paused_ms INTEGER NOT NULL DEFAULT 0);

CREATE TABLE longshore_batch_sum (
    batch  INTEGER NOT NULL,
    name   TEXT NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (batch, name)
) WITHOUT ROWID;

CREATE TABLE longshore_boot (singleton INTEGER PRIMARY KEY CHECK (singleton = 1), boot_id TEXT NOT NULL);

CREATE TABLE longshore_bounded_pool (
    num            INTEGER PRIMARY KEY,
    name           TEXT NOT NULL UNIQUE,
    max_weight     INTEGER NOT NULL CHECK (max_weight >= 0),
    in_use         INTEGER NOT NULL DEFAULT 0 CHECK (in_use >= 0),  -- the weight of all held permits
    fence          INTEGER NOT NULL DEFAULT 0,
    last_arrival   INTEGER NOT NULL DEFAULT 0,  -- `arrived_at` of the last waiter; the next one's is larger
    next_expiry    INTEGER NOT NULL DEFAULT 0,  -- no row of longshore_permit expires before this time
    acquired       INTEGER NOT NULL DEFAULT 0,
    timeouts       INTEGER NOT NULL DEFAULT 0,
    expired        INTEGER NOT NULL DEFAULT 0,
    wait_histogram BLOB NOT NULL CHECK (length(wait_histogram) = 176)  -- 22 counts of waits by duration, 8 bytes each
);

CREATE TABLE longshore_browser_session (
    hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
    token      BLOB NOT NULL REFERENCES longshore_api_token,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE longshore_budget (
    tenant         TEXT PRIMARY KEY,
    max_tokens     INTEGER CHECK (max_tokens >= 0),
    max_cost_picos INTEGER CHECK (max_cost_picos >= 0),
    warn_at        REAL NOT NULL CHECK (warn_at BETWEEN 0 AND 1)  -- the share from which clients are warned
) WITHOUT ROWID;

CREATE TABLE longshore_call (
    id                      BLOB PRIMARY KEY CHECK (length(id) = 16),
    request_id              TEXT NOT NULL,  -- of the client: the same if it repeats the request after a crash
    tenant                  TEXT NOT NULL,
    profile                 TEXT NOT NULL,
    provider                TEXT NOT NULL,
    model                   TEXT NOT NULL,  -- as requested
    unit                    BLOB,
    batch                   TEXT,
    session                 BLOB,
    worker                  TEXT NOT NULL,
    reserve_tokens          INTEGER NOT NULL CHECK (reserve_tokens >= 0),  -- estimates, reserved until it ends
    reserve_picos           INTEGER NOT NULL CHECK (reserve_picos >= 0),
    opened_at               INTEGER NOT NULL,
    status                  INTEGER NOT NULL CHECK (status BETWEEN 0 AND 3),
    logged_at               INTEGER,        -- when the end was recorded
    code                    TEXT,           -- the error code
    answering_model         TEXT,           -- as the provider names it
    tokens_in               INTEGER CHECK (tokens_in >= 0),
    tokens_out              INTEGER CHECK (tokens_out >= 0),
    tokens_cached           INTEGER CHECK (tokens_cached >= 0),
    tokens_cache_write      INTEGER CHECK (tokens_cache_write >= 0),
    tokens_cache_write_long INTEGER CHECK (tokens_cache_write_long >= 0),  -- of these, cached for an hour
    latency_ms              INTEGER,
    attempts                INTEGER,
    cost_picos              INTEGER CHECK (cost_picos >= 0),
    estimated               INTEGER CHECK (estimated IN (0, 1)),  -- 1 if the tokens are an estimate of ours
    mode                    INTEGER CHECK (mode IN (0, 1)),
    tier                    TEXT,           -- the provider's service tier
    CHECK ((status = 0) = (logged_at IS NULL)),
    CHECK ((status = 0) = (answering_model IS NULL)),
    CHECK ((status = 0) = (tokens_in IS NULL AND tokens_out IS NULL AND tokens_cached IS NULL
           AND tokens_cache_write IS NULL AND latency_ms IS NULL AND attempts IS NULL
           AND cost_picos IS NULL AND estimated IS NULL)),
    CHECK (status <> 0 OR code IS NULL)
) WITHOUT ROWID;

CREATE TABLE longshore_change (
    seq    INTEGER PRIMARY KEY,  -- rises, because the newest entries are never deleted
    topic  TEXT NOT NULL,
    name   TEXT NOT NULL,
    tenant TEXT
);

CREATE TABLE longshore_dependency (
    depends_on BLOB NOT NULL,
    unit       BLOB NOT NULL,
    PRIMARY KEY (depends_on, unit)
) WITHOUT ROWID;

CREATE TABLE longshore_dependency_outbox (
    unit      BLOB PRIMARY KEY,
    succeeded INTEGER NOT NULL CHECK (succeeded IN (0, 1))
) WITHOUT ROWID;

CREATE TABLE longshore_failure (
    num       INTEGER PRIMARY KEY,
    unit      BLOB NOT NULL,
    attempt   INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    session   BLOB,
    code      TEXT NOT NULL,
    message   TEXT NOT NULL
);

CREATE TABLE longshore_lane (
    num        INTEGER PRIMARY KEY,
    queue      INTEGER NOT NULL REFERENCES longshore_queue (num),
    tenant     TEXT NOT NULL,
    paused     INTEGER NOT NULL DEFAULT 0,
    weight     INTEGER NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap        INTEGER,
    max_units  INTEGER,
    max_bytes  INTEGER,
    UNIQUE (queue, tenant)
);

CREATE TABLE longshore_leader (
    role       TEXT PRIMARY KEY,
    session    BLOB NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE longshore_migration
    (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, min_compatible INTEGER NOT NULL);

CREATE TABLE longshore_monthly_spend (
    tenant          TEXT NOT NULL,
    month           TEXT NOT NULL,  -- as 2026-11
    spent_tokens    INTEGER NOT NULL CHECK (spent_tokens >= 0),
    spent_picos     INTEGER NOT NULL CHECK (spent_picos >= 0),
    reserved_tokens INTEGER NOT NULL CHECK (reserved_tokens >= 0),  -- by open calls
    reserved_picos  INTEGER NOT NULL CHECK (reserved_picos >= 0),
    PRIMARY KEY (tenant, month)
) WITHOUT ROWID;

CREATE TABLE longshore_overflow_value (
    unit  BLOB NOT NULL,
    field INTEGER NOT NULL CHECK (field IN (0, 1, 2)),  -- 0 payload, 1 checkpoint, 2 result
    value BLOB NOT NULL,
    PRIMARY KEY (unit, field)
) WITHOUT ROWID;

CREATE TABLE longshore_pending_request (
    num            INTEGER PRIMARY KEY,
    batch          TEXT NOT NULL,
    custom_id      TEXT NOT NULL,  -- identifies the request in the provider's results
    unit           BLOB NOT NULL CHECK (length(unit) = 16),
    prompt         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- provider batches that ended without its answer
    provider_batch TEXT,           -- `name` of the provider batch
    answer         BLOB,
    UNIQUE (batch, custom_id),
    CHECK (provider_batch IS NULL OR answer IS NULL)
);

CREATE TABLE longshore_permit (
    pool        INTEGER NOT NULL,
    id          BLOB NOT NULL CHECK (length(id) = 16),
    owner       TEXT NOT NULL,
    weight      INTEGER NOT NULL CHECK (weight > 0),
    priority    INTEGER NOT NULL,
    arrived_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,            -- of the lease, or of the place in the wait queue
    fence       INTEGER,
    acquired_at INTEGER,
    rank        INTEGER,                     -- orders the wait queue: arrival time plus an offset for the priority
    notified    INTEGER NOT NULL DEFAULT 0,  -- 1 if the waiter was told to retry and has not done so yet
    CHECK ((fence IS NULL) = (rank IS NOT NULL)),
    PRIMARY KEY (pool, id)
) WITHOUT ROWID;

CREATE TABLE longshore_pool_alert (
    pool        TEXT NOT NULL,
    alert       TEXT NOT NULL,
    muted_until INTEGER NOT NULL,
    PRIMARY KEY (pool, alert)
) WITHOUT ROWID;

CREATE TABLE longshore_profile (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    body       TEXT NOT NULL,     -- JSON: the profile's document; opaque to the store
    suspended  INTEGER NOT NULL CHECK (suspended IN (0, 1)),
    revision   INTEGER NOT NULL CHECK (revision > 0),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE longshore_provider_batch (
    num         INTEGER PRIMARY KEY,
    batch       TEXT NOT NULL,
    name        TEXT NOT NULL,  -- chosen by us
    created_at  INTEGER NOT NULL,
    provider_id TEXT,           -- the provider's id for it; NULL until the provider has answered
    UNIQUE (batch, name)
);

CREATE TABLE longshore_provider_key (
    tenant           TEXT NOT NULL,
    name             TEXT NOT NULL,
    version          INTEGER NOT NULL CHECK (version > 0),
    provider         TEXT NOT NULL,
    ciphertext       BLOB NOT NULL,  -- the key, encrypted with its data key
    wrapped_data_key BLOB NOT NULL,  -- the data key, encrypted with the master key
    master_key_id    TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('active', 'retiring', 'revoked')),
    created_at       INTEGER NOT NULL,
    retires_at       INTEGER,
    CHECK ((status = 'retiring') = (retires_at IS NOT NULL)),
    PRIMARY KEY (tenant, name, version)
);

CREATE TABLE longshore_queue (
    num       INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE,
    paused    INTEGER NOT NULL DEFAULT 0,
    max_units INTEGER,  -- the capacity in live units and in their bytes; NULL: not bounded
    max_bytes INTEGER
);

CREATE TABLE longshore_reply_queue (
    tenant  TEXT NOT NULL,
    name    TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE longshore_schedule (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    plan       TEXT NOT NULL,     -- JSON: expression, zone, policies, the unit's template without its payload
    payload    BLOB NOT NULL,     -- of the template
    paused     INTEGER NOT NULL CHECK (paused IN (0, 1)),
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_fire  INTEGER,
    next_fire  INTEGER,
    fired      INTEGER NOT NULL DEFAULT 0 CHECK (fired >= 0),
    skipped    INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),  -- times at which the previous firing was live
    missed     INTEGER NOT NULL DEFAULT 0 CHECK (missed >= 0),   -- times at which no scheduler ran
    CHECK (fired = 0 OR last_fire IS NOT NULL),
    PRIMARY KEY (tenant, name)
);

CREATE TABLE longshore_session (
    num          INTEGER PRIMARY KEY AUTOINCREMENT,  -- AUTOINCREMENT: a number that a unit refers to is not reused
    id           BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    label        TEXT NOT NULL,
    version      TEXT NOT NULL,
    kinds        TEXT NOT NULL,                -- JSON: the kinds it handles, with their policies
    slots        INTEGER NOT NULL,
    ttl          INTEGER NOT NULL,             -- microseconds
    heartbeats   INTEGER NOT NULL DEFAULT 0,   -- a count; failure detection compares it, not clocks
    opened_at    INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    command      TEXT NOT NULL DEFAULT 'work', -- of an operator: work, quiet, drain or stop
    cpu          INTEGER,                      -- microseconds of the worker and its children; NULL: not reported
    process      TEXT                          -- its identity for processes of the same host; NULL: not known
);

CREATE TABLE longshore_stream (
    num              INTEGER PRIMARY KEY,
    lane             INTEGER NOT NULL REFERENCES longshore_lane (num),
    kind             TEXT NOT NULL,
    batch            INTEGER NOT NULL DEFAULT 0,  -- 0: no batch. Not NULL, which UNIQUE would not compare
    blocked          INTEGER NOT NULL DEFAULT 0 CHECK (blocked >= 0),
    scheduled        INTEGER NOT NULL DEFAULT 0 CHECK (scheduled >= 0),
    ready            INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0),
    leased           INTEGER NOT NULL DEFAULT 0 CHECK (leased >= 0),
    done             INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed           INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled        INTEGER NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    bytes            INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0),  -- of the live units
    stored_bytes     INTEGER NOT NULL DEFAULT 0 CHECK (stored_bytes >= 0),  -- of all units that have a row, and of their rows
    pruned_done      INTEGER NOT NULL DEFAULT 0,  -- of `done`, the units without a row: pruning keeps the tally
    pruned_failed    INTEGER NOT NULL DEFAULT 0,
    pruned_cancelled INTEGER NOT NULL DEFAULT 0,
    idle_since       INTEGER,  -- when the pruner first found it without units; it deletes the stream later
    policy           TEXT,     -- JSON: the policy of its first unit; most units of a stream have the same
    UNIQUE (lane, kind, batch)
);

CREATE TABLE longshore_tenant (
    num        INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    weight     INTEGER NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap        INTEGER CHECK (cap > 0),  -- the most leased units
    max_units  INTEGER,
    max_bytes  INTEGER,
    suspended  INTEGER NOT NULL DEFAULT 0,
    allowed_kinds TEXT,  -- a JSON array of the kinds that the operator opened to it; NULL: none
    created_at INTEGER NOT NULL
);

CREATE TABLE longshore_token_bucket (
    name       TEXT PRIMARY KEY,
    level      REAL NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE longshore_unit (
    id                BLOB PRIMARY KEY CHECK (length(id) = 16),
    stream            INTEGER NOT NULL,
    state             INTEGER NOT NULL CHECK (state BETWEEN 0 AND 8),
    sort_key          INTEGER NOT NULL,
    priority          INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 9),
    attempt           INTEGER NOT NULL DEFAULT 0,
    lost              INTEGER NOT NULL DEFAULT 0,  -- consecutive runs that ended with the death of their worker
    fence             INTEGER NOT NULL DEFAULT 0,  -- raised by each claim; a finish with an old fence is rejected
    session           INTEGER,                     -- `num` of the session that leases it
    started_at        INTEGER,                     -- NULL if the lease was prefetched and has not started
    created_at        INTEGER NOT NULL,
    deadline          INTEGER,
    flags             INTEGER NOT NULL DEFAULT 0,
    open_dependencies INTEGER NOT NULL DEFAULT 0,  -- how many rows of longshore_dependency block it
    bytes             INTEGER NOT NULL,            -- length of the payload
    dedup_key         TEXT,
    cap_key           TEXT,
    spec              TEXT,                        -- JSON: the rare attributes; NULL for most units
    failure           TEXT,                        -- JSON: the last failure
    progress          TEXT,                        -- JSON: as the worker last reported it
    payload           BLOB,
    result            BLOB,
    CHECK ((state = 3) = (session IS NOT NULL)),
    CHECK ((state = 0) = (open_dependencies > 0)),
    CHECK (started_at IS NULL OR state = 3)
) WITHOUT ROWID;

CREATE INDEX longshore_audit_entry_tenant ON longshore_audit_entry (tenant, seq) WHERE tenant IS NOT NULL;

CREATE INDEX longshore_batch_age ON longshore_batch (initiated_at, name);

CREATE INDEX longshore_batch_open ON longshore_batch (sealed, status) WHERE status <> 'complete';

CREATE INDEX longshore_batch_tenant ON longshore_batch (tenant);

CREATE INDEX longshore_call_batch ON longshore_call (batch, opened_at) WHERE batch IS NOT NULL;

CREATE INDEX longshore_call_open ON longshore_call (session) WHERE status = 0 AND session IS NOT NULL;

CREATE INDEX longshore_call_opened ON longshore_call (opened_at);

CREATE INDEX longshore_call_request ON longshore_call (request_id, tenant);

CREATE INDEX longshore_call_tenant ON longshore_call (tenant, opened_at);

CREATE INDEX longshore_dependency_unit ON longshore_dependency (unit);

CREATE INDEX longshore_failure_unit ON longshore_failure (unit);

CREATE INDEX longshore_lane_tenant ON longshore_lane (tenant);

CREATE INDEX longshore_pending_request_sent ON longshore_pending_request (batch, provider_batch, num)
    WHERE provider_batch IS NOT NULL;

CREATE INDEX longshore_pending_request_waiting ON longshore_pending_request (batch, num)
    WHERE provider_batch IS NULL AND answer IS NULL;

CREATE INDEX longshore_permit_waiting ON longshore_permit (pool, rank, arrived_at) WHERE rank IS NOT NULL;

CREATE UNIQUE INDEX longshore_provider_key_active ON longshore_provider_key (tenant, name) WHERE status = 'active';

CREATE INDEX longshore_reply_queue_session ON longshore_reply_queue (session);

CREATE INDEX longshore_schedule_due ON longshore_schedule (next_fire) WHERE paused = 0 AND next_fire IS NOT NULL;

CREATE INDEX longshore_stream_batch ON longshore_stream (batch) WHERE batch <> 0;

CREATE INDEX longshore_stream_live ON longshore_stream (lane) WHERE blocked + scheduled + ready + leased > 0;

CREATE INDEX longshore_stream_ready ON longshore_stream (lane) WHERE ready > 0;

CREATE INDEX longshore_unit_cap ON longshore_unit (cap_key, state, stream, sort_key)
    WHERE cap_key IS NOT NULL AND state IN (3, 7);

CREATE INDEX longshore_unit_deadline ON longshore_unit (deadline)
    WHERE deadline IS NOT NULL AND state IN (0, 1, 2, 7, 8);

CREATE UNIQUE INDEX longshore_unit_dedup ON longshore_unit (dedup_key) WHERE dedup_key IS NOT NULL;

CREATE INDEX longshore_unit_session ON longshore_unit (session) WHERE session IS NOT NULL;

CREATE INDEX longshore_unit_sort ON longshore_unit (stream, state, sort_key);
