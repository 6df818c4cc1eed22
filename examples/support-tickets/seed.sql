-- A support desk's mail: twelve customers, sixty tickets. Invented, and the same on every machine.
--
-- Runs once, to create the database. Delete the database to begin again.

CREATE TABLE customers (
  customer_id INTEGER PRIMARY KEY,
  name        TEXT NOT NULL,
  plan        TEXT NOT NULL CHECK (plan IN ('basic', 'gold'))
);

CREATE TABLE tickets (
  ticket_id   INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customers,
  received_at TEXT    NOT NULL,
  subject     TEXT    NOT NULL,
  body        TEXT    NOT NULL,
  status      TEXT    NOT NULL DEFAULT 'NEW' CHECK (status IN ('NEW', 'SORTED', 'CLOSED', 'ERROR')),
  category    TEXT,
  urgency     TEXT,
  due_at      TEXT,
  note        TEXT
);

-- What each desk sees. No key would hide a ticket that was filed twice.
CREATE TABLE inbox (
  desk      TEXT    NOT NULL,
  ticket_id INTEGER NOT NULL,
  due_at    TEXT    NOT NULL
);

INSERT INTO customers (name, plan) VALUES
  ('Ada Brandt', 'gold'), ('Ben Okoye', 'basic'), ('Cora Lind', 'basic'), ('Dov Amsel', 'gold'),
  ('Elif Kaya', 'basic'), ('Finn Moss', 'basic'), ('Gita Rao', 'gold'), ('Hugo Weiss', 'basic'),
  ('Ines Prado', 'basic'), ('Jon Aasen', 'gold'), ('Kim Seo', 'basic'), ('Lea Fuchs', 'basic');

CREATE TEMP TABLE letters (n INTEGER PRIMARY KEY, subject TEXT, body TEXT);
INSERT INTO letters VALUES
  (0, 'Parcel %d', 'My parcel was to come a week ago. Where is it?'),
  (1, 'Charged twice', 'You charged my card 4111 1111 1111 1111 twice for order %d. I want a refund.'),
  (2, 'It does not start', 'Since yesterday the pump does not start. It blinks red, error %d.'),
  (3, 'Opening hours', 'May I collect order %d on a Saturday? Write to me at home@example.org, please.'),
  (4, 'Automatic reply: order %d', 'I am out of the office and shall read your mail when I am back.');

WITH RECURSIVE count (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM count WHERE i < 60)
INSERT INTO tickets (ticket_id, customer_id, received_at, subject, body)
SELECT i, i % 12 + 1,
       datetime('2026-03-02 08:10:00', '+' || (i * 97) || ' minutes'),
       printf(subject, i),
       printf(body, i) || char(10) || '-- ' || char(10) || name || char(10) ||
         '> On Monday you wrote:' || char(10) || '> Dear customer, an invoice is enclosed.'
FROM count JOIN letters ON n = i % 5 JOIN customers ON customer_id = i % 12 + 1;

DROP TABLE letters;
