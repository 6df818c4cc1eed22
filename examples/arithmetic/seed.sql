-- Five sums, two of them wrong. EXPECTED_CORRECT is the key to the exercise: it is not shown to
-- the model, and every AI_VERDICT must equal it in the end.

CREATE TABLE DEMO_INPUT (
  ROW_ID           INTEGER PRIMARY KEY,
  NUM_A            INTEGER NOT NULL,
  NUM_B            INTEGER NOT NULL,
  CLAIMED_SUM      INTEGER NOT NULL,
  EXPECTED_CORRECT TEXT    NOT NULL CHECK (EXPECTED_CORRECT IN ('Y', 'N')),

  -- Written by the batch.
  WORKER_ID        TEXT,
  AI_VERDICT       TEXT CHECK (AI_VERDICT IN ('Y', 'N')),
  AI_ACTUAL_SUM    INTEGER,
  AI_RESPONSE_RAW  TEXT,
  PROCESSED_AT     TEXT
);

INSERT INTO DEMO_INPUT (ROW_ID, NUM_A, NUM_B, CLAIMED_SUM, EXPECTED_CORRECT) VALUES
  (1,   1,   1,   2, 'Y'),
  (2,   3,   4,   8, 'N'),
  (3,  10,  15,  25, 'Y'),
  (4,   7,   7,  13, 'N'),
  (5, 100, 200, 300, 'Y');
