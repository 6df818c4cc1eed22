-- What is owned, allowed and owed: profiles, keys, calls with their cost, budgets, buckets, and who
-- waits for replies.

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

-- Every version of every key, sealed.
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
-- One version is the one to use.
CREATE UNIQUE INDEX longshore_key_active ON longshore_key (tenant, name) WHERE status = 'active';

-- One row per call, good or bad, written before it is made and again when it ended. Never pruned:
-- these are the books.
-- status: 0 open, 1 success, 2 error, 3 maybe billed.
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
    estimated          INTEGER CHECK (estimated IN (0, 1)),
    CHECK ((status = 0) = (logged_at IS NULL)),
    CHECK ((status = 0) = (answered_by IS NULL)),
    CHECK ((status = 0) = (tokens_in IS NULL AND tokens_out IS NULL AND tokens_cached IS NULL
           AND tokens_cache_write IS NULL AND latency_ms IS NULL AND attempts IS NULL
           AND cost_picos IS NULL AND estimated IS NULL)),
    CHECK (status <> 0 OR code IS NULL)
) WITHOUT ROWID;
-- Whether a request is asked or answered already; the request first, so that it can be found alone.
CREATE INDEX longshore_call_request ON longshore_call (request_id, tenant);
-- What a session that ends leaves behind. Few, however long the history.
CREATE INDEX longshore_call_open ON longshore_call (session) WHERE status = 0 AND session IS NOT NULL;
-- Lists, newest first, and sums of a time.
CREATE INDEX longshore_call_opened ON longshore_call (opened_at);

CREATE TABLE longshore_budget (
    tenant     TEXT PRIMARY KEY,
    tokens     INTEGER CHECK (tokens >= 0),
    cost_picos INTEGER CHECK (cost_picos >= 0),
    warn_at    REAL NOT NULL CHECK (warn_at BETWEEN 0 AND 1)
) WITHOUT ROWID;

-- What the calls of a calendar month (UTC) add up to, by when they were opened.
CREATE TABLE longshore_month (
    tenant          TEXT NOT NULL,
    month           TEXT NOT NULL,
    spent_tokens    INTEGER NOT NULL CHECK (spent_tokens >= 0),
    spent_picos     INTEGER NOT NULL CHECK (spent_picos >= 0),
    reserved_tokens INTEGER NOT NULL CHECK (reserved_tokens >= 0),
    reserved_picos  INTEGER NOT NULL CHECK (reserved_picos >= 0),
    PRIMARY KEY (tenant, month)
) WITHOUT ROWID;

-- Token buckets; one without a row is full.
CREATE TABLE longshore_bucket (
    name  TEXT PRIMARY KEY,
    level REAL NOT NULL,
    at    INTEGER NOT NULL
) WITHOUT ROWID;

-- Reply queues, each with the session that has it open.
CREATE TABLE longshore_reply (
    tenant  TEXT NOT NULL,
    queue   TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue)
) WITHOUT ROWID;
CREATE INDEX longshore_reply_session ON longshore_reply (session);
