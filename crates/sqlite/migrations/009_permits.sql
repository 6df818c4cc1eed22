-- Bounded pools: how many may use what is scarce at once. Times are microseconds since the machine started,
-- by a clock that nobody sets; after a restart nobody holds anything (`longshore_boot`).

CREATE TABLE longshore_pool (
    num      INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    max      INTEGER NOT NULL CHECK (max >= 0),
    in_use   INTEGER NOT NULL DEFAULT 0 CHECK (in_use >= 0), -- the weight of what is held
    fence    INTEGER NOT NULL DEFAULT 0,
    came     INTEGER NOT NULL DEFAULT 0,     -- when the last one came: the next comes later
    next_end INTEGER NOT NULL DEFAULT 0,     -- no lease and no place ends before this
    acquired INTEGER NOT NULL DEFAULT 0,
    timeouts INTEGER NOT NULL DEFAULT 0,
    expired  INTEGER NOT NULL DEFAULT 0,
    waits    BLOB NOT NULL CHECK (length(waits) = 176) -- counts of waits by length, 8 bytes each
);

-- Who holds (it has a fence) and who waits (it has a rank).
CREATE TABLE longshore_permit (
    pool     INTEGER NOT NULL,
    id       BLOB NOT NULL CHECK (length(id) = 16),
    owner    TEXT NOT NULL,
    weight   INTEGER NOT NULL CHECK (weight > 0),
    priority INTEGER NOT NULL,
    came     INTEGER NOT NULL,
    ends     INTEGER NOT NULL,               -- its lease, or its place in the line
    fence    INTEGER,
    since    INTEGER,                        -- when it was given
    rank     INTEGER,
    told     INTEGER NOT NULL DEFAULT 0,     -- that asking again is worth it, since it last asked
    CHECK ((fence IS NULL) = (rank IS NOT NULL)),
    PRIMARY KEY (pool, id)
) WITHOUT ROWID;

CREATE INDEX longshore_permit_line ON longshore_permit (pool, rank, came) WHERE rank IS NOT NULL;

CREATE TABLE longshore_alert (
    pool  TEXT NOT NULL,
    alert TEXT NOT NULL,
    until INTEGER NOT NULL,                  -- told by nobody before
    PRIMARY KEY (pool, alert)
) WITHOUT ROWID;

-- Which life of the machine the times above are of.
CREATE TABLE longshore_boot (only INTEGER PRIMARY KEY CHECK (only = 1), id TEXT NOT NULL);
