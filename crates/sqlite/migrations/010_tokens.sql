-- Who may come in over the network: never the token, only what it hashes to.
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

-- Which changes were asked for, and by whom. Only ever added to.
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
-- A tenant's own entries, however many others have.
CREATE INDEX longshore_deed_tenant ON longshore_deed (tenant, seq) WHERE tenant IS NOT NULL;
