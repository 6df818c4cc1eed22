-- Functions for bounded pools. Each operation is one function and one transaction: one round trip, and no lock outlives
-- it. Operations lock the pool's row of longshore_pool_state first.
--
-- A transaction that changes only unlogged tables does not wait for the disk. The few that change longshore_bounded_pool
-- do, even if the session's default is not to: a maximum, a longer lease or a range of fences must not be lost after it
-- was used.
--
-- The settings of the functions that clients call apply to the functions that these call. Plain index scans mark the
-- entries of deleted permits, so that later scans skip them; other scans would read all rows deleted since the last
-- vacuum.

CREATE FUNCTION longshore_now_micros() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The lease of a permit that is granted to a waiter with another request's reply is longer by this time, within which
-- the waiter must receive it. `HANDOVER_GRACE` in permits/registry.rs repeats the value.
CREATE FUNCTION longshore_handover_grace() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 1000000::bigint $$;

-- Makes the commit of this transaction wait for the disk.
CREATE FUNCTION longshore_commit_durably() RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Locks a pool's state. Creates the pool if it does not exist and `max_weight` is given; no row if it does not exist. A
-- pool without its state is new or lost it: nothing is granted to its longest lease after the loss.
CREATE FUNCTION longshore_permit_lock_pool(name text, max_weight bigint) RETURNS longshore_pool_state
LANGUAGE plpgsql SET enable_seqscan = on
AS $$
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
END $$;

-- Locks a pool, removes expired permits and waiters, and makes sure that `lease` and the next `fences` fences may be
-- granted. Returns the pool's state, which the caller writes back (longshore_permit_save).
CREATE FUNCTION longshore_permit_begin(name text, max_weight bigint, lease bigint, fences bigint)
RETURNS longshore_pool_state
LANGUAGE plpgsql
AS $$
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
END $$;

CREATE FUNCTION longshore_permit_save(state longshore_pool_state) RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    UPDATE longshore_pool_state s SET max_weight = $1.max_weight, max_lease = $1.max_lease,
      fence_limit = $1.fence_limit, data_lost_at = $1.data_lost_at, fence = $1.fence, in_use = $1.in_use,
      waiting = $1.waiting, last_arrival = $1.last_arrival, next_expiry = $1.next_expiry, acquired = $1.acquired,
      timeouts = $1.timeouts, expired = $1.expired, wait_histogram = $1.wait_histogram
    WHERE s.name = $1.name;
END $$;

-- The element of `wait_histogram` that counts a wait.
CREATE FUNCTION longshore_wait_bucket(waited bigint) RETURNS integer LANGUAGE sql IMMUTABLE
AS $$
    SELECT 1 + width_bucket($1 / 1000, '{1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,
      262144,524288,1048576}'::bigint[])
$$;

-- Runs the releases and requests that a process has collected. First `released` permits are released and `timed_out`
-- waiters removed. Then permits are granted in the order of the wait queue, to the requests of this call and to
-- `listening` waiters of the same process, which learn of it from the reply. From the first waiter of another process
-- on, waiters for which there is room are only told to retry.
--
-- Returns a row for each request (`outcome` 0 granted, 1 waiting, 2 full, 3 heavier than the pool; then its maximum is in
-- `fence`), for each granted permit of a listening waiter (0), and for each other waiter to wake (4). `longest_lease`,
-- `total_weight` and `shortest_wait` are those of all requests. `wait_ttls` are NULL for requests that do not wait;
-- `rank_offsets` are what priorities add to ranks. A waiter retries after `retry_after` microseconds, or when it is woken.
CREATE FUNCTION longshore_permit_batch(
    pool text, released uuid[], timed_out uuid[], listening uuid[], ids uuid[], max_weight bigint, weights bigint[],
    priorities smallint[], owners text[], leases bigint[], wait_ttls bigint[], rank_offsets bigint[],
    longest_lease bigint, total_weight bigint, shortest_wait bigint)
RETURNS TABLE (id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
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
END $$;

-- Requests one permit; as longshore_permit_batch. If there is room, no waiter and nothing to expire, two statements do.
CREATE FUNCTION longshore_permit_acquire(
    pool text, permit uuid, max_weight bigint, weight bigint, priority smallint, owner text, lease bigint,
    wait_ttl bigint, rank_offset bigint)
RETURNS TABLE (id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
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
END $$;

-- Releases permits and removes waiters; as longshore_permit_batch. If no request waits, three statements do.
CREATE FUNCTION longshore_permit_release(pool text, ids uuid[])
RETURNS TABLE (id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
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
END $$;

-- Renews leases. Returns the permits that are not held any more (`outcome` 5), and the waiters to wake (4).
CREATE FUNCTION longshore_permit_extend(pool text, ids uuid[], lease bigint) RETURNS TABLE (id uuid, outcome integer)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
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
END $$;

-- Wakes the waiters for which there is room.
CREATE FUNCTION longshore_permit_wake(pool text)
RETURNS TABLE (id uuid, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint)
LANGUAGE sql
AS $$
    SELECT * FROM longshore_permit_batch($1, '{}', '{}', '{}', '{}', NULL, '{}', '{}', '{}', '{}', '{}', '{}', 0, 0, NULL)
$$;

-- Creates a pool. If it exists, changes nothing and returns its maximum.
CREATE FUNCTION longshore_permit_create(pool text, max_weight bigint) RETURNS bigint
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM longshore_commit_durably();
    INSERT INTO longshore_bounded_pool (name, max_weight) VALUES ($1, $2) ON CONFLICT DO NOTHING;
    RETURN CASE WHEN NOT FOUND THEN (SELECT p.max_weight FROM longshore_bounded_pool p WHERE p.name = $1) END;
END $$;

-- Sets the maximum. Removes waiters that are heavier than it, and wakes them: their next request is rejected.
CREATE FUNCTION longshore_permit_resize(pool text, max_weight bigint) RETURNS TABLE (id uuid, outcome integer)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
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
END $$;

-- Removes all permits, waiters and statistics, and ends a quarantine; keeps the maximum and the fence. Returns the
-- waiters to wake.
CREATE FUNCTION longshore_permit_reset(pool text) RETURNS TABLE (id uuid, outcome integer)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    state longshore_pool_state := longshore_permit_lock_pool($1, NULL);
BEGIN
    RETURN QUERY WITH removed AS (DELETE FROM longshore_permit g WHERE g.pool = $1 RETURNING g.id, g.rank)
      SELECT r.id, 4 FROM removed r WHERE r.rank IS NOT NULL;
    UPDATE longshore_bounded_pool p SET max_lease = 0 WHERE p.name = $1;
    UPDATE longshore_pool_state s SET max_lease = 0, data_lost_at = 0, in_use = 0, waiting = 0, acquired = 0,
      timeouts = 0, expired = 0, wait_histogram = array_fill(0, ARRAY[22]) WHERE s.name = $1;
END $$;
