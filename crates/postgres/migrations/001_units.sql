-- Units, and what they are counted, claimed and paused by. The tables are those of the SQLite
-- store, so that the two can be compared by eye; where they differ it is because many processes
-- write at once here, and because PostgreSQL keeps old versions of a row until nobody can see them.
--
-- No row is updated by every transaction. A counter that were would make all of them wait for each
-- other's commit, and under a long-running reader its old versions would pile up until finding the
-- newest took longer than the work itself. So counts are kept as differences, each in a row of its
-- own (`longshore_delta`), and folded into their stream now and then.

CREATE TABLE longshore_queue (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL UNIQUE,
    paused    boolean NOT NULL DEFAULT false,
    max_units bigint CHECK (max_units >= 0),
    max_bytes bigint CHECK (max_bytes >= 0)
);

CREATE TABLE longshore_tenant (
    name       text PRIMARY KEY,
    weight     integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap        integer CHECK (cap > 0),
    max_units  bigint CHECK (max_units >= 0),
    max_bytes  bigint CHECK (max_bytes >= 0),
    suspended  boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL
);

-- Whose turn it is among lanes is not kept here: each process is fair by itself, and a sum of fair
-- shares is fair.
CREATE TABLE longshore_lane (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue     bigint NOT NULL REFERENCES longshore_queue (num),
    tenant    text NOT NULL,
    paused    boolean NOT NULL DEFAULT false,
    weight    integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap       integer,
    max_units bigint CHECK (max_units >= 0),
    max_bytes bigint CHECK (max_bytes >= 0),
    UNIQUE (queue, tenant)
);

CREATE TABLE longshore_batch (
    num          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE,
    tenant       text NOT NULL,
    kind         text NOT NULL,
    status       text NOT NULL CHECK (status IN
                 ('queued', 'running', 'paused', 'complete', 'failed', 'cancelled')),
    reason       text,
    initiated_by text NOT NULL,
    initiated_at bigint NOT NULL,
    started_at   bigint,
    completed_at bigint,
    workers      integer,
    notes        text NOT NULL,
    cursor       text NOT NULL DEFAULT '',
    sealed       boolean NOT NULL DEFAULT false,
    generation   integer NOT NULL DEFAULT 1,
    threshold    text,
    forgiven     bigint NOT NULL DEFAULT 0,
    callback     text,
    announced    integer NOT NULL DEFAULT 0 CHECK (announced <= generation),
    definition   bytea
);
CREATE INDEX longshore_batch_open ON longshore_batch (num) WHERE status <> 'complete';
-- What upkeep looks at: a batch whose end was announced has no live unit.
CREATE INDEX longshore_batch_unended ON longshore_batch (num) WHERE completed_at IS NULL;

-- A stream is the units of one lane, kind and batch. They share every switch that can hide them
-- from a claim. What a stream is never changes, so every process may remember it.
CREATE TABLE longshore_stream (
    num            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane           bigint NOT NULL REFERENCES longshore_lane (num),
    kind           text NOT NULL,
    batch          bigint NOT NULL DEFAULT 0,  -- 0: none, so that UNIQUE sees it
    blocked        bigint NOT NULL DEFAULT 0 CHECK (blocked >= 0),
    scheduled      bigint NOT NULL DEFAULT 0 CHECK (scheduled >= 0),
    ready          bigint NOT NULL DEFAULT 0 CHECK (ready >= 0),
    leased         bigint NOT NULL DEFAULT 0 CHECK (leased >= 0),
    done           bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed         bigint NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled      bigint NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    bytes          bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),  -- payloads of live units
    gone_done      bigint NOT NULL DEFAULT 0,  -- pruned, and still part of the tally
    gone_failed    bigint NOT NULL DEFAULT 0,
    gone_cancelled bigint NOT NULL DEFAULT 0,
    UNIQUE (lane, kind, batch)
);
CREATE INDEX longshore_stream_batch ON longshore_stream (batch) WHERE batch <> 0;

