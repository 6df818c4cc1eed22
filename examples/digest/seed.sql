-- Two hundred members in five places, and what they gave away and looked for in the last days.
CREATE TABLE members (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, place TEXT NOT NULL,
  wants TEXT NOT NULL CHECK (wants IN ('daily', 'immediate', 'nothing')),
  seen_on TEXT NOT NULL, first_post INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE posts (
  id INTEGER PRIMARY KEY, origin TEXT, kind TEXT NOT NULL, subject TEXT NOT NULL, place TEXT NOT NULL,
  author_id INTEGER NOT NULL REFERENCES members (id), words TEXT NOT NULL, picture TEXT
);
CREATE INDEX posts_by_place ON posts (place, id);
CREATE TABLE digests (
  member_id INTEGER NOT NULL, mode TEXT NOT NULL, last_post INTEGER NOT NULL, day TEXT NOT NULL,
  sent INTEGER NOT NULL, failed TEXT, PRIMARY KEY (member_id, mode)
);

-- 160 want it daily, 30 at once, 10 not at all; every tenth was not here for long.
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
INSERT INTO members (id, name, email, place, wants, seen_on)
SELECT i,
  CASE i % 8 WHEN 0 THEN 'Ann' WHEN 1 THEN 'Björn' WHEN 2 THEN 'Chloé' WHEN 3 THEN 'Dmitri'
             WHEN 4 THEN 'Edith & Tom' WHEN 5 THEN 'Farah' WHEN 6 THEN 'Gül' ELSE 'Hugo' END || ' ' || i,
  'member' || i || '@neighbours.example',
  CASE i % 5 WHEN 0 THEN 'Harbour' WHEN 1 THEN 'Old Town' WHEN 2 THEN 'Hillside' WHEN 3 THEN 'Mill Lane'
             ELSE 'Station' END,
  CASE WHEN i > 190 THEN 'nothing' WHEN i > 160 THEN 'immediate' ELSE 'daily' END,
  CASE WHEN i % 10 = 0 THEN date('now', '-200 days') ELSE date('now', '-' || (i % 30) || ' days') END
FROM n;

WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
INSERT INTO posts (id, origin, kind, subject, place, author_id, words, picture)
SELECT i,
  -- Every tenth came a second time, from another site, with the number it had there.
  CASE WHEN i % 10 IN (3, 8) THEN 'other-' || (i / 10) END,
  CASE WHEN i % 4 = 0 THEN 'wanted' ELSE 'offer' END,
  CASE i % 6 WHEN 0 THEN 'Bicycle, needs a tyre' WHEN 1 THEN 'Sofa <three seats>' WHEN 2 THEN 'Jam jars'
             WHEN 3 THEN 'Desk & chair' WHEN 4 THEN 'Tomato plants' ELSE 'Piano' END || ' no. ' || (i / 6),
  CASE i % 5 WHEN 0 THEN 'Harbour' WHEN 1 THEN 'Old Town' WHEN 2 THEN 'Hillside' WHEN 3 THEN 'Mill Lane'
             ELSE 'Station' END,
  1 + (i * 7) % 150,
  'To be fetched in the evening. It is "as seen", a bit worn, and looks for somebody who likes it.',
  CASE WHEN i % 3 = 0 THEN 'https://neighbours.example/pictures/' || i || '.jpg' END
FROM n;
