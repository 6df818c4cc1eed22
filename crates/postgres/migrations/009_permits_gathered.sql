-- What gathered in one process while it waited for the server: first what is given back, then what is asked
-- for, in one transaction. So the row of a pool is locked, and the disk waited for, once for many.

-- `back` are given back and `late` were waited for too long. The asks are those of longshore_permit_ask,
-- answered by their place from 1 on, in the order of the line; place 0 is what else was told.
CREATE FUNCTION longshore_permit_gathered(
    pool text, back uuid[], late uuid[], ids uuid[], max bigint, weight bigint[], priority smallint[],
    owner text[], ttl bigint[], keeps bigint[], step bigint[])
RETURNS TABLE (place bigint, answer integer, fence bigint, waited bigint, before bigint, look bigint,
    told uuid[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    durable text := current_setting('synchronous_commit');
    given boolean := false;
    news uuid[] := '{}';
    at bigint;
BEGIN
    IF cardinality($2) > 0 THEN
        news := news || longshore_permit_release($1, $2, false);
    END IF;
    IF cardinality($3) > 0 THEN
        news := news || longshore_permit_release($1, $3, true);
    END IF;
    FOR at IN SELECT a.at FROM unnest($4) WITH ORDINALITY a(id, at)
        LEFT JOIN longshore_permit g ON g.pool = $1 AND g.id = a.id
        ORDER BY g.rank, g.came, a.at
    LOOP
        SELECT at, a.answer, a.fence, a.waited, a.before, a.look, a.told
        INTO place, answer, fence, waited, before, look, told
        FROM longshore_permit_ask($1, $4[at], $5, $6[at], $7[at], $8[at], $9[at], $10[at], $11[at]) a;
        given := given OR answer = 0;
        RETURN NEXT;
    END LOOP;
    -- What was given waits for the disk, whatever went before.
    PERFORM set_config('synchronous_commit', CASE WHEN given THEN durable ELSE 'off' END, true);
    RETURN QUERY SELECT 0::bigint, 0, 0::bigint, 0::bigint, 0::bigint, 0::bigint, news;
END $$;
