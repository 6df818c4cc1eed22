-- What a batch's workers must know, and what its runs added up.

ALTER TABLE longshore_batch ADD COLUMN definition BLOB;

-- Moved by checkpoints, together with the state that they keep.
CREATE TABLE longshore_sum (
    batch  INTEGER NOT NULL,
    name   TEXT NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (batch, name)
) WITHOUT ROWID;
