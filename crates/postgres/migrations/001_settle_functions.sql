-- Functions that write the state of bulk units into their rows, and the view that reads it. Every operation that a bulk
-- unit cannot have calls one of them first; then the unit is like any other.
--
-- All transactions lock in this order: sessions, rows of units by id, rows of longshore_ready, lease groups, done groups
-- by `first_id`.
-- While a unit's row is locked it can only be claimed and be done as part of a group, so what is found here is still
-- true when the next table is searched.

-- Moves units of a lease group into their rows; NULL: all. Returns the units that were in it.
CREATE FUNCTION longshore_settle_lease_group(session_num bigint, group_fence bigint, ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Writes the state of bulk units into their rows, which must be locked. If the caller holds leases, `session_num` and
-- `fences` say which: their groups are searched before all others.
CREATE FUNCTION longshore_settle_units(ids uuid[], session_num bigint, fences bigint[]) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- The done group of a bulk unit, or a row of NULLs. Reads the groups that the unit may be in, from the nearest on: mostly
-- one.
CREATE FUNCTION longshore_done_group_of(unit uuid, unit_stream bigint, unit_rank bigint) RETURNS longshore_done_group
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_sort = off SET jit = off
AS $$
DECLARE
    found longshore_done_group;
BEGIN
    SELECT g.* INTO found FROM longshore_done_group g
    WHERE g.stream = $2 AND (g.first_rank, g.first_id) <= ($3, $1) AND g.last_rank >= $3 AND $1 = ANY(g.units)
    ORDER BY g.first_rank DESC, g.first_id DESC LIMIT 1;
    RETURN found;
END $$;

-- Moves units of a done group into their rows, which must be locked. Returns the units that were in it.
CREATE FUNCTION longshore_settle_done_group(stream bigint, first_rank bigint, first_id uuid, ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Writes the state of all bulk units that a session leases into their rows, and locks these. The session's row must be
-- locked, so that it claims nothing more.
CREATE FUNCTION longshore_settle_session(session_num bigint) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    found record;
BEGIN
    PERFORM 1 FROM longshore_unit u WHERE u.id = ANY(ARRAY(
      SELECT unnest(g.units) FROM longshore_lease_group g WHERE g.session = $1)) ORDER BY u.id FOR UPDATE;
    FOR found IN SELECT g.fence FROM longshore_lease_group g WHERE g.session = $1 ORDER BY g.fence LOOP
        PERFORM longshore_settle_lease_group($1, found.fence, NULL);
    END LOOP;
END $$;

-- Writes the state of the bulk units among these leases of a session into their rows. A transaction that takes long is
-- preceded by one of its own for this (`single_statement`): a lease group must not stay locked, since other units of it
-- end meanwhile. Returns the streams of these units.
CREATE FUNCTION longshore_settle_leases(session uuid, ids uuid[], fences bigint[], single_statement boolean)
RETURNS bigint[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- The state of a bulk unit, as its row would have it.
CREATE FUNCTION longshore_bulk_state(unit uuid, unit_stream bigint, unit_rank bigint)
RETURNS TABLE (state smallint, sort_key bigint, fence bigint, session bigint, started_at bigint, attempt integer)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off
AS $$
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
END $$;

-- Units as if all had their state in their row.
CREATE VIEW longshore_unit_current AS
SELECT u.id, u.stream, coalesce(b.state, u.state) AS state, coalesce(b.sort_key, u.sort_key) AS sort_key, u.priority,
       coalesce(b.attempt, u.attempt) AS attempt, u.lost, coalesce(b.fence, u.fence) AS fence,
       coalesce(b.session, u.session) AS session, coalesce(b.started_at, u.started_at) AS started_at,
       u.created_at, u.deadline, u.flags, u.bytes, u.dedup_key, u.cap_key, u.spec, u.failure, u.progress, u.payload,
       u.checkpoint, u.result
FROM longshore_unit u
LEFT JOIN LATERAL (
    SELECT b.* FROM longshore_bulk_state(u.id, u.stream, u.sort_key) b WHERE u.state = 9) b ON true;

-- Deletes at most `max_units` bulk units that were done at `ended_before`, with their groups, and counts them. Units that
-- another transaction has locked wait for the next call. Each step is a statement of its own: it sees the groups as they
-- are once they are locked.
CREATE FUNCTION longshore_prune_done_groups(ended_before bigint, max_units bigint) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;