-- How a stream's counts moved, one row per stream and transaction, and what a checkpoint added to
-- its batch's sums (JSON). Whoever reads a count adds these up: the view below does.
CREATE TABLE longshore_delta (
    stream    bigint NOT NULL,
    blocked   bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    ready     bigint NOT NULL DEFAULT 0,
    leased    bigint NOT NULL DEFAULT 0,
    done      bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    bytes     bigint NOT NULL DEFAULT 0,
    sums      text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE VIEW longshore_count AS
SELECT s.num AS stream, s.lane, s.kind, s.batch,
       (s.blocked + coalesce(d.blocked, 0))::bigint AS blocked,
       (s.scheduled + coalesce(d.scheduled, 0))::bigint AS scheduled,
       (s.ready + coalesce(d.ready, 0))::bigint AS ready,
       (s.leased + coalesce(d.leased, 0))::bigint AS leased,
       (s.done + coalesce(d.done, 0))::bigint AS done,
       (s.failed + coalesce(d.failed, 0))::bigint AS failed,
       (s.cancelled + coalesce(d.cancelled, 0))::bigint AS cancelled,
       (s.bytes + coalesce(d.bytes, 0))::bigint AS bytes,
       s.gone_done, s.gone_failed, s.gone_cancelled
FROM longshore_stream s
LEFT JOIN (SELECT stream, sum(blocked) AS blocked, sum(scheduled) AS scheduled,
                  sum(ready) AS ready, sum(leased) AS leased, sum(done) AS done,
                  sum(failed) AS failed, sum(cancelled) AS cancelled, sum(bytes) AS bytes
           FROM longshore_delta GROUP BY stream) d ON d.stream = s.num;

-- The streams of which nothing may start: something they belong to is paused, suspended or given
-- up. A batch that is complete has nothing left that could start. A function, because each start
-- asks, and the server remembers the plan of a function; planned each time it took longer than all
-- the rest of a start.
CREATE FUNCTION longshore_closed() RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT s.num FROM longshore_stream s JOIN longshore_lane l ON l.num = s.lane
        WHERE l.paused OR l.queue IN (SELECT num FROM longshore_queue WHERE paused)
        OR l.tenant IN (SELECT name FROM longshore_tenant WHERE suspended)
        UNION ALL
        SELECT s.num FROM longshore_batch b JOIN longshore_stream s ON s.batch = b.num
        WHERE b.status <> 'complete' AND b.status NOT IN ('queued', 'running'));
END $$;

CREATE TABLE longshore_session (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id        uuid NOT NULL UNIQUE,
    label     text NOT NULL,
    version   text NOT NULL,
    kinds     text NOT NULL,
    slots     bigint NOT NULL,
    ttl       bigint NOT NULL,
    beats     bigint NOT NULL DEFAULT 0,
    opened_at bigint NOT NULL,
    beat_at   bigint NOT NULL,
    wanted    text NOT NULL DEFAULT 'work' CHECK (wanted IN ('work', 'quiet', 'drain', 'stop'))
) WITH (fillfactor = 50);  -- beats change no indexed column: they stay on their page

