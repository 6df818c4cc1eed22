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
-- without a stream there is nothing to claim. `join_collapse_limit` keeps the planner from comparing every lane with every
-- stream that was found.
CREATE FUNCTION longshore_candidate_streams(
    session uuid, kinds text[], queues text[], tenant text, batch text, resumed_streams bigint[],
    all_queues boolean, scan_mode integer)
RETURNS TABLE (
    session_num bigint, scan_micros bigint, stream bigint, has_ready boolean, has_alone boolean, weight integer,
    cap integer, tenant_weight integer, tenant_cap integer, sort_key bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET join_collapse_limit = 1
AS $$
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
END $$;

-- Claims up to `max_units` of each stream for a session, and skips units that another transaction has locked. The
-- first `starts` of each stream start at once. If all of them are bulk units, and none of the streams is one of
-- `settled_streams`, they become lease groups with the fences from `first_fence` on. Else their rows are updated. If one of the units needs a check, or `only_lock` is set, all are
-- locked and none is claimed.
--
-- Returns a row for each unit, or for each lease group: then the columns of single units are NULL, and those from `ids` on
-- have an element for each unit.
--
-- Other operations lock a unit's row first, then its row of longshore_ready. A claim begins with the latter, so it
-- waits for no lock of a unit's row: it leaves such a unit.
CREATE FUNCTION longshore_claim_units(
    streams bigint[], max_units bigint[], starts bigint[], after_sort_keys bigint[], after_ids uuid[],
    now bigint, session_num bigint, first_fence bigint, settled_streams bigint[], only_lock boolean)
RETURNS TABLE (
    id uuid, stream bigint, state smallint, sort_key bigint, priority smallint, attempt integer,
    lost integer, fence bigint, session bigint, started_at bigint, created_at bigint,
    deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text,
    progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean,
    ids uuid[], ranks bigint[], priorities smallint[], all_created_at bigint[],
    all_flags bigint[], sizes integer[], specs text[], payloads bytea[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off SET join_collapse_limit = 1
AS $$
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
END $$;

-- A whole claim, for the case that needs no decision: one stream has units, no cap applies, no unit must run alone,
-- and none of the units needs a check. Without a row the session has ended. The first row has no unit and says how
-- many streams are candidates (2 if the claim must take the slow path for any reason), which stream, and its data.
-- The other rows are units. A unit that is not `taken` needs a check: nothing was claimed.
CREATE FUNCTION longshore_claim_fast(
    session uuid, kinds text[], queues text[], tenant text, batch text, resumed_streams bigint[],
    all_queues boolean, scan_mode integer, min_sort_key bigint, max_units bigint, starts bigint, now bigint,
    first_fence bigint, settled_streams bigint[])
RETURNS TABLE (
    id uuid, stream bigint, state smallint, sort_key bigint, priority smallint, attempt integer,
    lost integer, fence bigint, session_num bigint, started_at bigint, created_at bigint,
    deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text,
    progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean,
    ids uuid[], ranks bigint[], priorities smallint[], all_created_at bigint[],
    all_flags bigint[], sizes integer[], specs text[], payloads bytea[],
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
    RETURN QUERY
    SELECT c.*, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint
    FROM longshore_claim_units(ARRAY[summary.stream], ARRAY[$10], ARRAY[$11], ARRAY[summary.sort_key],
      ARRAY['00000000-0000-0000-0000-000000000000'::uuid], $12, summary.session_num, $13, $14, false) c;
END $$;

-- Whether these streams have ready units, also units that another transaction has locked.
CREATE FUNCTION longshore_has_ready_units(streams bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM unnest($1) AS w (stream) CROSS JOIN LATERAL (
      SELECT 1 FROM longshore_ready u WHERE u.stream = w.stream LIMIT 1) u);
END $$;

-- Logs that a session starts prefetched units, if they are still its own and may start. The lock keeps the session
-- from ending before the commit. Always a whole transaction. Returns one row if the session may start all of them, as
-- is usual (`all_started`); else a row for each unit that it may start, and one without a unit if there is none.
-- Without a row the session has ended.
CREATE FUNCTION longshore_start_units(session uuid, ids uuid[], fences bigint[], now bigint, cancel_flag bigint)
RETURNS TABLE (all_started boolean, id uuid, fence bigint, started_at bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET join_collapse_limit = 1
AS $$
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
END $$;

-- Ends units as done if they need nothing else, as most do: no dependant, dedup key, cap or cancellation. The leases
-- are in ascending order of fence and id; `group_ends` has the position of the last one of each fence. Bulk units
-- without a result move from their lease group to a done group; of the others the row is written. `coalesce` keeps the
-- planner from the index by session, which under a long-running reader still has every unit that the session ever held.
-- Returns a row for each stream with the number of units, and, if not all given units were ended, a row for each ended
-- unit.
CREATE FUNCTION longshore_finish_fast(
    ids uuid[], fences bigint[], results bytea[], group_ends integer[], now bigint, session uuid,
    single_statement boolean)
RETURNS TABLE (stream bigint, units bigint, id uuid, fence bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Whether one of the lanes, its queue or its tenant is bounded, or its tenant is suspended.
CREATE FUNCTION longshore_is_bounded(lanes bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM longshore_lane l JOIN longshore_queue q ON q.num = l.queue
      LEFT JOIN longshore_tenant t ON t.name = l.tenant
      WHERE l.num = ANY($1) AND (coalesce(t.suspended, false) OR num_nonnulls(l.max_units,
      l.max_bytes, q.max_units, q.max_bytes, t.max_units, t.max_bytes) > 0));
END $$;

-- Whether one of the streams is deleted or will be: the process that sends has cached it for too long.
CREATE FUNCTION longshore_is_retired(streams bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM (SELECT DISTINCT n.num FROM unnest($1) AS n (num)) n
      LEFT JOIN longshore_stream s ON s.num = n.num WHERE s.num IS NULL OR s.retired_at IS NOT NULL);
END $$;

-- Inserts units without dedup keys, unless one of `lanes` is bounded, its tenant is suspended or a stream is retired:
-- then nothing is inserted. A unit with an id that exists is not inserted and not counted. If not all are inserted, the last row has
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
END $$;

-- Inserts bulk units that differ in nothing but id and payload, as in most sends of many units: this takes half the
-- time of longshore_enqueue_fast. Returns false, and inserts nothing, if one of `lanes` is bounded, its tenant is
-- suspended, the stream is retired, or an id exists.
CREATE FUNCTION longshore_enqueue_bulk(
    stream bigint, sort_key bigint, priority smallint, flags bigint, ids uuid[], sizes integer[], payloads bytea[],
    now bigint, lanes bigint[], single_statement boolean)
RETURNS boolean LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;
