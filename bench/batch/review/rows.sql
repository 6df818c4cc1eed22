-- Order lines to be reviewed, `:count` of them; the program and its peer get the same.

CREATE TABLE line (
  line_id     INTEGER PRIMARY KEY,
  item        TEXT    NOT NULL,
  vendor      TEXT    NOT NULL,
  quantity    INTEGER NOT NULL,
  unit_price  REAL    NOT NULL,
  note        TEXT,

  -- Written by the review.
  verdict     TEXT,
  reason      TEXT,
  confidence  REAL,
  reviewed_by TEXT
);

INSERT INTO line (line_id, item, vendor, quantity, unit_price, note)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
SELECT n, printf('Hex bolt M%d x %d, zinc plated, box of 100', 4 + n % 9, 10 + n % 50),
       printf('Vendor %d Fasteners Ltd', n % 211), 1 + n * 7 % 500, 1.25 + n % 400 / 10.0,
       CASE WHEN n % 3 = 0 THEN 'Needed by Friday; deliver to dock ' || (n % 6) END
FROM number;
