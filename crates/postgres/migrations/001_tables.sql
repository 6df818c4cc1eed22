-- The first version of the schema: tables and views. The functions are in the other files with the number 001.
--
-- Conventions, the same in both stores:
--   num     the internal integer key of a table. Clients use names and UUIDs instead.
--   …_at    a time, in microseconds since 1970 (UTC).
--   picos   an amount of money, in picodollars (10⁻¹² USD).
--
-- The SQLite store has the same tables and columns, so that the two can be compared by eye. They differ where many
-- processes write at once here, and because PostgreSQL keeps old versions of a row until no transaction can see them.
--
-- No row is updated by every transaction. On such a row all transactions would wait for each other's commit, and
-- under a long-running reader its old versions would accumulate until finding the newest took longer than the work.
-- Instead a transaction inserts the differences of counts and amounts as rows of their own (`…_delta`); views add
-- them up (`…_count`, `…_total`), and maintenance adds them to the main table from time to time.


-- Queues

CREATE TABLE longshore_queue (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL UNIQUE,
    paused    boolean NOT NULL DEFAULT false,
    max_units bigint CHECK (max_units >= 0),  -- the capacity in live units and in their bytes; NULL: not bounded
    max_bytes bigint CHECK (max_bytes >= 0)
);

-- The settings that all lanes of a tenant share. A tenant without a row has weight 1, no bounds and no opened kinds,
-- and is not suspended.
CREATE TABLE longshore_tenant (
    name       text PRIMARY KEY,
    weight     integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap        integer CHECK (cap > 0),  -- the most leased units
    max_units  bigint CHECK (max_units >= 0),
    max_bytes  bigint CHECK (max_bytes >= 0),
    suspended  boolean NOT NULL DEFAULT false,
    allowed_kinds text,  -- a JSON array of the kinds that the operator opened to it; NULL: none
    created_at bigint NOT NULL
);

-- A lane is the part of a queue that belongs to one tenant. The state of stride scheduling is not stored: each
-- process divides its own claims fairly, and the sum of fair shares is fair.
CREATE TABLE longshore_lane (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue     bigint NOT NULL REFERENCES longshore_queue (num),
    tenant    text NOT NULL,
    paused    boolean NOT NULL DEFAULT false,
    weight    integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap       integer,
    max_units bigint CHECK (max_units >= 0),
    max_bytes bigint CHECK (max_bytes >= 0),
    UNIQUE (queue, tenant)
);

-- Capacity that a user's open transaction (`xid`) is going to use. A transaction of its own reserves it first, so
-- that other senders do not wait for the user's commit.
CREATE TABLE longshore_capacity_reservation (
    num        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane       bigint NOT NULL,
    units      bigint NOT NULL,
    bytes      bigint NOT NULL,
    expires_at bigint NOT NULL,
    xid        xid8 NOT NULL
);
CREATE INDEX longshore_capacity_reservation_lane ON longshore_capacity_reservation (lane);


-- Batches

CREATE TABLE longshore_batch (
    num          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE,
    tenant       text NOT NULL,
    kind         text NOT NULL,
    status       text NOT NULL CHECK (status IN
                 ('queued', 'running', 'paused', 'complete', 'failed', 'cancelled')),
    reason       text,
    initiated_by text NOT NULL,
    initiated_at bigint NOT NULL,
    started_at   bigint,
    completed_at bigint,
    workers      integer,
    notes        text NOT NULL,
    cursor       text NOT NULL DEFAULT '',   -- how far the sender has read its source
    sealed       boolean NOT NULL DEFAULT false,
    generation   integer NOT NULL DEFAULT 1,
    threshold    text,                       -- JSON: the failures that pause or fail the batch
    forgiven     bigint NOT NULL DEFAULT 0,  -- failures before the last resume: the threshold ignores them
    callback     text,                       -- JSON: the unit to send at the end
    announced    integer NOT NULL DEFAULT 0 CHECK (announced <= generation),  -- last generation with a callback sent
    definition   bytea                       -- what the batch's workers need to know; opaque to the store
);
CREATE INDEX longshore_batch_open ON longshore_batch (num) WHERE status <> 'complete';
-- Batches that maintenance examines. A batch that has ended has no live unit.
CREATE INDEX longshore_batch_live ON longshore_batch (num) WHERE completed_at IS NULL;
-- For lists, the newest first.
CREATE INDEX longshore_batch_age ON longshore_batch (initiated_at, name COLLATE "C");
-- To count a tenant's batches.
CREATE INDEX longshore_batch_tenant ON longshore_batch (tenant);

