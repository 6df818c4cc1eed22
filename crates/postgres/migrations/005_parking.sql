-- Questions that wait to be asked in bulk, are out in a shipment, or were answered. Prompts are bytes: text
-- of PostgreSQL's cannot hold all that ours can.
CREATE TABLE longshore_parked (
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch     text NOT NULL,
    custom_id text NOT NULL,
    unit      uuid NOT NULL,
    prompt    bytea NOT NULL,
    parked_at bigint NOT NULL,
    tries     bigint NOT NULL DEFAULT 0 CHECK (tries >= 0),
    shipment  text,
    reply     bytea,
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
    num       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch     text NOT NULL,
    mark      text NOT NULL,
    sealed_at bigint NOT NULL,
    ticket    text,
    UNIQUE (batch, mark)
);
