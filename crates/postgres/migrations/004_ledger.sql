-- The ledger: what is owned (profiles, keys), allowed (buckets, budgets) and owed (calls), and where
-- replies go. Names compare byte by byte, as everywhere else in Longshore.

CREATE TABLE longshore_profile (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    body       text NOT NULL,  -- JSON, not looked into
    suspended  boolean NOT NULL,
    revision   bigint NOT NULL CHECK (revision > 0),
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Every version of every key, sealed.
CREATE TABLE longshore_key (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL CHECK (version > 0),
    provider   text NOT NULL,
    sealed     bytea NOT NULL,
    wrapped    bytea NOT NULL,
    master     text NOT NULL,
    status     text NOT NULL CHECK (status IN ('active', 'retiring', 'revoked')),
    created_at bigint NOT NULL,
    retires_at bigint,
    CHECK ((status = 'retiring') = (retires_at IS NOT NULL)),
    PRIMARY KEY (tenant, name, version)
);
CREATE UNIQUE INDEX longshore_key_active ON longshore_key (tenant, name) WHERE status = 'active';

-- Token buckets. Few rows, each updated some ten times a second: they stay on their pages.
CREATE TABLE longshore_bucket (
    name  text COLLATE "C" PRIMARY KEY,
    level double precision NOT NULL,
    at    bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Writes levels, in the order of the names. Those of `known` buckets are locked; if another was the first
-- to draw from one of the rest, it is not full, and all is to be looked at again: 40001.
CREATE FUNCTION longshore_fill(
    names text[], levels double precision[], times bigint[], known text[])
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

CREATE TABLE longshore_budget (
    tenant     text COLLATE "C" PRIMARY KEY,
    tokens     bigint CHECK (tokens >= 0),
    cost_picos bigint,
    warn_at    double precision NOT NULL
);

-- One row per call: the intent, and its end.
-- status: 0 open, 1 success, 2 error, 3 maybe billed.
CREATE TABLE longshore_call (
    id                 uuid PRIMARY KEY,
    tenant             text COLLATE "C" NOT NULL,
    request_id         text NOT NULL,
    profile            text NOT NULL,
    provider           text NOT NULL,
    model              text NOT NULL,
    unit               uuid,
    batch              text,
    session            uuid,
    worker             text NOT NULL,
    reserve_tokens     bigint NOT NULL CHECK (reserve_tokens >= 0),
    reserve_picos      bigint NOT NULL,
    opened_at          bigint NOT NULL,
    month              text COLLATE "C" NOT NULL,  -- of opened_at: the one that pays
    status             smallint NOT NULL CHECK (status BETWEEN 0 AND 3),
    logged_at          bigint,
    code               text,
    answered_by        text,  -- the model, as the provider names it
    tokens_in          bigint CHECK (tokens_in >= 0),
    tokens_out         bigint CHECK (tokens_out >= 0),
    tokens_cached      bigint CHECK (tokens_cached >= 0),
    tokens_cache_write bigint CHECK (tokens_cache_write >= 0),
    latency_ms         bigint CHECK (latency_ms >= 0),
    attempts           bigint CHECK (attempts >= 0),
    cost_picos         bigint,
    estimated          boolean,
    -- An end is whole, and an open call has nothing of it.
    CHECK (num_nonnulls(logged_at, answered_by, tokens_in, tokens_out, tokens_cached,
        tokens_cache_write, latency_ms, attempts, cost_picos, estimated)
        = CASE status WHEN 0 THEN 0 ELSE 10 END),
    CHECK (status <> 0 OR code IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- Duplicates, and whoever asks for one request.
CREATE INDEX longshore_call_request ON longshore_call (request_id, tenant);
-- What a session that ends leaves behind.
CREATE INDEX longshore_call_open ON longshore_call (session) WHERE status = 0;
-- Lists and sums by time.
CREATE INDEX longshore_call_opened ON longshore_call (opened_at, id);

-- What a tenant's months have come to. Calls do not touch these rows: each transaction adds its
-- differences to `longshore_spend`, and whoever folds counts folds these too. A row that all calls of
-- a tenant had to update would have each wait for the other's disk.
CREATE TABLE longshore_month (
    tenant          text COLLATE "C" NOT NULL,
    month           text COLLATE "C" NOT NULL,
    spent_tokens    numeric NOT NULL,
    spent_picos     numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos  numeric NOT NULL,
    PRIMARY KEY (tenant, month)
);
CREATE TABLE longshore_spend (
    tenant          text COLLATE "C" NOT NULL,
    month           text COLLATE "C" NOT NULL,
    spent_tokens    numeric NOT NULL,
    spent_picos     numeric NOT NULL,
    reserved_tokens numeric NOT NULL,
    reserved_picos  numeric NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE VIEW longshore_books AS
SELECT a.tenant, a.month, sum(a.spent_tokens) AS spent_tokens, sum(a.spent_picos) AS spent_picos,
       sum(a.reserved_tokens) AS reserved_tokens, sum(a.reserved_picos) AS reserved_picos
FROM (SELECT * FROM longshore_month UNION ALL SELECT * FROM longshore_spend) a
GROUP BY a.tenant, a.month;

-- Who waits for replies, and where.
CREATE TABLE longshore_reply (
    tenant    text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    session   uuid NOT NULL,
    opened_at bigint NOT NULL,
    PRIMARY KEY (tenant, queue)
);
CREATE INDEX longshore_reply_session ON longshore_reply (session);

-- The largest and smallest number that a column or an answer can hold.
CREATE FUNCTION longshore_clamp(amount numeric) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT least(greatest(coalesce(amount, 0), -9223372036854775808), 9223372036854775807)::bigint $$;

-- Journals calls before they are made, each tenant and request once in a list. It tells exceptions
-- only, by `word`:
--   0  more is to be weighed (`lone` only): nothing was done
--   1  the session of call `at` is gone: nothing was done
--   2  what the tenant's budget is, and what its month had come to before these calls
--   3  call `at` was journalled before: this is a repeat
--   4  call `at` was not journalled: it is a duplicate of `other`
-- Those who weigh budgets do it one after the other, by a lock that ends with the (relaxed) commit; a
-- tenant without one only keeps others from setting one meanwhile. `lone`: a whole transaction.
CREATE FUNCTION longshore_admit(
    ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[],
    units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[],
    now bigint, this_month text, budget_locks bigint[], request_locks bigint[], lone boolean)
RETURNS TABLE (
    word integer, at bigint, other uuid, tenant text, max_tokens bigint, max_picos bigint,
    warn_at double precision, spent_tokens bigint, spent_picos bigint, reserved_tokens bigint,
    reserved_picos bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Takes back calls that were journalled in this transaction and do not fit.
CREATE FUNCTION longshore_refuse(ids uuid[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    WITH gone AS (
      DELETE FROM longshore_call WHERE id = ANY($1)
      RETURNING tenant, month, reserve_tokens, reserve_picos)
    INSERT INTO longshore_spend
    SELECT g.tenant, g.month, 0, 0, -sum(g.reserve_tokens), -sum(g.reserve_picos)
    FROM gone g GROUP BY g.tenant, g.month;
END $$;

-- Calls that these sessions left open may have been billed: they end with what they had reserved. Who
-- ends a session holds its units before its calls, as whoever ends a unit does.
CREATE FUNCTION longshore_give_up_calls(sessions uuid[], now bigint) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Writes calls and their ends, each once in a list. An end stays; what is open is replaced (save who
-- asked for what), and what it had reserved is given back to the month in which it was opened. A call
-- that somebody journals for the first time in this moment is looked at again: 40001. `lone`: a whole
-- transaction, which keeps the sessions of open calls alive; else whoever holds their units does.
CREATE FUNCTION longshore_record(
    ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[],
    units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[],
    statuses smallint[], codes text[], answered text[], ins bigint[], outs bigint[],
    cached bigint[], cache_writes bigint[], latencies bigint[], tries bigint[], costs bigint[],
    estimates boolean[], now bigint, this_month text, lone boolean)
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
        $17, $18, $19, $20, $21, $22, $23)
      AS g (id, tenant, request, profile, provider, model, unit, batch, session, worker, tokens,
        picos, status, code, answered, tokens_in, tokens_out, cached, cache_write, latency, tries,
        cost, estimated)),
    old AS MATERIALIZED (
      SELECT c.id, c.tenant, c.month, c.status, c.reserve_tokens, c.reserve_picos
      FROM longshore_call c WHERE c.id = ANY($1)),
    changed AS (
      UPDATE longshore_call c SET profile = g.profile, provider = g.provider, model = g.model,
        worker = g.worker, reserve_tokens = g.tokens, reserve_picos = g.picos, status = g.status,
        code = g.code, answered_by = g.answered, tokens_in = g.tokens_in,
        tokens_out = g.tokens_out, tokens_cached = g.cached, tokens_cache_write = g.cache_write,
        latency_ms = g.latency, attempts = g.tries, cost_picos = g.cost, estimated = g.estimated,
        logged_at = CASE WHEN g.status <> 0 THEN $24 END
      FROM given g WHERE c.id = g.id AND c.status = 0
      RETURNING c.tenant, c.month, c.status, c.reserve_tokens, c.reserve_picos, c.tokens_in,
        c.tokens_out, c.cost_picos),
    added AS (
      INSERT INTO longshore_call (id, tenant, request_id, profile, provider, model, unit, batch,
        session, worker, reserve_tokens, reserve_picos, status, code, answered_by, tokens_in,
        tokens_out, tokens_cached, tokens_cache_write, latency_ms, attempts, cost_picos, estimated,
        opened_at, month, logged_at)
      SELECT g.*, $24, $25, CASE WHEN g.status <> 0 THEN $24 END FROM given g
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
            PERFORM longshore_give_up_calls(gone, $24);
        END IF;
    END IF;
END $$;
