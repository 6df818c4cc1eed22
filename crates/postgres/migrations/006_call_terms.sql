-- What decides a call's price beside its tokens: how it was made (0 by itself, 1 in a provider's batch; of
-- those written before, nothing: by itself), the provider's tier, and what was cached for an hour.
ALTER TABLE longshore_call
    ADD COLUMN mode smallint CHECK (mode BETWEEN 0 AND 1),
    ADD COLUMN tier text,
    ADD COLUMN tokens_cache_write_long bigint CHECK (tokens_cache_write_long >= 0);

DROP FUNCTION longshore_record(
    uuid[], text[], text[], text[], text[], text[], uuid[], text[], uuid[], text[], bigint[], bigint[],
    smallint[], text[], text[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[],
    boolean[], bigint, text, boolean);

-- Writes calls and their ends, each once in a list. An end stays; what is open is replaced (save who
-- asked for what), and what it had reserved is given back to the month in which it was opened. A call
-- that somebody journals for the first time in this moment is looked at again: 40001. `lone`: a whole
-- transaction, which keeps the sessions of open calls alive; else whoever holds their units does.
CREATE FUNCTION longshore_record(
    ids uuid[], tenants text[], requests text[], profiles text[], providers text[], models text[],
    units uuid[], batches text[], sessions uuid[], workers text[], tokens bigint[], picos bigint[],
    statuses smallint[], codes text[], answered text[], ins bigint[], outs bigint[],
    cached bigint[], cache_writes bigint[], latencies bigint[], tries bigint[], costs bigint[],
    estimates boolean[], modes smallint[], tiers text[], longs bigint[], now bigint, this_month text, lone boolean)
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
END $$;
