-- What all lanes of a tenant share. A tenant without a row has weight 1, no bounds, and works.
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
-- A tenant's caps and bounds are over all its lanes.
CREATE INDEX longshore_lane_tenant ON longshore_lane (tenant);