-- Amounts that the runs of a batch add up under names of their own. The newest part is in longshore_stream_delta.
CREATE TABLE longshore_batch_sum (
    batch  bigint NOT NULL,
    name   text NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (batch, name)
);


-- Units

-- A stream is the units of one lane, kind and batch. Every setting that hides units from a claim applies to whole
-- streams. Lane, kind and batch of a stream never change, so every process may cache them.
CREATE TABLE longshore_stream (
    num              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane             bigint NOT NULL REFERENCES longshore_lane (num),
    kind             text NOT NULL,
    batch            bigint NOT NULL DEFAULT 0,  -- 0: no batch. Not NULL, which UNIQUE would not compare
    blocked          bigint NOT NULL DEFAULT 0 CHECK (blocked >= 0),
    scheduled        bigint NOT NULL DEFAULT 0 CHECK (scheduled >= 0),
    ready            bigint NOT NULL DEFAULT 0 CHECK (ready >= 0),
    leased           bigint NOT NULL DEFAULT 0 CHECK (leased >= 0),
    done             bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed           bigint NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled        bigint NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    bytes            bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),  -- of the live units
    stored_bytes     bigint NOT NULL DEFAULT 0,  -- of all units that have a row, and of their rows
    pruned_done      bigint NOT NULL DEFAULT 0,  -- of `done`, the units without a row: pruning keeps the tally
    pruned_failed    bigint NOT NULL DEFAULT 0,
    pruned_cancelled bigint NOT NULL DEFAULT 0,
    idle_since       bigint,  -- when the pruner found it without units; lists leave out its lane then
    retired_at       bigint,  -- when the pruner closed it to sends
    retired_xid      xid8,    -- a transaction that began after all sends that had seen it open; see prune.rs
    UNIQUE (lane, kind, batch)
);
CREATE INDEX longshore_stream_batch ON longshore_stream (batch) WHERE batch <> 0;

