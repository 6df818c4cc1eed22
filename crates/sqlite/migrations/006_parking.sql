-- Questions that wait to be asked in bulk, are out in a shipment, or were answered.
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
-- What waits, the longest first, however much is out or answered.
CREATE INDEX longshore_parked_waiting ON longshore_parked (batch, num)
    WHERE shipment IS NULL AND reply IS NULL;
-- What is in a shipment.
CREATE INDEX longshore_parked_out ON longshore_parked (batch, shipment, num)
    WHERE shipment IS NOT NULL;

-- Questions that are sent together; without a ticket, perhaps not yet.
CREATE TABLE longshore_shipment (
    num       INTEGER PRIMARY KEY,
    batch     TEXT NOT NULL,
    mark      TEXT NOT NULL,
    sealed_at INTEGER NOT NULL,
    ticket    TEXT,
    UNIQUE (batch, mark)
);
