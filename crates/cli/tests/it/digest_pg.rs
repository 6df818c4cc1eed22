//! Digests with members, trackers and store in one PostgreSQL database.

use std::collections::BTreeSet;

use longshore_testkit::servers::PrivatePostgres;

use crate::batch_job::Rng;
use crate::support::{TIMEOUT, TestDir, eventually, pick_size, stretch};

const BATCH_FILE: &str = r#"
type = "news"
database = "DATABASE"
workers = 16
[candidates]
sql = """
SELECT m.id FROM members m LEFT JOIN trackers t ON t.member = m.id AND t.mode = :mode
WHERE (:mode = 'immediate' OR t.day IS NULL OR t.day < :day)
  AND EXISTS (SELECT 1 FROM posts p WHERE p.id > coalesce(t.last, 0))
  AND m.id % :mod = :val
"""
key = "id"
params = { mod = 1, val = 0 }
[pre]
sql = """
SELECT m.id, coalesce(t.last, 0) AS since
FROM members m LEFT JOIN trackers t ON t.member = m.id AND t.mode = :mode WHERE m.id = :key
"""
[pre.lists]
items = """
SELECT p.id, p.words FROM posts p
WHERE p.id > coalesce((SELECT last FROM trackers WHERE member = :key AND mode = :mode), 0)
ORDER BY p.id DESC
"""
[mail]
since = "since"
from = "news@example.org"
to = "member{{ id }}@example.org"
subject = "{{ items | length }} new"
template = "<mjml><mj-body><mj-section><mj-column>{% for item in items %}<mj-text>{{ item.words }}</mj-text>{% endfor %}</mj-column></mj-section></mj-body></mjml>"
[[post.success]]
sql = """
INSERT INTO trackers AS t (member, mode, last, day, items, unit) VALUES (:key, :mode, :last, :day, :items, :unit_id)
ON CONFLICT (member, mode) DO UPDATE
SET last = greatest(t.last, excluded.last), day = excluded.day, items = excluded.items, unit = excluded.unit,
    sent = t.sent + 1, tx = excluded.tx
"""
rows = 1
"#;

/// Columns have the types of a typical PostgreSQL schema. A tracker records the transaction that
/// moved it.
const SEED_SQL: &str = "
CREATE TABLE members (id bigint PRIMARY KEY);
CREATE TABLE posts (id bigint PRIMARY KEY, words text NOT NULL);
CREATE TABLE trackers (
  member bigint NOT NULL, mode text NOT NULL, last bigint NOT NULL, day date NOT NULL, items integer NOT NULL,
  unit uuid NOT NULL, sent integer NOT NULL DEFAULT 1, tx bigint NOT NULL DEFAULT txid_current(),
  PRIMARY KEY (member, mode));
INSERT INTO members SELECT generate_series(1, MEMBERS);
INSERT INTO posts SELECT i, 'post <' || i || '>' FROM generate_series(8, 11) AS i;
";

/// Records the transactions in which units stop being leased.
const END_TRIGGERS: &str = "
CREATE TABLE ends (unit uuid NOT NULL, tx bigint NOT NULL DEFAULT txid_current());
CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO ends (unit) VALUES (OLD.id); RETURN NULL; END $$;
CREATE TRIGGER left_by_update AFTER UPDATE ON longshore_unit
FOR EACH ROW WHEN (OLD.state = 3 AND NEW.state <> 3) EXECUTE FUNCTION note_end();
CREATE TRIGGER left_by_delete AFTER DELETE ON longshore_unit FOR EACH ROW EXECUTE FUNCTION note_end();
";

struct PgDigestFixture {
    dir: TestDir,
    server: PrivatePostgres,
}

impl PgDigestFixture {
    fn new(members: usize) -> Self {
        let server = PrivatePostgres::start().unwrap();
        server.run(&SEED_SQL.replace("MEMBERS", &members.to_string())).unwrap();
        let dir = TestDir::new();
        let config = format!("store = \"{}\"\n[worker]\nttl = \"1s\"\n", server.url());
        dir.write("longshore.toml", config);
        dir.write("rows.url", server.url());
        dir.write("batch.toml", BATCH_FILE.replace("DATABASE", "file:rows.url"));
        Self { dir, server }
    }

    fn run_digest(&self, mode: &str) {
        self.dir.run(&["mail", "digest", "batch.toml", "--mode", mode]).ok();
    }

    #[track_caller]
    fn query_number(&self, sql: &str) -> usize {
        self.server.run(&format!("SELECT {sql}")).unwrap().trim().parse().unwrap()
    }

    fn trackers(&self, that: &str) -> usize {
        self.query_number(&format!("count(*) FROM trackers WHERE {that}"))
    }

    fn messages(&self) -> usize {
        std::fs::read_dir(self.dir.path("spool/keys")).map_or(0, Iterator::count)
    }

    /// The number of recipients in the folder `out`; fails if one has two messages.
    fn recipient_count(&self) -> usize {
        let mut all = BTreeSet::new();
        for file in std::fs::read_dir(self.dir.path("out")).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let to = text.lines().find_map(|line| line.strip_prefix("To: ")).expect("a To header");
            assert!(all.insert(to.to_owned()), "{to} has two messages");
        }
        all.len()
    }

    fn pending(&self) -> usize {
        std::fs::read_dir(self.dir.path("spool/pending")).map_or(0, Iterator::count)
    }
}

