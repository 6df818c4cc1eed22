-- Thirty claims of ten customers. Invented, and the same on every machine.
--
-- Runs once, to create the database. Delete the database to begin again.

CREATE TABLE claims (
  claim_id    INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL,
  priority    INTEGER,
  amount      INTEGER NOT NULL,
  story       TEXT    NOT NULL,
  status      TEXT    NOT NULL DEFAULT 'NEW' CHECK (status IN ('NEW', 'ANSWERED', 'PAID', 'ERROR')),
  kind        TEXT,
  payable     INTEGER,
  finding     TEXT,
  letter      TEXT
);

-- No key would hide a claim that was noted twice.
CREATE TABLE claim_log (claim_id INTEGER NOT NULL, step TEXT NOT NULL, value TEXT);

WITH RECURSIVE count (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM count WHERE i < 30)
INSERT INTO claims (claim_id, customer_id, priority, amount, story, status)
SELECT i, i % 10, CASE WHEN i % 7 = 0 THEN 1 END, i * 100,
       CASE i % 3 WHEN 0 THEN 'The pipe burst.' WHEN 1 THEN 'The bicycle is gone.' ELSE 'A window broke.' END,
       CASE WHEN i > 25 THEN 'PAID' ELSE 'NEW' END
FROM count;
