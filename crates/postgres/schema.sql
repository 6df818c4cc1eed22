CREATE TABLE longshore_api_token (
    id uuid NOT NULL,
    hash bytea NOT NULL,
    tenant text NOT NULL,
    role text NOT NULL,
    label text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    CONSTRAINT longshore_api_token_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT longshore_api_token_hash_key UNIQUE (hash),
    CONSTRAINT longshore_api_token_pkey PRIMARY KEY (id),
    CONSTRAINT longshore_api_token_role_check CHECK ((role = ANY (ARRAY['read'::text, 'submit'::text, 'operate'::text, 'admin'::text])))
);
CREATE TABLE longshore_audit_entry (
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    recorded_at bigint NOT NULL,
    token uuid,
    actor text NOT NULL,
    tenant text,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL,
    CONSTRAINT longshore_audit_entry_pkey PRIMARY KEY (seq)
);
CREATE TABLE longshore_batch (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    reason text,
    initiated_by text NOT NULL,
    initiated_at bigint NOT NULL,
    started_at bigint,
    completed_at bigint,
    workers integer,
    notes text NOT NULL,
    cursor text NOT NULL DEFAULT ''::text,
    sealed boolean NOT NULL DEFAULT false,
    generation integer NOT NULL DEFAULT 1,
    threshold text,
    forgiven bigint NOT NULL DEFAULT 0,
    callback text,
    announced integer NOT NULL DEFAULT 0,
    definition bytea,
    expected bigint,
    paused_at bigint,
    paused_ms bigint NOT NULL DEFAULT 0,
    CONSTRAINT longshore_batch_check CHECK ((announced <= generation)),
    CONSTRAINT longshore_batch_name_key UNIQUE (name),
    CONSTRAINT longshore_batch_pkey PRIMARY KEY (num),
    CONSTRAINT longshore_batch_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'paused'::text, 'complete'::text, 'failed'::text, 'cancelled'::text])))
);
CREATE TABLE longshore_batch_sum (
    batch bigint NOT NULL,
    name text NOT NULL,
    amount bigint NOT NULL,
    CONSTRAINT longshore_batch_sum_pkey PRIMARY KEY (batch, name)
);
CREATE TABLE longshore_bounded_pool (
    name text NOT NULL,
    max_weight bigint NOT NULL,
    max_lease bigint NOT NULL DEFAULT 0,
    fence_limit bigint NOT NULL DEFAULT 0,
    CONSTRAINT longshore_bounded_pool_max_weight_check CHECK ((max_weight >= 0)),
    CONSTRAINT longshore_bounded_pool_pkey PRIMARY KEY (name)
);
CREATE TABLE longshore_browser_session (
    hash bytea NOT NULL,
    token uuid NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT longshore_browser_session_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT longshore_browser_session_pkey PRIMARY KEY (hash),
    CONSTRAINT longshore_browser_session_token_fkey FOREIGN KEY (token) REFERENCES longshore_api_token(id)
);
CREATE TABLE longshore_budget (
    tenant text NOT NULL,
    max_tokens bigint,
    max_cost_picos bigint,
    warn_at double precision NOT NULL,
    CONSTRAINT longshore_budget_max_tokens_check CHECK ((max_tokens >= 0)),
    CONSTRAINT longshore_budget_pkey PRIMARY KEY (tenant)
);
CREATE TABLE longshore_call (
    id uuid NOT NULL,
    tenant text NOT NULL,
    request_id text NOT NULL,
    profile text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    unit uuid,
    batch text,
    session uuid,
    worker text NOT NULL,
    reserve_tokens bigint NOT NULL,
    reserve_picos bigint NOT NULL,
    opened_at bigint NOT NULL,
    month text NOT NULL,
    status smallint NOT NULL,
    logged_at bigint,
    code text,
    answering_model text,
    tokens_in bigint,
    tokens_out bigint,
    tokens_cached bigint,
    tokens_cache_write bigint,
    tokens_cache_write_long bigint,
    latency_ms bigint,
    attempts bigint,
    cost_picos bigint,
    estimated boolean,
    mode smallint,
    tier text,
    CONSTRAINT longshore_call_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT longshore_call_check CHECK ((num_nonnulls(logged_at, answering_model, tokens_in, tokens_out, tokens_cached, tokens_cache_write, latency_ms, attempts, cost_picos, estimated) =
CASE status
    WHEN 0 THEN 0
    ELSE 10
END)),
    CONSTRAINT longshore_call_check1 CHECK (((status <> 0) OR (code IS NULL))),
    CONSTRAINT longshore_call_latency_ms_check CHECK ((latency_ms >= 0)),
    CONSTRAINT longshore_call_mode_check CHECK (((mode >= 0) AND (mode <= 1))),
    CONSTRAINT longshore_call_pkey PRIMARY KEY (id),
    CONSTRAINT longshore_call_reserve_tokens_check CHECK ((reserve_tokens >= 0)),
    CONSTRAINT longshore_call_status_check CHECK (((status >= 0) AND (status <= 3))),
    CONSTRAINT longshore_call_tokens_cache_write_check CHECK ((tokens_cache_write >= 0)),
    CONSTRAINT longshore_call_tokens_cache_write_long_check CHECK ((tokens_cache_write_long >= 0)),
    CONSTRAINT longshore_call_tokens_cached_check CHECK ((tokens_cached >= 0)),
    CONSTRAINT longshore_call_tokens_in_check CHECK ((tokens_in >= 0)),
    CONSTRAINT longshore_call_tokens_out_check CHECK ((tokens_out >= 0))
) WITH (autovacuum_vacuum_scale_factor=0.02);
CREATE TABLE longshore_capacity_reservation (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    lane bigint NOT NULL,
    units bigint NOT NULL,
    bytes bigint NOT NULL,
    expires_at bigint NOT NULL,
    xid xid8 NOT NULL,
    CONSTRAINT longshore_capacity_reservation_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_change (
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    topic text NOT NULL,
    name text NOT NULL,
    tenant text,
    CONSTRAINT longshore_change_pkey PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);
CREATE TABLE longshore_commit_guard (
    num bigint NOT NULL,
    CONSTRAINT longshore_operation_was_dropped FOREIGN KEY (num) REFERENCES longshore_commit_guard_target(num) DEFERRABLE INITIALLY DEFERRED
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE longshore_commit_guard_target (
    num bigint NOT NULL,
    CONSTRAINT longshore_commit_guard_target_num_check CHECK ((num IS NULL)),
    CONSTRAINT longshore_commit_guard_target_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_dependency (
    depends_on uuid NOT NULL,
    unit uuid NOT NULL,
    CONSTRAINT longshore_dependency_pkey PRIMARY KEY (depends_on, unit)
);
CREATE TABLE longshore_dependency_outbox (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    unit uuid NOT NULL,
    CONSTRAINT longshore_dependency_outbox_pkey PRIMARY KEY (num)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE longshore_done_group (
    stream bigint NOT NULL,
    ended_at bigint NOT NULL,
    fence bigint NOT NULL,
    first_rank bigint NOT NULL,
    last_rank bigint NOT NULL,
    first_id uuid NOT NULL,
    units uuid[] NOT NULL,
    CONSTRAINT longshore_done_group_units_check CHECK ((cardinality(units) > 0))
);
CREATE TABLE longshore_failure (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    unit uuid NOT NULL,
    attempt integer NOT NULL,
    failed_at bigint NOT NULL,
    session uuid,
    code text NOT NULL,
    message text NOT NULL,
    CONSTRAINT longshore_failure_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_lane (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    queue bigint NOT NULL,
    tenant text NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    weight integer NOT NULL DEFAULT 1,
    cap integer,
    max_units bigint,
    max_bytes bigint,
    CONSTRAINT longshore_lane_max_bytes_check CHECK ((max_bytes >= 0)),
    CONSTRAINT longshore_lane_max_units_check CHECK ((max_units >= 0)),
    CONSTRAINT longshore_lane_pkey PRIMARY KEY (num),
    CONSTRAINT longshore_lane_queue_fkey FOREIGN KEY (queue) REFERENCES longshore_queue(num),
    CONSTRAINT longshore_lane_queue_tenant_key UNIQUE (queue, tenant),
    CONSTRAINT longshore_lane_weight_check CHECK ((weight > 0))
);
CREATE TABLE longshore_leader (
    role text NOT NULL,
    session uuid NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT longshore_leader_pkey PRIMARY KEY (role)
);
CREATE TABLE longshore_lease_group (
    session bigint NOT NULL,
    fence bigint NOT NULL,
    stream bigint NOT NULL,
    claimed_at bigint NOT NULL,
    first_rank bigint NOT NULL,
    last_rank bigint NOT NULL,
    started boolean NOT NULL,
    units uuid[] NOT NULL,
    sizes integer[] NOT NULL,
    CONSTRAINT longshore_lease_group_pkey PRIMARY KEY (session, fence),
    CONSTRAINT longshore_lease_group_units_check CHECK ((cardinality(units) > 0))
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE longshore_migration (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    min_compatible integer NOT NULL,
    CONSTRAINT longshore_migration_pkey PRIMARY KEY (version)
);
CREATE TABLE longshore_monthly_spend (
    tenant text NOT NULL,
    month text NOT NULL,
    spent_tokens numeric NOT NULL,
    spent_picos numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos numeric NOT NULL,
    CONSTRAINT longshore_monthly_spend_pkey PRIMARY KEY (tenant, month)
);
CREATE TABLE longshore_monthly_spend_delta (
    tenant text NOT NULL,
    month text NOT NULL,
    spent_tokens numeric NOT NULL,
    spent_picos numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos numeric NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);
CREATE TABLE longshore_pending_request (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    batch text NOT NULL,
    custom_id text NOT NULL,
    unit uuid NOT NULL,
    prompt bytea NOT NULL,
    created_at bigint NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    provider_batch text,
    answer bytea,
    CONSTRAINT longshore_pending_request_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT longshore_pending_request_batch_custom_id_key UNIQUE (batch, custom_id),
    CONSTRAINT longshore_pending_request_check CHECK (((provider_batch IS NULL) OR (answer IS NULL))),
    CONSTRAINT longshore_pending_request_pkey PRIMARY KEY (num)
);
CREATE UNLOGGED TABLE longshore_permit (
    pool text NOT NULL,
    id uuid NOT NULL,
    owner text NOT NULL,
    weight bigint NOT NULL,
    priority smallint NOT NULL,
    lease bigint NOT NULL,
    arrived_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    fence bigint,
    acquired_at bigint,
    rank bigint,
    notified boolean NOT NULL DEFAULT false,
    CONSTRAINT longshore_permit_pkey PRIMARY KEY (pool, id)
);
CREATE UNLOGGED TABLE longshore_permit_epoch (
    began_at bigint NOT NULL,
    only_row boolean NOT NULL DEFAULT true,
    CONSTRAINT longshore_permit_epoch_only_row_check CHECK (only_row),
    CONSTRAINT longshore_permit_epoch_pkey PRIMARY KEY (only_row)
);
CREATE TABLE longshore_pool_alert (
    pool text NOT NULL,
    alert text NOT NULL,
    muted_until bigint NOT NULL,
    CONSTRAINT longshore_pool_alert_pkey PRIMARY KEY (pool, alert)
);
CREATE UNLOGGED TABLE longshore_pool_state (
    name text NOT NULL,
    max_weight bigint NOT NULL,
    max_lease bigint NOT NULL,
    fence_limit bigint NOT NULL,
    data_lost_at bigint NOT NULL,
    fence bigint NOT NULL,
    in_use bigint NOT NULL DEFAULT 0,
    waiting bigint NOT NULL DEFAULT 0,
    last_arrival bigint NOT NULL DEFAULT 0,
    next_expiry bigint NOT NULL DEFAULT '9223372036854775807'::bigint,
    acquired bigint NOT NULL DEFAULT 0,
    timeouts bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    wait_histogram bigint[] NOT NULL DEFAULT array_fill(0, ARRAY[22]),
    CONSTRAINT longshore_pool_state_pkey PRIMARY KEY (name)
) WITH (fillfactor=20);
CREATE TABLE longshore_profile (
    tenant text NOT NULL,
    name text NOT NULL,
    body text NOT NULL,
    suspended boolean NOT NULL,
    revision bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT longshore_profile_pkey PRIMARY KEY (tenant, name),
    CONSTRAINT longshore_profile_revision_check CHECK ((revision > 0))
);
CREATE TABLE longshore_provider_batch (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    batch text NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    provider_id text,
    CONSTRAINT longshore_provider_batch_batch_name_key UNIQUE (batch, name),
    CONSTRAINT longshore_provider_batch_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_provider_key (
    tenant text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    provider text NOT NULL,
    ciphertext bytea NOT NULL,
    wrapped_data_key bytea NOT NULL,
    master_key_id text NOT NULL,
    status text NOT NULL,
    created_at bigint NOT NULL,
    retires_at bigint,
    CONSTRAINT longshore_provider_key_check CHECK (((status = 'retiring'::text) = (retires_at IS NOT NULL))),
    CONSTRAINT longshore_provider_key_pkey PRIMARY KEY (tenant, name, version),
    CONSTRAINT longshore_provider_key_status_check CHECK ((status = ANY (ARRAY['active'::text, 'retiring'::text, 'revoked'::text]))),
    CONSTRAINT longshore_provider_key_version_check CHECK ((version > 0))
);
CREATE TABLE longshore_queue (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    max_units bigint,
    max_bytes bigint,
    CONSTRAINT longshore_queue_max_bytes_check CHECK ((max_bytes >= 0)),
    CONSTRAINT longshore_queue_max_units_check CHECK ((max_units >= 0)),
    CONSTRAINT longshore_queue_name_key UNIQUE (name),
    CONSTRAINT longshore_queue_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_ready (
    stream bigint NOT NULL,
    sort_key bigint NOT NULL,
    id uuid NOT NULL,
    claim smallint NOT NULL,
    CONSTRAINT longshore_ready_claim_check CHECK (((claim >= 0) AND (claim <= 2))),
    CONSTRAINT longshore_ready_pkey PRIMARY KEY (stream, sort_key, id)
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=1);
CREATE TABLE longshore_reply_queue (
    tenant text NOT NULL,
    name text NOT NULL,
    session uuid NOT NULL,
    opened_at bigint NOT NULL,
    CONSTRAINT longshore_reply_queue_pkey PRIMARY KEY (tenant, name)
);
CREATE TABLE longshore_schedule (
    tenant text NOT NULL,
    name text NOT NULL,
    plan text NOT NULL,
    payload bytea NOT NULL,
    paused boolean NOT NULL,
    revision bigint NOT NULL,
    created_at bigint NOT NULL,
    last_fire bigint,
    next_fire bigint,
    fired bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0,
    CONSTRAINT longshore_schedule_check CHECK (((fired = 0) OR (last_fire IS NOT NULL))),
    CONSTRAINT longshore_schedule_fired_check CHECK ((fired >= 0)),
    CONSTRAINT longshore_schedule_missed_check CHECK ((missed >= 0)),
    CONSTRAINT longshore_schedule_pkey PRIMARY KEY (tenant, name),
    CONSTRAINT longshore_schedule_skipped_check CHECK ((skipped >= 0))
);
CREATE TABLE longshore_session (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL,
    label text NOT NULL,
    version text NOT NULL,
    kinds text NOT NULL,
    slots bigint NOT NULL,
    ttl bigint NOT NULL,
    heartbeats bigint NOT NULL DEFAULT 0,
    opened_at bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    command text NOT NULL DEFAULT 'work'::text,
    cpu bigint,
    process text,
    CONSTRAINT longshore_session_command_check CHECK ((command = ANY (ARRAY['work'::text, 'quiet'::text, 'drain'::text, 'stop'::text]))),
    CONSTRAINT longshore_session_id_key UNIQUE (id),
    CONSTRAINT longshore_session_pkey PRIMARY KEY (num)
) WITH (fillfactor=50);
CREATE TABLE longshore_start_log (
    session bigint NOT NULL,
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    started_at bigint NOT NULL,
    units uuid[] NOT NULL,
    fences bigint[] NOT NULL,
    CONSTRAINT longshore_start_log_pkey PRIMARY KEY (session, num)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);
CREATE TABLE longshore_stream (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    lane bigint NOT NULL,
    kind text NOT NULL,
    batch bigint NOT NULL DEFAULT 0,
    blocked bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    ready bigint NOT NULL DEFAULT 0,
    leased bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0,
    pruned_done bigint NOT NULL DEFAULT 0,
    pruned_failed bigint NOT NULL DEFAULT 0,
    pruned_cancelled bigint NOT NULL DEFAULT 0,
    idle_since bigint,
    retired_at bigint,
    retired_xid xid8,
    CONSTRAINT longshore_stream_blocked_check CHECK ((blocked >= 0)),
    CONSTRAINT longshore_stream_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT longshore_stream_cancelled_check CHECK ((cancelled >= 0)),
    CONSTRAINT longshore_stream_done_check CHECK ((done >= 0)),
    CONSTRAINT longshore_stream_failed_check CHECK ((failed >= 0)),
    CONSTRAINT longshore_stream_lane_fkey FOREIGN KEY (lane) REFERENCES longshore_lane(num),
    CONSTRAINT longshore_stream_lane_kind_batch_key UNIQUE (lane, kind, batch),
    CONSTRAINT longshore_stream_leased_check CHECK ((leased >= 0)),
    CONSTRAINT longshore_stream_pkey PRIMARY KEY (num),
    CONSTRAINT longshore_stream_ready_check CHECK ((ready >= 0)),
    CONSTRAINT longshore_stream_scheduled_check CHECK ((scheduled >= 0))
);
CREATE TABLE longshore_stream_delta (
    stream bigint NOT NULL,
    blocked bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    ready bigint NOT NULL DEFAULT 0,
    leased bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0,
    sums text
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);
CREATE TABLE longshore_tenant (
    name text NOT NULL,
    weight integer NOT NULL DEFAULT 1,
    cap integer,
    max_units bigint,
    max_bytes bigint,
    suspended boolean NOT NULL DEFAULT false,
    allowed_kinds text,
    created_at bigint NOT NULL,
    CONSTRAINT longshore_tenant_cap_check CHECK ((cap > 0)),
    CONSTRAINT longshore_tenant_max_bytes_check CHECK ((max_bytes >= 0)),
    CONSTRAINT longshore_tenant_max_units_check CHECK ((max_units >= 0)),
    CONSTRAINT longshore_tenant_pkey PRIMARY KEY (name),
    CONSTRAINT longshore_tenant_weight_check CHECK ((weight > 0))
);
CREATE TABLE longshore_token_bucket (
    name text NOT NULL,
    level double precision NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT longshore_token_bucket_pkey PRIMARY KEY (name)
) WITH (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE longshore_unit (
    id uuid NOT NULL,
    stream bigint NOT NULL,
    sort_key bigint NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    session bigint,
    started_at bigint,
    created_at bigint NOT NULL,
    deadline bigint,
    flags bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    open_dependencies integer NOT NULL DEFAULT 0,
    bytes integer NOT NULL,
    state smallint NOT NULL,
    priority smallint NOT NULL,
    dedup_key bytea,
    cap_key bytea,
    spec text,
    failure text,
    progress text,
    payload bytea NOT NULL,
    checkpoint bytea,
    result bytea,
    CONSTRAINT longshore_unit_check CHECK (((state = 3) = (session IS NOT NULL))),
    CONSTRAINT longshore_unit_check1 CHECK (((state = 0) = (open_dependencies > 0))),
    CONSTRAINT longshore_unit_check2 CHECK (((started_at IS NULL) OR (state = 3))),
    CONSTRAINT longshore_unit_check3 CHECK (((state <> 9) OR ((fence = 0) AND (attempt = 0) AND ((flags & ((~ 2048))::bigint) = 0) AND (deadline IS NULL) AND (cap_key IS NULL) AND (dedup_key IS NULL)))),
    CONSTRAINT longshore_unit_pkey PRIMARY KEY (id),
    CONSTRAINT longshore_unit_priority_check CHECK (((priority >= 1) AND (priority <= 9))),
    CONSTRAINT longshore_unit_state_check CHECK (((state >= 0) AND (state <= 9)))
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_analyze_scale_factor=0.2, autovacuum_vacuum_cost_delay=1);

CREATE VIEW longshore_batches AS
 SELECT b.name AS batch_id,
    b.kind AS batch_type,
    b.tenant,
    b.initiated_by,
    to_timestamp((((b.initiated_at)::numeric / '1000000'::numeric))::double precision) AS initiated_at,
    to_timestamp((((b.started_at)::numeric / '1000000'::numeric))::double precision) AS started_at,
    to_timestamp((((b.completed_at)::numeric / '1000000'::numeric))::double precision) AS completed_at,
    b.status,
    b.reason,
    t.total AS total_units,
    c.done AS processed_units,
    c.failed AS failed_units,
    c.cancelled AS cancelled_units,
    b.workers AS worker_count,
    b.notes,
    ((((c.done + c.failed) + c.cancelled) * 100) / NULLIF(t.total, 0)) AS pct,
        CASE
            WHEN (b.started_at IS NOT NULL) THEN (GREATEST(((t.until - b.started_at) - p.paused), (0)::bigint) / 1000000)
            ELSE NULL::bigint
        END AS seconds_running,
    (p.paused / 1000000) AS seconds_paused,
    b.generation,
    (m.picos / '1000000000000'::numeric) AS cost_usd
   FROM ((((longshore_batch b
     CROSS JOIN LATERAL ( SELECT (COALESCE(sum(((((((n.blocked + n.scheduled) + n.ready) + n.leased) + n.done) + n.failed) + n.cancelled)), (0)::numeric))::bigint AS units,
            (COALESCE(sum(n.done), (0)::numeric))::bigint AS done,
            (COALESCE(sum(n.failed), (0)::numeric))::bigint AS failed,
            (COALESCE(sum(n.cancelled), (0)::numeric))::bigint AS cancelled
           FROM ( SELECT s.blocked,
                    s.scheduled,
                    s.ready,
                    s.leased,
                    s.done,
                    s.failed,
                    s.cancelled
                   FROM longshore_stream s
                  WHERE ((s.batch = b.num) AND (s.batch <> 0))
                UNION ALL
                 SELECT d.blocked,
                    d.scheduled,
                    d.ready,
                    d.leased,
                    d.done,
                    d.failed,
                    d.cancelled
                   FROM longshore_stream_delta d
                  WHERE (d.stream = ANY (ARRAY( SELECT s.num
                           FROM longshore_stream s
                          WHERE ((s.batch = b.num) AND (s.batch <> 0)))))) n) c)
     CROSS JOIN LATERAL ( SELECT COALESCE(sum(a.amount), (0)::numeric) AS picos
           FROM ( SELECT (s.amount)::numeric AS amount
                   FROM longshore_batch_sum s
                  WHERE ((s.batch = b.num) AND (s.name = 'cost_picos'::text))
                UNION ALL
                 SELECT (((d.sums)::json ->> 'cost_picos'::text))::numeric AS "numeric"
                   FROM longshore_stream_delta d
                  WHERE ((d.sums IS NOT NULL) AND (d.stream = ANY (ARRAY( SELECT s.num
                           FROM longshore_stream s
                          WHERE ((s.batch = b.num) AND (s.batch <> 0))))))) a) m)
     CROSS JOIN LATERAL ( SELECT GREATEST(c.units,
                CASE
                    WHEN (b.sealed OR (b.status = ANY (ARRAY['complete'::text, 'failed'::text, 'cancelled'::text]))) THEN (0)::bigint
                    ELSE COALESCE(b.expected, (0)::bigint)
                END) AS total,
            COALESCE(b.completed_at, ((EXTRACT(epoch FROM clock_timestamp()) * (1000000)::numeric))::bigint) AS until) t)
     CROSS JOIN LATERAL ( SELECT ((b.paused_ms * 1000) + COALESCE(GREATEST((t.until - b.paused_at), (0)::bigint), (0)::bigint)) AS paused) p);
CREATE VIEW longshore_monthly_spend_total AS
 SELECT a.tenant,
    a.month,
    sum(a.spent_tokens) AS spent_tokens,
    sum(a.spent_picos) AS spent_picos,
    sum(a.reserved_tokens) AS reserved_tokens,
    sum(a.reserved_picos) AS reserved_picos
   FROM ( SELECT longshore_monthly_spend.tenant,
            longshore_monthly_spend.month,
            longshore_monthly_spend.spent_tokens,
            longshore_monthly_spend.spent_picos,
            longshore_monthly_spend.reserved_tokens,
            longshore_monthly_spend.reserved_picos
           FROM longshore_monthly_spend
        UNION ALL
         SELECT longshore_monthly_spend_delta.tenant,
            longshore_monthly_spend_delta.month,
            longshore_monthly_spend_delta.spent_tokens,
            longshore_monthly_spend_delta.spent_picos,
            longshore_monthly_spend_delta.reserved_tokens,
            longshore_monthly_spend_delta.reserved_picos
           FROM longshore_monthly_spend_delta) a
  GROUP BY a.tenant, a.month;
CREATE VIEW longshore_queues AS
 SELECT q.name AS queue_name,
    l.tenant,
    (COALESCE(sum(((s.blocked + s.scheduled) + s.ready)), (0)::numeric))::bigint AS messages_on_queue,
    (COALESCE(sum(s.ready), (0)::numeric))::bigint AS ready,
    (COALESCE(sum(s.scheduled), (0)::numeric))::bigint AS scheduled,
    (COALESCE(sum(s.blocked), (0)::numeric))::bigint AS blocked,
    (COALESCE(sum(s.leased), (0)::numeric))::bigint AS leased,
    (q.paused OR l.paused) AS paused
   FROM ((longshore_lane l
     JOIN longshore_queue q ON ((q.num = l.queue)))
     LEFT JOIN longshore_stream_count s ON ((s.lane = l.num)))
  GROUP BY l.num, q.num;
CREATE VIEW longshore_stream_count AS
 SELECT s.num AS stream,
    s.lane,
    s.kind,
    s.batch,
    (((s.blocked)::numeric + COALESCE(d.blocked, (0)::numeric)))::bigint AS blocked,
    (((s.scheduled)::numeric + COALESCE(d.scheduled, (0)::numeric)))::bigint AS scheduled,
    (((s.ready)::numeric + COALESCE(d.ready, (0)::numeric)))::bigint AS ready,
    (((s.leased)::numeric + COALESCE(d.leased, (0)::numeric)))::bigint AS leased,
    (((s.done)::numeric + COALESCE(d.done, (0)::numeric)))::bigint AS done,
    (((s.failed)::numeric + COALESCE(d.failed, (0)::numeric)))::bigint AS failed,
    (((s.cancelled)::numeric + COALESCE(d.cancelled, (0)::numeric)))::bigint AS cancelled,
    (((s.bytes)::numeric + COALESCE(d.bytes, (0)::numeric)))::bigint AS bytes,
    (((s.stored_bytes)::numeric + COALESCE(d.stored_bytes, (0)::numeric)))::bigint AS stored_bytes,
    s.pruned_done,
    s.pruned_failed,
    s.pruned_cancelled
   FROM (longshore_stream s
     LEFT JOIN ( SELECT longshore_stream_delta.stream,
            sum(longshore_stream_delta.blocked) AS blocked,
            sum(longshore_stream_delta.scheduled) AS scheduled,
            sum(longshore_stream_delta.ready) AS ready,
            sum(longshore_stream_delta.leased) AS leased,
            sum(longshore_stream_delta.done) AS done,
            sum(longshore_stream_delta.failed) AS failed,
            sum(longshore_stream_delta.cancelled) AS cancelled,
            sum(longshore_stream_delta.bytes) AS bytes,
            sum(longshore_stream_delta.stored_bytes) AS stored_bytes
           FROM longshore_stream_delta
          GROUP BY longshore_stream_delta.stream) d ON ((d.stream = s.num)));
CREATE VIEW longshore_unit_current AS
 SELECT u.id,
    u.stream,
    COALESCE(b.state, u.state) AS state,
    COALESCE(b.sort_key, u.sort_key) AS sort_key,
    u.priority,
    COALESCE(b.attempt, u.attempt) AS attempt,
    u.lost,
    COALESCE(b.fence, u.fence) AS fence,
    COALESCE(b.session, u.session) AS session,
    COALESCE(b.started_at, u.started_at) AS started_at,
    u.created_at,
    u.deadline,
    u.flags,
    u.bytes,
    u.dedup_key,
    u.cap_key,
    u.spec,
    u.failure,
    u.progress,
    u.payload,
    u.checkpoint,
    u.result
   FROM (longshore_unit u
     LEFT JOIN LATERAL ( SELECT b_1.state,
            b_1.sort_key,
            b_1.fence,
            b_1.session,
            b_1.started_at,
            b_1.attempt
           FROM longshore_bulk_state(u.id, u.stream, u.sort_key) b_1(state, sort_key, fence, session, started_at, attempt)
          WHERE (u.state = 9)) b ON (true));
CREATE VIEW longshore_workers AS
 SELECT w.label AS job_name,
        CASE w.command
            WHEN 'work'::text THEN 'active'::text
            ELSE w.command
        END AS job_status,
    ( SELECT string_agg(k.kind, ' '::text ORDER BY k.kind) AS string_agg
           FROM json_object_keys((w.kinds)::json) k(kind)) AS function,
    (w.cpu / 1000) AS cpu_time,
    w.slots,
    w.version,
    to_timestamp((((w.opened_at)::numeric / '1000000'::numeric))::double precision) AS started_at,
    to_timestamp((((w.heartbeat_at)::numeric / '1000000'::numeric))::double precision) AS heartbeat_at
   FROM longshore_session w;

CREATE INDEX longshore_audit_entry_tenant ON public.longshore_audit_entry USING btree (tenant, seq) WHERE (tenant IS NOT NULL);
CREATE INDEX longshore_batch_age ON public.longshore_batch USING btree (initiated_at, name COLLATE "C");
CREATE INDEX longshore_batch_live ON public.longshore_batch USING btree (num) WHERE (completed_at IS NULL);
CREATE INDEX longshore_batch_open ON public.longshore_batch USING btree (num) WHERE (status <> 'complete'::text);
CREATE INDEX longshore_batch_tenant ON public.longshore_batch USING btree (tenant);
CREATE INDEX longshore_call_batch ON public.longshore_call USING btree (batch, opened_at, id) WHERE (batch IS NOT NULL);
CREATE INDEX longshore_call_open ON public.longshore_call USING btree (session) WHERE (status = 0);
CREATE INDEX longshore_call_opened ON public.longshore_call USING btree (opened_at, id);
CREATE INDEX longshore_call_request ON public.longshore_call USING btree (request_id, tenant);
CREATE INDEX longshore_call_tenant ON public.longshore_call USING btree (tenant, opened_at, id);
CREATE INDEX longshore_capacity_reservation_lane ON public.longshore_capacity_reservation USING btree (lane);
CREATE INDEX longshore_dependency_unit ON public.longshore_dependency USING btree (unit);
CREATE INDEX longshore_done_group_ended ON public.longshore_done_group USING btree (stream, ended_at);
CREATE INDEX longshore_done_group_unit ON public.longshore_done_group USING btree (stream, first_rank, first_id, last_rank);
CREATE INDEX longshore_failure_unit ON public.longshore_failure USING btree (unit);
CREATE INDEX longshore_pending_request_sent ON public.longshore_pending_request USING btree (batch, provider_batch, num) WHERE (provider_batch IS NOT NULL);
CREATE INDEX longshore_pending_request_waiting ON public.longshore_pending_request USING btree (batch, num) WHERE ((provider_batch IS NULL) AND (answer IS NULL));
CREATE INDEX longshore_permit_waiting ON public.longshore_permit USING btree (pool, rank, arrived_at) WHERE (rank IS NOT NULL);
CREATE UNIQUE INDEX longshore_provider_key_active ON public.longshore_provider_key USING btree (tenant, name) WHERE (status = 'active'::text);
CREATE INDEX longshore_reply_queue_session ON public.longshore_reply_queue USING btree (session);
CREATE INDEX longshore_schedule_due ON public.longshore_schedule USING btree (next_fire) WHERE ((NOT paused) AND (next_fire IS NOT NULL));
CREATE INDEX longshore_stream_batch ON public.longshore_stream USING btree (batch) WHERE (batch <> 0);
CREATE INDEX longshore_unit_alone ON public.longshore_unit USING btree (stream, sort_key) WHERE (state = 8);
CREATE INDEX longshore_unit_cap ON public.longshore_unit USING btree (cap_key, state, stream, sort_key) WHERE ((cap_key IS NOT NULL) AND (state = ANY (ARRAY[3, 7])));
CREATE INDEX longshore_unit_deadline ON public.longshore_unit USING btree (deadline) WHERE ((deadline IS NOT NULL) AND (state = ANY (ARRAY[0, 1, 2, 7, 8])));
CREATE UNIQUE INDEX longshore_unit_dedup ON public.longshore_unit USING btree (dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE INDEX longshore_unit_due ON public.longshore_unit USING btree (sort_key) WHERE (state = 1);
CREATE INDEX longshore_unit_ended ON public.longshore_unit USING btree (stream, state, sort_key) WHERE (state = ANY (ARRAY[4, 5, 6]));
CREATE INDEX longshore_unit_session ON public.longshore_unit USING btree (session) WHERE (session IS NOT NULL);
CREATE INDEX longshore_unit_waiting ON public.longshore_unit USING btree (stream, state, sort_key) WHERE (state = ANY (ARRAY[0, 1, 7, 8]));

CREATE OR REPLACE FUNCTION public.longshore_admit_calls(ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[], units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[], now bigint, this_month text, budget_locks bigint[], request_locks bigint[], single_statement boolean)
 RETURNS TABLE(outcome integer, call_index bigint, duplicate_of uuid, tenant text, max_tokens bigint, max_cost_picos bigint, warn_at double precision, spent_tokens bigint, spent_picos bigint, reserved_tokens bigint, reserved_picos bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    IF single_statement THEN
        PERFORM set_config('synchronous_commit', 'off', true),
            set_config('lock_timeout', '10s', true);
        PERFORM pg_advisory_xact_lock_shared(n) FROM unnest($15) n;
        IF EXISTS (SELECT 1 FROM longshore_budget b WHERE b.tenant = ANY($2)) THEN
            RETURN QUERY SELECT 0, NULL::bigint, NULL::uuid, NULL, NULL::bigint, NULL::bigint,
              NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    ELSE
        PERFORM pg_advisory_xact_lock(n) FROM unnest($15) n;
    END IF;
    PERFORM pg_advisory_xact_lock(n) FROM unnest($16) n;
    -- The lock keeps a session from ending until its calls are committed, so that its end finds them.
    PERFORM 1 FROM longshore_session s WHERE s.id = ANY($9) ORDER BY s.num FOR KEY SHARE;
    RETURN QUERY SELECT 1, g.call_index, NULL::uuid, NULL, NULL::bigint, NULL::bigint,
      NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
    FROM unnest($9) WITH ORDINALITY AS g (session, call_index) WHERE g.session IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM longshore_session s WHERE s.id = g.session) LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 3, g.call_index, NULL::uuid, NULL, NULL::bigint, NULL::bigint,
      NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
    FROM unnest($1) WITH ORDINALITY AS g (id, call_index) JOIN longshore_call c ON c.id = g.id;
    RETURN QUERY
    SELECT CASE WHEN single_statement THEN 0 ELSE 4 END, g.call_index, d.id, NULL, NULL::bigint, NULL::bigint,
      NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
    FROM unnest($1, $2, $3, $7) WITH ORDINALITY AS g (id, tenant, request, unit, call_index)
    CROSS JOIN LATERAL (SELECT c.id FROM longshore_call c WHERE c.request_id = g.request
      AND c.tenant = g.tenant AND c.status IN (0, 1) AND c.unit IS DISTINCT FROM g.unit
      AND c.id <> g.id ORDER BY c.opened_at, c.id LIMIT 1) d
    WHERE NOT EXISTS (SELECT 1 FROM longshore_call c WHERE c.id = g.id);
    IF FOUND AND single_statement THEN
        RETURN;
    END IF;
    IF NOT single_statement THEN
        RETURN QUERY
        SELECT 2, NULL::bigint, NULL::uuid, b.tenant, b.max_tokens, b.max_cost_picos, b.warn_at,
          longshore_clamp_bigint(m.spent_tokens), longshore_clamp_bigint(m.spent_picos),
          longshore_clamp_bigint(m.reserved_tokens), longshore_clamp_bigint(m.reserved_picos)
        FROM longshore_budget b CROSS JOIN LATERAL (
          -- Not the view, for which the planner would add up all tenants.
          SELECT sum(a.spent_tokens) AS spent_tokens, sum(a.spent_picos) AS spent_picos,
            sum(a.reserved_tokens) AS reserved_tokens, sum(a.reserved_picos) AS reserved_picos
          FROM (SELECT * FROM longshore_monthly_spend UNION ALL SELECT * FROM longshore_monthly_spend_delta) a
          WHERE a.tenant = b.tenant AND a.month = $14) m
        WHERE b.tenant = ANY($2);
    END IF;
    WITH inserted AS (
      INSERT INTO longshore_call (id, tenant, request_id, profile, provider, model, unit, batch,
        session, worker, reserve_tokens, reserve_picos, opened_at, month, status)
      SELECT g.*, $13, $14, 0 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        AS g (id, tenant, request, profile, provider, model, unit, batch, session, worker, tokens,
          picos)
      WHERE NOT EXISTS (SELECT 1 FROM longshore_call c WHERE c.request_id = g.request
        AND c.tenant = g.tenant AND c.status IN (0, 1) AND c.unit IS DISTINCT FROM g.unit
        AND c.id <> g.id)
      ON CONFLICT (id) DO NOTHING RETURNING tenant, reserve_tokens, reserve_picos)
    INSERT INTO longshore_monthly_spend_delta
    SELECT i.tenant, $14, 0, 0, sum(i.reserve_tokens), sum(i.reserve_picos)
    FROM inserted i GROUP BY i.tenant;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_bulk_state(unit uuid, unit_stream bigint, unit_rank bigint)
 RETURNS TABLE(state smallint, sort_key bigint, fence bigint, session bigint, started_at bigint, attempt integer)
 LANGUAGE plpgsql
 STABLE
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM longshore_ready r WHERE r.stream = $2 AND r.sort_key = $3 AND r.id = $1;
    IF FOUND THEN
        RETURN QUERY SELECT 2::smallint, $3, 0::bigint, NULL::bigint, NULL::bigint, 0;
        RETURN;
    END IF;
    RETURN QUERY SELECT 3::smallint, g.claimed_at, g.fence, g.session, CASE WHEN g.started THEN g.claimed_at END,
      g.started::int FROM longshore_lease_group g WHERE g.stream = $2 AND $1 = ANY(g.units);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 4::smallint, g.ended_at, g.fence, NULL::bigint, NULL::bigint, 1
        FROM longshore_done_group_of($1, $2, $3) g WHERE g.stream IS NOT NULL;
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_candidate_streams(session uuid, kinds text[], queues text[], tenant text, batch text, resumed_streams bigint[], all_queues boolean, scan_mode integer)
 RETURNS TABLE(session_num bigint, scan_micros bigint, stream bigint, has_ready boolean, has_alone boolean, weight integer, cap integer, tenant_weight integer, tenant_cap integer, sort_key bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
 SET join_collapse_limit TO '1'
AS $function$
#variable_conflict use_column
DECLARE
    streams bigint[];
    sort_keys bigint[];
BEGIN
    IF scan_mode = 0 THEN
        -- With the first unit of each stream, so that the claim does not search the index for it again.
        WITH RECURSIVE ready (stream, sort_key) AS (
          (SELECT u.stream, u.sort_key FROM longshore_ready u ORDER BY u.stream, u.sort_key LIMIT 1)
          UNION ALL SELECT n.stream, n.sort_key FROM ready r CROSS JOIN LATERAL (
            SELECT u.stream, u.sort_key FROM longshore_ready u WHERE u.stream > r.stream
            ORDER BY u.stream, u.sort_key LIMIT 1) n)
        SELECT array_agg(r.stream), array_agg(r.sort_key) INTO streams, sort_keys FROM ready r;
    ELSIF scan_mode = 1 THEN
        -- A batch has few streams, so each one is checked.
        SELECT array_agg(s.num), array_agg(n.sort_key) INTO streams, sort_keys
        FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
        CROSS JOIN LATERAL (SELECT u.sort_key FROM longshore_ready u WHERE u.stream = s.num
          ORDER BY u.sort_key LIMIT 1) n WHERE b.name = $5;
    ELSE
        streams := $6;
        sort_keys := array_fill(NULL::bigint, ARRAY[cardinality($6)]);
    END IF;
    -- The lock keeps the claiming session from ending until the claim is committed.
    RETURN QUERY
    WITH RECURSIVE claimer AS MATERIALIZED (
      SELECT s.num FROM longshore_session s WHERE s.id = $1 FOR KEY SHARE),
    alone (stream) AS (
      (SELECT u.stream FROM longshore_unit u WHERE u.state = 8 ORDER BY u.stream LIMIT 1)
      UNION ALL SELECT (SELECT u.stream FROM longshore_unit u WHERE u.state = 8
        AND u.stream > a.stream ORDER BY u.stream LIMIT 1)
        FROM alone a WHERE a.stream IS NOT NULL),
    found AS MATERIALIZED (
      SELECT f.stream, bool_or(f.ready) AS ready, bool_or(NOT f.ready) AS alone,
        min(f.sort_key) AS sort_key
      FROM (SELECT r.stream, true, r.sort_key FROM unnest(streams, sort_keys) AS r (stream, sort_key)
        UNION ALL SELECT a.stream, false, NULL FROM alone a) AS f (stream, ready, sort_key)
      GROUP BY f.stream),
    claimable AS MATERIALIZED (
      SELECT s.num, f.ready, f.alone, f.sort_key, l.weight, l.cap,
        coalesce(t.weight, 1) AS tenant_weight, t.cap AS tenant_cap
      FROM found f JOIN longshore_stream s ON s.num = f.stream
      JOIN longshore_lane l ON l.num = s.lane JOIN longshore_queue q ON q.num = l.queue
      LEFT JOIN longshore_batch b ON b.num = s.batch
      LEFT JOIN longshore_tenant t ON t.name = l.tenant
      WHERE s.kind = ANY($2) AND NOT l.paused AND NOT q.paused
      AND NOT coalesce(t.suspended, false)
      AND coalesce(b.status, 'running') IN ('queued', 'running')
      AND ($7 OR q.name = ANY($3)) AND ($4 IS NULL OR l.tenant = $4)
      AND ($5 IS NULL OR b.name = $5) ORDER BY s.num)
    SELECT c.num,
      (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
      o.num, o.ready, o.alone, o.weight, o.cap, o.tenant_weight, o.tenant_cap, o.sort_key
    FROM claimer c LEFT JOIN claimable o ON true;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_claim_fast(session uuid, kinds text[], queues text[], tenant text, batch text, resumed_streams bigint[], all_queues boolean, scan_mode integer, min_sort_key bigint, max_units bigint, starts bigint, now bigint, first_fence bigint, settled_streams bigint[])
 RETURNS TABLE(id uuid, stream bigint, state smallint, sort_key bigint, priority smallint, attempt integer, lost integer, fence bigint, session_num bigint, started_at bigint, created_at bigint, deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text, progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean, ids uuid[], ranks bigint[], priorities smallint[], all_created_at bigint[], all_flags bigint[], sizes integer[], specs text[], payloads bytea[], candidates integer, only_stream bigint, first_sort_key bigint, scan_micros bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    summary record;
BEGIN
    -- A claim lost in a crash is harmless, because its session is lost as well. So it does not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '10s', true);
    SELECT max(e.session_num) AS session_num, max(e.scan_micros) AS scan_micros, max(e.stream) AS stream,
      greatest(max(e.sort_key), $9) AS sort_key,
      CASE WHEN bool_or(e.has_alone OR NOT e.has_ready OR e.cap IS NOT NULL
        OR e.tenant_cap IS NOT NULL) THEN 2 ELSE least(count(e.stream), 2) END::integer AS candidates
    INTO summary FROM longshore_candidate_streams($1, $2, $3, $4, $5, $6, $7, $8) e;
    IF summary.session_num IS NULL THEN
        RETURN;
    END IF;
    candidates := summary.candidates;
    only_stream := summary.stream;
    first_sort_key := summary.sort_key;
    scan_micros := summary.scan_micros;
    RETURN NEXT;
    IF summary.candidates <> 1 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT c.*, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint
    FROM longshore_claim_units(ARRAY[summary.stream], ARRAY[$10], ARRAY[$11], ARRAY[summary.sort_key],
      ARRAY['00000000-0000-0000-0000-000000000000'::uuid], $12, summary.session_num, $13, $14, false) c;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_claim_units(streams bigint[], max_units bigint[], starts bigint[], after_sort_keys bigint[], after_ids uuid[], now bigint, session_num bigint, first_fence bigint, settled_streams bigint[], only_lock boolean)
 RETURNS TABLE(id uuid, stream bigint, state smallint, sort_key bigint, priority smallint, attempt integer, lost integer, fence bigint, session bigint, started_at bigint, created_at bigint, deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text, progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean, ids uuid[], ranks bigint[], priorities smallint[], all_created_at bigint[], all_flags bigint[], sizes integer[], specs text[], payloads bytea[])
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
 SET join_collapse_limit TO '1'
AS $function$
#variable_conflict use_column
DECLARE
    tids tid[];
    found_ids uuid[];
    found_ranks bigint[];
    found_starts boolean[];
    found_fences bigint[];
    locked uuid[];
    how integer;
BEGIN
    -- Everything that depends on the stream is calculated here, while the streams are walked: with thousands of them, a
    -- join of units and streams would be quadratic.
    SELECT array_agg(f.tid), array_agg(f.id), array_agg(f.sort_key), array_agg(f.place < f.starts),
      array_agg(f.first_fence + CASE WHEN f.place < f.starts THEN f.place / 64
        ELSE (f.starts + 63) / 64 + (f.place - f.starts) / 64 END), max(f.claim)
    INTO tids, found_ids, found_ranks, found_starts, found_fences, how
    FROM (
      SELECT r.*, w.starts, w.first_fence FROM (
        SELECT w.*, $8 + sum(w.max_units) OVER (ORDER BY w.at)::bigint - w.max_units AS first_fence
        FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS w (stream, max_units, starts, sort_key, id, at)) w
      CROSS JOIN LATERAL (
        SELECT r.*, row_number() OVER () - 1 AS place FROM (
          SELECT r.ctid AS tid, r.id, r.sort_key, r.claim FROM longshore_ready r
          WHERE r.stream = w.stream AND (r.sort_key, r.id) > (w.sort_key, w.id)
          ORDER BY r.sort_key, r.id LIMIT w.max_units FOR UPDATE SKIP LOCKED) r) r) f;
    IF tids IS NULL THEN
        RETURN;
    END IF;
    IF how = 0 AND NOT only_lock AND NOT $1 && $9 THEN
        RETURN QUERY
        WITH gone AS (DELETE FROM longshore_ready r WHERE r.ctid = ANY(tids)),
        -- A hash aggregate (`enable_sort`) keeps the order of its input.
        grouped AS MATERIALIZED (
          SELECT t.stream, t.fence, t.started, array_agg(t.id) AS ids, array_agg(t.rank) AS ranks,
            array_agg(t.priority) AS priorities, array_agg(t.created_at) AS created_at, array_agg(t.flags) AS flags,
            array_agg(t.bytes) AS sizes, array_agg(t.spec) AS specs, array_agg(t.payload) AS payloads,
            min(t.rank) AS first_rank, max(t.rank) AS last_rank
          FROM (
            SELECT u.id, u.stream, f.rank, f.started, f.fence, u.priority, u.created_at, u.flags, u.bytes, u.spec,
              u.payload
            FROM (SELECT f.* FROM unnest(found_ids, found_ranks, found_starts, found_fences)
              AS f (id, rank, started, fence) ORDER BY f.id) f JOIN longshore_unit u ON u.id = f.id) t
          GROUP BY t.stream, t.fence, t.started),
        leased AS (
          INSERT INTO longshore_lease_group (
            session, fence, stream, claimed_at, first_rank, last_rank, started, units, sizes)
          SELECT $7, g.fence, g.stream, $6, g.first_rank, g.last_rank, g.started, g.ids, g.sizes FROM grouped g),
        counted AS (
          INSERT INTO longshore_stream_delta (stream, ready, leased)
          SELECT g.stream, -sum(cardinality(g.ids)), sum(cardinality(g.ids)) FROM grouped g GROUP BY g.stream)
        SELECT NULL::uuid, g.stream, NULL::smallint, $6, NULL::smallint, g.started::int, NULL::integer, g.fence, $7,
          CASE WHEN g.started THEN $6 END, NULL::bigint, NULL::bigint, NULL::bigint, NULL::integer, NULL::bytea,
          NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, true,
          g.ids, g.ranks, g.priorities, g.created_at, g.flags, g.sizes, g.specs, g.payloads FROM grouped g;
        RETURN;
    END IF;
    locked := ARRAY(SELECT u.id FROM longshore_unit u WHERE u.id = ANY(found_ids) FOR UPDATE SKIP LOCKED);
    IF how = 2 OR only_lock THEN
        RETURN QUERY
        SELECT u.id, u.stream, 2::smallint, u.sort_key, u.priority, u.attempt, u.lost, u.fence, u.session,
          u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec, u.failure,
          u.progress, u.payload, u.checkpoint, u.result, u.sort_key, false, NULL::uuid[], NULL::bigint[],
          NULL::smallint[], NULL::bigint[], NULL::bigint[], NULL::integer[], NULL::text[], NULL::bytea[]
        FROM longshore_unit u WHERE u.id = ANY(locked);
        RETURN;
    END IF;
    IF cardinality(locked) < cardinality(found_ids) THEN
        SELECT array_agg(r.tid), array_agg(r.id), array_agg(r.rank), array_agg(r.starts)
        INTO tids, found_ids, found_ranks, found_starts
        FROM unnest(tids, found_ids, found_ranks, found_starts) AS r (tid, id, rank, starts)
        WHERE r.id = ANY(locked);
    END IF;
    RETURN QUERY
    WITH gone AS (DELETE FROM longshore_ready r WHERE r.ctid = ANY(tids)),
    taken AS (
      -- A crash of the server can undo a claim. The new fence is larger than any that was lost with it.
      UPDATE longshore_unit u SET state = 3, sort_key = $6, session = $7, fence = greatest(u.fence + 1, $8),
        attempt = u.attempt + f.starts::int, started_at = CASE WHEN f.starts THEN $6 END
      FROM unnest(found_ids, found_ranks, found_starts) AS f (id, rank, starts) WHERE u.id = f.id
      RETURNING u.id, u.stream, u.state, u.sort_key, u.priority, u.attempt, u.lost, u.fence,
        u.session, u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec,
        u.failure, u.progress, u.payload, u.checkpoint, u.result, f.rank),
    counted AS (
      INSERT INTO longshore_stream_delta (stream, ready, leased)
      SELECT t.stream, -count(*), count(*) FROM taken t GROUP BY t.stream)
    SELECT t.*, true, NULL::uuid[], NULL::bigint[], NULL::smallint[], NULL::bigint[], NULL::bigint[], NULL::integer[],
      NULL::text[], NULL::bytea[] FROM taken t;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_clamp_bigint(amount numeric)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$ SELECT least(greatest(coalesce(amount, 0), -9223372036854775808), 9223372036854775807)::bigint $function$

CREATE OR REPLACE FUNCTION public.longshore_commit_durably()
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_done_group_of(unit uuid, unit_stream bigint, unit_rank bigint)
 RETURNS longshore_done_group
 LANGUAGE plpgsql
 STABLE
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    found longshore_done_group;
BEGIN
    SELECT g.* INTO found FROM longshore_done_group g
    WHERE g.stream = $2 AND (g.first_rank, g.first_id) <= ($3, $1) AND g.last_rank >= $3 AND $1 = ANY(g.units)
    ORDER BY g.first_rank DESC, g.first_id DESC LIMIT 1;
    RETURN found;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_end_abandoned_calls(sessions uuid[], now bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
BEGIN
    WITH abandoned AS MATERIALIZED (
      SELECT c.id FROM longshore_call c WHERE c.session = ANY($1) AND c.status = 0
      ORDER BY c.id FOR UPDATE),
    ended AS (
      UPDATE longshore_call c SET status = 3, logged_at = $2, answering_model = c.model,
        tokens_in = c.reserve_tokens, tokens_out = 0, tokens_cached = 0, tokens_cache_write = 0,
        latency_ms = 0, attempts = 0, cost_picos = c.reserve_picos, estimated = true
      FROM abandoned a WHERE c.id = a.id AND c.status = 0
      RETURNING c.tenant, c.month, c.reserve_tokens, c.reserve_picos)
    INSERT INTO longshore_monthly_spend_delta
    SELECT e.tenant, e.month, sum(e.reserve_tokens), sum(e.reserve_picos),
      -sum(e.reserve_tokens), -sum(e.reserve_picos) FROM ended e GROUP BY e.tenant, e.month;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_enqueue_bulk(stream bigint, sort_key bigint, priority smallint, flags bigint, ids uuid[], sizes integer[], payloads bytea[], now bigint, lanes bigint[], single_statement boolean)
 RETURNS boolean
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    IF single_statement THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    IF longshore_is_bounded($9) OR longshore_is_retired(ARRAY[$1]) THEN
        RETURN false;
    END IF;
    INSERT INTO longshore_unit (id, stream, state, sort_key, priority, flags, bytes, payload, created_at)
    SELECT n.id, $1, 9, $2, $3, $4, n.size, n.payload, $8 FROM unnest($5, $6, $7) AS n (id, size, payload);
    INSERT INTO longshore_ready (stream, sort_key, id, claim) SELECT $1, $2, n.id, 0 FROM unnest($5) AS n (id);
    INSERT INTO longshore_stream_delta (stream, ready, bytes, stored_bytes)
    SELECT $1, count(*), sum(n.size), sum(n.size + 256) FROM unnest($6) AS n (size);
    RETURN true;
EXCEPTION WHEN unique_violation THEN
    RETURN false;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_enqueue_fast(ids uuid[], streams bigint[], states smallint[], sort_keys bigint[], priorities smallint[], deadlines bigint[], all_flags bigint[], dependency_counts integer[], sizes integer[], dedup_keys bytea[], cap_keys bytea[], specs text[], payloads bytea[], now bigint, lanes bigint[], single_statement boolean)
 RETURNS TABLE(stream bigint, state smallint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
BEGIN
    IF single_statement THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    RETURN QUERY
    WITH inserted AS (
      INSERT INTO longshore_unit (id, stream, state, sort_key, priority, deadline, flags, open_dependencies,
        bytes, dedup_key, cap_key, spec, payload, created_at)
      SELECT n.*, $14 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) n
      WHERE NOT (SELECT longshore_is_bounded($15) OR longshore_is_retired($2))
      ON CONFLICT (id) DO NOTHING RETURNING id, stream, state, sort_key, flags, bytes),
    ready AS (
      INSERT INTO longshore_ready (stream, sort_key, id, claim)
      SELECT i.stream, i.sort_key, i.id, CASE WHEN i.state = 9 THEN 0 ELSE 1 + (i.flags & 1) END
      FROM inserted i WHERE i.state IN (2, 9)),
    counted AS (
      INSERT INTO longshore_stream_delta (stream, scheduled, ready, bytes, stored_bytes)
      SELECT i.stream, count(*) FILTER (WHERE i.state = 1), count(*) FILTER (WHERE i.state IN (2, 9)),
        sum(i.bytes)::bigint, sum(i.bytes + 256)::bigint FROM inserted i GROUP BY i.stream)
    SELECT DISTINCT i.stream, least(i.state, 2::smallint) FROM inserted i
    UNION ALL SELECT 0::bigint, 0::smallint WHERE (SELECT count(*) FROM inserted) < cardinality($1);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_finish_fast(ids uuid[], fences bigint[], results bytea[], group_ends integer[], now bigint, session uuid, single_statement boolean)
 RETURNS TABLE(stream bigint, units bigint, id uuid, fence bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    holder bigint;
    leased record;
    first integer;
    last integer;
    slice uuid[];
    written uuid[] := '{}';  -- bulk units with a result: their rows are written first
    written_ends integer[] := '{}';
    own_written uuid[] := '{}';
    ended uuid[];
    ended_bytes bigint;
    left_units uuid[];
    left_sizes integer[];
    groups bigint[];           -- fences that are those of lease groups
    tids tid[];
    whole bigint[] := '{}';    -- fences of lease groups that ended with all their units
    others integer[];          -- positions of units that are not in a lease group
    streams bigint[] := '{}';
    counts bigint[] := '{}';
    sizes bigint[] := '{}';
    all_ended uuid[] := '{}';
    all_fences bigint[] := '{}';
    has_results boolean := cardinality(array_remove(results, NULL)) > 0;
BEGIN
    IF single_statement THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    SELECT s.num INTO holder FROM longshore_session s WHERE s.id = $6;
    IF holder IS NULL THEN
        RETURN;
    END IF;
    IF has_results THEN
        -- Rows before lease groups, in the order in which every operation locks them.
        first := 1;
        FOREACH last IN ARRAY group_ends LOOP
            WITH w AS (
              UPDATE longshore_unit u SET state = 4, sort_key = $5, fence = f.fence, attempt = 1, result = f.result
              FROM unnest($1[first:last], $2[first:last], $3[first:last]) AS f (id, fence, result)
              WHERE f.result IS NOT NULL AND u.id = f.id AND u.state = 9 AND EXISTS (
                SELECT 1 FROM longshore_lease_group g WHERE g.session = holder AND g.fence = f.fence
                AND f.id = ANY(g.units)) RETURNING u.id)
            SELECT written || coalesce(array_agg(w.id), '{}') INTO written FROM w;
            written_ends := written_ends || cardinality(written);
            first := last + 1;
        END LOOP;
    END IF;
    -- Rows before lease groups, in the order in which every operation locks them.
    groups := ARRAY(SELECT g.fence FROM longshore_lease_group g WHERE g.session = holder
      AND g.fence = ANY(ARRAY(SELECT $2[e.last] FROM unnest(group_ends) AS e (last))));
    IF cardinality(groups) < cardinality(group_ends) THEN
        others := ARRAY(SELECT i FROM generate_series(1, cardinality($1)) AS i WHERE $2[i] <> ALL(groups));
        FOR leased IN
            WITH ended AS (
              UPDATE longshore_unit u SET state = 4, sort_key = $5, session = NULL, started_at = NULL,
                attempt = u.attempt + (u.started_at IS NULL)::int, lost = 0, progress = NULL,
                failure = NULL, result = $3[i.at]
              FROM unnest(others) AS i (at)
              WHERE u.id = $1[i.at] AND u.fence = $2[i.at] AND u.flags & ~2048 = 0
              AND coalesce(u.session, 0) = holder AND u.cap_key IS NULL
              RETURNING u.id, u.fence, u.stream, u.bytes)
            SELECT e.stream, count(*) AS units, sum(e.bytes)::bigint AS bytes, array_agg(e.id) AS ids,
              array_agg(e.fence) AS fences FROM ended e GROUP BY e.stream
        LOOP
            streams := streams || leased.stream;
            counts := counts || leased.units;
            sizes := sizes || leased.bytes;
            all_ended := all_ended || leased.ids;
            all_fences := all_fences || leased.fences;
        END LOOP;
    END IF;
    IF NOT has_results AND cardinality(groups) > 0 THEN
        -- All groups of which every unit ends, together; locked in the order of their fences.
        tids := ARRAY(SELECT g.tid FROM (
            SELECT f.fence, array_agg(f.id ORDER BY f.id) AS ids FROM unnest($1, $2) AS f (id, fence)
            GROUP BY f.fence ORDER BY f.fence) a
          CROSS JOIN LATERAL (SELECT g.ctid AS tid FROM longshore_lease_group g
            WHERE g.session = holder AND g.fence = a.fence AND g.units = a.ids LIMIT 1 FOR UPDATE) g);
        WITH gone AS (
          DELETE FROM longshore_lease_group g WHERE g.ctid = ANY(tids)
          RETURNING g.stream, g.fence, g.first_rank, g.last_rank, g.units, g.sizes),
        kept AS (
          INSERT INTO longshore_done_group (stream, ended_at, fence, first_rank, last_rank, first_id, units)
          SELECT g.stream, $5, g.fence, g.first_rank, g.last_rank, g.units[1], g.units FROM gone g)
        SELECT streams || array_agg(g.stream), counts || array_agg(cardinality(g.units)::bigint),
          sizes || array_agg(g.bytes), coalesce(array_agg(g.fence), '{}')
        INTO streams, counts, sizes, whole
        FROM (SELECT g.stream, g.fence, g.units, (SELECT sum(s.size) FROM unnest(g.sizes) AS s (size)) AS bytes
          FROM gone g) g;
        IF cardinality(whole) < cardinality(group_ends) THEN
            SELECT all_ended || array_agg(f.id), all_fences || array_agg(f.fence) INTO all_ended, all_fences
            FROM unnest($1, $2) AS f (id, fence) WHERE f.fence = ANY(whole);
        ELSE
            all_ended := $1;
        END IF;
    END IF;
    first := 1;
    FOR at IN 1 .. cardinality(group_ends) LOOP
        EXIT WHEN cardinality(whole) = cardinality(group_ends);
        last := group_ends[at];
        IF $2[last] = ANY(whole) THEN
            first := last + 1;
            CONTINUE;
        END IF;
        slice := $1[first:last];
        ended := '{}';
        SELECT g.stream, g.first_rank, g.last_rank, g.units, g.sizes INTO leased FROM longshore_lease_group g
        WHERE g.session = holder AND g.fence = $2[first] AND g.units && slice FOR UPDATE;
        IF FOUND AND leased.units = slice THEN
            ended := slice;
            left_units := NULL;
            ended_bytes := (SELECT sum(s.size) FROM unnest(leased.sizes) AS s (size));
        ELSIF FOUND THEN
            SELECT coalesce(array_agg(u.id) FILTER (WHERE u.ended), '{}'), sum(u.size) FILTER (WHERE u.ended),
              array_agg(u.id) FILTER (WHERE NOT u.ended), array_agg(u.size) FILTER (WHERE NOT u.ended)
            INTO ended, ended_bytes, left_units, left_sizes
            FROM (SELECT u.id, u.size, u.id = ANY(slice) AS ended
              FROM unnest(leased.units, leased.sizes) AS u (id, size)) u;
        END IF;
        IF has_results THEN
            own_written := written[coalesce(written_ends[at - 1], 0) + 1 : written_ends[at]];
            IF EXISTS (SELECT 1 FROM generate_series(first, last) AS i WHERE $3[i] IS NOT NULL
              AND ($1[i] = ANY(ended)) <> ($1[i] = ANY(own_written))) THEN
                RAISE EXCEPTION 'a lease changed while it was finished' USING ERRCODE = 'serialization_failure';
            END IF;
        END IF;
        IF cardinality(ended) > 0 THEN
            IF left_units IS NULL THEN
                DELETE FROM longshore_lease_group g WHERE g.session = holder AND g.fence = $2[first];
            ELSE
                UPDATE longshore_lease_group g SET units = left_units, sizes = left_sizes
                WHERE g.session = holder AND g.fence = $2[first];
            END IF;
            streams := streams || leased.stream;
            counts := counts || cardinality(ended)::bigint;
            sizes := sizes || ended_bytes;
            all_ended := all_ended || ended;
            all_fences := all_fences || array_fill($2[first], ARRAY[cardinality(ended)]);
            IF cardinality(own_written) > 0 THEN
                ended := ARRAY(SELECT e.id FROM unnest(ended) AS e (id) WHERE e.id <> ALL(own_written));
            END IF;
            IF cardinality(ended) > 0 THEN
                INSERT INTO longshore_done_group (stream, ended_at, fence, first_rank, last_rank, first_id, units)
                VALUES (leased.stream, $5, $2[first], leased.first_rank, leased.last_rank,
                  (SELECT e.id FROM unnest(ended) AS e (id) ORDER BY e.id LIMIT 1), ended);
            END IF;
        END IF;
        first := last + 1;
    END LOOP;
    IF cardinality(all_ended) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO longshore_stream_delta (stream, leased, done, bytes)
    SELECT e.stream, -sum(e.units), sum(e.units), -sum(e.bytes)
    FROM unnest(streams, counts, sizes) AS e (stream, units, bytes) GROUP BY e.stream;
    RETURN QUERY
    SELECT e.stream, sum(e.units)::bigint, NULL::uuid, NULL::bigint
    FROM unnest(streams, counts) AS e (stream, units) GROUP BY e.stream;
    IF cardinality(all_ended) < cardinality($1) THEN
        RETURN QUERY SELECT streams[1], 0::bigint, e.* FROM unnest(all_ended, all_fences) AS e;
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_handover_grace()
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$ SELECT 1000000::bigint $function$

CREATE OR REPLACE FUNCTION public.longshore_has_ready_units(streams bigint[])
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
BEGIN
    RETURN EXISTS (SELECT 1 FROM unnest($1) AS w (stream) CROSS JOIN LATERAL (
      SELECT 1 FROM longshore_ready u WHERE u.stream = w.stream LIMIT 1) u);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_is_bounded(lanes bigint[])
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
AS $function$
BEGIN
    RETURN EXISTS (SELECT 1 FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
      LEFT JOIN longshore_tenant t ON t.name = l.tenant
      WHERE l.num = ANY($1) AND (coalesce(t.suspended, false) OR num_nonnulls(l.max_units,
      l.max_bytes, q.max_units, q.max_bytes, t.max_units, t.max_bytes) > 0));
END $function$

CREATE OR REPLACE FUNCTION public.longshore_is_retired(streams bigint[])
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
AS $function$
BEGIN
    RETURN EXISTS (SELECT 1 FROM (SELECT DISTINCT n.num FROM unnest($1) AS n (num)) n
      LEFT JOIN longshore_stream s ON s.num = n.num WHERE s.num IS NULL OR s.retired_at IS NOT NULL);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_now_micros()
 RETURNS bigint
 LANGUAGE sql
AS $function$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $function$

CREATE OR REPLACE FUNCTION public.longshore_paused_streams()
 RETURNS bigint[]
 LANGUAGE plpgsql
 STABLE
AS $function$
BEGIN
    RETURN ARRAY(
        SELECT s.num FROM longshore_stream s JOIN longshore_lane l ON l.num = s.lane
        WHERE l.paused OR l.queue IN (SELECT num FROM longshore_queue WHERE paused)
        OR l.tenant IN (SELECT name FROM longshore_tenant WHERE suspended)
        UNION ALL
        SELECT s.num FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
        WHERE b.status <> 'complete' AND b.status NOT IN ('queued', 'running'));
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_acquire(pool text, permit uuid, max_weight bigint, weight bigint, priority smallint, owner text, lease bigint, wait_ttl bigint, rank_offset bigint)
 RETURNS TABLE(id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now bigint := longshore_now_micros();
BEGIN
    UPDATE longshore_pool_state s SET in_use = s.in_use + $4, fence = greatest(s.fence + 1, now),
      acquired = s.acquired + 1, next_expiry = least(s.next_expiry, now + $7),
      wait_histogram[1] = s.wait_histogram[1] + 1
    WHERE s.name = $1 AND s.waiting = 0 AND s.in_use + $4 <= s.max_weight AND s.next_expiry > now
      AND s.data_lost_at + s.max_lease <= now AND $7 <= s.max_lease
      AND greatest(s.fence + 1, now) <= s.fence_limit
    RETURNING s.fence INTO fence;
    IF FOUND THEN
        INSERT INTO longshore_permit
          (pool, id, owner, weight, priority, lease, arrived_at, expires_at, fence, acquired_at)
        VALUES ($1, $2, $6, $4, $5, $7, now, now + $7, fence, now) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            id := $2; outcome := 0; waited := 0;
            RETURN NEXT;
            RETURN;
        END IF;
        -- A repeated request: undo.
        UPDATE longshore_pool_state s SET in_use = s.in_use - $4, acquired = s.acquired - 1,
          wait_histogram[1] = s.wait_histogram[1] - 1 WHERE s.name = $1;
    END IF;
    RETURN QUERY SELECT * FROM longshore_permit_batch(
      $1, '{}', '{}', '{}', ARRAY[$2], $3, ARRAY[$4], ARRAY[$5], ARRAY[$6], ARRAY[$7], ARRAY[$8], ARRAY[$9],
      $7, $4, $8);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_batch(pool text, released uuid[], timed_out uuid[], listening uuid[], ids uuid[], max_weight bigint, weights bigint[], priorities smallint[], owners text[], leases bigint[], wait_ttls bigint[], rank_offsets bigint[], longest_lease bigint, total_weight bigint, shortest_wait bigint)
 RETURNS TABLE(id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    unanswered bigint := cardinality($5);
    fences_needed bigint := unanswered + cardinality($4);
    state longshore_pool_state;
    now bigint;
    free bigint;
    is_quarantined boolean;
    is_blocked boolean := false;
    is_request boolean;
    bucket integer;
    next record;
    granted uuid[] := '{}';
    fences bigint[] := '{}';
    graces bigint[] := '{}';
    woken uuid[] := '{}';
    known uuid[];
BEGIN
    SELECT * INTO state FROM longshore_pool_state s WHERE s.name = $1 FOR UPDATE;
    now := longshore_now_micros();
    IF state.name IS NULL OR now >= state.next_expiry OR $13 + longshore_handover_grace() > state.max_lease
      OR greatest(state.fence, now) + fences_needed > state.fence_limit
    THEN
        state := longshore_permit_begin($1, CASE WHEN unanswered > 0 THEN $6 END, $13 + longshore_handover_grace(),
          fences_needed);
        IF state.name IS NULL THEN
            RETURN;
        END IF;
        now := longshore_now_micros();
    END IF;
    is_quarantined := now < state.data_lost_at + state.max_lease;

    IF cardinality($2) > 0 OR cardinality($3) > 0 THEN
        WITH gone AS (
          DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.id = ANY($2 || $3)
          RETURNING g.id, g.weight, g.fence)
        SELECT state.in_use - coalesce(sum(g.weight) FILTER (WHERE g.fence IS NOT NULL), 0),
          state.waiting - count(*) FILTER (WHERE g.fence IS NULL),
          state.timeouts + count(*) FILTER (WHERE g.id = ANY($3))
        INTO state.in_use, state.waiting, state.timeouts FROM gone g;
    END IF;

    -- All requests at once, if there is room and no waiter. Repeated requests conflict.
    IF unanswered > 0 AND state.waiting = 0 AND state.in_use + $14 <= state.max_weight AND NOT is_quarantined THEN
        FOR next IN INSERT INTO longshore_permit
          (pool, id, owner, weight, priority, lease, arrived_at, expires_at, fence, acquired_at)
          SELECT $1, a.id, a.owner, a.weight, a.priority, a.lease, now, now + a.lease,
            greatest(state.fence, now - 1) + a.n, now
          FROM unnest($5, $7, $8, $9, $10) WITH ORDINALITY a(id, weight, priority, owner, lease, n)
          ON CONFLICT DO NOTHING RETURNING id, weight, fence, expires_at
        LOOP
            granted := granted || next.id;
            state.in_use := state.in_use + next.weight;
            state.fence := greatest(state.fence, next.fence);
            state.next_expiry := least(state.next_expiry, next.expires_at);
            id := next.id; outcome := 0; fence := next.fence; waited := 0;
            RETURN NEXT;
        END LOOP;
        unanswered := unanswered - cardinality(granted);
        state.acquired := state.acquired + cardinality(granted);
        state.wait_histogram[1] := state.wait_histogram[1] + cardinality(granted);
    END IF;

    -- The others join the queue. A repeated request keeps its place, or renews the lease that it holds.
    IF unanswered > 0 THEN
        state.last_arrival := greatest(now, state.last_arrival);
        state.next_expiry := least(state.next_expiry, now + $15);
        known := ARRAY(SELECT g.id FROM longshore_permit g WHERE g.pool = $1 AND g.id = ANY($5));
        IF cardinality(known) > cardinality(granted) THEN
            FOR next IN UPDATE longshore_permit g SET lease = a.lease, notified = false,
              expires_at = now + CASE WHEN g.fence IS NULL THEN coalesce(a.wait_ttl, 0) ELSE a.lease END
              FROM unnest($5, $10, $11) a(id, lease, wait_ttl)
              WHERE g.pool = $1 AND g.id = a.id AND a.id <> ALL(granted)
              RETURNING g.id, g.expires_at, g.fence, g.acquired_at - g.arrived_at AS waited
            LOOP
                IF next.fence IS NOT NULL THEN
                    state.next_expiry := least(state.next_expiry, next.expires_at);
                    unanswered := unanswered - 1;
                    id := next.id; outcome := 0; fence := next.fence; waited := next.waited;
                    RETURN NEXT;
                END IF;
            END LOOP;
        END IF;
        INSERT INTO longshore_permit (pool, id, owner, weight, priority, lease, arrived_at, expires_at, rank)
        SELECT $1, a.id, a.owner, a.weight, a.priority, a.lease, state.last_arrival + a.n,
          now + coalesce(a.wait_ttl, 0), state.last_arrival + a.n + a.rank_offset
        FROM unnest($5, $7, $8, $9, $10, $11, $12) WITH ORDINALITY
          a(id, weight, priority, owner, lease, wait_ttl, rank_offset, n)
        WHERE a.id <> ALL(known);
        state.waiting := state.waiting + cardinality($5) - cardinality(known);
        state.last_arrival := state.last_arrival + cardinality($5);
        IF state.max_weight < ANY($7) THEN
            FOR next IN DELETE FROM longshore_permit g
              WHERE g.pool = $1 AND g.id = ANY($5) AND g.rank IS NOT NULL AND g.weight > state.max_weight
              RETURNING g.id
            LOOP
                state.waiting := state.waiting - 1;
                unanswered := unanswered - 1;
                id := next.id; outcome := 3; fence := state.max_weight; waited := 0;
                RETURN NEXT;
            END LOOP;
        END IF;
        granted := '{}';
    END IF;

    free := CASE WHEN is_quarantined THEN 0 ELSE state.max_weight - state.in_use END;
    IF state.waiting > 0 AND free > 0 THEN
        -- Mostly the first waiters weigh 1 and are of this process: one statement grants them permits.
        FOR next IN
          WITH first AS MATERIALIZED (
            SELECT g.ctid AS tid, g.weight = 1 AND (g.id = ANY($4) OR g.id = ANY($5)) AS is_simple,
              row_number() OVER (ORDER BY g.rank, g.arrived_at) AS n
            FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL ORDER BY g.rank, g.arrived_at LIMIT free)
          UPDATE longshore_permit g SET fence = greatest(state.fence, now - 1) + f.n, acquired_at = now,
            arrived_at = least(g.arrived_at, now), rank = NULL, notified = false,
            expires_at = now + g.lease + CASE WHEN g.id = ANY($5) THEN 0 ELSE longshore_handover_grace() END
          FROM first f WHERE g.ctid = f.tid AND (SELECT bool_and(f.is_simple) FROM first f)
          RETURNING g.id, g.fence, g.expires_at, now - g.arrived_at AS waited
        LOOP
            id := next.id; outcome := 0; fence := next.fence; waited := next.waited;
            RETURN NEXT;
            state.fence := greatest(state.fence, fence);
            state.next_expiry := least(state.next_expiry, next.expires_at);
            bucket := longshore_wait_bucket(waited);
            state.wait_histogram[bucket] := state.wait_histogram[bucket] + 1;
            state.in_use := state.in_use + 1;
            state.waiting := state.waiting - 1;
            state.acquired := state.acquired + 1;
            unanswered := unanswered - (id = ANY($5))::int;
        END LOOP;
        IF FOUND THEN
            free := 0;
        END IF;
    END IF;
    IF state.waiting > 0 AND free > 0 THEN
        FOR next IN SELECT g.id, g.weight, g.notified, g.arrived_at, g.lease FROM longshore_permit g
            WHERE g.pool = $1 AND g.rank IS NOT NULL ORDER BY g.rank, g.arrived_at
        LOOP
            is_request := next.id = ANY($5);
            IF next.weight <= free AND NOT is_blocked AND (is_request OR next.id = ANY($4)) THEN
                free := free - next.weight;
                id := next.id; outcome := 0; fence := greatest(state.fence + 1, now);
                waited := greatest(now - next.arrived_at, 0);
                state.fence := fence;
                state.in_use := state.in_use + next.weight;
                state.next_expiry := least(state.next_expiry, now + next.lease);
                bucket := longshore_wait_bucket(waited);
                state.wait_histogram[bucket] := state.wait_histogram[bucket] + 1;
                granted := granted || id;
                fences := fences || fence;
                graces := graces || CASE WHEN is_request THEN 0 ELSE longshore_handover_grace() END;
                unanswered := unanswered - is_request::int;
                RETURN NEXT;
            ELSIF NOT is_request OR $11[array_position($5, next.id)] IS NOT NULL THEN
                free := free - next.weight;
                EXIT WHEN free < 0;
                is_blocked := true;
                IF NOT next.notified THEN
                    woken := woken || next.id;
                    id := next.id; outcome := 4; fence := 0; waited := 0;
                    RETURN NEXT;
                END IF;
            END IF;
            EXIT WHEN free = 0;
        END LOOP;
        IF cardinality(granted) > 0 THEN
            UPDATE longshore_permit g SET fence = a.fence, acquired_at = now, arrived_at = least(g.arrived_at, now),
              expires_at = now + g.lease + a.grace, rank = NULL, notified = false
            FROM unnest(granted, fences, graces) a(id, fence, grace) WHERE g.pool = $1 AND g.id = a.id;
            state.waiting := state.waiting - cardinality(granted);
            state.acquired := state.acquired + cardinality(granted);
        END IF;
        IF cardinality(woken) > 0 THEN
            UPDATE longshore_permit g SET notified = true WHERE g.pool = $1 AND g.id = ANY(woken);
        END IF;
    END IF;

    IF unanswered > 0 AND array_position($11, NULL) IS NOT NULL THEN
        FOR next IN DELETE FROM longshore_permit g USING unnest($5, $11) a(id, wait_ttl)
          WHERE g.pool = $1 AND g.id = a.id AND a.wait_ttl IS NULL AND g.rank IS NOT NULL RETURNING g.id
        LOOP
            state.waiting := state.waiting - 1;
            unanswered := unanswered - 1;
            id := next.id; outcome := 2; fence := 0; waited := 0;
            RETURN NEXT;
        END LOOP;
    END IF;
    -- The first waiter retries when a lease can expire or the quarantine ends, the others when a waiter ahead of them
    -- can expire. All are woken earlier if there is room for them.
    IF unanswered > 0 THEN
        RETURN QUERY SELECT q.id, 1, 0::bigint, 0::bigint, q.ahead,
          greatest(coalesce(q.expiry_ahead, CASE WHEN is_quarantined
            THEN least(state.next_expiry, state.data_lost_at + state.max_lease) ELSE state.next_expiry END) - now, 1)
        FROM (SELECT g.id, count(*) OVER ahead AS ahead, min(g.expires_at) OVER ahead AS expiry_ahead
          FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL
          WINDOW ahead AS (ORDER BY g.rank, g.arrived_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) q
        WHERE q.id = ANY($5);
    END IF;
    UPDATE longshore_pool_state s SET max_lease = state.max_lease, fence_limit = state.fence_limit,
      fence = state.fence, in_use = state.in_use, waiting = state.waiting, last_arrival = state.last_arrival,
      next_expiry = state.next_expiry, acquired = state.acquired, timeouts = state.timeouts, expired = state.expired,
      wait_histogram = state.wait_histogram
    WHERE s.name = $1;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_begin(name text, max_weight bigint, lease bigint, fences bigint)
 RETURNS longshore_pool_state
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    state longshore_pool_state := longshore_permit_lock_pool($1, $2);
    now bigint := longshore_now_micros();
BEGIN
    IF state.name IS NULL THEN
        RETURN NULL;
    END IF;
    IF now >= state.next_expiry THEN
        WITH ended AS (
          DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.expires_at <= now
          RETURNING g.weight, g.fence)
        SELECT state.in_use - coalesce(sum(g.weight) FILTER (WHERE g.fence IS NOT NULL), 0),
          state.waiting - count(*) FILTER (WHERE g.fence IS NULL), state.expired + count(g.fence)
        INTO state.in_use, state.waiting, state.expired FROM ended g;
        SELECT coalesce(min(g.expires_at), 9223372036854775807) INTO state.next_expiry
        FROM longshore_permit g WHERE g.pool = $1;
    END IF;
    IF $3 > state.max_lease OR greatest(state.fence, now) + $4 > state.fence_limit THEN
        PERFORM longshore_commit_durably();
        -- Fences for an hour, so that this is rare.
        UPDATE longshore_bounded_pool p SET max_lease = greatest(p.max_lease, $3),
          fence_limit = greatest(state.fence, now) + $4 + 3600000000
        WHERE p.name = $1 RETURNING p.max_lease, p.fence_limit INTO state.max_lease, state.fence_limit;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the bounded pool % has a row in longshore_pool_state but none in longshore_bounded_pool', $1
              USING HINT = 'Delete its row of longshore_pool_state: the next request creates the pool again.';
        END IF;
    END IF;
    RETURN state;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_create(pool text, max_weight bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM longshore_commit_durably();
    INSERT INTO longshore_bounded_pool (name, max_weight) VALUES ($1, $2) ON CONFLICT DO NOTHING;
    RETURN CASE WHEN NOT FOUND THEN (SELECT p.max_weight FROM longshore_bounded_pool p WHERE p.name = $1) END;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_extend(pool text, ids uuid[], lease bigint)
 RETURNS TABLE(id uuid, outcome integer)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    state longshore_pool_state := longshore_permit_begin($1, NULL, $3, 0);
    now bigint := longshore_now_micros();
    held uuid[] := '{}';
BEGIN
    IF state.name IS NOT NULL THEN
        WITH held AS (
          UPDATE longshore_permit g SET expires_at = now + $3, lease = $3
          WHERE g.pool = $1 AND g.id = ANY($2) AND g.fence IS NOT NULL RETURNING g.id)
        SELECT coalesce(array_agg(h.id), '{}') INTO held FROM held h;
        state.next_expiry := least(state.next_expiry, now + $3);
        PERFORM longshore_permit_save(state);
        RETURN QUERY SELECT w.id, w.outcome FROM longshore_permit_wake($1) w;
    END IF;
    RETURN QUERY SELECT i, 5 FROM unnest($2) i WHERE i <> ALL(held);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_lock_pool(name text, max_weight bigint)
 RETURNS longshore_pool_state
 LANGUAGE plpgsql
 SET enable_seqscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    state longshore_pool_state;
BEGIN
    SELECT * INTO state FROM longshore_pool_state s WHERE s.name = $1 FOR UPDATE;
    IF NOT FOUND THEN
        IF $2 IS NOT NULL THEN
            PERFORM longshore_commit_durably();
            INSERT INTO longshore_bounded_pool (name, max_weight) VALUES ($1, $2) ON CONFLICT DO NOTHING;
        END IF;
        INSERT INTO longshore_permit_epoch (began_at) VALUES (longshore_now_micros()) ON CONFLICT DO NOTHING;
        INSERT INTO longshore_pool_state (name, max_weight, max_lease, fence_limit, data_lost_at, fence)
        SELECT p.name, p.max_weight, p.max_lease, p.fence_limit, e.began_at, p.fence_limit
        FROM longshore_bounded_pool p CROSS JOIN longshore_permit_epoch e WHERE p.name = $1
        ON CONFLICT DO NOTHING;
        SELECT * INTO state FROM longshore_pool_state s WHERE s.name = $1 FOR UPDATE;
    END IF;
    RETURN state;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_release(pool text, ids uuid[])
 RETURNS TABLE(id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    waiters bigint;
    freed bigint;
BEGIN
    SELECT s.waiting INTO waiters FROM longshore_pool_state s WHERE s.name = $1 FOR UPDATE;
    IF waiters = 0 THEN
        WITH gone AS (
          DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.id = ANY($2) RETURNING g.weight)
        SELECT sum(g.weight) INTO freed FROM gone g;
        IF freed > 0 THEN
            UPDATE longshore_pool_state s SET in_use = s.in_use - freed WHERE s.name = $1;
        END IF;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM longshore_permit_batch(
      $1, $2, '{}', '{}', '{}', NULL, '{}', '{}', '{}', '{}', '{}', '{}', 0, 0, NULL);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_reset(pool text)
 RETURNS TABLE(id uuid, outcome integer)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    state longshore_pool_state := longshore_permit_lock_pool($1, NULL);
BEGIN
    RETURN QUERY WITH removed AS (DELETE FROM longshore_permit g WHERE g.pool = $1 RETURNING g.id, g.rank)
      SELECT r.id, 4 FROM removed r WHERE r.rank IS NOT NULL;
    UPDATE longshore_bounded_pool p SET max_lease = 0 WHERE p.name = $1;
    UPDATE longshore_pool_state s SET max_lease = 0, data_lost_at = 0, in_use = 0, waiting = 0, acquired = 0,
      timeouts = 0, expired = 0, wait_histogram = array_fill(0, ARRAY[22]) WHERE s.name = $1;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_resize(pool text, max_weight bigint)
 RETURNS TABLE(id uuid, outcome integer)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    state longshore_pool_state := longshore_permit_begin($1, $2, 0, 0);
    heavy uuid[];
BEGIN
    PERFORM longshore_commit_durably();
    UPDATE longshore_bounded_pool p SET max_weight = $2 WHERE p.name = $1;
    WITH heavy AS (
      DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL AND g.weight > $2
      RETURNING g.id)
    SELECT coalesce(array_agg(h.id), '{}') INTO heavy FROM heavy h;
    state.max_weight := $2;
    state.waiting := state.waiting - cardinality(heavy);
    PERFORM longshore_permit_save(state);
    RETURN QUERY SELECT h, 4 FROM unnest(heavy) h;
    RETURN QUERY SELECT w.id, w.outcome FROM longshore_permit_wake($1) w;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_save(state longshore_pool_state)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    UPDATE longshore_pool_state s SET max_weight = $1.max_weight, max_lease = $1.max_lease,
      fence_limit = $1.fence_limit, data_lost_at = $1.data_lost_at, fence = $1.fence, in_use = $1.in_use,
      waiting = $1.waiting, last_arrival = $1.last_arrival, next_expiry = $1.next_expiry, acquired = $1.acquired,
      timeouts = $1.timeouts, expired = $1.expired, wait_histogram = $1.wait_histogram
    WHERE s.name = $1.name;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_wake(pool text)
 RETURNS TABLE(id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
 LANGUAGE sql
AS $function$
    SELECT * FROM longshore_permit_batch($1, '{}', '{}', '{}', '{}', NULL, '{}', '{}', '{}', '{}', '{}', '{}', 0, 0, NULL)
$function$

CREATE OR REPLACE FUNCTION public.longshore_prune_done_groups(ended_before bigint, max_units bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    tids tid[];
    picked uuid[];
    locked uuid[];
    removed uuid[];
    pruned bigint;
BEGIN
    SELECT array_agg(o.tid) INTO tids FROM (
      SELECT o.tid, sum(o.units) OVER (ROWS UNBOUNDED PRECEDING) - o.units AS before FROM (
        SELECT o.tid, cardinality(o.units) AS units FROM longshore_stream s CROSS JOIN LATERAL (
          SELECT g.ctid AS tid, g.units FROM longshore_done_group g WHERE g.stream = s.num AND g.ended_at <= $1
          ORDER BY g.ended_at LIMIT $2 FOR UPDATE SKIP LOCKED) o
        WHERE s.done > s.pruned_done LIMIT $2) o) o
    WHERE o.before < $2;
    picked := ARRAY(SELECT u.id FROM longshore_done_group g CROSS JOIN LATERAL unnest(g.units) AS u (id)
      WHERE g.ctid = ANY(tids) LIMIT $2);
    locked := ARRAY(SELECT u.id FROM longshore_unit u WHERE u.id = ANY(picked) FOR UPDATE SKIP LOCKED);
    -- Without a row a unit is gone already.
    removed := locked || ARRAY(SELECT p.id FROM unnest(picked) AS p (id)
      WHERE NOT EXISTS (SELECT 1 FROM longshore_unit u WHERE u.id = p.id));
    WITH rest AS MATERIALIZED (
      SELECT g.ctid AS tid, array_agg(u.id) FILTER (WHERE r.id IS NULL) AS units
      FROM longshore_done_group g CROSS JOIN LATERAL unnest(g.units) AS u (id)
      LEFT JOIN unnest(removed) AS r (id) ON r.id = u.id
      WHERE g.ctid = ANY(tids) GROUP BY g.ctid HAVING count(r.id) > 0),
    gone AS (
      DELETE FROM longshore_done_group g USING rest r WHERE g.ctid = r.tid AND r.units IS NULL)
    UPDATE longshore_done_group g SET units = r.units
    FROM rest r WHERE g.ctid = r.tid AND r.units IS NOT NULL;
    WITH gone AS (
      DELETE FROM longshore_unit u WHERE u.id = ANY(locked) RETURNING u.stream, u.bytes),
    counted AS (
      UPDATE longshore_stream s SET pruned_done = s.pruned_done + g.units, stored_bytes = s.stored_bytes - g.bytes
      FROM (SELECT g.stream, count(*) AS units, sum(g.bytes + 256)::bigint AS bytes FROM gone g GROUP BY g.stream) g
      WHERE s.num = g.stream)
    SELECT count(*) INTO pruned FROM gone;
    RETURN pruned;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_record_calls(ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[], units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[], statuses smallint[], codes text[], answering_models text[], input_tokens bigint[], output_tokens bigint[], cached bigint[], cache_writes bigint[], latencies bigint[], attempt_counts bigint[], costs bigint[], estimates boolean[], modes smallint[], tiers text[], long_cache_writes bigint[], now bigint, this_month text, single_statement boolean)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    handled bigint;
    ended_sessions uuid[];
BEGIN
    IF single_statement THEN
        PERFORM set_config('lock_timeout', '10s', true);
        IF 0 = ANY($13) THEN
            PERFORM 1 FROM longshore_session s WHERE s.id = ANY($9) ORDER BY s.num FOR KEY SHARE;
        END IF;
    END IF;
    -- Locked first, in the order of their ids, so that the next statement sees their newest versions.
    PERFORM 1 FROM longshore_call c WHERE c.id = ANY($1) ORDER BY c.id FOR UPDATE;
    WITH input AS MATERIALIZED (
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
        $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
      AS g (id, tenant, request, profile, provider, model, unit, batch, session, worker, tokens,
        picos, status, code, answering_model, tokens_in, tokens_out, cached, cache_write, latency,
        attempts, cost, estimated, mode, tier, cache_write_long)),
    existing AS MATERIALIZED (
      SELECT c.id, c.tenant, c.month, c.status, c.reserve_tokens, c.reserve_picos
      FROM longshore_call c WHERE c.id = ANY($1)),
    updated AS (
      UPDATE longshore_call c SET profile = g.profile, provider = g.provider, model = g.model,
        worker = g.worker, reserve_tokens = g.tokens, reserve_picos = g.picos, status = g.status,
        code = g.code, answering_model = g.answering_model, tokens_in = g.tokens_in,
        tokens_out = g.tokens_out, tokens_cached = g.cached, tokens_cache_write = g.cache_write,
        latency_ms = g.latency, attempts = g.attempts, cost_picos = g.cost, estimated = g.estimated,
        mode = g.mode, tier = g.tier, tokens_cache_write_long = g.cache_write_long,
        logged_at = CASE WHEN g.status <> 0 THEN $27 END
      FROM input g WHERE c.id = g.id AND c.status = 0
      RETURNING c.tenant, c.month, c.status, c.reserve_tokens, c.reserve_picos, c.tokens_in,
        c.tokens_out, c.cost_picos),
    inserted AS (
      INSERT INTO longshore_call (id, tenant, request_id, profile, provider, model, unit, batch,
        session, worker, reserve_tokens, reserve_picos, status, code, answering_model, tokens_in,
        tokens_out, tokens_cached, tokens_cache_write, latency_ms, attempts, cost_picos, estimated,
        mode, tier, tokens_cache_write_long, opened_at, month, logged_at)
      SELECT g.*, $27, $28, CASE WHEN g.status <> 0 THEN $27 END FROM input g
      WHERE NOT EXISTS (SELECT 1 FROM existing e WHERE e.id = g.id)
      ON CONFLICT (id) DO NOTHING
      RETURNING tenant, month, status, reserve_tokens, reserve_picos, tokens_in, tokens_out,
        cost_picos),
    delta (tenant, month, spent_tokens, spent_picos, reserved_tokens, reserved_picos) AS (
      SELECT e.tenant, e.month, 0::numeric, 0::numeric, -e.reserve_tokens::numeric,
        -e.reserve_picos::numeric FROM existing e WHERE e.status = 0
      UNION ALL
      SELECT n.tenant, n.month, coalesce(n.tokens_in::numeric + n.tokens_out, 0),
        coalesce(n.cost_picos, 0)::numeric,
        CASE WHEN n.status = 0 THEN n.reserve_tokens ELSE 0 END::numeric,
        CASE WHEN n.status = 0 THEN n.reserve_picos ELSE 0 END::numeric
      FROM (SELECT * FROM updated UNION ALL SELECT * FROM inserted) n),
    charged AS (
      INSERT INTO longshore_monthly_spend_delta
      SELECT d.tenant, d.month, sum(d.spent_tokens), sum(d.spent_picos), sum(d.reserved_tokens),
        sum(d.reserved_picos) FROM delta d GROUP BY d.tenant, d.month)
    SELECT (SELECT count(*) FROM existing) + (SELECT count(*) FROM inserted) INTO handled;
    IF handled < cardinality($1) THEN
        RAISE EXCEPTION 'another transaction journalled a call at the same time' USING ERRCODE = '40001';
    END IF;
    IF 0 = ANY($13) THEN
        SELECT array_agg(g.session) INTO ended_sessions FROM unnest($9, $13) AS g (session, status)
        WHERE g.status = 0 AND g.session IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM longshore_session s WHERE s.id = g.session);
        IF ended_sessions IS NOT NULL THEN
            PERFORM longshore_end_abandoned_calls(ended_sessions, $27);
        END IF;
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_retract_calls(ids uuid[])
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
BEGIN
    WITH deleted AS (
      DELETE FROM longshore_call WHERE id = ANY($1)
      RETURNING tenant, month, reserve_tokens, reserve_picos)
    INSERT INTO longshore_monthly_spend_delta
    SELECT d.tenant, d.month, 0, 0, -sum(d.reserve_tokens), -sum(d.reserve_picos)
    FROM deleted d GROUP BY d.tenant, d.month;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_settle_done_group(stream bigint, first_rank bigint, first_id uuid, ids uuid[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    ended record;
    settled uuid[];
    left_units uuid[];
BEGIN
    SELECT g.ended_at, g.fence, g.units INTO ended FROM longshore_done_group g
    WHERE g.stream = $1 AND g.first_rank = $2 AND g.first_id = $3 FOR UPDATE;
    SELECT coalesce(array_agg(u.id) FILTER (WHERE u.id = ANY($4)), '{}'),
      array_agg(u.id) FILTER (WHERE u.id <> ALL($4)) INTO settled, left_units FROM unnest(ended.units) AS u (id);
    UPDATE longshore_unit u SET state = 4, sort_key = ended.ended_at, fence = ended.fence, attempt = 1
    WHERE u.id = ANY(settled);
    IF left_units IS NULL THEN
        DELETE FROM longshore_done_group g WHERE g.stream = $1 AND g.first_rank = $2 AND g.first_id = $3;
    ELSIF cardinality(settled) > 0 THEN
        UPDATE longshore_done_group g SET units = left_units
        WHERE g.stream = $1 AND g.first_rank = $2 AND g.first_id = $3;
    END IF;
    RETURN settled;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_settle_lease_group(session_num bigint, group_fence bigint, ids uuid[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    leased record;
    settled uuid[];
    left_units uuid[];
    left_sizes integer[];
BEGIN
    SELECT g.claimed_at, g.started, g.units, g.sizes INTO leased FROM longshore_lease_group g
    WHERE g.session = $1 AND g.fence = $2 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(u.id) FILTER (WHERE u.settled), array_agg(u.id) FILTER (WHERE NOT u.settled),
      array_agg(u.size) FILTER (WHERE NOT u.settled)
    INTO settled, left_units, left_sizes
    FROM (SELECT u.id, u.size, $3 IS NULL OR u.id = ANY($3) AS settled
      FROM unnest(leased.units, leased.sizes) AS u (id, size)) u;
    IF settled IS NULL THEN
        RETURN '{}';
    END IF;
    UPDATE longshore_unit u SET state = 3, sort_key = leased.claimed_at, session = $1, fence = $2,
      attempt = leased.started::int, started_at = CASE WHEN leased.started THEN leased.claimed_at END
    WHERE u.id = ANY(settled);
    IF left_units IS NULL THEN
        DELETE FROM longshore_lease_group g WHERE g.session = $1 AND g.fence = $2;
    ELSE
        UPDATE longshore_lease_group g SET units = left_units, sizes = left_sizes
        WHERE g.session = $1 AND g.fence = $2;
    END IF;
    RETURN settled;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_settle_leases(session uuid, ids uuid[], fences bigint[], single_statement boolean)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    holder bigint;
    bulk uuid[];
    streams bigint[];
BEGIN
    IF single_statement THEN
        PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '10s', true);
    END IF;
    SELECT s.num INTO holder FROM longshore_session s WHERE s.id = $1;
    SELECT array_agg(f.id), array_agg(DISTINCT g.stream) INTO bulk, streams
    FROM unnest($2, $3) AS f (id, fence) JOIN longshore_lease_group g
    ON g.session = holder AND g.fence = f.fence AND f.id = ANY(g.units);
    IF bulk IS NOT NULL THEN
        PERFORM 1 FROM longshore_unit u WHERE u.id = ANY(bulk) ORDER BY u.id FOR UPDATE;
        PERFORM longshore_settle_units(bulk, holder, $3);
    END IF;
    RETURN streams;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_settle_session(session_num bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    found record;
BEGIN
    PERFORM 1 FROM longshore_unit u WHERE u.id = ANY(ARRAY(
      SELECT unnest(g.units) FROM longshore_lease_group g WHERE g.session = $1)) ORDER BY u.id FOR UPDATE;
    FOR found IN SELECT g.fence FROM longshore_lease_group g WHERE g.session = $1 ORDER BY g.fence LOOP
        PERFORM longshore_settle_lease_group($1, found.fence, NULL);
    END LOOP;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_settle_units(ids uuid[], session_num bigint, fences bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    bulk uuid[] := ARRAY(SELECT u.id FROM longshore_unit u WHERE u.id = ANY($1) AND u.state = 9 ORDER BY u.id);
    settled uuid[];
    found record;
BEGIN
    IF cardinality(bulk) = 0 THEN
        RETURN;
    END IF;
    WITH ready AS (
      UPDATE longshore_ready r SET claim = 1 FROM longshore_unit u
      WHERE u.id = ANY(bulk) AND r.stream = u.stream AND r.sort_key = u.sort_key AND r.id = u.id RETURNING r.id),
    written AS (
      UPDATE longshore_unit u SET state = 2 WHERE u.id = ANY(ARRAY(SELECT r.id FROM ready r)) RETURNING u.id)
    SELECT array_agg(w.id) INTO settled FROM written w;
    IF settled IS NOT NULL THEN
        bulk := ARRAY(SELECT unnest(bulk) EXCEPT SELECT unnest(settled));
    END IF;
    FOR found IN SELECT DISTINCT f.fence FROM unnest($3) AS f (fence) WHERE $2 IS NOT NULL ORDER BY 1 LOOP
        EXIT WHEN cardinality(bulk) = 0;
        settled := longshore_settle_lease_group($2, found.fence, bulk);
        bulk := ARRAY(SELECT unnest(bulk) EXCEPT SELECT unnest(settled));
    END LOOP;
    IF cardinality(bulk) > 0 THEN
        FOR found IN SELECT DISTINCT g.session, g.fence FROM longshore_lease_group g
          CROSS JOIN LATERAL unnest(g.units) AS u (id) JOIN unnest(bulk) AS b (id) ON b.id = u.id ORDER BY 1, 2
        LOOP
            settled := longshore_settle_lease_group(found.session, found.fence, bulk);
            bulk := ARRAY(SELECT unnest(bulk) EXCEPT SELECT unnest(settled));
        END LOOP;
    END IF;
    -- All done groups are found before the first one is locked, so that every transaction locks them in one order.
    FOR found IN SELECT DISTINCT g.stream, g.first_rank, g.first_id FROM longshore_unit u
      CROSS JOIN LATERAL longshore_done_group_of(u.id, u.stream, u.sort_key) g WHERE u.id = ANY(bulk) ORDER BY g.first_id
    LOOP
        settled := longshore_settle_done_group(found.stream, found.first_rank, found.first_id, bulk);
        bulk := ARRAY(SELECT unnest(bulk) EXCEPT SELECT unnest(settled));
    END LOOP;
    IF cardinality(bulk) > 0 THEN
        RAISE EXCEPTION 'bulk unit % is not ready, not leased and not done', bulk[1];
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_start_units(session uuid, ids uuid[], fences bigint[], now bigint, cancel_flag bigint)
 RETURNS TABLE(all_started boolean, id uuid, fence bigint, started_at bigint)
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
 SET join_collapse_limit TO '1'
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '10s', true);
    RETURN QUERY
    WITH holder AS MATERIALIZED (
      SELECT s.num FROM longshore_session s WHERE s.id = $1 FOR KEY SHARE),
    asked AS MATERIALIZED (SELECT f.id, f.fence FROM unnest($2, $3) AS f (id, fence)),
    -- One search in the index for each group: with one unit in each, a join of all groups and units would be quadratic.
    bulk AS MATERIALIZED (
      SELECT u.id, g.fence, g.stream, CASE WHEN g.started THEN g.claimed_at END AS started_at
      FROM (SELECT a.fence, array_agg(a.id) AS ids FROM asked a GROUP BY a.fence) a
      JOIN longshore_lease_group g ON g.session = (SELECT h.num FROM holder h) AND g.fence = a.fence
      CROSS JOIN LATERAL unnest(a.ids) AS u (id) WHERE u.id = ANY(g.units)),
    by_row AS MATERIALIZED (
      SELECT u.id, u.fence, u.stream, u.started_at FROM asked a
      JOIN longshore_unit u ON u.id = a.id AND u.fence = a.fence
      WHERE (SELECT count(*) FROM bulk) < cardinality($2)
      AND coalesce(u.session, 0) = (SELECT h.num FROM holder h)
      AND (u.started_at IS NOT NULL
        OR (u.flags & $5 = 0 AND (u.deadline IS NULL OR u.deadline > $4)))),
    started AS MATERIALIZED (
      SELECT u.id, u.fence, u.started_at FROM (SELECT * FROM bulk UNION ALL SELECT * FROM by_row) u
      WHERE u.started_at IS NOT NULL OR u.stream <> ALL ((SELECT longshore_paused_streams())::bigint[])),
    logged AS (
      INSERT INTO longshore_start_log (session, started_at, units, fences)
      SELECT h.num, $4, array_agg(s.id), array_agg(s.fence) FROM holder h
      JOIN started s ON s.started_at IS NULL GROUP BY h.num)
    SELECT a.all_started, s.id, s.fence, s.started_at FROM holder h
    CROSS JOIN (SELECT count(*) = cardinality($2) AS all_started FROM started s
      WHERE s.started_at IS NULL) a
    LEFT JOIN started s ON NOT a.all_started;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_wait_bucket(waited bigint)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT 1 + width_bucket($1 / 1000, '{1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,
      262144,524288,1048576}'::bigint[])
$function$

CREATE OR REPLACE FUNCTION public.longshore_write_buckets(names text[], levels double precision[], times bigint[], existing text[])
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET random_page_cost TO '0.01'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    written bigint;
BEGIN
    UPDATE longshore_token_bucket b SET level = g.level, updated_at = g.updated_at
    FROM unnest($1, $2, $3) AS g (name, level, updated_at) WHERE b.name = g.name AND g.name = ANY($4);
    INSERT INTO longshore_token_bucket (name, level, updated_at)
    SELECT g.name, g.level, g.updated_at FROM unnest($1, $2, $3) AS g (name, level, updated_at)
    WHERE g.name <> ALL($4) ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality($1) - cardinality($4) THEN
        RAISE EXCEPTION 'another transaction inserted a bucket' USING ERRCODE = '40001';
    END IF;
END $function$

