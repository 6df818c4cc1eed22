-- The statements that a unit meets on its way, as functions: the server plans a statement anew each
-- time it is sent, and for a lone unit that took longer than running it. What a function runs is
-- planned once per connection and kept. (Named statements would do the same, but not through a
-- transaction pooler.) The plans are those for index look-ups, whatever statistics say at the moment.
--
-- What they move they also count (`longshore_delta`). So a function can be a verb's whole transaction,
-- sent alone, one round trip: then (`lone`) it also sets what a transaction begins with elsewhere.

-- Which streams have something for a claimer. `look`: 0 all that have ready units, one step in the
-- index for each; 1 those of the batch; 2 those in `known`.
CREATE FUNCTION longshore_eligible(
    session uuid, kinds text[], queues text[], tenant text, batch text, known bigint[],
    anywhere boolean, look integer)
RETURNS TABLE (
    me bigint, cost bigint, num bigint, has_ready boolean, has_alone boolean, weight integer,
    cap integer, tenant_weight integer, tenant_cap integer, place bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Takes so many units of each stream for a session (`owner`), those that others are not at; the first
-- `starts` of each begin at once. If one of them has more to it than a plain one, or only a look was
-- asked for, all are merely locked. The update goes straight to the rows that were found: one that
-- was changed between our snapshot and our lock is not there any more, and is not taken this time.
CREATE FUNCTION longshore_take(
    streams bigint[], units bigint[], starts bigint[], places bigint[], ids uuid[], now bigint,
    owner bigint, only_look boolean)
RETURNS TABLE (
    id uuid, stream bigint, state smallint, place bigint, priority smallint, attempt integer,
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
END $$;

-- A whole claim where nothing is to be weighed: one stream has something, no cap bounds it, nothing
-- waits that must run alone, and all that is found is plain. No row at all: the session is gone.
-- Otherwise the first has no unit and says of how many `streams` it is known that they have something
-- (2 if the long way must be gone, for whatever reason), of which one, and what is to be known of it.
-- The others are units; one that is not `taken`: not all were plain, and nothing was done.
CREATE FUNCTION longshore_claim_plainly(
    session uuid, kinds text[], queues text[], tenant text, batch text, known bigint[],
    anywhere boolean, look integer, floor bigint, units bigint, starts bigint, now bigint)
RETURNS TABLE (
    id uuid, stream bigint, state smallint, place bigint, priority smallint, attempt integer,
    lost integer, fence bigint, owner bigint, started_at bigint, created_at bigint,
    deadline bigint, flags bigint, bytes integer, cap_key bytea, spec text, failure text,
    progress text, payload bytea, checkpoint bytea, result bytea, rank bigint, taken boolean,
    streams integer, source bigint, weight integer, tenant_weight integer, first bigint,
    cost bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Whether these streams have ready units, in whoever's hands they are at the moment.
CREATE FUNCTION longshore_has_ready(streams bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM unnest($1) AS w (stream) CROSS JOIN LATERAL (
      SELECT 1 FROM longshore_unit u WHERE u.stream = w.stream AND u.state = 2 LIMIT 1) u);
END $$;

-- Notes that a session starts units that it claimed ahead: those that are still its own and wanted.
-- It cannot end before this is committed. Always a whole transaction. One row if it may start `every`
-- one, as mostly; else a row for each that it may, and one without a unit if there is none. No row at
-- all: the session is gone.
CREATE FUNCTION longshore_begin(session uuid, ids uuid[], fences bigint[], now bigint, cancel bigint)
RETURNS TABLE (every boolean, id uuid, fence bigint, started_at bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Ends units well where there is nothing more to them, as with most: nobody waits for them, no key,
-- no cap. `coalesce` keeps the planner from looking by session: under a long-running reader
-- everything the session ever held is still in that index. A row for each stream with how many; if
-- they are not all that were given, also a row for each unit.
CREATE FUNCTION longshore_end_plainly(
    ids uuid[], fences bigint[], results bytea[], now bigint, session uuid, lone boolean)
RETURNS TABLE (stream bigint, units bigint, id uuid, fence bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;

-- Inserts units without keys, unless one of `lanes` has a bound or its tenant is suspended: then
-- nothing is done, and the one row has stream 0. An id that is known already is a repeat, and not
-- counted.
CREATE FUNCTION longshore_send_plainly(
    ids uuid[], streams bigint[], states smallint[], places bigint[], priorities smallint[],
    deadlines bigint[], all_flags bigint[], waits integer[], sizes integer[], keys bytea[],
    caps bytea[], specs text[], payloads bytea[], now bigint, lanes bigint[], lone boolean)
RETURNS TABLE (stream bigint, state smallint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0.01 SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
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
END $$;
