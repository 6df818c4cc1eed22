CREATE TABLE longshore_alert (
    pool  TEXT NOT NULL,
    alert TEXT NOT NULL,
    until INTEGER NOT NULL,                  -- told by nobody before
    PRIMARY KEY (pool, alert)
) WITHOUT ROWID;

CREATE TABLE longshore_batch (
    num          INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    tenant       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN
                 ('queued', 'running', 'paused', 'complete', 'failed', 'cancelled')),
    reason       TEXT,
    initiated_by TEXT NOT NULL,
    initiated_at INTEGER NOT NULL,
    started_at   INTEGER,
    completed_at INTEGER,
    workers      INTEGER,
    notes        TEXT NOT NULL,
    cursor       TEXT NOT NULL DEFAULT '',
    sealed       INTEGER NOT NULL DEFAULT 0,
    generation   INTEGER NOT NULL DEFAULT 1,
    threshold    TEXT,
    forgiven     INTEGER NOT NULL DEFAULT 0,
    callback     TEXT,
    announced    INTEGER NOT NULL DEFAULT 0 CHECK (announced <= generation)
, definition BLOB);

CREATE TABLE longshore_body (
    num  INTEGER PRIMARY KEY,
    unit BLOB NOT NULL,
    part INTEGER NOT NULL CHECK (part IN (0, 1, 2)),
    data BLOB NOT NULL,
    UNIQUE (unit, part)
);

CREATE TABLE longshore_boot (only INTEGER PRIMARY KEY CHECK (only = 1), id TEXT NOT NULL);

