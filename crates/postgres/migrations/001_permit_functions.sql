-- Functions for bounded pools. Each operation is one function and one transaction: one round trip, and no lock outlives
-- it. A commit that grants or renews a permit waits for the disk, so that a crash of the server does not take a permit
-- from a live holder. A commit that releases one does not: if it is lost, the lease expires.

CREATE FUNCTION longshore_now_micros() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Locks a pool, creates it if it does not exist and `max_weight` is given, and removes expired permits and waiters.
-- Returns the time; NULL if there is no such pool.
CREATE FUNCTION longshore_permit_lock_pool(name text, max_weight bigint) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    due bigint;
    now bigint;
    ended record;
BEGIN
    SELECT p.next_expiry INTO due FROM longshore_bounded_pool p WHERE p.name = $1 FOR UPDATE;
    IF NOT FOUND THEN
        IF $2 IS NULL THEN
            RETURN NULL;
        END IF;
        INSERT INTO longshore_bounded_pool (name, max_weight) VALUES ($1, $2) ON CONFLICT DO NOTHING;
        SELECT p.next_expiry INTO due FROM longshore_bounded_pool p WHERE p.name = $1 FOR UPDATE;
    END IF;
    now := longshore_now_micros();
    IF now >= due THEN
        WITH ended AS (
          DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.expires_at <= now
          RETURNING g.weight, g.fence)
        SELECT coalesce(sum(g.weight) FILTER (WHERE g.fence IS NOT NULL), 0) AS weight,
          count(g.fence) AS leases INTO ended FROM ended g;
        UPDATE longshore_bounded_pool p SET in_use = p.in_use - ended.weight,
          expired = p.expired + ended.leases, next_expiry = coalesce(
            (SELECT min(g.expires_at) FROM longshore_permit g WHERE g.pool = $1), 9223372036854775807)
        WHERE p.name = $1;
    END IF;
    RETURN now;
END $$;

-- Marks the first waiters for which there is room as notified, in order. Returns the newly marked ones, which the
-- caller wakes.
CREATE FUNCTION longshore_permit_notify(name text) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    free bigint;
    next record;
    unnotified uuid[] := '{}';
BEGIN
    SELECT p.max_weight - p.in_use INTO free FROM longshore_bounded_pool p WHERE p.name = $1;
    IF free <= 0 THEN
        RETURN unnotified;
    END IF;
    FOR next IN SELECT g.id, g.weight, g.notified FROM longshore_permit g
        WHERE g.pool = $1 AND g.rank IS NOT NULL ORDER BY g.rank, g.arrived_at
    LOOP
        free := free - next.weight;
        EXIT WHEN free < 0;
        IF NOT next.notified THEN
            unnotified := unnotified || next.id;
        END IF;
    END LOOP;
    IF cardinality(unnotified) > 0 THEN
        UPDATE longshore_permit g SET notified = true WHERE g.pool = $1 AND g.id = ANY(unnotified);
    END IF;
    RETURN unnotified;
END $$;

-- Removes a permit or a waiter; returns whether it existed. The pool is locked.
CREATE FUNCTION longshore_permit_remove(name text, id uuid) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    removed record;
BEGIN
    DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.id = $2
    RETURNING g.weight, g.fence INTO removed;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF removed.fence IS NOT NULL THEN
        UPDATE longshore_bounded_pool p SET in_use = p.in_use - removed.weight WHERE p.name = $1;
    END IF;
    RETURN true;
END $$;

-- Grants a permit, or adds the request to the wait queue. `outcome`: 0 granted, 1 waiting, 2 full, 3 heavier than the
-- pool. `wait_ttl` is NULL for a request that does not wait; `priority_offset` is what its priority adds to its rank.
-- A waiter retries after `retry_after` microseconds, or when it is notified.
CREATE FUNCTION longshore_permit_acquire(
    pool text, id uuid, max_weight bigint, weight bigint, priority smallint, owner text, ttl bigint,
    wait_ttl bigint, priority_offset bigint)
