-- What is sent at which times. A firing moves `next_fire` and sends its units in one transaction,
-- if `revision` and `next_fire` are still what the one who fires has read.

CREATE TABLE longshore_schedule (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    plan       TEXT NOT NULL,     -- JSON: expression, zone, policies, template without its payload
    payload    BLOB NOT NULL,     -- of the template
    paused     INTEGER NOT NULL CHECK (paused IN (0, 1)),
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_fire  INTEGER,
    next_fire  INTEGER,
    fired      INTEGER NOT NULL DEFAULT 0 CHECK (fired >= 0),
    skipped    INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    missed     INTEGER NOT NULL DEFAULT 0 CHECK (missed >= 0),
    CHECK (fired = 0 OR last_fire IS NOT NULL),
    PRIMARY KEY (tenant, name)
);
-- Those that may be due, by time.
CREATE INDEX longshore_schedule_due ON longshore_schedule (next_fire) WHERE paused = 0 AND next_fire IS NOT NULL;
