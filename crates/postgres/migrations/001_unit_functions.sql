-- Functions for the life of a unit. The server plans a statement each time it is sent, which for a single unit took
-- longer than running it. The statements of a function are planned once per connection. (Prepared statements do the
-- same, but not through a transaction pooler.) The settings of a function make the planner choose index scans,
-- whatever the statistics are at the moment.
--
-- A function also counts what it moves (longshore_stream_delta), so it can be a whole transaction that takes one round
-- trip. If it is (`single_statement`), it also makes the settings that other transactions begin with.

-- Streams of which no unit may start: their queue or lane is paused, their tenant is suspended, or their batch is
-- paused, failed or cancelled. A complete batch has no unit left that could start. A function, because every start
-- calls it and the server keeps the plan of a function; planning took longer than the rest of a start.
CREATE FUNCTION longshore_paused_streams() RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT s.num FROM longshore_stream s JOIN longshore_lane l ON l.num = s.lane
        WHERE l.paused OR l.queue IN (SELECT num FROM longshore_queue WHERE paused)
        OR l.tenant IN (SELECT name FROM longshore_tenant WHERE suspended)
        UNION ALL
        SELECT s.num FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
        WHERE b.status <> 'complete' AND b.status NOT IN ('queued', 'running'));
END $$;

-- Streams that have units for a claim. `scan_mode`: 0 all streams with ready units, one step in the index for each;
-- 1 the streams of the batch; 2 the streams in `resumed_streams`. Without a row the session has ended; with one row
-- without a stream there is nothing to claim.
CREATE FUNCTION longshore_candidate_streams(
    session uuid, kinds text[], queues text[], tenant text, batch text, resumed_streams bigint[],
    all_queues boolean, scan_mode integer)
