CREATE TABLE longshore_alert (
    pool text NOT NULL,
    alert text NOT NULL,
    until bigint NOT NULL,
    CONSTRAINT longshore_alert_pkey PRIMARY KEY (pool, alert)
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
    CONSTRAINT longshore_batch_check CHECK ((announced <= generation)),
    CONSTRAINT longshore_batch_name_key UNIQUE (name),
    CONSTRAINT longshore_batch_pkey PRIMARY KEY (num),
    CONSTRAINT longshore_batch_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'paused'::text, 'complete'::text, 'failed'::text, 'cancelled'::text])))
);
CREATE TABLE longshore_bucket (
    name text NOT NULL,
    level double precision NOT NULL,
    at bigint NOT NULL,
    CONSTRAINT longshore_bucket_pkey PRIMARY KEY (name)
) WITH (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE TABLE longshore_budget (
    tenant text NOT NULL,
    tokens bigint,
    cost_picos bigint,
    warn_at double precision NOT NULL,
    CONSTRAINT longshore_budget_pkey PRIMARY KEY (tenant),
    CONSTRAINT longshore_budget_tokens_check CHECK ((tokens >= 0))
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
    answered_by text,
    tokens_in bigint,
    tokens_out bigint,
    tokens_cached bigint,
    tokens_cache_write bigint,
    latency_ms bigint,
    attempts bigint,
    cost_picos bigint,
    estimated boolean,
    mode smallint,
    tier text,
    tokens_cache_write_long bigint,
    CONSTRAINT longshore_call_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT longshore_call_check CHECK ((num_nonnulls(logged_at, answered_by, tokens_in, tokens_out, tokens_cached, tokens_cache_write, latency_ms, attempts, cost_picos, estimated) =
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
CREATE TABLE longshore_change (
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    topic text NOT NULL,
    name text NOT NULL,
    tenant text,
    CONSTRAINT longshore_change_pkey PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);
CREATE TABLE longshore_deed (
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at bigint NOT NULL,
    token uuid,
    by text NOT NULL,
    tenant text,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL,
    CONSTRAINT longshore_deed_pkey PRIMARY KEY (seq)
);
CREATE TABLE longshore_delta (
    stream bigint NOT NULL,
    blocked bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    ready bigint NOT NULL DEFAULT 0,
    leased bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    sums text
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);
CREATE TABLE longshore_dependency (
    needs uuid NOT NULL,
    unit uuid NOT NULL,
    CONSTRAINT longshore_dependency_pkey PRIMARY KEY (needs, unit)
);
CREATE TABLE longshore_failure (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    unit uuid NOT NULL,
    attempt integer NOT NULL,
    at bigint NOT NULL,
    session uuid,
    code text NOT NULL,
    message text NOT NULL,
    CONSTRAINT longshore_failure_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_key (
    tenant text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    provider text NOT NULL,
    sealed bytea NOT NULL,
    wrapped bytea NOT NULL,
    master text NOT NULL,
    status text NOT NULL,
    created_at bigint NOT NULL,
    retires_at bigint,
    CONSTRAINT longshore_key_check CHECK (((status = 'retiring'::text) = (retires_at IS NOT NULL))),
    CONSTRAINT longshore_key_pkey PRIMARY KEY (tenant, name, version),
    CONSTRAINT longshore_key_status_check CHECK ((status = ANY (ARRAY['active'::text, 'retiring'::text, 'revoked'::text]))),
    CONSTRAINT longshore_key_version_check CHECK ((version > 0))
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
    until bigint NOT NULL,
    CONSTRAINT longshore_leader_pkey PRIMARY KEY (role)
);
CREATE TABLE longshore_migration (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    CONSTRAINT longshore_migration_pkey PRIMARY KEY (version)
);
CREATE TABLE longshore_month (
    tenant text NOT NULL,
    month text NOT NULL,
    spent_tokens numeric NOT NULL,
    spent_picos numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos numeric NOT NULL,
    CONSTRAINT longshore_month_pkey PRIMARY KEY (tenant, month)
);
CREATE TABLE longshore_nothing (
    num bigint NOT NULL,
    CONSTRAINT longshore_nothing_num_check CHECK ((num IS NULL)),
    CONSTRAINT longshore_nothing_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_parked (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    batch text NOT NULL,
    custom_id text NOT NULL,
    unit uuid NOT NULL,
    prompt bytea NOT NULL,
    parked_at bigint NOT NULL,
    tries bigint NOT NULL DEFAULT 0,
    shipment text,
    reply bytea,
    CONSTRAINT longshore_parked_batch_custom_id_key UNIQUE (batch, custom_id),
    CONSTRAINT longshore_parked_check CHECK (((shipment IS NULL) OR (reply IS NULL))),
    CONSTRAINT longshore_parked_pkey PRIMARY KEY (num),
    CONSTRAINT longshore_parked_tries_check CHECK ((tries >= 0))
);
CREATE TABLE longshore_permit (
    pool text NOT NULL,
    id uuid NOT NULL,
    owner text NOT NULL,
    weight bigint NOT NULL,
    priority smallint NOT NULL,
    came bigint NOT NULL,
    ends bigint NOT NULL,
    fence bigint,
    since bigint,
    rank bigint,
    told boolean NOT NULL DEFAULT false,
    CONSTRAINT longshore_permit_check CHECK (((fence IS NULL) = (rank IS NOT NULL))),
    CONSTRAINT longshore_permit_pkey PRIMARY KEY (pool, id),
    CONSTRAINT longshore_permit_weight_check CHECK ((weight > 0))
);
CREATE TABLE longshore_pool (
    name text NOT NULL,
    max bigint NOT NULL,
    in_use bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    came bigint NOT NULL DEFAULT 0,
    next_end bigint NOT NULL DEFAULT 0,
    acquired bigint NOT NULL DEFAULT 0,
    timeouts bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    waits bigint[] NOT NULL DEFAULT array_fill(0, ARRAY[22]),
    CONSTRAINT longshore_pool_in_use_check CHECK ((in_use >= 0)),
    CONSTRAINT longshore_pool_max_check CHECK ((max >= 0)),
    CONSTRAINT longshore_pool_pkey PRIMARY KEY (name),
    CONSTRAINT longshore_pool_waits_check CHECK ((cardinality(waits) = 22))
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
CREATE TABLE longshore_promise (
    num bigint NOT NULL,
    CONSTRAINT longshore_verb_was_dropped_midway FOREIGN KEY (num) REFERENCES longshore_nothing(num) DEFERRABLE INITIALLY DEFERRED
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
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
CREATE TABLE longshore_reply (
    tenant text NOT NULL,
    queue text NOT NULL,
    session uuid NOT NULL,
    opened_at bigint NOT NULL,
    CONSTRAINT longshore_reply_pkey PRIMARY KEY (tenant, queue)
);
CREATE TABLE longshore_reservation (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    lane bigint NOT NULL,
    units bigint NOT NULL,
    bytes bigint NOT NULL,
    until bigint NOT NULL,
    xid xid8 NOT NULL,
    CONSTRAINT longshore_reservation_pkey PRIMARY KEY (num)
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
    beats bigint NOT NULL DEFAULT 0,
    opened_at bigint NOT NULL,
    beat_at bigint NOT NULL,
    wanted text NOT NULL DEFAULT 'work'::text,
    cpu bigint,
    CONSTRAINT longshore_session_id_key UNIQUE (id),
    CONSTRAINT longshore_session_pkey PRIMARY KEY (num),
    CONSTRAINT longshore_session_wanted_check CHECK ((wanted = ANY (ARRAY['work'::text, 'quiet'::text, 'drain'::text, 'stop'::text])))
) WITH (fillfactor=50);
CREATE TABLE longshore_shipment (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    batch text NOT NULL,
    mark text NOT NULL,
    sealed_at bigint NOT NULL,
    ticket text,
    CONSTRAINT longshore_shipment_batch_mark_key UNIQUE (batch, mark),
    CONSTRAINT longshore_shipment_pkey PRIMARY KEY (num)
);
CREATE TABLE longshore_spend (
    tenant text NOT NULL,
    month text NOT NULL,
    spent_tokens numeric NOT NULL,
    spent_picos numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos numeric NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);
CREATE TABLE longshore_start (
    session bigint NOT NULL,
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at bigint NOT NULL,
    units uuid[] NOT NULL,
    fences bigint[] NOT NULL,
    CONSTRAINT longshore_start_pkey PRIMARY KEY (session, num)
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
    gone_done bigint NOT NULL DEFAULT 0,
    gone_failed bigint NOT NULL DEFAULT 0,
    gone_cancelled bigint NOT NULL DEFAULT 0,
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
CREATE TABLE longshore_sum (
    batch bigint NOT NULL,
    name text NOT NULL,
    amount bigint NOT NULL,
    CONSTRAINT longshore_sum_pkey PRIMARY KEY (batch, name)
);
CREATE TABLE longshore_tenant (
    name text NOT NULL,
    weight integer NOT NULL DEFAULT 1,
    cap integer,
    max_units bigint,
    max_bytes bigint,
    suspended boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL,
    CONSTRAINT longshore_tenant_cap_check CHECK ((cap > 0)),
    CONSTRAINT longshore_tenant_max_bytes_check CHECK ((max_bytes >= 0)),
    CONSTRAINT longshore_tenant_max_units_check CHECK ((max_units >= 0)),
    CONSTRAINT longshore_tenant_pkey PRIMARY KEY (name),
    CONSTRAINT longshore_tenant_weight_check CHECK ((weight > 0))
);
CREATE TABLE longshore_token (
    id uuid NOT NULL,
    hash bytea NOT NULL,
    tenant text NOT NULL,
    role text NOT NULL,
    label text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    CONSTRAINT longshore_token_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT longshore_token_hash_key UNIQUE (hash),
    CONSTRAINT longshore_token_pkey PRIMARY KEY (id),
    CONSTRAINT longshore_token_role_check CHECK ((role = ANY (ARRAY['read'::text, 'submit'::text, 'operate'::text, 'admin'::text])))
);
CREATE TABLE longshore_unit (
    id uuid NOT NULL,
    stream bigint NOT NULL,
    place bigint NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    session bigint,
    started_at bigint,
    created_at bigint NOT NULL,
    deadline bigint,
    flags bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    waits_for integer NOT NULL DEFAULT 0,
    bytes integer NOT NULL,
    state smallint NOT NULL,
    priority smallint NOT NULL,
    dedup bytea,
    cap_key bytea,
    spec text,
    failure text,
    progress text,
    payload bytea NOT NULL,
    checkpoint bytea,
    result bytea,
    CONSTRAINT longshore_unit_check CHECK (((state = 3) = (session IS NOT NULL))),
    CONSTRAINT longshore_unit_check1 CHECK (((state = 0) = (waits_for > 0))),
    CONSTRAINT longshore_unit_check2 CHECK (((started_at IS NULL) OR (state = 3))),
    CONSTRAINT longshore_unit_pkey PRIMARY KEY (id),
    CONSTRAINT longshore_unit_priority_check CHECK (((priority >= 1) AND (priority <= 9))),
    CONSTRAINT longshore_unit_state_check CHECK (((state >= 0) AND (state <= 8)))
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_analyze_scale_factor=0.2, autovacuum_vacuum_cost_delay=1);
CREATE TABLE longshore_untold (
    num bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    unit uuid NOT NULL,
    CONSTRAINT longshore_untold_pkey PRIMARY KEY (num)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

CREATE VIEW longshore_books AS
 SELECT a.tenant,
    a.month,
    sum(a.spent_tokens) AS spent_tokens,
    sum(a.spent_picos) AS spent_picos,
    sum(a.reserved_tokens) AS reserved_tokens,
    sum(a.reserved_picos) AS reserved_picos
   FROM ( SELECT longshore_month.tenant,
            longshore_month.month,
            longshore_month.spent_tokens,
            longshore_month.spent_picos,
            longshore_month.reserved_tokens,
            longshore_month.reserved_picos
           FROM longshore_month
        UNION ALL
         SELECT longshore_spend.tenant,
            longshore_spend.month,
            longshore_spend.spent_tokens,
            longshore_spend.spent_picos,
            longshore_spend.reserved_tokens,
            longshore_spend.reserved_picos
           FROM longshore_spend) a
  GROUP BY a.tenant, a.month;
CREATE VIEW longshore_count AS
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
    s.gone_done,
    s.gone_failed,
    s.gone_cancelled
   FROM (longshore_stream s
     LEFT JOIN ( SELECT longshore_delta.stream,
            sum(longshore_delta.blocked) AS blocked,
            sum(longshore_delta.scheduled) AS scheduled,
            sum(longshore_delta.ready) AS ready,
            sum(longshore_delta.leased) AS leased,
            sum(longshore_delta.done) AS done,
            sum(longshore_delta.failed) AS failed,
            sum(longshore_delta.cancelled) AS cancelled,
            sum(longshore_delta.bytes) AS bytes
           FROM longshore_delta
          GROUP BY longshore_delta.stream) d ON ((d.stream = s.num)));

CREATE INDEX longshore_batch_open ON public.longshore_batch USING btree (num) WHERE (status <> 'complete'::text);
CREATE INDEX longshore_batch_unended ON public.longshore_batch USING btree (num) WHERE (completed_at IS NULL);
CREATE INDEX longshore_call_batch ON public.longshore_call USING btree (batch, opened_at, id) WHERE (batch IS NOT NULL);
CREATE INDEX longshore_call_open ON public.longshore_call USING btree (session) WHERE (status = 0);
CREATE INDEX longshore_call_opened ON public.longshore_call USING btree (opened_at, id);
CREATE INDEX longshore_call_request ON public.longshore_call USING btree (request_id, tenant);
CREATE INDEX longshore_call_tenant ON public.longshore_call USING btree (tenant, opened_at, id);
CREATE INDEX longshore_deed_tenant ON public.longshore_deed USING btree (tenant, seq) WHERE (tenant IS NOT NULL);
CREATE INDEX longshore_dependency_unit ON public.longshore_dependency USING btree (unit);
CREATE INDEX longshore_failure_unit ON public.longshore_failure USING btree (unit);
CREATE UNIQUE INDEX longshore_key_active ON public.longshore_key USING btree (tenant, name) WHERE (status = 'active'::text);
CREATE INDEX longshore_parked_out ON public.longshore_parked USING btree (batch, shipment, num) WHERE (shipment IS NOT NULL);
CREATE INDEX longshore_parked_waiting ON public.longshore_parked USING btree (batch, num) WHERE ((shipment IS NULL) AND (reply IS NULL));
CREATE INDEX longshore_permit_line ON public.longshore_permit USING btree (pool, rank, came) WHERE (rank IS NOT NULL);
CREATE INDEX longshore_reply_session ON public.longshore_reply USING btree (session);
CREATE INDEX longshore_reservation_lane ON public.longshore_reservation USING btree (lane);
CREATE INDEX longshore_schedule_due ON public.longshore_schedule USING btree (next_fire) WHERE ((NOT paused) AND (next_fire IS NOT NULL));
CREATE INDEX longshore_stream_batch ON public.longshore_stream USING btree (batch) WHERE (batch <> 0);
CREATE INDEX longshore_unit_alone ON public.longshore_unit USING btree (stream, place) WHERE (state = 8);
CREATE INDEX longshore_unit_cap ON public.longshore_unit USING btree (cap_key, state, place) WHERE ((cap_key IS NOT NULL) AND (state = ANY (ARRAY[3, 7])));
CREATE INDEX longshore_unit_deadline ON public.longshore_unit USING btree (deadline) WHERE ((deadline IS NOT NULL) AND (state = ANY (ARRAY[0, 1, 2, 7, 8])));
CREATE UNIQUE INDEX longshore_unit_dedup ON public.longshore_unit USING btree (dedup) WHERE (dedup IS NOT NULL);
CREATE INDEX longshore_unit_due ON public.longshore_unit USING btree (place) WHERE (state = 1);
CREATE INDEX longshore_unit_ended ON public.longshore_unit USING btree (stream, state, place) WHERE (state = ANY (ARRAY[4, 5, 6]));
CREATE INDEX longshore_unit_ready ON public.longshore_unit USING btree (stream, place, id) WHERE (state = 2);
CREATE INDEX longshore_unit_session ON public.longshore_unit USING btree (session) WHERE (session IS NOT NULL);
CREATE INDEX longshore_unit_waiting ON public.longshore_unit USING btree (stream, state, place) WHERE (state = ANY (ARRAY[0, 1, 7, 8]));

CREATE OR REPLACE FUNCTION public.longshore_admit(ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[], units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[], now bigint, this_month text, budget_locks bigint[], request_locks bigint[], lone boolean)
 RETURNS TABLE(word integer, at bigint, other uuid, tenant text, max_tokens bigint, max_picos bigint, warn_at double precision, spent_tokens bigint, spent_picos bigint, reserved_tokens bigint, reserved_picos bigint)
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
    IF lone THEN
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
    -- A session cannot end until its calls are there to be found.
    PERFORM 1 FROM longshore_session s WHERE s.id = ANY($9) ORDER BY s.num FOR KEY SHARE;
    RETURN QUERY SELECT 1, g.at, NULL::uuid, NULL, NULL::bigint, NULL::bigint,
      NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
    FROM unnest($9) WITH ORDINALITY AS g (session, at) WHERE g.session IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM longshore_session s WHERE s.id = g.session) LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 3, g.at, NULL::uuid, NULL, NULL::bigint, NULL::bigint,
      NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
    FROM unnest($1) WITH ORDINALITY AS g (id, at) JOIN longshore_call c ON c.id = g.id;
    RETURN QUERY
    SELECT CASE WHEN lone THEN 0 ELSE 4 END, g.at, d.id, NULL, NULL::bigint, NULL::bigint,
      NULL::double precision, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
    FROM unnest($1, $2, $3, $7) WITH ORDINALITY AS g (id, tenant, request, unit, at)
    CROSS JOIN LATERAL (SELECT c.id FROM longshore_call c WHERE c.request_id = g.request
      AND c.tenant = g.tenant AND c.status IN (0, 1) AND c.unit IS DISTINCT FROM g.unit
      AND c.id <> g.id ORDER BY c.opened_at, c.id LIMIT 1) d
    WHERE NOT EXISTS (SELECT 1 FROM longshore_call c WHERE c.id = g.id);
    IF FOUND AND lone THEN
        RETURN;
    END IF;
    IF NOT lone THEN
        RETURN QUERY
        SELECT 2, NULL::bigint, NULL::uuid, b.tenant, b.tokens, b.cost_picos, b.warn_at,
          longshore_clamp(m.spent_tokens), longshore_clamp(m.spent_picos),
          longshore_clamp(m.reserved_tokens), longshore_clamp(m.reserved_picos)
        FROM longshore_budget b CROSS JOIN LATERAL (
          -- Not the view: the planner would add up all tenants for it.
          SELECT sum(a.spent_tokens) AS spent_tokens, sum(a.spent_picos) AS spent_picos,
            sum(a.reserved_tokens) AS reserved_tokens, sum(a.reserved_picos) AS reserved_picos
          FROM (SELECT * FROM longshore_month UNION ALL SELECT * FROM longshore_spend) a
          WHERE a.tenant = b.tenant AND a.month = $14) m
        WHERE b.tenant = ANY($2);
    END IF;
    WITH made AS (
      INSERT INTO longshore_call (id, tenant, request_id, profile, provider, model, unit, batch,
        session, worker, reserve_tokens, reserve_picos, opened_at, month, status)
      SELECT g.*, $13, $14, 0 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        AS g (id, tenant, request, profile, provider, model, unit, batch, session, worker, tokens,
          picos)
      WHERE NOT EXISTS (SELECT 1 FROM longshore_call c WHERE c.request_id = g.request
        AND c.tenant = g.tenant AND c.status IN (0, 1) AND c.unit IS DISTINCT FROM g.unit
        AND c.id <> g.id)
      ON CONFLICT (id) DO NOTHING RETURNING tenant, reserve_tokens, reserve_picos)
    INSERT INTO longshore_spend
    SELECT m.tenant, $14, 0, 0, sum(m.reserve_tokens), sum(m.reserve_picos)
    FROM made m GROUP BY m.tenant;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_begin(session uuid, ids uuid[], fences bigint[], now bigint, cancel bigint)
 RETURNS TABLE(every boolean, id uuid, fence bigint, started_at bigint)
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
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '10s', true);
    RETURN QUERY
    WITH me AS MATERIALIZED (
      SELECT s.num FROM longshore_session s WHERE s.id = $1 FOR KEY SHARE),
    started AS MATERIALIZED (
      SELECT u.id, u.fence, u.started_at FROM unnest($2, $3) AS f (id, fence)
      JOIN longshore_unit u ON u.id = f.id AND u.fence = f.fence
      WHERE coalesce(u.session, 0) = (SELECT m.num FROM me m)
      AND (u.started_at IS NOT NULL OR (u.flags & $5 = 0
        AND (u.deadline IS NULL OR u.deadline > $4)
        AND u.stream <> ALL ((SELECT longshore_closed())::bigint[])))),
    noted AS (
      INSERT INTO longshore_start (session, at, units, fences)
      SELECT m.num, $4, array_agg(s.id), array_agg(s.fence) FROM me m
      JOIN started s ON s.started_at IS NULL GROUP BY m.num)
    SELECT a.every, s.id, s.fence, s.started_at FROM me m
    CROSS JOIN (SELECT count(*) = cardinality($2) AS every FROM started s
      WHERE s.started_at IS NULL) a
    LEFT JOIN started s ON NOT a.every;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_claim_plainly(session uuid, kinds text[], queues text[], tenant text, batch text, known bigint[], anywhere boolean, look integer, floor bigint, units bigint, starts bigint, now bigint)
 RETURNS TABLE(id uuid, stream bigint, state smallint, place bigint, priority smallint, attempt integer, lost integer, fence bigint, owner bigint, started_at bigint, created_at bigint, deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text, progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean, streams integer, source bigint, weight integer, tenant_weight integer, first bigint, cost bigint)
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
    met record;
BEGIN
    -- A claim means nothing once its session is gone, and does not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '10s', true);
    SELECT max(e.me) AS me, max(e.cost) AS cost, max(e.num) AS num, max(e.weight) AS weight,
      max(e.tenant_weight) AS tenant_weight, greatest(max(e.place), $9) AS place,
      CASE WHEN bool_or(e.has_alone OR NOT e.has_ready OR e.cap IS NOT NULL
        OR e.tenant_cap IS NOT NULL) THEN 2 ELSE least(count(e.num), 2) END::integer AS streams
    INTO met FROM longshore_eligible($1, $2, $3, $4, $5, $6, $7, $8) e;
    IF met.me IS NULL THEN
        RETURN;
    END IF;
    streams := met.streams;
    source := met.num;
    weight := met.weight;
    tenant_weight := met.tenant_weight;
    first := met.place;
    cost := met.cost;
    RETURN NEXT;
    IF met.streams <> 1 THEN
        RETURN;
    END IF;
    -- What `longshore_take` does, for one stream, and without handing each row on twice.
    RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT u.at, u.place, u.flags, row_number() OVER (ORDER BY u.place, u.id) <= $11 AS starts
      FROM (
        SELECT u.place, u.id, u.flags, u.ctid AS at FROM longshore_unit u
        WHERE u.stream = met.num AND u.state = 2
        AND (u.place, u.id) > (met.place, '00000000-0000-0000-0000-000000000000'::uuid)
        ORDER BY u.place, u.id LIMIT $10 FOR UPDATE SKIP LOCKED) u),
    plain AS MATERIALIZED (
      SELECT coalesce(bool_and(f.flags & 1 = 0), true) AS all FROM found f),
    taken AS (
      UPDATE longshore_unit u SET state = 3, place = $12, session = met.me,
        fence = greatest(u.fence + 1, $12), attempt = u.attempt + f.starts::int,
        started_at = CASE WHEN f.starts THEN $12 END
      FROM found f WHERE u.ctid = f.at AND (SELECT p.all FROM plain p)
      RETURNING u.id, u.stream, u.state, u.place, u.priority, u.attempt, u.lost, u.fence,
        u.session, u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec,
        u.failure, u.progress, u.payload, u.checkpoint, u.result, f.place AS rank, true AS taken),
    counted AS (
      INSERT INTO longshore_delta (stream, ready, leased)
      SELECT t.stream, -count(*), count(*) FROM taken t GROUP BY t.stream)
    SELECT t.*, NULL::integer, NULL::bigint, NULL::integer, NULL::integer, NULL::bigint,
      NULL::bigint FROM taken t
    UNION ALL
    SELECT u.id, u.stream, u.state, u.place, u.priority, u.attempt, u.lost, u.fence, u.session,
      u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec, u.failure,
      u.progress, u.payload, u.checkpoint, u.result, u.place, false, NULL, NULL, NULL, NULL, NULL,
      NULL
    FROM (SELECT f.at FROM found f WHERE NOT (SELECT p.all FROM plain p) LIMIT 1) f
    JOIN longshore_unit u ON u.ctid = f.at;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_clamp(amount numeric)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$ SELECT least(greatest(coalesce(amount, 0), -9223372036854775808), 9223372036854775807)::bigint $function$

CREATE OR REPLACE FUNCTION public.longshore_closed()
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

CREATE OR REPLACE FUNCTION public.longshore_eligible(session uuid, kinds text[], queues text[], tenant text, batch text, known bigint[], anywhere boolean, look integer)
 RETURNS TABLE(me bigint, cost bigint, num bigint, has_ready boolean, has_alone boolean, weight integer, cap integer, tenant_weight integer, tenant_cap integer, place bigint)
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
    streams bigint[];
    places bigint[];
BEGIN
    IF look = 0 THEN
        -- Where the first unit of each is, too, so that the index need not be walked to it again.
        WITH RECURSIVE ready (stream, place) AS (
          (SELECT u.stream, u.place FROM longshore_unit u WHERE u.state = 2
            ORDER BY u.stream, u.place LIMIT 1)
          UNION ALL SELECT n.stream, n.place FROM ready r CROSS JOIN LATERAL (
            SELECT u.stream, u.place FROM longshore_unit u WHERE u.state = 2
            AND u.stream > r.stream ORDER BY u.stream, u.place LIMIT 1) n)
        SELECT array_agg(r.stream), array_agg(r.place) INTO streams, places FROM ready r;
    ELSIF look = 1 THEN
        -- A batch has few streams: each is asked.
        SELECT array_agg(s.num), array_agg(n.place) INTO streams, places
        FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
        CROSS JOIN LATERAL (SELECT u.place FROM longshore_unit u WHERE u.stream = s.num
          AND u.state = 2 ORDER BY u.place LIMIT 1) n WHERE b.name = $5;
    ELSE
        streams := $6;
        places := array_fill(NULL::bigint, ARRAY[cardinality($6)]);
    END IF;
    -- The claimer's session cannot end until the claim is committed.
    RETURN QUERY
    WITH RECURSIVE me AS MATERIALIZED (
      SELECT s.num FROM longshore_session s WHERE s.id = $1 FOR KEY SHARE),
    alone (stream) AS (
      (SELECT u.stream FROM longshore_unit u WHERE u.state = 8 ORDER BY u.stream LIMIT 1)
      UNION ALL SELECT (SELECT u.stream FROM longshore_unit u WHERE u.state = 8
        AND u.stream > a.stream ORDER BY u.stream LIMIT 1)
        FROM alone a WHERE a.stream IS NOT NULL),
    found AS MATERIALIZED (
      SELECT f.stream, bool_or(f.ready) AS ready, bool_or(NOT f.ready) AS alone,
        min(f.place) AS place
      FROM (SELECT r.stream, true, r.place FROM unnest(streams, places) AS r (stream, place)
        UNION ALL SELECT a.stream, false, NULL FROM alone a) AS f (stream, ready, place)
      GROUP BY f.stream),
    open AS MATERIALIZED (
      SELECT s.num, f.ready, f.alone, f.place, l.weight, l.cap,
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
    SELECT m.num,
      (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
      o.num, o.ready, o.alone, o.weight, o.cap, o.tenant_weight, o.tenant_cap, o.place
    FROM me m LEFT JOIN open o ON true;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_end_plainly(ids uuid[], fences bigint[], results bytea[], now bigint, session uuid, lone boolean)
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
BEGIN
    IF lone THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    RETURN QUERY
    WITH ended AS (
      UPDATE longshore_unit u SET state = 4, place = $4, session = NULL, started_at = NULL,
        attempt = u.attempt + (u.started_at IS NULL)::int, lost = 0, progress = NULL,
        failure = NULL, result = f.result
      FROM unnest($1, $2, $3) AS f (id, fence, result)
      WHERE u.id = f.id AND u.fence = f.fence AND u.flags = 0
      AND coalesce(u.session, 0) = (SELECT s.num FROM longshore_session s WHERE s.id = $5)
      AND u.cap_key IS NULL RETURNING u.id, u.fence, u.stream, u.bytes),
    counted AS (
      INSERT INTO longshore_delta (stream, leased, done, bytes)
      SELECT e.stream, -count(*), count(*), -sum(e.bytes)::bigint FROM ended e GROUP BY e.stream)
    SELECT e.stream, count(*), NULL::uuid, NULL::bigint FROM ended e GROUP BY e.stream
    UNION ALL
    SELECT e.stream, 0, e.id, e.fence FROM ended e
    WHERE (SELECT count(*) FROM ended) < cardinality($1);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_fill(names text[], levels double precision[], times bigint[], known text[])
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
    UPDATE longshore_bucket b SET level = g.level, at = g.at
    FROM unnest($1, $2, $3) AS g (name, level, at) WHERE b.name = g.name AND g.name = ANY($4);
    INSERT INTO longshore_bucket (name, level, at)
    SELECT g.name, g.level, g.at FROM unnest($1, $2, $3) AS g (name, level, at)
    WHERE g.name <> ALL($4) ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written < cardinality($1) - cardinality($4) THEN
        RAISE EXCEPTION 'others were the first to draw' USING ERRCODE = '40001';
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_give_up_calls(sessions uuid[], now bigint)
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
    WITH left_open AS MATERIALIZED (
      SELECT c.id FROM longshore_call c WHERE c.session = ANY($1) AND c.status = 0
      ORDER BY c.id FOR UPDATE),
    ended AS (
      UPDATE longshore_call c SET status = 3, logged_at = $2, answered_by = c.model,
        tokens_in = c.reserve_tokens, tokens_out = 0, tokens_cached = 0, tokens_cache_write = 0,
        latency_ms = 0, attempts = 0, cost_picos = c.reserve_picos, estimated = true
      FROM left_open l WHERE c.id = l.id AND c.status = 0
      RETURNING c.tenant, c.month, c.reserve_tokens, c.reserve_picos)
    INSERT INTO longshore_spend
    SELECT e.tenant, e.month, sum(e.reserve_tokens), sum(e.reserve_picos),
      -sum(e.reserve_tokens), -sum(e.reserve_picos) FROM ended e GROUP BY e.tenant, e.month;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_has_ready(streams bigint[])
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
      SELECT 1 FROM longshore_unit u WHERE u.stream = w.stream AND u.state = 2 LIMIT 1) u);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_micros()
 RETURNS bigint
 LANGUAGE sql
AS $function$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_ask(pool text, id uuid, max bigint, weight bigint, priority smallint, owner text, ttl bigint, keeps bigint, step bigint)
 RETURNS TABLE(answer integer, fence bigint, waited bigint, before bigint, look bigint, told uuid[])
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now bigint := longshore_permit_open($1, $3);
    p longshore_pool;
    mine longshore_permit;
    known boolean;
    my_rank bigint;
    my_came bigint;
    line record;
BEGIN
    SELECT * INTO mine FROM longshore_permit g WHERE g.pool = $1 AND g.id = $2;
    known := FOUND;
    IF mine.fence IS NOT NULL THEN
        UPDATE longshore_permit g SET ends = now + $7 WHERE g.pool = $1 AND g.id = $2;
        UPDATE longshore_pool q SET next_end = now + $7 WHERE q.name = $1 AND q.next_end > now + $7;
        RETURN QUERY SELECT 0, mine.fence, mine.since - mine.came, 0::bigint, 0::bigint,
          longshore_permit_tell($1);
        RETURN;
    END IF;
    SELECT * INTO p FROM longshore_pool q WHERE q.name = $1;
    my_came := CASE WHEN known THEN mine.came ELSE greatest(now, p.came + 1) END;
    my_rank := CASE WHEN known THEN mine.rank ELSE my_came + $9 END;
    IF $4 <= p.max - p.in_use AND NOT EXISTS (
      SELECT 1 FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL
      AND (g.rank, g.came) < (my_rank, my_came))
    THEN
        my_came := least(my_came, now);
        -- Above every fence that a backup from before this moment may give again.
        p.fence := greatest(p.fence + 1, now);
        UPDATE longshore_pool q SET in_use = q.in_use + $4, fence = p.fence,
          acquired = q.acquired + 1, next_end = least(q.next_end, now + $7),
          waits[s.step] = q.waits[s.step] + 1
        FROM (SELECT 1 + least(21, length(ltrim(((now - my_came) / 1000)::bit(64)::text, '0')))
          AS step) s
        WHERE q.name = $1;
        INSERT INTO longshore_permit AS g
          (pool, id, owner, weight, priority, came, ends, fence, since)
        VALUES ($1, $2, $6, $4, $5, my_came, now + $7, p.fence, now)
        ON CONFLICT (pool, id) DO UPDATE SET ends = now + $7, fence = p.fence, since = now, rank = NULL;
        RETURN QUERY SELECT 0, p.fence, now - my_came, 0::bigint, 0::bigint,
          longshore_permit_tell($1);
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF $4 > p.max OR $8 IS NULL THEN
        IF known THEN
            PERFORM longshore_permit_end($1, $2);
        END IF;
        RETURN QUERY SELECT CASE WHEN $4 > p.max THEN 3 ELSE 2 END, p.max, 0::bigint, 0::bigint,
          0::bigint, longshore_permit_tell($1);
        RETURN;
    END IF;
    INSERT INTO longshore_permit AS g (pool, id, owner, weight, priority, came, ends, rank)
    VALUES ($1, $2, $6, $4, $5, my_came, now + $8, my_rank)
    ON CONFLICT (pool, id) DO UPDATE SET ends = excluded.ends, told = false;
    UPDATE longshore_pool q SET came = greatest(q.came, my_came),
      next_end = least(q.next_end, now + $8)
    WHERE q.name = $1 RETURNING q.next_end INTO p.next_end;
    SELECT count(*) AS before, min(g.ends) AS ends INTO line FROM longshore_permit g
    WHERE g.pool = $1 AND g.rank IS NOT NULL AND (g.rank, g.came) < (my_rank, my_came);
    -- Leases are for the first in line to watch, places for those behind. Whoever is first and finds no
    -- room is told when there is.
    RETURN QUERY SELECT 1, 0::bigint, 0::bigint, line.before,
      coalesce(line.ends, p.next_end) - now, longshore_permit_tell($1);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_end(name text, id uuid)
 RETURNS boolean
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    gone record;
BEGIN
    DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.id = $2
    RETURNING g.weight, g.fence INTO gone;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF gone.fence IS NOT NULL THEN
        UPDATE longshore_pool p SET in_use = p.in_use - gone.weight WHERE p.name = $1;
    END IF;
    RETURN true;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_extend(pool text, ids uuid[], ttl bigint)
 RETURNS TABLE(lost uuid[], told uuid[])
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now bigint := longshore_permit_open($1, NULL);
    held uuid[];
BEGIN
    WITH held AS (
      UPDATE longshore_permit g SET ends = now + $3
      WHERE g.pool = $1 AND g.id = ANY($2) AND g.fence IS NOT NULL RETURNING g.id)
    SELECT coalesce(array_agg(h.id), '{}') INTO held FROM held h;
    UPDATE longshore_pool p SET next_end = now + $3 WHERE p.name = $1 AND p.next_end > now + $3;
    RETURN QUERY SELECT ARRAY(SELECT i FROM unnest($2) i WHERE i <> ALL(held)),
      longshore_permit_tell($1);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_gathered(pool text, back uuid[], late uuid[], ids uuid[], max bigint, weight bigint[], priority smallint[], owner text[], ttl bigint[], keeps bigint[], step bigint[])
 RETURNS TABLE(place bigint, answer integer, fence bigint, waited bigint, before bigint, look bigint, told uuid[])
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    durable text := current_setting('synchronous_commit');
    given boolean := false;
    news uuid[] := '{}';
    at bigint;
BEGIN
    IF cardinality($2) > 0 THEN
        news := news || longshore_permit_release($1, $2, false);
    END IF;
    IF cardinality($3) > 0 THEN
        news := news || longshore_permit_release($1, $3, true);
    END IF;
    FOR at IN SELECT a.at FROM unnest($4) WITH ORDINALITY a(id, at)
        LEFT JOIN longshore_permit g ON g.pool = $1 AND g.id = a.id
        ORDER BY g.rank, g.came, a.at
    LOOP
        SELECT at, a.answer, a.fence, a.waited, a.before, a.look, a.told
        INTO place, answer, fence, waited, before, look, told
        FROM longshore_permit_ask($1, $4[at], $5, $6[at], $7[at], $8[at], $9[at], $10[at], $11[at]) a;
        given := given OR answer = 0;
        RETURN NEXT;
    END LOOP;
    -- What was given waits for the disk, whatever went before.
    PERFORM set_config('synchronous_commit', CASE WHEN given THEN durable ELSE 'off' END, true);
    RETURN QUERY SELECT 0::bigint, 0, 0::bigint, 0::bigint, 0::bigint, 0::bigint, news;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_open(name text, max bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    due bigint;
    now bigint;
    gone record;
BEGIN
    SELECT p.next_end INTO due FROM longshore_pool p WHERE p.name = $1 FOR UPDATE;
    IF NOT FOUND THEN
        IF $2 IS NULL THEN
            RETURN NULL;
        END IF;
        INSERT INTO longshore_pool (name, max) VALUES ($1, $2) ON CONFLICT DO NOTHING;
        SELECT p.next_end INTO due FROM longshore_pool p WHERE p.name = $1 FOR UPDATE;
    END IF;
    now := longshore_micros();
    IF now >= due THEN
        WITH gone AS (
          DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.ends <= now
          RETURNING g.weight, g.fence)
        SELECT coalesce(sum(g.weight) FILTER (WHERE g.fence IS NOT NULL), 0) AS weight,
          count(g.fence) AS leases INTO gone FROM gone g;
        UPDATE longshore_pool p SET in_use = p.in_use - gone.weight,
          expired = p.expired + gone.leases, next_end = coalesce(
            (SELECT min(g.ends) FROM longshore_permit g WHERE g.pool = $1), 9223372036854775807)
        WHERE p.name = $1;
    END IF;
    RETURN now;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_release(pool text, ids uuid[], late boolean)
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    one uuid;
    ended bigint := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF longshore_permit_open($1, NULL) IS NULL THEN
        RETURN '{}';
    END IF;
    FOREACH one IN ARRAY $2 LOOP
        ended := ended + longshore_permit_end($1, one)::int;
    END LOOP;
    IF $3 AND ended > 0 THEN
        UPDATE longshore_pool p SET timeouts = p.timeouts + ended WHERE p.name = $1;
    END IF;
    RETURN longshore_permit_tell($1);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_reset(pool text)
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    waited uuid[];
BEGIN
    PERFORM longshore_permit_open($1, NULL);
    WITH gone AS (DELETE FROM longshore_permit g WHERE g.pool = $1 RETURNING g.id, g.rank)
    SELECT coalesce(array_agg(g.id) FILTER (WHERE g.rank IS NOT NULL), '{}') INTO waited FROM gone g;
    UPDATE longshore_pool p SET in_use = 0, acquired = 0, timeouts = 0, expired = 0,
      waits = array_fill(0, ARRAY[22]) WHERE p.name = $1;
    RETURN waited;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_resize(pool text, max bigint)
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    heavy uuid[];
BEGIN
    PERFORM longshore_permit_open($1, $2);
    UPDATE longshore_pool p SET max = $2 WHERE p.name = $1;
    WITH heavy AS (
      DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL AND g.weight > $2
      RETURNING g.id)
    SELECT coalesce(array_agg(h.id), '{}') INTO heavy FROM heavy h;
    RETURN heavy || longshore_permit_tell($1);
END $function$

CREATE OR REPLACE FUNCTION public.longshore_permit_tell(name text)
 RETURNS uuid[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    free bigint;
    next record;
    news uuid[] := '{}';
BEGIN
    SELECT p.max - p.in_use INTO free FROM longshore_pool p WHERE p.name = $1;
    IF free <= 0 THEN
        RETURN news;
    END IF;
    FOR next IN SELECT g.id, g.weight, g.told FROM longshore_permit g
        WHERE g.pool = $1 AND g.rank IS NOT NULL ORDER BY g.rank, g.came
    LOOP
        free := free - next.weight;
        EXIT WHEN free < 0;
        IF NOT next.told THEN
            news := news || next.id;
        END IF;
    END LOOP;
    IF cardinality(news) > 0 THEN
        UPDATE longshore_permit g SET told = true WHERE g.pool = $1 AND g.id = ANY(news);
    END IF;
    RETURN news;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_record(ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[], units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[], statuses smallint[], codes text[], answered text[], ins bigint[], outs bigint[], cached bigint[], cache_writes bigint[], latencies bigint[], tries bigint[], costs bigint[], estimates boolean[], modes smallint[], tiers text[], longs bigint[], now bigint, this_month text, lone boolean)
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
    seen bigint;
    gone uuid[];
BEGIN
    IF lone THEN
        PERFORM set_config('lock_timeout', '10s', true);
        IF 0 = ANY($13) THEN
            PERFORM 1 FROM longshore_session s WHERE s.id = ANY($9) ORDER BY s.num FOR KEY SHARE;
        END IF;
    END IF;
    -- Locked first, in the order of their ids, so that what follows sees them as they are.
    PERFORM 1 FROM longshore_call c WHERE c.id = ANY($1) ORDER BY c.id FOR UPDATE;
    WITH given AS MATERIALIZED (
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
        $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
      AS g (id, tenant, request, profile, provider, model, unit, batch, session, worker, tokens,
        picos, status, code, answered, tokens_in, tokens_out, cached, cache_write, latency, tries,
        cost, estimated, mode, tier, long)),
    old AS MATERIALIZED (
      SELECT c.id, c.tenant, c.month, c.status, c.reserve_tokens, c.reserve_picos
      FROM longshore_call c WHERE c.id = ANY($1)),
    changed AS (
      UPDATE longshore_call c SET profile = g.profile, provider = g.provider, model = g.model,
        worker = g.worker, reserve_tokens = g.tokens, reserve_picos = g.picos, status = g.status,
        code = g.code, answered_by = g.answered, tokens_in = g.tokens_in,
        tokens_out = g.tokens_out, tokens_cached = g.cached, tokens_cache_write = g.cache_write,
        latency_ms = g.latency, attempts = g.tries, cost_picos = g.cost, estimated = g.estimated,
        mode = g.mode, tier = g.tier, tokens_cache_write_long = g.long,
        logged_at = CASE WHEN g.status <> 0 THEN $27 END
      FROM given g WHERE c.id = g.id AND c.status = 0
      RETURNING c.tenant, c.month, c.status, c.reserve_tokens, c.reserve_picos, c.tokens_in,
        c.tokens_out, c.cost_picos),
    added AS (
      INSERT INTO longshore_call (id, tenant, request_id, profile, provider, model, unit, batch,
        session, worker, reserve_tokens, reserve_picos, status, code, answered_by, tokens_in,
        tokens_out, tokens_cached, tokens_cache_write, latency_ms, attempts, cost_picos, estimated,
        mode, tier, tokens_cache_write_long, opened_at, month, logged_at)
      SELECT g.*, $27, $28, CASE WHEN g.status <> 0 THEN $27 END FROM given g
      WHERE NOT EXISTS (SELECT 1 FROM old o WHERE o.id = g.id)
      ON CONFLICT (id) DO NOTHING
      RETURNING tenant, month, status, reserve_tokens, reserve_picos, tokens_in, tokens_out,
        cost_picos),
    moved (tenant, month, spent_tokens, spent_picos, reserved_tokens, reserved_picos) AS (
      SELECT o.tenant, o.month, 0::numeric, 0::numeric, -o.reserve_tokens::numeric,
        -o.reserve_picos::numeric FROM old o WHERE o.status = 0
      UNION ALL
      SELECT n.tenant, n.month, coalesce(n.tokens_in::numeric + n.tokens_out, 0),
        coalesce(n.cost_picos, 0)::numeric,
        CASE WHEN n.status = 0 THEN n.reserve_tokens ELSE 0 END::numeric,
        CASE WHEN n.status = 0 THEN n.reserve_picos ELSE 0 END::numeric
      FROM (SELECT * FROM changed UNION ALL SELECT * FROM added) n),
    spent AS (
      INSERT INTO longshore_spend
      SELECT m.tenant, m.month, sum(m.spent_tokens), sum(m.spent_picos), sum(m.reserved_tokens),
        sum(m.reserved_picos) FROM moved m GROUP BY m.tenant, m.month)
    SELECT (SELECT count(*) FROM old) + (SELECT count(*) FROM added) INTO seen;
    IF seen < cardinality($1) THEN
        RAISE EXCEPTION 'a call was journalled by others just now' USING ERRCODE = '40001';
    END IF;
    IF 0 = ANY($13) THEN
        SELECT array_agg(g.session) INTO gone FROM unnest($9, $13) AS g (session, status)
        WHERE g.status = 0 AND g.session IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM longshore_session s WHERE s.id = g.session);
        IF gone IS NOT NULL THEN
            PERFORM longshore_give_up_calls(gone, $27);
        END IF;
    END IF;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_refuse(ids uuid[])
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
    WITH gone AS (
      DELETE FROM longshore_call WHERE id = ANY($1)
      RETURNING tenant, month, reserve_tokens, reserve_picos)
    INSERT INTO longshore_spend
    SELECT g.tenant, g.month, 0, 0, -sum(g.reserve_tokens), -sum(g.reserve_picos)
    FROM gone g GROUP BY g.tenant, g.month;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_send_plainly(ids uuid[], streams bigint[], states smallint[], places bigint[], priorities smallint[], deadlines bigint[], all_flags bigint[], waits integer[], sizes integer[], keys bytea[], caps bytea[], specs text[], payloads bytea[], now bigint, lanes bigint[], lone boolean)
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
    IF lone THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    RETURN QUERY
    WITH gate AS MATERIALIZED (
      SELECT 1 FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
      LEFT JOIN longshore_tenant t ON t.name = l.tenant
      WHERE l.num = ANY($15) AND (coalesce(t.suspended, false) OR num_nonnulls(l.max_units,
      l.max_bytes, q.max_units, q.max_bytes, t.max_units, t.max_bytes) > 0) LIMIT 1),
    made AS (
      INSERT INTO longshore_unit (id, stream, state, place, priority, deadline, flags, waits_for,
        bytes, dedup, cap_key, spec, payload, created_at)
      SELECT n.*, $14 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) n
      WHERE NOT EXISTS (SELECT 1 FROM gate)
      ON CONFLICT (id) DO NOTHING RETURNING stream, state, bytes),
    counted AS (
      INSERT INTO longshore_delta (stream, scheduled, ready, bytes)
      SELECT m.stream, count(*) FILTER (WHERE m.state = 1), count(*) FILTER (WHERE m.state = 2),
        sum(m.bytes)::bigint FROM made m GROUP BY m.stream)
    SELECT DISTINCT m.stream, m.state FROM made m
    UNION ALL SELECT 0::bigint, 0::smallint FROM gate;
END $function$

CREATE OR REPLACE FUNCTION public.longshore_take(streams bigint[], units bigint[], starts bigint[], places bigint[], ids uuid[], now bigint, owner bigint, only_look boolean)
 RETURNS TABLE(id uuid, stream bigint, state smallint, place bigint, priority smallint, attempt integer, lost integer, fence bigint, session bigint, started_at bigint, created_at bigint, deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text, progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean)
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
    RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT u.*, row_number() OVER (PARTITION BY u.stream ORDER BY u.place, u.id)
        <= w.started AS starts
      FROM unnest($1, $2, $3, $4, $5) AS w (stream, units, started, place, id)
      CROSS JOIN LATERAL (
        SELECT u.stream, u.place, u.id, u.flags, u.ctid AS at FROM longshore_unit u
        WHERE u.stream = w.stream AND u.state = 2 AND (u.place, u.id) > (w.place, w.id)
        ORDER BY u.place, u.id LIMIT w.units FOR UPDATE SKIP LOCKED) u),
    plain AS MATERIALIZED (
      SELECT NOT $8 AND coalesce(bool_and(f.flags & 1 = 0), true) AS all FROM found f),
    taken AS (
      -- Above every fence that a crash of the server may have taken back with its claim.
      UPDATE longshore_unit u SET state = 3, place = $6, session = $7,
        fence = greatest(u.fence + 1, $6), attempt = u.attempt + f.starts::int,
        started_at = CASE WHEN f.starts THEN $6 END
      FROM found f WHERE u.ctid = f.at AND (SELECT p.all FROM plain p)
      RETURNING u.id, u.stream, u.state, u.place, u.priority, u.attempt, u.lost, u.fence,
        u.session, u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec,
        u.failure, u.progress, u.payload, u.checkpoint, u.result, f.place AS rank),
    counted AS (
      INSERT INTO longshore_delta (stream, ready, leased)
      SELECT t.stream, -count(*), count(*) FROM taken t GROUP BY t.stream)
    SELECT t.*, true FROM taken t
    UNION ALL
    SELECT u.id, u.stream, u.state, u.place, u.priority, u.attempt, u.lost, u.fence, u.session,
      u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec, u.failure,
      u.progress, u.payload, u.checkpoint, u.result, u.place, false
    FROM found f JOIN longshore_unit u ON u.ctid = f.at WHERE NOT (SELECT p.all FROM plain p);
END $function$