-- The differences that a transaction makes to a stream's counts, one row per stream and transaction. `sums` is what
-- a checkpoint adds to the sums of its batch (JSON).
CREATE TABLE longshore_stream_delta (
    stream    bigint NOT NULL,
    blocked   bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    ready     bigint NOT NULL DEFAULT 0,
    leased    bigint NOT NULL DEFAULT 0,
    done      bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    bytes     bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0,
    sums      text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE VIEW longshore_stream_count AS
SELECT s.num AS stream, s.lane, s.kind, s.batch,
       (s.blocked + coalesce(d.blocked, 0))::bigint AS blocked,
       (s.scheduled + coalesce(d.scheduled, 0))::bigint AS scheduled,
       (s.ready + coalesce(d.ready, 0))::bigint AS ready,
       (s.leased + coalesce(d.leased, 0))::bigint AS leased,
       (s.done + coalesce(d.done, 0))::bigint AS done,
       (s.failed + coalesce(d.failed, 0))::bigint AS failed,
       (s.cancelled + coalesce(d.cancelled, 0))::bigint AS cancelled,
       (s.bytes + coalesce(d.bytes, 0))::bigint AS bytes,
       (s.stored_bytes + coalesce(d.stored_bytes, 0))::bigint AS stored_bytes,
       s.pruned_done, s.pruned_failed, s.pruned_cancelled
FROM longshore_stream s
LEFT JOIN (SELECT stream, sum(blocked) AS blocked, sum(scheduled) AS scheduled,
                  sum(ready) AS ready, sum(leased) AS leased, sum(done) AS done,
                  sum(failed) AS failed, sum(cancelled) AS cancelled, sum(bytes) AS bytes,
                  sum(stored_bytes) AS stored_bytes
           FROM longshore_stream_delta GROUP BY stream) d ON d.stream = s.num;

-- One row per worker process. A heartbeat updates it; the rescuer deletes it if heartbeats stop for `ttl`.
CREATE TABLE longshore_session (
    num          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           uuid NOT NULL UNIQUE,
    label        text NOT NULL,
    version      text NOT NULL,
    kinds        text NOT NULL,              -- JSON: the kinds it handles, with their policies
    slots        bigint NOT NULL,
    ttl          bigint NOT NULL,            -- microseconds
    heartbeats   bigint NOT NULL DEFAULT 0,  -- a count; failure detection compares it, not clocks
    opened_at    bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    command      text NOT NULL DEFAULT 'work' CHECK (command IN ('work', 'quiet', 'drain', 'stop')),  -- of an operator
    cpu          bigint,                     -- microseconds of the worker and its children; NULL: not reported
    process      text                        -- its identity for processes of the same host; NULL: not known
) WITH (fillfactor = 50);  -- a heartbeat changes no indexed column, so its row version stays on the page

-- Starts of prefetched units that are not written to the units' rows yet: see start_log.rs.
CREATE TABLE longshore_start_log (
    session    bigint NOT NULL,
    num        bigint GENERATED ALWAYS AS IDENTITY,
    started_at bigint NOT NULL,
    units      uuid[] NOT NULL,
    fences     bigint[] NOT NULL,  -- of the same leases
    PRIMARY KEY (session, num)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- state     0 blocked, 1 scheduled, 2 ready, 3 leased, 4 done, 5 failed, 6 cancelled.
--           Also ready, but hidden from claims: 7 its cap is reached, 8 it must run alone.
--           9 bulk: its row does not say. See below.
-- sort_key  orders the units of a stream and state. Blocked: earliest start; scheduled: due time; ready and bulk:
--           rank; leased: time of the claim; ended: time of the end.
-- flags     bits, listed in `sql_encoding` of the crate `longshore-core`.
-- The columns are ordered by size, which saves padding.
--
-- To update a row costs more than everything else: PostgreSQL writes the whole row again, with an entry in every
-- index. So a unit that only has to run once (no key, cap, deadline, dependant or waiting client) is inserted as bulk,
-- and neither a claim nor a successful end without a result touches its row. Such a unit is in exactly one of
-- longshore_ready, longshore_lease_group and longshore_done_group. An operation that needs more of it (a checkpoint,
-- a retry, a cancellation, a dependant) first writes its state into its row: longshore_settle_units.
CREATE TABLE longshore_unit (
    id                uuid PRIMARY KEY,
    stream            bigint NOT NULL,
    sort_key          bigint NOT NULL,
    fence             bigint NOT NULL DEFAULT 0,   -- raised by each claim; a finish with an old fence is rejected
    session           bigint,                      -- `num` of the session that leases it
    started_at        bigint,                      -- NULL if the lease was prefetched and has not started
    created_at        bigint NOT NULL,
    deadline          bigint,
    flags             bigint NOT NULL DEFAULT 0,
    attempt           integer NOT NULL DEFAULT 0,
    lost              integer NOT NULL DEFAULT 0,  -- consecutive runs that ended with the death of their worker
    open_dependencies integer NOT NULL DEFAULT 0,  -- how many rows of longshore_dependency block it
    bytes             integer NOT NULL,            -- length of the payload
    state             smallint NOT NULL CHECK (state BETWEEN 0 AND 9),
    priority          smallint NOT NULL CHECK (priority BETWEEN 1 AND 9),
    dedup_key         bytea,                       -- bytes, because text cannot contain a zero byte
    cap_key           bytea,
    spec              text,                        -- JSON: the rare attributes; NULL for most units
    failure           text,                        -- JSON: the last failure
    progress          text,                        -- JSON: as the worker last reported it
    payload           bytea NOT NULL,
    checkpoint        bytea,
    result            bytea,
    CHECK ((state = 3) = (session IS NOT NULL)),
    CHECK ((state = 0) = (open_dependencies > 0)),
    CHECK (started_at IS NULL OR state = 3),
    CHECK (state <> 9 OR fence = 0 AND attempt = 0 AND flags & ~2048 = 0 AND deadline IS NULL AND cap_key IS NULL
        AND dedup_key IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.2,
        autovacuum_vacuum_cost_delay = 1);
-- Partial indexes: they have no entry for most units.
CREATE INDEX longshore_unit_alone ON longshore_unit (stream, sort_key) WHERE state = 8;
CREATE INDEX longshore_unit_due ON longshore_unit (sort_key) WHERE state = 1;
CREATE INDEX longshore_unit_waiting ON longshore_unit (stream, state, sort_key) WHERE state IN (0, 1, 7, 8);
CREATE INDEX longshore_unit_ended ON longshore_unit (stream, state, sort_key) WHERE state IN (4, 5, 6);
CREATE INDEX longshore_unit_session ON longshore_unit (session) WHERE session IS NOT NULL;
CREATE UNIQUE INDEX longshore_unit_dedup ON longshore_unit (dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX longshore_unit_deadline ON longshore_unit (deadline)
    WHERE deadline IS NOT NULL AND state IN (0, 1, 2, 7, 8);
CREATE INDEX longshore_unit_cap ON longshore_unit (cap_key, state, stream, sort_key)
    WHERE cap_key IS NOT NULL AND state IN (3, 7);

-- The units that claims may take, in the order in which they take them: bulk units and those of state 2. `sort_key` is
-- that of the unit's row.
CREATE TABLE longshore_ready (
    stream   bigint NOT NULL,
    sort_key bigint NOT NULL,
    id       uuid NOT NULL,
    claim    smallint NOT NULL CHECK (claim BETWEEN 0 AND 2),  -- 0 bulk, 1 by its row, 2 by its row after a check
    PRIMARY KEY (stream, sort_key, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);

-- Leases of bulk units: at most 64 units of a stream, which a session claimed together under one fence.
CREATE TABLE longshore_lease_group (
    session    bigint NOT NULL,
    fence      bigint NOT NULL,
    stream     bigint NOT NULL,
    claimed_at bigint NOT NULL,
    first_rank bigint NOT NULL,     -- the lowest and the highest rank of the units that were claimed
    last_rank  bigint NOT NULL,
    started    boolean NOT NULL,    -- at the claim. Later starts of prefetched units are in longshore_start_log
    units      uuid[] NOT NULL CHECK (cardinality(units) > 0),  -- in ascending order
    sizes      integer[] NOT NULL,  -- `bytes` of each of them
    PRIMARY KEY (session, fence)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Bulk units that are done: the units that one finish ended of one lease group. Only `units` changes, when some of them
-- are settled or pruned. The others are bounds: (`first_rank`, `first_id`) <= (rank, id) and rank <= `last_rank` for
-- each unit. `first_id` identifies the group.
CREATE TABLE longshore_done_group (
    stream     bigint NOT NULL,
    ended_at   bigint NOT NULL,
    fence      bigint NOT NULL,  -- of their lease
    first_rank bigint NOT NULL,  -- of their lease group
    last_rank  bigint NOT NULL,
    first_id   uuid NOT NULL,    -- the lowest of `units`, as they were inserted
    units      uuid[] NOT NULL CHECK (cardinality(units) > 0)
);
-- Lists and pruning.
CREATE INDEX longshore_done_group_ended ON longshore_done_group (stream, ended_at);
-- To find the group of a unit (longshore_done_group_of). Claims take the units of a stream in the order of rank and id,
-- so few groups overlap in it, whatever the ids are.
CREATE INDEX longshore_done_group_unit ON longshore_done_group (stream, first_rank, first_id, last_rank);

-- `unit` stays blocked until `depends_on` has ended.
CREATE TABLE longshore_dependency (
    depends_on uuid NOT NULL,
    unit       uuid NOT NULL,
    PRIMARY KEY (depends_on, unit)
);
CREATE INDEX longshore_dependency_unit ON longshore_dependency (unit);

-- Units that got a dependant, or ended, in a user's transaction. Such a transaction can stay open for long, so it
-- locks no unit of others and inserts rows here. They are processed after its commit.
CREATE TABLE longshore_dependency_outbox (
    num  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unit uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Guards operations inside a user's transaction. An operation inserts a row when it begins and deletes it when it
-- ends. The row of an operation that was dropped midway stays and refers to a row that cannot exist, so the deferred
-- constraint rejects the commit. No other transaction ever sees a row of these tables.
CREATE TABLE longshore_commit_guard_target (num bigint PRIMARY KEY CHECK (num IS NULL));
CREATE TABLE longshore_commit_guard (
    num bigint NOT NULL CONSTRAINT longshore_operation_was_dropped
        REFERENCES longshore_commit_guard_target (num) DEFERRABLE INITIALLY DEFERRED
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Failed and lost runs of units.
CREATE TABLE longshore_failure (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unit      uuid NOT NULL,
    attempt   integer NOT NULL,
    failed_at bigint NOT NULL,
    session   uuid,
    code      text NOT NULL,
    message   text NOT NULL
);
CREATE INDEX longshore_failure_unit ON longshore_failure (unit);


-- Services

-- Units to send at the times of a cron expression. A firing moves `next_fire` and sends its units in one
-- transaction. It is rejected if `revision` or `next_fire` changed since the scheduler read them.
CREATE TABLE longshore_schedule (
    tenant     text NOT NULL,
    name       text NOT NULL,
    plan       text NOT NULL,   -- JSON: expression, zone, policies, the unit's template without its payload
    payload    bytea NOT NULL,  -- of the template
    paused     boolean NOT NULL,
    revision   bigint NOT NULL,
    created_at bigint NOT NULL,
    last_fire  bigint,
    next_fire  bigint,
    fired      bigint NOT NULL DEFAULT 0 CHECK (fired >= 0),
    skipped    bigint NOT NULL DEFAULT 0 CHECK (skipped >= 0),  -- times at which the previous firing was live
    missed     bigint NOT NULL DEFAULT 0 CHECK (missed >= 0),   -- times at which no scheduler ran
    CHECK (fired = 0 OR last_fire IS NOT NULL),
    PRIMARY KEY (tenant, name)
);
-- Schedules that can become due, by time.
CREATE INDEX longshore_schedule_due ON longshore_schedule (next_fire)
    WHERE NOT paused AND next_fire IS NOT NULL;

-- The session that runs the maintenance services of a role, until its term expires.
CREATE TABLE longshore_leader (
    role       text PRIMARY KEY,
    session    uuid NOT NULL,
    expires_at bigint NOT NULL
);

-- The change feed: what changed, so that processes that wait can query it. An entry is written after the commit that
-- it reports, by one writer at a time, so that entries become visible in the order of their numbers.
CREATE TABLE longshore_change (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic  text NOT NULL,
    name   text NOT NULL,
    tenant text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);


-- Accounts: profiles, keys, calls, budgets. Names are compared byte by byte, as everywhere in Longshore.

CREATE TABLE longshore_profile (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    body       text NOT NULL,  -- JSON: the profile's document; opaque to the store
    suspended  boolean NOT NULL,
    revision   bigint NOT NULL CHECK (revision > 0),
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Every version of every provider key, encrypted.
CREATE TABLE longshore_provider_key (
    tenant           text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    version          bigint NOT NULL CHECK (version > 0),
    provider         text NOT NULL,
    ciphertext       bytea NOT NULL,  -- the key, encrypted with its data key
    wrapped_data_key bytea NOT NULL,  -- the data key, encrypted with the master key
    master_key_id    text NOT NULL,
    status           text NOT NULL CHECK (status IN ('active', 'retiring', 'revoked')),
    created_at       bigint NOT NULL,
    retires_at       bigint,
    CHECK ((status = 'retiring') = (retires_at IS NOT NULL)),
    PRIMARY KEY (tenant, name, version)
);
-- At most one version of a key is active.
CREATE UNIQUE INDEX longshore_provider_key_active ON longshore_provider_key (tenant, name) WHERE status = 'active';

-- The journal of model calls: one row per call, inserted before the call is made and updated when it ends.
-- Pruned after the retention of calls (`[keep] calls`), which is long because invoices are computed from it.
-- status: 0 open, 1 success, 2 error, 3 maybe billed (the outcome is not known).
-- mode: 0 a call of its own, 1 part of a provider's batch. NULL counts as 0.
CREATE TABLE longshore_call (
    id                      uuid PRIMARY KEY,
    tenant                  text COLLATE "C" NOT NULL,
    request_id              text NOT NULL,  -- of the client: the same if it repeats the request after a crash
    profile                 text NOT NULL,
    provider                text NOT NULL,
    model                   text NOT NULL,  -- as requested
    unit                    uuid,
    batch                   text,
    session                 uuid,
    worker                  text NOT NULL,
    reserve_tokens          bigint NOT NULL CHECK (reserve_tokens >= 0),  -- estimates, reserved until it ends
    reserve_picos           bigint NOT NULL,
    opened_at               bigint NOT NULL,
    month                   text COLLATE "C" NOT NULL,  -- of `opened_at`: the month that is charged
    status                  smallint NOT NULL CHECK (status BETWEEN 0 AND 3),
    logged_at               bigint,         -- when the end was recorded
    code                    text,           -- the error code
    answering_model         text,           -- as the provider names it
    tokens_in               bigint CHECK (tokens_in >= 0),
    tokens_out              bigint CHECK (tokens_out >= 0),
    tokens_cached           bigint CHECK (tokens_cached >= 0),
    tokens_cache_write      bigint CHECK (tokens_cache_write >= 0),
    tokens_cache_write_long bigint CHECK (tokens_cache_write_long >= 0),  -- of these, cached for an hour
    latency_ms              bigint CHECK (latency_ms >= 0),
    attempts                bigint CHECK (attempts >= 0),
    cost_picos              bigint,
    estimated               boolean,        -- whether the tokens are an estimate of ours
    mode                    smallint CHECK (mode BETWEEN 0 AND 1),
    tier                    text,           -- the provider's service tier
    -- An ended call has all of these columns, an open call none.
    CHECK (num_nonnulls(logged_at, answering_model, tokens_in, tokens_out, tokens_cached,
        tokens_cache_write, latency_ms, attempts, cost_picos, estimated)
        = CASE status WHEN 0 THEN 0 ELSE 10 END),
    CHECK (status <> 0 OR code IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- Whether a request was made or answered already. The request is first, so that it is also found without a tenant.
CREATE INDEX longshore_call_request ON longshore_call (request_id, tenant);
-- Open calls of a session that ends.
CREATE INDEX longshore_call_open ON longshore_call (session) WHERE status = 0;
-- Lists, newest first, and sums over a time.
CREATE INDEX longshore_call_opened ON longshore_call (opened_at, id);
-- Sums over one batch, and over one tenant and a time. A call without a batch costs no entry in the first.
CREATE INDEX longshore_call_batch ON longshore_call (batch, opened_at, id) WHERE batch IS NOT NULL;
CREATE INDEX longshore_call_tenant ON longshore_call (tenant, opened_at, id);

-- What a tenant may spend in a calendar month. A tenant without a row may spend any amount.
CREATE TABLE longshore_budget (
    tenant         text COLLATE "C" PRIMARY KEY,
    max_tokens     bigint CHECK (max_tokens >= 0),
    max_cost_picos bigint,
    warn_at        double precision NOT NULL  -- the share from which clients are warned
);

-- The sums of a tenant's calls by calendar month (UTC) of `opened_at`. The newest part is in
-- longshore_monthly_spend_delta.
CREATE TABLE longshore_monthly_spend (
    tenant          text COLLATE "C" NOT NULL,
    month           text COLLATE "C" NOT NULL,  -- as 2026-11
    spent_tokens    numeric NOT NULL,
    spent_picos     numeric NOT NULL,
    reserved_tokens numeric NOT NULL,           -- by open calls
    reserved_picos  numeric NOT NULL,
    PRIMARY KEY (tenant, month)
);

-- The differences that a transaction makes to monthly sums. A sum that every call of a tenant updated would make
-- each call wait until the previous one is on disk.
CREATE TABLE longshore_monthly_spend_delta (
    tenant          text COLLATE "C" NOT NULL,
    month           text COLLATE "C" NOT NULL,
    spent_tokens    numeric NOT NULL,
    spent_picos     numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos  numeric NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE VIEW longshore_monthly_spend_total AS
SELECT a.tenant, a.month, sum(a.spent_tokens) AS spent_tokens, sum(a.spent_picos) AS spent_picos,
       sum(a.reserved_tokens) AS reserved_tokens, sum(a.reserved_picos) AS reserved_picos
FROM (SELECT * FROM longshore_monthly_spend UNION ALL SELECT * FROM longshore_monthly_spend_delta) a
GROUP BY a.tenant, a.month;

-- Rate limits. A bucket without a row is full. Few rows, each updated about ten times a second: the free space keeps
-- their versions on their pages.
CREATE TABLE longshore_token_bucket (
    name       text COLLATE "C" PRIMARY KEY,
    level      double precision NOT NULL,
    updated_at bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Reply queues, each with the session (`id`) that has it open.
CREATE TABLE longshore_reply_queue (
    tenant    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    session   uuid NOT NULL,
    opened_at bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX longshore_reply_queue_session ON longshore_reply_queue (session);

-- Requests for a provider's batch API. A request waits (no provider batch, no answer), is part of a provider batch,
-- or is answered; it is deleted when its unit has saved the answer.
CREATE TABLE longshore_pending_request (
    num            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch          text NOT NULL,
    custom_id      text NOT NULL,   -- identifies the request in the provider's results
    unit           uuid NOT NULL,
    prompt         bytea NOT NULL,  -- bytes, because text cannot contain a zero byte
    created_at     bigint NOT NULL,
    attempts       bigint NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- provider batches that ended without its answer
    provider_batch text,            -- `name` of the provider batch
    answer         bytea,
    UNIQUE (batch, custom_id),
    CHECK (provider_batch IS NULL OR answer IS NULL)
);
-- Requests that wait, longest first.
CREATE INDEX longshore_pending_request_waiting ON longshore_pending_request (batch, num)
    WHERE provider_batch IS NULL AND answer IS NULL;
-- Requests of a provider batch.
CREATE INDEX longshore_pending_request_sent ON longshore_pending_request (batch, provider_batch, num)
    WHERE provider_batch IS NOT NULL;

-- Requests that are sent to a provider together. The row is inserted before anything is sent, so that after a
-- crash the store knows what may have been sent.
CREATE TABLE longshore_provider_batch (
    num         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch       text NOT NULL,
    name        text NOT NULL,  -- chosen by us
    created_at  bigint NOT NULL,
    provider_id text,           -- the provider's id for it; NULL until the provider has answered
    UNIQUE (batch, name)
);


-- Bounded pools. Times are by the server's clock, in microseconds.
--
-- Permits do not wait for the disk: held permits, wait queues and counters are in unlogged tables. A clean restart keeps
-- these. A crash of the server, a promotion of a standby and a recovery from a base backup empty them, which is noticed
-- by the missing row of longshore_permit_epoch: then nothing is granted until all lost leases have expired.

-- What survives a crash. Written rarely, and its commits wait for the disk.
CREATE TABLE longshore_bounded_pool (
    name        text PRIMARY KEY,
    max_weight  bigint NOT NULL CHECK (max_weight >= 0),
    max_lease   bigint NOT NULL DEFAULT 0,  -- no longer lease is granted before this is raised
    fence_limit bigint NOT NULL DEFAULT 0   -- no larger fence is granted before this is raised
);

-- The time since which the unlogged tables are complete: 0 after the migration, else when a loss of data was noticed.
CREATE UNLOGGED TABLE longshore_permit_epoch (
    began_at bigint NOT NULL,
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
INSERT INTO longshore_permit_epoch (began_at) VALUES (0);

-- The state of each pool, with copies of the columns of longshore_bounded_pool. Operations lock this row first. No CHECK
-- here and in longshore_permit: each statement would parse their expressions again, a tenth of its time.
CREATE UNLOGGED TABLE longshore_pool_state (
    name           text PRIMARY KEY,
    max_weight     bigint NOT NULL,
    max_lease      bigint NOT NULL,
    fence_limit    bigint NOT NULL,
    data_lost_at   bigint NOT NULL,            -- nothing is granted until `max_lease` after this time
    fence          bigint NOT NULL,            -- the last granted fence
    in_use         bigint NOT NULL DEFAULT 0,  -- the weight of all held permits
    waiting        bigint NOT NULL DEFAULT 0,  -- the number of waiters
    last_arrival   bigint NOT NULL DEFAULT 0,  -- `arrived_at` of the last waiter; the next one's is larger
    next_expiry    bigint NOT NULL DEFAULT 9223372036854775807,  -- no row of longshore_permit expires before this time
    acquired       bigint NOT NULL DEFAULT 0,
    timeouts       bigint NOT NULL DEFAULT 0,
    expired        bigint NOT NULL DEFAULT 0,
    wait_histogram bigint[] NOT NULL DEFAULT array_fill(0, ARRAY[22])  -- counts of waits by duration
) WITH (fillfactor = 20);  -- every operation updates the row: its versions stay on its page

-- Held permits (with a fence) and waiting requests (with a rank).
CREATE UNLOGGED TABLE longshore_permit (
    pool        text NOT NULL,
    id          uuid NOT NULL,
    owner       text NOT NULL,
    weight      bigint NOT NULL,
    priority    smallint NOT NULL,
    lease       bigint NOT NULL,
    arrived_at  bigint NOT NULL,
    expires_at  bigint NOT NULL,                 -- of the lease, or of the place in the wait queue
    fence       bigint,
    acquired_at bigint,
    rank        bigint,                          -- orders the wait queue: arrival time plus an offset for the priority
    notified    boolean NOT NULL DEFAULT false,  -- whether the waiter was told to retry and has not done so yet
    PRIMARY KEY (pool, id)
);
CREATE INDEX longshore_permit_waiting ON longshore_permit (pool, rank, arrived_at) WHERE rank IS NOT NULL;

-- Alerts about pools that were sent. No process sends the same alert again before `muted_until`.
CREATE TABLE longshore_pool_alert (
    pool        text NOT NULL,
    alert       text NOT NULL,
    muted_until bigint NOT NULL,
    PRIMARY KEY (pool, alert)
);


-- Access over the network

-- API tokens. Only a token's hash is stored.
CREATE TABLE longshore_api_token (
    id         uuid PRIMARY KEY,
    hash       bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    tenant     text NOT NULL,
    role       text NOT NULL CHECK (role IN ('read', 'submit', 'operate', 'admin')),
    label      text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

-- Browser sessions of the dashboard: the hash of a cookie, and the token that the browser logged in with.
CREATE TABLE longshore_browser_session (
    hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
    token      uuid NOT NULL REFERENCES longshore_api_token,
    expires_at bigint NOT NULL
);

-- The audit log: every change that a client requested. Rows are appended and pruned, never updated.
CREATE TABLE longshore_audit_entry (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at bigint NOT NULL,
    token       uuid,
    actor       text NOT NULL,  -- the token's label, or the client's address
    tenant      text,
    action      text NOT NULL,  -- as batch.pause
    target      text NOT NULL,
    detail      text NOT NULL
);
-- The entries of one tenant.
CREATE INDEX longshore_audit_entry_tenant ON longshore_audit_entry (tenant, seq) WHERE tenant IS NOT NULL;