RETURNS TABLE (
    session_num bigint, scan_micros bigint, stream bigint, has_ready boolean, has_alone boolean, weight integer,
    cap integer, tenant_weight integer, tenant_cap integer, sort_key bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    streams bigint[];
    sort_keys bigint[];
BEGIN
    IF scan_mode = 0 THEN
        -- With the first unit of each stream, so that the claim does not search the index for it again.
        WITH RECURSIVE ready (stream, sort_key) AS (
          (SELECT u.stream, u.sort_key FROM longshore_unit u WHERE u.state = 2
            ORDER BY u.stream, u.sort_key LIMIT 1)
          UNION ALL SELECT n.stream, n.sort_key FROM ready r CROSS JOIN LATERAL (
            SELECT u.stream, u.sort_key FROM longshore_unit u WHERE u.state = 2
            AND u.stream > r.stream ORDER BY u.stream, u.sort_key LIMIT 1) n)
        SELECT array_agg(r.stream), array_agg(r.sort_key) INTO streams, sort_keys FROM ready r;
    ELSIF scan_mode = 1 THEN
        -- A batch has few streams, so each one is checked.
        SELECT array_agg(s.num), array_agg(n.sort_key) INTO streams, sort_keys
        FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
        CROSS JOIN LATERAL (SELECT u.sort_key FROM longshore_unit u WHERE u.stream = s.num
          AND u.state = 2 ORDER BY u.sort_key LIMIT 1) n WHERE b.name = $5;
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
END $$;

-- Claims up to `max_units` of each stream for a session, and skips units that another transaction has locked. The
-- first `starts` of each stream start at once. If one of the units needs a check (flag 1), or `only_lock` is set, all
-- are locked and none is claimed. The update finds its rows by ctid: a row that was changed between the snapshot and
-- the lock has another ctid, and is not claimed this time.
CREATE FUNCTION longshore_claim_units(
    streams bigint[], max_units bigint[], starts bigint[], after_sort_keys bigint[], after_ids uuid[],
    now bigint, session_num bigint, only_lock boolean)
RETURNS TABLE (
    id uuid, stream bigint, state smallint, sort_key bigint, priority smallint, attempt integer,
    lost integer, fence bigint, session bigint, started_at bigint, created_at bigint,
    deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text,
    progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT u.*, row_number() OVER (PARTITION BY u.stream ORDER BY u.sort_key, u.id)
        <= w.started AS starts
      FROM unnest($1, $2, $3, $4, $5) AS w (stream, max_units, started, sort_key, id)
      CROSS JOIN LATERAL (
        SELECT u.stream, u.sort_key, u.id, u.flags, u.ctid AS tid FROM longshore_unit u
        WHERE u.stream = w.stream AND u.state = 2 AND (u.sort_key, u.id) > (w.sort_key, w.id)
        ORDER BY u.sort_key, u.id LIMIT w.max_units FOR UPDATE SKIP LOCKED) u),
    plain AS MATERIALIZED (
      SELECT NOT $8 AND coalesce(bool_and(f.flags & 1 = 0), true) AS all FROM found f),
    taken AS (
      -- A crash of the server can undo a claim. The new fence is larger than any that was lost with it.
      UPDATE longshore_unit u SET state = 3, sort_key = $6, session = $7,
        fence = greatest(u.fence + 1, $6), attempt = u.attempt + f.starts::int,
        started_at = CASE WHEN f.starts THEN $6 END
      FROM found f WHERE u.ctid = f.tid AND (SELECT p.all FROM plain p)
      RETURNING u.id, u.stream, u.state, u.sort_key, u.priority, u.attempt, u.lost, u.fence,
        u.session, u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec,
        u.failure, u.progress, u.payload, u.checkpoint, u.result, f.sort_key AS rank),
    counted AS (
      INSERT INTO longshore_stream_delta (stream, ready, leased)
      SELECT t.stream, -count(*), count(*) FROM taken t GROUP BY t.stream)
    SELECT t.*, true FROM taken t
    UNION ALL
    SELECT u.id, u.stream, u.state, u.sort_key, u.priority, u.attempt, u.lost, u.fence, u.session,
      u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec, u.failure,
      u.progress, u.payload, u.checkpoint, u.result, u.sort_key, false
    FROM found f JOIN longshore_unit u ON u.ctid = f.tid WHERE NOT (SELECT p.all FROM plain p);
END $$;

-- A whole claim, for the case that needs no decision: one stream has units, no cap applies, no unit must run alone,
-- and none of the units needs a check. Without a row the session has ended. The first row has no unit and says how
-- many streams are candidates (2 if the claim must take the slow path for any reason), which stream, and its data.
-- The other rows are units. A unit that is not `taken` needs a check: nothing was claimed.
CREATE FUNCTION longshore_claim_fast(
    session uuid, kinds text[], queues text[], tenant text, batch text, resumed_streams bigint[],
    all_queues boolean, scan_mode integer, min_sort_key bigint, max_units bigint, starts bigint, now bigint)
RETURNS TABLE (
    id uuid, stream bigint, state smallint, sort_key bigint, priority smallint, attempt integer,
    lost integer, fence bigint, session_num bigint, started_at bigint, created_at bigint,
    deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text,
    progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean,
    candidates integer, only_stream bigint, first_sort_key bigint, scan_micros bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
    -- As in longshore_claim_units, but for one stream, and without copying each row twice.
    RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT u.tid, u.sort_key, u.flags, row_number() OVER (ORDER BY u.sort_key, u.id) <= $11 AS starts
      FROM (
        SELECT u.sort_key, u.id, u.flags, u.ctid AS tid FROM longshore_unit u
        WHERE u.stream = summary.stream AND u.state = 2
        AND (u.sort_key, u.id) > (summary.sort_key, '00000000-0000-0000-0000-000000000000'::uuid)
        ORDER BY u.sort_key, u.id LIMIT $10 FOR UPDATE SKIP LOCKED) u),
    plain AS MATERIALIZED (
      SELECT coalesce(bool_and(f.flags & 1 = 0), true) AS all FROM found f),
    taken AS (
      UPDATE longshore_unit u SET state = 3, sort_key = $12, session = summary.session_num,
        fence = greatest(u.fence + 1, $12), attempt = u.attempt + f.starts::int,
        started_at = CASE WHEN f.starts THEN $12 END
      FROM found f WHERE u.ctid = f.tid AND (SELECT p.all FROM plain p)
      RETURNING u.id, u.stream, u.state, u.sort_key, u.priority, u.attempt, u.lost, u.fence,
        u.session, u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec,
        u.failure, u.progress, u.payload, u.checkpoint, u.result, f.sort_key AS rank, true AS taken),
    counted AS (
      INSERT INTO longshore_stream_delta (stream, ready, leased)
      SELECT t.stream, -count(*), count(*) FROM taken t GROUP BY t.stream)
    SELECT t.*, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint FROM taken t
    UNION ALL
    SELECT u.id, u.stream, u.state, u.sort_key, u.priority, u.attempt, u.lost, u.fence, u.session,
      u.started_at, u.created_at, u.deadline, u.flags, u.bytes, u.cap_key, u.spec, u.failure,
      u.progress, u.payload, u.checkpoint, u.result, u.sort_key, false, NULL, NULL, NULL, NULL
    FROM (SELECT f.tid FROM found f WHERE NOT (SELECT p.all FROM plain p) LIMIT 1) f
    JOIN longshore_unit u ON u.ctid = f.tid;
END $$;

-- Whether these streams have ready units, also units that another transaction has locked.
CREATE FUNCTION longshore_has_ready_units(streams bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM unnest($1) AS w (stream) CROSS JOIN LATERAL (
      SELECT 1 FROM longshore_unit u WHERE u.stream = w.stream AND u.state = 2 LIMIT 1) u);
END $$;

-- Logs that a session starts prefetched units, if they are still its own and may start. The lock keeps the session
-- from ending before the commit. Always a whole transaction. Returns one row if the session may start all of them, as
-- is usual (`all_started`); else a row for each unit that it may start, and one without a unit if there is none.
-- Without a row the session has ended.
CREATE FUNCTION longshore_start_units(session uuid, ids uuid[], fences bigint[], now bigint, cancel_flag bigint)
RETURNS TABLE (all_started boolean, id uuid, fence bigint, started_at bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '10s', true);
    RETURN QUERY
    WITH holder AS MATERIALIZED (
      SELECT s.num FROM longshore_session s WHERE s.id = $1 FOR KEY SHARE),
    started AS MATERIALIZED (
      SELECT u.id, u.fence, u.started_at FROM unnest($2, $3) AS f (id, fence)
      JOIN longshore_unit u ON u.id = f.id AND u.fence = f.fence
      WHERE coalesce(u.session, 0) = (SELECT h.num FROM holder h)
      AND (u.started_at IS NOT NULL OR (u.flags & $5 = 0
        AND (u.deadline IS NULL OR u.deadline > $4)
        AND u.stream <> ALL ((SELECT longshore_paused_streams())::bigint[])))),
    logged AS (
      INSERT INTO longshore_start_log (session, started_at, units, fences)
      SELECT h.num, $4, array_agg(s.id), array_agg(s.fence) FROM holder h
      JOIN started s ON s.started_at IS NULL GROUP BY h.num)
    SELECT a.all_started, s.id, s.fence, s.started_at FROM holder h
    CROSS JOIN (SELECT count(*) = cardinality($2) AS all_started FROM started s
      WHERE s.started_at IS NULL) a
    LEFT JOIN started s ON NOT a.all_started;
END $$;

-- Ends units as done if they need nothing else, as most do: no dependant, dedup key, cap or cancellation. `coalesce`
-- keeps the planner from the index by session, which under a long-running reader still has every unit that the
-- session ever held. Returns a row for each stream with the number of units, and, if not all given units were ended,
-- a row for each ended unit.
CREATE FUNCTION longshore_finish_fast(
    ids uuid[], fences bigint[], results bytea[], now bigint, session uuid, single_statement boolean)
RETURNS TABLE (stream bigint, units bigint, id uuid, fence bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    IF single_statement THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    RETURN QUERY
    WITH ended AS (
      UPDATE longshore_unit u SET state = 4, sort_key = $4, session = NULL, started_at = NULL,
        attempt = u.attempt + (u.started_at IS NULL)::int, lost = 0, progress = NULL,
        failure = NULL, result = f.result
      FROM unnest($1, $2, $3) AS f (id, fence, result)
      WHERE u.id = f.id AND u.fence = f.fence AND u.flags & ~2048 = 0
      AND coalesce(u.session, 0) = (SELECT s.num FROM longshore_session s WHERE s.id = $5)
      AND u.cap_key IS NULL RETURNING u.id, u.fence, u.stream, u.bytes),
    counted AS (
      INSERT INTO longshore_stream_delta (stream, leased, done, bytes)
      SELECT e.stream, -count(*), count(*), -sum(e.bytes)::bigint FROM ended e GROUP BY e.stream)
    SELECT e.stream, count(*), NULL::uuid, NULL::bigint FROM ended e GROUP BY e.stream
    UNION ALL
    SELECT e.stream, 0, e.id, e.fence FROM ended e
    WHERE (SELECT count(*) FROM ended) < cardinality($1);
END $$;

-- Inserts units without dedup keys, unless one of `lanes` is bounded or its tenant is suspended: then nothing is
-- inserted. A unit with an id that exists is not inserted and not counted. If not all are inserted, the last row has
-- stream 0.
CREATE FUNCTION longshore_enqueue_fast(
    ids uuid[], streams bigint[], states smallint[], sort_keys bigint[], priorities smallint[],
    deadlines bigint[], all_flags bigint[], dependency_counts integer[], sizes integer[], dedup_keys bytea[],
    cap_keys bytea[], specs text[], payloads bytea[], now bigint, lanes bigint[], single_statement boolean)
RETURNS TABLE (stream bigint, state smallint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    IF single_statement THEN
        PERFORM set_config('lock_timeout', '10s', true);
    END IF;
    RETURN QUERY
    WITH bounded AS MATERIALIZED (
      SELECT 1 FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
      LEFT JOIN longshore_tenant t ON t.name = l.tenant
      WHERE l.num = ANY($15) AND (coalesce(t.suspended, false) OR num_nonnulls(l.max_units,
      l.max_bytes, q.max_units, q.max_bytes, t.max_units, t.max_bytes) > 0) LIMIT 1),
    inserted AS (
      INSERT INTO longshore_unit (id, stream, state, sort_key, priority, deadline, flags, open_dependencies,
        bytes, dedup_key, cap_key, spec, payload, created_at)
      SELECT n.*, $14 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) n
      WHERE NOT EXISTS (SELECT 1 FROM bounded)
      ON CONFLICT (id) DO NOTHING RETURNING stream, state, bytes),
    counted AS (
      INSERT INTO longshore_stream_delta (stream, scheduled, ready, bytes, stored_bytes)
      SELECT i.stream, count(*) FILTER (WHERE i.state = 1), count(*) FILTER (WHERE i.state = 2),
        sum(i.bytes)::bigint, sum(i.bytes + 256)::bigint FROM inserted i GROUP BY i.stream)
    SELECT DISTINCT i.stream, i.state FROM inserted i
    UNION ALL SELECT 0::bigint, 0::smallint WHERE (SELECT count(*) FROM inserted) < cardinality($1);
END $$;
