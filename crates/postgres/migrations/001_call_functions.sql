-- Functions for rate limits and model calls: see 001_unit_functions.sql for the reasons, and for `single_statement`.

-- Writes the levels of buckets, in the order of their names. The caller has locked the rows of `existing` buckets. If
-- another transaction inserted one of the others first, that bucket is not full, and the caller must read again: error
-- 40001.
CREATE FUNCTION longshore_write_buckets(
    names text[], levels double precision[], times bigint[], existing text[])
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Saturates a number at the limits of bigint.
CREATE FUNCTION longshore_clamp_bigint(amount numeric) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT least(greatest(coalesce(amount, 0), -9223372036854775808), 9223372036854775807)::bigint $$;

-- Journals calls before they are made; a list has each request of a tenant once. Returns rows only for exceptions:
--   0  the calls need a check (only if `single_statement`): nothing was done
--   1  the session of call `call_index` has ended: nothing was done
--   2  a tenant's budget, and its monthly spend before these calls
--   3  call `call_index` was journalled before: this is a repeat
--   4  call `call_index` was not journalled: it is a duplicate of `duplicate_of`
-- Checks of one tenant's budget are serialised by a lock that ends with the commit, which does not wait for the disk.
-- A tenant without a budget takes the lock shared, so that no budget is set meanwhile.
CREATE FUNCTION longshore_admit_calls(
    ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[],
    units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[],
    now bigint, this_month text, budget_locks bigint[], request_locks bigint[], single_statement boolean)
RETURNS TABLE (
    outcome integer, call_index bigint, duplicate_of uuid, tenant text, max_tokens bigint, max_cost_picos bigint,
    warn_at double precision, spent_tokens bigint, spent_picos bigint, reserved_tokens bigint,
    reserved_picos bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Deletes calls that were journalled in this transaction and exceed a budget.
CREATE FUNCTION longshore_retract_calls(ids uuid[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    WITH deleted AS (
      DELETE FROM longshore_call WHERE id = ANY($1)
      RETURNING tenant, month, reserve_tokens, reserve_picos)
    INSERT INTO longshore_monthly_spend_delta
    SELECT d.tenant, d.month, 0, 0, -sum(d.reserve_tokens), -sum(d.reserve_picos)
    FROM deleted d GROUP BY d.tenant, d.month;
END $$;

-- Ends the open calls of sessions that end. They may have been billed, so they are charged what they reserved. The
-- caller locks units before calls, as every transaction does that ends a unit.
CREATE FUNCTION longshore_end_abandoned_calls(sessions uuid[], now bigint) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Writes calls and their ends; a list has each call once. A recorded end stays. An open call is replaced (except for
-- its tenant, request, unit, batch and session), and what it had reserved is returned to the month in which it was
-- opened. If another transaction journals one of the calls at the same time, the caller must retry: error 40001. A
-- `single_statement` locks the sessions of open calls; otherwise the caller has locked their units.
CREATE FUNCTION longshore_record_calls(
    ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[],
    units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[],
    statuses smallint[], codes text[], answering_models text[], input_tokens bigint[],
    output_tokens bigint[], cached bigint[], cache_writes bigint[], latencies bigint[], attempt_counts bigint[],
    costs bigint[], estimates boolean[], modes smallint[], tiers text[], long_cache_writes bigint[], now bigint,
    this_month text, single_statement boolean)
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;