#[test]
fn on_postgres_each_member_gets_one_a_day_and_at_once_whatever_is_new() {
    let fixture = PgDigestFixture::new(40);
    fixture.run_digest("daily");
    assert_eq!((fixture.messages(), fixture.pending()), (40, 40));
    assert_eq!(fixture.trackers("mode = 'daily' AND last = 11 AND items = 4 AND sent = 1"), 40);
    fixture.run_digest("immediate");
    assert_eq!((fixture.messages(), fixture.trackers("mode = 'immediate' AND last = 11")), (80, 40));
    fixture.server.run("INSERT INTO posts VALUES (100, 'late')").unwrap();
    for mode in ["daily", "immediate"] {
        fixture.dir.run(&["mail", "digest", "batch.toml", "--mode", mode, "--mod", "4", "--val", "1"]).ok();
    }
    assert_eq!(fixture.messages(), 90, "no second daily digest; ten immediate ones");
    assert_eq!(fixture.trackers("mode = 'immediate' AND last = 100 AND items = 1 AND sent = 2"), 10);
    assert_eq!(fixture.trackers("mode = 'daily' AND last = 11 AND sent = 1"), 40);
    // The next day's digest contains it.
    fixture.server.run("UPDATE trackers SET day = day - 1 WHERE mode = 'daily'").unwrap();
    std::fs::remove_dir_all(fixture.dir.path("spool")).unwrap();
    fixture.run_digest("daily");
    assert_eq!(fixture.trackers("mode = 'daily' AND last = 100 AND items = 1 AND sent = 2"), 40);
    fixture.dir.run(&["verify"]).ok();
}

#[test]
fn on_postgres_the_tracker_moves_in_the_transaction_that_ends_the_row() {
    let fixture = PgDigestFixture::new(40);
    fixture.dir.run(&["migrate"]).ok();
    fixture.server.run(END_TRIGGERS).unwrap();
    fixture.run_digest("daily");
    assert_eq!(fixture.trackers("true"), 40);
    let with_its_end = "EXISTS (SELECT 1 FROM ends e WHERE e.unit = trackers.unit AND e.tx = trackers.tx)";
    assert_eq!(fixture.trackers(with_its_end), 40);
    // If the tracker's update is refused, so is the row's end: no row is done without its tracker.
    let few = "[retry]\nattempts = 2\nbase = \"10ms\"\ncap = \"10ms\"\n";
    fixture.dir.write("batch.toml", fixture.dir.read("batch.toml") + few);
    fixture.server.run("ALTER TABLE trackers ADD CHECK (member % 10 <> 3 OR mode = 'daily')").unwrap();
    fixture.dir.run(&["mail", "digest", "batch.toml", "--mode", "immediate"]).ends(3);
    assert_eq!(fixture.trackers("mode = 'immediate'"), 36);
    let batches = fixture.dir.run(&["batch", "list", "--json"]).ok().json();
    let count = |what: &str| -> u64 {
        batches.as_array().unwrap().iter().map(|batch| batch[what].as_u64().unwrap()).sum()
    };
    assert_eq!((count("done"), count("failed")), (76, 4), "{batches}");
    fixture.dir.run(&["verify"]).ok();
}

#[test]
fn on_postgres_a_rerun_moves_the_tracker_to_what_is_in_the_message_that_is_kept() {
    let fixture = PgDigestFixture::new(20);
    for mode in ["daily", "immediate"] {
        fixture.run_digest(mode);
    }
    assert_eq!(fixture.messages(), 40);
    // As if all processes had died before they recorded the rows' ends, and a post arrived meanwhile.
    fixture.server.run("DELETE FROM trackers; INSERT INTO posts VALUES (100, 'late')").unwrap();
    for mode in ["daily", "immediate"] {
        fixture.run_digest(mode);
        assert_eq!(fixture.messages(), 40, "the same messages: {mode}");
        let expected = format!("mode = '{mode}' AND last = 11 AND items = 4 AND sent = 1");
        assert_eq!(fixture.trackers(&expected), 20, "{mode}");
    }
    fixture.run_digest("immediate");
    assert_eq!(fixture.messages(), 60, "the late post is in the next message");
    assert_eq!(fixture.trackers("mode = 'immediate' AND last = 100 AND items = 1 AND sent = 2"), 20);
}

#[test]
fn on_postgres_a_storm_of_kills_on_digests_leaves_one_file_per_member() {
    let (members, kills) = pick_size((400, 8), (10_000, 40));
    let fixture = PgDigestFixture::new(members);
    let mut rng = Rng(members as u64);
    for kill in 1..=kills {
        let mut running = fixture.dir.start(&["mail", "digest", "batch.toml", "--mode", "daily"]);
        // Every other run brings the batch a step further; then the kill hits a random moment.
        if kill % 2 == 1 {
            let share = members * kill / (kills + 2);
            eventually(stretch(4 * TIMEOUT), || (fixture.messages() >= share).then_some(()));
        }
        rng.sleep_up_to(700);
        running.kill();
    }
    fixture.run_digest("daily");
    assert_eq!(fixture.messages(), members, "one file per member and day");
    assert_eq!(fixture.trackers("last = 11 AND items = 4 AND sent = 1"), members);
    assert_eq!(fixture.trackers("true"), members);
    let run = fixture.dir.run(&["mail", "digest", "batch.toml", "--mode", "daily"]).ok();
    run.says("no recipient is due");
    // If the writer died before its message became pending, the next sender completes it.
    fixture.dir.run(&["mail", "send", "--folder", "out"]).ok();
    assert_eq!(fixture.recipient_count(), members);
    fixture.dir.run(&["verify"]).ok();
}