RETURNS TABLE (outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint, notified uuid[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now bigint := longshore_permit_lock_pool($1, $3);
    p longshore_bounded_pool;
    existing longshore_permit;
    is_repeat boolean;
    my_rank bigint;
    my_arrival bigint;
    queue record;
BEGIN
    SELECT * INTO existing FROM longshore_permit g WHERE g.pool = $1 AND g.id = $2;
    is_repeat := FOUND;
    IF existing.fence IS NOT NULL THEN
        UPDATE longshore_permit g SET expires_at = now + $7 WHERE g.pool = $1 AND g.id = $2;
        UPDATE longshore_bounded_pool q SET next_expiry = now + $7 WHERE q.name = $1 AND q.next_expiry > now + $7;
        RETURN QUERY SELECT 0, existing.fence, existing.acquired_at - existing.arrived_at, 0::bigint, 0::bigint,
          longshore_permit_notify($1);
        RETURN;
    END IF;
    SELECT * INTO p FROM longshore_bounded_pool q WHERE q.name = $1;
    my_arrival := CASE WHEN is_repeat THEN existing.arrived_at ELSE greatest(now, p.last_arrival + 1) END;
    my_rank := CASE WHEN is_repeat THEN existing.rank ELSE my_arrival + $9 END;
    IF $4 <= p.max_weight - p.in_use AND NOT EXISTS (
      SELECT 1 FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL
      AND (g.rank, g.arrived_at) < (my_rank, my_arrival))
    THEN
        my_arrival := least(my_arrival, now);
        -- Not only the next number: after a restore of a backup, it is still larger than all fences granted since.
        p.fence := greatest(p.fence + 1, now);
        UPDATE longshore_bounded_pool q SET in_use = q.in_use + $4, fence = p.fence,
          acquired = q.acquired + 1, next_expiry = least(q.next_expiry, now + $7),
          wait_histogram[s.bucket] = q.wait_histogram[s.bucket] + 1
        FROM (SELECT 1 + least(21, length(ltrim(((now - my_arrival) / 1000)::bit(64)::text, '0')))
          AS bucket) s
        WHERE q.name = $1;
        INSERT INTO longshore_permit AS g
          (pool, id, owner, weight, priority, arrived_at, expires_at, fence, acquired_at)
        VALUES ($1, $2, $6, $4, $5, my_arrival, now + $7, p.fence, now)
        ON CONFLICT (pool, id) DO UPDATE SET expires_at = now + $7, fence = p.fence, acquired_at = now, rank = NULL;
        RETURN QUERY SELECT 0, p.fence, now - my_arrival, 0::bigint, 0::bigint,
          longshore_permit_notify($1);
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF $4 > p.max_weight OR $8 IS NULL THEN
        IF is_repeat THEN
            PERFORM longshore_permit_remove($1, $2);
        END IF;
        RETURN QUERY SELECT CASE WHEN $4 > p.max_weight THEN 3 ELSE 2 END, p.max_weight, 0::bigint, 0::bigint,
          0::bigint, longshore_permit_notify($1);
        RETURN;
    END IF;
    INSERT INTO longshore_permit AS g (pool, id, owner, weight, priority, arrived_at, expires_at, rank)
    VALUES ($1, $2, $6, $4, $5, my_arrival, now + $8, my_rank)
    ON CONFLICT (pool, id) DO UPDATE SET expires_at = excluded.expires_at, notified = false;
    UPDATE longshore_bounded_pool q SET last_arrival = greatest(q.last_arrival, my_arrival),
      next_expiry = least(q.next_expiry, now + $8)
    WHERE q.name = $1 RETURNING q.next_expiry INTO p.next_expiry;
    SELECT count(*) AS ahead, min(g.expires_at) AS next_expiry INTO queue FROM longshore_permit g
    WHERE g.pool = $1 AND g.rank IS NOT NULL AND (g.rank, g.arrived_at) < (my_rank, my_arrival);
    -- The first waiter retries when a lease can expire, the others when a waiter ahead of them can. All are notified
    -- earlier if there is room for them.
    RETURN QUERY SELECT 1, 0::bigint, 0::bigint, queue.ahead,
      coalesce(queue.next_expiry, p.next_expiry) - now, longshore_permit_notify($1);
END $$;

-- Renews leases; returns the permits that are not held any more.
CREATE FUNCTION longshore_permit_extend(pool text, ids uuid[], ttl bigint)
RETURNS TABLE (lost uuid[], notified uuid[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now bigint := longshore_permit_lock_pool($1, NULL);
    held uuid[];
BEGIN
    WITH held AS (
      UPDATE longshore_permit g SET expires_at = now + $3
      WHERE g.pool = $1 AND g.id = ANY($2) AND g.fence IS NOT NULL RETURNING g.id)
    SELECT coalesce(array_agg(h.id), '{}') INTO held FROM held h;
    UPDATE longshore_bounded_pool p SET next_expiry = now + $3 WHERE p.name = $1 AND p.next_expiry > now + $3;
    RETURN QUERY SELECT ARRAY(SELECT i FROM unnest($2) i WHERE i <> ALL(held)),
      longshore_permit_notify($1);
END $$;

-- Releases permits and removes waiters; returns the waiters to wake. `timed_out` counts them as timeouts.
CREATE FUNCTION longshore_permit_release(pool text, ids uuid[], timed_out boolean) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    permit uuid;
    removed bigint := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF longshore_permit_lock_pool($1, NULL) IS NULL THEN
        RETURN '{}';
    END IF;
    FOREACH permit IN ARRAY $2 LOOP
        removed := removed + longshore_permit_remove($1, permit)::int;
    END LOOP;
    IF $3 AND removed > 0 THEN
        UPDATE longshore_bounded_pool p SET timeouts = p.timeouts + removed WHERE p.name = $1;
    END IF;
    RETURN longshore_permit_notify($1);
END $$;

-- Sets the maximum. Removes waiters that are heavier than it, and wakes them: their next request is rejected.
CREATE FUNCTION longshore_permit_resize(pool text, max_weight bigint) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    heavy uuid[];
BEGIN
    PERFORM longshore_permit_lock_pool($1, $2);
    UPDATE longshore_bounded_pool p SET max_weight = $2 WHERE p.name = $1;
    WITH heavy AS (
      DELETE FROM longshore_permit g WHERE g.pool = $1 AND g.rank IS NOT NULL AND g.weight > $2
      RETURNING g.id)
    SELECT coalesce(array_agg(h.id), '{}') INTO heavy FROM heavy h;
    RETURN heavy || longshore_permit_notify($1);
END $$;

-- Removes all permits, waiters and statistics; keeps the maximum and the fence. Returns the waiters.
CREATE FUNCTION longshore_permit_reset(pool text) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    waiters uuid[];
BEGIN
    PERFORM longshore_permit_lock_pool($1, NULL);
    WITH removed AS (DELETE FROM longshore_permit g WHERE g.pool = $1 RETURNING g.id, g.rank)
    SELECT coalesce(array_agg(g.id) FILTER (WHERE g.rank IS NOT NULL), '{}') INTO waiters FROM removed g;
    UPDATE longshore_bounded_pool p SET in_use = 0, acquired = 0, timeouts = 0, expired = 0,
      wait_histogram = array_fill(0, ARRAY[22]) WHERE p.name = $1;
    RETURN waiters;
END $$;

-- Releases and requests that a process collected while it waited for the server, in one transaction: the pool's row
-- is locked, and the disk is waited for, once for all of them. `released` permits are released, then `timed_out`
-- waiters removed, then permits acquired in the order of the wait queue. Returns a row for each request, by its index
-- from 1; the row with index 0 has the other waiters to wake.
CREATE FUNCTION longshore_permit_batch(
    pool text, released uuid[], timed_out uuid[], ids uuid[], max_weight bigint, weights bigint[],
    priorities smallint[], owners text[], ttls bigint[], wait_ttls bigint[], priority_offsets bigint[])
RETURNS TABLE (request_index bigint, outcome integer, fence bigint, waited bigint, ahead bigint, retry_after bigint,
    notified uuid[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    commit_mode text := current_setting('synchronous_commit');
    granted boolean := false;
    woken uuid[] := '{}';
    i bigint;
BEGIN
    IF cardinality($2) > 0 THEN
        woken := woken || longshore_permit_release($1, $2, false);
    END IF;
    IF cardinality($3) > 0 THEN
        woken := woken || longshore_permit_release($1, $3, true);
    END IF;
    FOR i IN SELECT a.i FROM unnest($4) WITH ORDINALITY a(id, i)
        LEFT JOIN longshore_permit g ON g.pool = $1 AND g.id = a.id
        ORDER BY g.rank, g.arrived_at, a.i
    LOOP
        SELECT i, a.outcome, a.fence, a.waited, a.ahead, a.retry_after, a.notified
        INTO request_index, outcome, fence, waited, ahead, retry_after, notified
        FROM longshore_permit_acquire($1, $4[i], $5, $6[i], $7[i], $8[i], $9[i], $10[i], $11[i]) a;
        granted := granted OR outcome = 0;
        RETURN NEXT;
    END LOOP;
    -- Grants wait for the disk, also if a release before them set another mode.
    PERFORM set_config('synchronous_commit', CASE WHEN granted THEN commit_mode ELSE 'off' END, true);
    RETURN QUERY SELECT 0::bigint, 0, 0::bigint, 0::bigint, 0::bigint, 0::bigint, woken;
END $$;
