-- Bounded pools: how many may use what is scarce at once, wherever they run. Times are microseconds by the
-- server's clock, read under the lock of the pool's row.
--
-- Each verb is one function and one transaction of its own: one round trip, and no lock outlives it. What
-- gives or prolongs a permit waits for the disk, so that a crash of the server does not take it from a holder
-- that lives on; what gives one back does not: at worst its lease must end it.

CREATE TABLE longshore_pool (
    name     text PRIMARY KEY,
    max      bigint NOT NULL CHECK (max >= 0),
    in_use   bigint NOT NULL DEFAULT 0 CHECK (in_use >= 0),  -- the weight of what is held
    fence    bigint NOT NULL DEFAULT 0,
    came     bigint NOT NULL DEFAULT 0,      -- when the last one came: the next comes later
    next_end bigint NOT NULL DEFAULT 0,      -- no lease and no place ends before this
    acquired bigint NOT NULL DEFAULT 0,
    timeouts bigint NOT NULL DEFAULT 0,
    expired  bigint NOT NULL DEFAULT 0,
    waits    bigint[] NOT NULL DEFAULT array_fill(0, ARRAY[22]) CHECK (cardinality(waits) = 22)
) WITH (fillfactor = 20); -- every verb changes it: room for its next versions on its own page

-- Who holds (it has a fence) and who waits (it has a rank).
CREATE TABLE longshore_permit (
    pool     text NOT NULL,
    id       uuid NOT NULL,
    owner    text NOT NULL,
    weight   bigint NOT NULL CHECK (weight > 0),
    priority smallint NOT NULL,
    came     bigint NOT NULL,
    ends     bigint NOT NULL,                -- its lease, or its place in the line
    fence    bigint,
    since    bigint,                         -- when it was given
    rank     bigint,
    told     boolean NOT NULL DEFAULT false, -- that asking again is worth it, since it last asked
    CHECK ((fence IS NULL) = (rank IS NOT NULL)),
    PRIMARY KEY (pool, id)
);

CREATE INDEX longshore_permit_line ON longshore_permit (pool, rank, came) WHERE rank IS NOT NULL;

CREATE TABLE longshore_alert (
    pool  text NOT NULL,
    alert text NOT NULL,
    until bigint NOT NULL,                   -- told by nobody before
    PRIMARY KEY (pool, alert)
);

CREATE FUNCTION longshore_micros() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Locks a pool, makes it if there is none and a maximum is named, and drops what has run out. The time; NULL if
-- there is no such pool.
CREATE FUNCTION longshore_permit_open(name text, max bigint) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- Says of those for whom there is room now, in order, that asking again is worth it; whom it is new to.
CREATE FUNCTION longshore_permit_tell(name text) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- Ends a lease or a place in line; whether there was one. The pool is locked.
CREATE FUNCTION longshore_permit_end(name text, id uuid) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- answer: 0 granted, 1 waiting, 2 full, 3 too heavy. `keeps` is NULL for one that does not wait, `step` what
-- its priority weighs.
CREATE FUNCTION longshore_permit_ask(
    pool text, id uuid, max bigint, weight bigint, priority smallint, owner text, ttl bigint,
    keeps bigint, step bigint)
RETURNS TABLE (answer integer, fence bigint, waited bigint, before bigint, look bigint, told uuid[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- Begins leases anew; those that are not held.
CREATE FUNCTION longshore_permit_extend(pool text, ids uuid[], ttl bigint)
RETURNS TABLE (lost uuid[], told uuid[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- Gives permits back and leaves the line; whom that lets go on. `late` is whether they waited too long.
CREATE FUNCTION longshore_permit_release(pool text, ids uuid[], late boolean) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- Sets the maximum. Those that are too heavy now leave the line, to be told so when they ask again.
CREATE FUNCTION longshore_permit_resize(pool text, max bigint) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;

-- Forgets everything but the maximum, and that fences go on; who waited.
CREATE FUNCTION longshore_permit_reset(pool text) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
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
END $$;