CREATE TABLE longshore_bucket (
    name  TEXT PRIMARY KEY,
    level REAL NOT NULL,
    at    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE longshore_budget (
    tenant     TEXT PRIMARY KEY,
    tokens     INTEGER CHECK (tokens >= 0),
    cost_picos INTEGER CHECK (cost_picos >= 0),
    warn_at    REAL NOT NULL CHECK (warn_at BETWEEN 0 AND 1)
) WITHOUT ROWID;

CREATE TABLE longshore_call (
    id                 BLOB PRIMARY KEY CHECK (length(id) = 16),
    request_id         TEXT NOT NULL,
    tenant             TEXT NOT NULL,
    profile            TEXT NOT NULL,
    provider           TEXT NOT NULL,
    model              TEXT NOT NULL,
    unit               BLOB,
    batch              TEXT,
    session            BLOB,
    worker             TEXT NOT NULL,
    reserve_tokens     INTEGER NOT NULL CHECK (reserve_tokens >= 0),
    reserve_picos      INTEGER NOT NULL CHECK (reserve_picos >= 0),
    opened_at          INTEGER NOT NULL,
    status             INTEGER NOT NULL CHECK (status BETWEEN 0 AND 3),
    logged_at          INTEGER,
    code               TEXT,
    answered_by        TEXT,
    tokens_in          INTEGER CHECK (tokens_in >= 0),
    tokens_out         INTEGER CHECK (tokens_out >= 0),
    tokens_cached      INTEGER CHECK (tokens_cached >= 0),
    tokens_cache_write INTEGER CHECK (tokens_cache_write >= 0),
    latency_ms         INTEGER,
    attempts           INTEGER,
    cost_picos         INTEGER CHECK (cost_picos >= 0),
    estimated          INTEGER CHECK (estimated IN (0, 1)), mode INTEGER CHECK (mode IN (0, 1)), tier TEXT, tokens_cache_write_long INTEGER
    CHECK (tokens_cache_write_long >= 0),
    CHECK ((status = 0) = (logged_at IS NULL)),
    CHECK ((status = 0) = (answered_by IS NULL)),
    CHECK ((status = 0) = (tokens_in IS NULL AND tokens_out IS NULL AND tokens_cached IS NULL
           AND tokens_cache_write IS NULL AND latency_ms IS NULL AND attempts IS NULL
           AND cost_picos IS NULL AND estimated IS NULL)),
    CHECK (status <> 0 OR code IS NULL)
) WITHOUT ROWID;

CREATE TABLE longshore_change (
    seq    INTEGER PRIMARY KEY,  -- grows: the newest entries are never deleted
    topic  TEXT NOT NULL,
    name   TEXT NOT NULL,
    tenant TEXT
);

CREATE TABLE longshore_deed (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    token  BLOB CHECK (length(token) = 16),
    by     TEXT NOT NULL,
    tenant TEXT,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE TABLE longshore_dependency (
    needs BLOB NOT NULL,
    unit  BLOB NOT NULL,
    PRIMARY KEY (needs, unit)
) WITHOUT ROWID;

CREATE TABLE longshore_failure (
    num     INTEGER PRIMARY KEY,
    unit    BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    session BLOB,
    code    TEXT NOT NULL,
    message TEXT NOT NULL
);

CREATE TABLE longshore_key (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    provider   TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    wrapped    BLOB NOT NULL,
    master     TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('active', 'retiring', 'revoked')),
    created_at INTEGER NOT NULL,
    retires_at INTEGER,
    CHECK ((status = 'retiring') = (retires_at IS NOT NULL)),
    PRIMARY KEY (tenant, name, version)
);

CREATE TABLE longshore_lane (
    num       INTEGER PRIMARY KEY,
    queue     INTEGER NOT NULL REFERENCES longshore_queue (num),
    tenant    TEXT NOT NULL,
    paused    INTEGER NOT NULL DEFAULT 0,
    weight    INTEGER NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap       INTEGER,
    pass      INTEGER NOT NULL DEFAULT 0,
    joins     INTEGER NOT NULL DEFAULT 1,  -- was silent: its pass is to be levelled with the others'
    max_units INTEGER,
    max_bytes INTEGER,
    UNIQUE (queue, tenant)
);

CREATE TABLE longshore_leader (
    role    TEXT PRIMARY KEY,
    session BLOB NOT NULL,
    until   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE longshore_migration (version INTEGER PRIMARY KEY, name TEXT, checksum TEXT);

CREATE TABLE longshore_month (
    tenant          TEXT NOT NULL,
    month           TEXT NOT NULL,
    spent_tokens    INTEGER NOT NULL CHECK (spent_tokens >= 0),
    spent_picos     INTEGER NOT NULL CHECK (spent_picos >= 0),
    reserved_tokens INTEGER NOT NULL CHECK (reserved_tokens >= 0),
    reserved_picos  INTEGER NOT NULL CHECK (reserved_picos >= 0),
    PRIMARY KEY (tenant, month)
) WITHOUT ROWID;

CREATE TABLE longshore_parked (
    num       INTEGER PRIMARY KEY,
    batch     TEXT NOT NULL,
    custom_id TEXT NOT NULL,
    unit      BLOB NOT NULL CHECK (length(unit) = 16),
    prompt    TEXT NOT NULL,
    parked_at INTEGER NOT NULL,
    tries     INTEGER NOT NULL DEFAULT 0 CHECK (tries >= 0),
    shipment  TEXT,
    reply     BLOB,
    UNIQUE (batch, custom_id),
    CHECK (shipment IS NULL OR reply IS NULL)
);

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

CREATE TABLE longshore_profile (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    body       TEXT NOT NULL,     -- JSON, and not the store's business
    suspended  INTEGER NOT NULL CHECK (suspended IN (0, 1)),
    revision   INTEGER NOT NULL CHECK (revision > 0),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE longshore_queue (
    num       INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE,
    paused    INTEGER NOT NULL DEFAULT 0,
    max_units INTEGER,
    max_bytes INTEGER
);

CREATE TABLE longshore_reply (
    tenant  TEXT NOT NULL,
    queue   TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue)
) WITHOUT ROWID;

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

CREATE TABLE longshore_session (
    num       INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: units point to it
    id        BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    label     TEXT NOT NULL,
    version   TEXT NOT NULL,
    kinds     TEXT NOT NULL,
    slots     INTEGER NOT NULL,
    ttl       INTEGER NOT NULL,
    beats     INTEGER NOT NULL DEFAULT 0,
    opened_at INTEGER NOT NULL,
    beat_at   INTEGER NOT NULL,
    wanted    TEXT NOT NULL DEFAULT 'work'
, cpu INTEGER);

CREATE TABLE longshore_shipment (
    num       INTEGER PRIMARY KEY,
    batch     TEXT NOT NULL,
    mark      TEXT NOT NULL,
    sealed_at INTEGER NOT NULL,
    ticket    TEXT,
    UNIQUE (batch, mark)
);

CREATE TABLE longshore_stream (
    num            INTEGER PRIMARY KEY,
    lane           INTEGER NOT NULL REFERENCES longshore_lane (num),
    kind           TEXT NOT NULL,
    batch          INTEGER NOT NULL DEFAULT 0,  -- 0: none, so that UNIQUE sees it
    blocked        INTEGER NOT NULL DEFAULT 0 CHECK (blocked >= 0),
    scheduled      INTEGER NOT NULL DEFAULT 0 CHECK (scheduled >= 0),
    ready          INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0),
    leased         INTEGER NOT NULL DEFAULT 0 CHECK (leased >= 0),
    done           INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed         INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled      INTEGER NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    bytes          INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0),  -- payloads of live units
    gone_done      INTEGER NOT NULL DEFAULT 0,  -- pruned, and still part of the tally
    gone_failed    INTEGER NOT NULL DEFAULT 0,
    gone_cancelled INTEGER NOT NULL DEFAULT 0,
    UNIQUE (lane, kind, batch)
);

