-- Who may come in over the network: never the token, only what it hashes to.
CREATE TABLE longshore_token (
    id         uuid PRIMARY KEY,
    hash       bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    tenant     text NOT NULL,
    role       text NOT NULL CHECK (role IN ('read', 'submit', 'operate', 'admin')),
    label      text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

-- Which changes were asked for, and by whom. Only ever added to.
CREATE TABLE longshore_deed (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    token  uuid,
    by     text NOT NULL,
    tenant text,
    action text NOT NULL,
    target text NOT NULL,
    detail text NOT NULL
);
-- A tenant's own entries, however many others have.
CREATE INDEX longshore_deed_tenant ON longshore_deed (tenant, seq) WHERE tenant IS NOT NULL;
