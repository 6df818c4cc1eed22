-- What verbs inside a caller's own transaction leave behind. Such a transaction may stay open for
-- long, so it locks nothing that others want: it only adds rows of its own.

-- Units to be looked at once the transaction that noted them is committed: others wait for them, or
-- they have ended and others waited.
CREATE TABLE longshore_untold (
    num  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    unit uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A verb adds a row as it begins and removes it as it ends. One that was dropped midway leaves its
-- row, which points nowhere: then the commit is refused. So no row here is ever seen by others.
CREATE TABLE longshore_nothing (num bigint PRIMARY KEY CHECK (num IS NULL));
CREATE TABLE longshore_promise (
    num bigint NOT NULL CONSTRAINT longshore_verb_was_dropped_midway
        REFERENCES longshore_nothing (num) DEFERRABLE INITIALLY DEFERRED
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