-- Starts of units claimed ahead that are not in the units' rows: see starts.rs.
CREATE TABLE longshore_start (
    session bigint NOT NULL,
    num     bigint GENERATED ALWAYS AS IDENTITY,
    at      bigint NOT NULL,
    units   uuid[] NOT NULL,
    fences  bigint[] NOT NULL,  -- of the same leases
    PRIMARY KEY (session, num)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- state: 0 blocked, 1 scheduled, 2 ready, 3 leased, 4 done, 5 failed, 6 cancelled;
--        7 ready but its cap is reached, 8 ready but must run alone: both out of the way of claims.
-- place: not_before (blocked), due (scheduled), rank (ready), since (leased), end (final).
CREATE TABLE longshore_unit (
    id         uuid PRIMARY KEY,
    stream     bigint NOT NULL,
    place      bigint NOT NULL,
    fence      bigint NOT NULL DEFAULT 0,
    session    bigint,
    started_at bigint,
    created_at bigint NOT NULL,
    deadline   bigint,
    flags      bigint NOT NULL DEFAULT 0,
    attempt    integer NOT NULL DEFAULT 0,
    lost       integer NOT NULL DEFAULT 0,
    waits_for  integer NOT NULL DEFAULT 0,
    bytes      integer NOT NULL,
    state      smallint NOT NULL CHECK (state BETWEEN 0 AND 8),
    priority   smallint NOT NULL CHECK (priority BETWEEN 1 AND 9),
    dedup      bytea,  -- bytes: text cannot hold a zero
    cap_key    bytea,
    spec       text,
    failure    text,
    progress   text,
    payload    bytea NOT NULL,
    checkpoint bytea,
    result     bytea,
    CHECK ((state = 3) = (session IS NOT NULL)),
    CHECK ((state = 0) = (waits_for > 0)),
    CHECK (started_at IS NULL OR state = 3)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.2,
        autovacuum_vacuum_cost_delay = 1);
-- Only what a claim may take now: neither history nor what waits is ever walked over.
CREATE INDEX longshore_unit_ready ON longshore_unit (stream, place, id) WHERE state = 2;
CREATE INDEX longshore_unit_alone ON longshore_unit (stream, place) WHERE state = 8;
CREATE INDEX longshore_unit_due ON longshore_unit (place) WHERE state = 1;
CREATE INDEX longshore_unit_waiting ON longshore_unit (stream, state, place) WHERE state IN (0, 1, 7, 8);
CREATE INDEX longshore_unit_ended ON longshore_unit (stream, state, place) WHERE state IN (4, 5, 6);
CREATE INDEX longshore_unit_session ON longshore_unit (session) WHERE session IS NOT NULL;
CREATE UNIQUE INDEX longshore_unit_dedup ON longshore_unit (dedup) WHERE dedup IS NOT NULL;
CREATE INDEX longshore_unit_deadline ON longshore_unit (deadline)
    WHERE deadline IS NOT NULL AND state IN (0, 1, 2, 7, 8);
CREATE INDEX longshore_unit_cap ON longshore_unit (cap_key, state, place)
    WHERE cap_key IS NOT NULL AND state IN (3, 7);

CREATE TABLE longshore_dependency (
    needs uuid NOT NULL,
    unit  uuid NOT NULL,
    PRIMARY KEY (needs, unit)
);
CREATE INDEX longshore_dependency_unit ON longshore_dependency (unit);

-- Runs that did not end well.
CREATE TABLE longshore_failure (
    num     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unit    uuid NOT NULL,
    attempt integer NOT NULL,
    at      bigint NOT NULL,
    session uuid,
    code    text NOT NULL,
    message text NOT NULL
);
CREATE INDEX longshore_failure_unit ON longshore_failure (unit);

-- What the runs of a batch added up; the newest part is in `longshore_delta`.
CREATE TABLE longshore_sum (
    batch  bigint NOT NULL,
    name   text NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (batch, name)
);

-- Room in bounded queues that a caller's open transaction (`xid`) will fill: taken before it, in a
-- transaction of its own, so that nobody waits for a foreign commit.
CREATE TABLE longshore_reservation (
    num    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane   bigint NOT NULL,
    units  bigint NOT NULL,
    bytes  bigint NOT NULL,
    until  bigint NOT NULL,
    xid    xid8 NOT NULL
);
CREATE INDEX longshore_reservation_lane ON longshore_reservation (lane);

-- What is sent at which times. A firing moves `next_fire` and sends its units in one transaction,
-- if `revision` and `next_fire` are still what the one who fires has read.
CREATE TABLE longshore_schedule (
    tenant     text NOT NULL,
    name       text NOT NULL,
    plan       text NOT NULL,   -- JSON: expression, zone, policies, template without its payload
    payload    bytea NOT NULL,  -- of the template
    paused     boolean NOT NULL,
    revision   bigint NOT NULL,
    created_at bigint NOT NULL,
    last_fire  bigint,
    next_fire  bigint,
    fired      bigint NOT NULL DEFAULT 0 CHECK (fired >= 0),
    skipped    bigint NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    missed     bigint NOT NULL DEFAULT 0 CHECK (missed >= 0),
    CHECK (fired = 0 OR last_fire IS NOT NULL),
    PRIMARY KEY (tenant, name)
);
-- Those that may be due, by time.
CREATE INDEX longshore_schedule_due ON longshore_schedule (next_fire)
    WHERE NOT paused AND next_fire IS NOT NULL;

CREATE TABLE longshore_leader (
    role    text PRIMARY KEY,
    session uuid NOT NULL,
    until   bigint NOT NULL
);

-- The change feed. Written after the commit it speaks of, by one writer at a time, so that the
-- numbers are in the order in which the entries can be seen.
CREATE TABLE longshore_change (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic  text NOT NULL,
    name   text NOT NULL,
    tenant text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