CREATE TABLE longshore_sum (
    batch  INTEGER NOT NULL,
    name   TEXT NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (batch, name)
) WITHOUT ROWID;

CREATE TABLE longshore_tenant (
    num        INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    weight     INTEGER NOT NULL DEFAULT 1 CHECK (weight > 0),
    cap        INTEGER CHECK (cap > 0),
    max_units  INTEGER,
    max_bytes  INTEGER,
    suspended  INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
);

CREATE TABLE longshore_token (
    id         BLOB PRIMARY KEY CHECK (length(id) = 16),
    hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    tenant     TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('read', 'submit', 'operate', 'admin')),
    label      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE TABLE longshore_unit (
    id         BLOB PRIMARY KEY CHECK (length(id) = 16),
    stream     INTEGER NOT NULL,
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 8),
    place      INTEGER NOT NULL,
    priority   INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 9),
    attempt    INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0,
    fence      INTEGER NOT NULL DEFAULT 0,
    session    INTEGER,
    started_at INTEGER,
    created_at INTEGER NOT NULL,
    deadline   INTEGER,
    flags      INTEGER NOT NULL DEFAULT 0,
    waits_for  INTEGER NOT NULL DEFAULT 0,
    bytes      INTEGER NOT NULL,
    dedup      TEXT,
    cap_key    TEXT,
    spec       TEXT,
    failure    TEXT,
    progress   TEXT,
    payload    BLOB,
    checkpoint BLOB,
    result     BLOB,
    CHECK ((state = 3) = (session IS NOT NULL)),
    CHECK ((state = 0) = (waits_for > 0)),
    CHECK (started_at IS NULL OR state = 3)
) WITHOUT ROWID;

CREATE INDEX longshore_batch_open ON longshore_batch (sealed, status) WHERE status <> 'complete';

CREATE INDEX longshore_call_batch ON longshore_call (batch, opened_at) WHERE batch IS NOT NULL;

CREATE INDEX longshore_call_open ON longshore_call (session) WHERE status = 0 AND session IS NOT NULL;

CREATE INDEX longshore_call_opened ON longshore_call (opened_at);

CREATE INDEX longshore_call_request ON longshore_call (request_id, tenant);

CREATE INDEX longshore_call_tenant ON longshore_call (tenant, opened_at);

CREATE INDEX longshore_deed_tenant ON longshore_deed (tenant, seq) WHERE tenant IS NOT NULL;

CREATE INDEX longshore_dependency_unit ON longshore_dependency (unit);

CREATE INDEX longshore_failure_unit ON longshore_failure (unit);

CREATE UNIQUE INDEX longshore_key_active ON longshore_key (tenant, name) WHERE status = 'active';

CREATE INDEX longshore_lane_tenant ON longshore_lane (tenant);

CREATE INDEX longshore_parked_out ON longshore_parked (batch, shipment, num)
    WHERE shipment IS NOT NULL;

CREATE INDEX longshore_parked_waiting ON longshore_parked (batch, num)
    WHERE shipment IS NULL AND reply IS NULL;

CREATE INDEX longshore_permit_line ON longshore_permit (pool, rank, came) WHERE rank IS NOT NULL;

CREATE INDEX longshore_reply_session ON longshore_reply (session);

CREATE INDEX longshore_schedule_due ON longshore_schedule (next_fire) WHERE paused = 0 AND next_fire IS NOT NULL;

CREATE INDEX longshore_stream_batch ON longshore_stream (batch) WHERE batch <> 0;

CREATE INDEX longshore_stream_live ON longshore_stream (lane) WHERE blocked + scheduled + ready + leased > 0;

CREATE INDEX longshore_stream_ready ON longshore_stream (lane) WHERE ready > 0;

CREATE INDEX longshore_unit_cap ON longshore_unit (cap_key, state, place) WHERE cap_key IS NOT NULL AND state IN (3, 7);

CREATE INDEX longshore_unit_deadline ON longshore_unit (deadline) WHERE deadline IS NOT NULL AND state IN (0, 1, 2, 7, 8);

CREATE UNIQUE INDEX longshore_unit_dedup ON longshore_unit (dedup) WHERE dedup IS NOT NULL;

CREATE INDEX longshore_unit_place ON longshore_unit (stream, state, place);

CREATE INDEX longshore_unit_session ON longshore_unit (session) WHERE session IS NOT NULL;
