//! Digests whose members, trackers and store are one PostgreSQL.

use std::collections::BTreeSet;

use longshore_testkit::servers::PrivatePostgres;

use crate::batch_job::Dice;
use crate::support::{Place, SOON, eventually, limit, soaked};

const FILE: &str = r#"
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

/// Columns have the types that they would have there. A tracker knows the transaction that moved it.
const SEED: &str = "
CREATE TABLE members (id bigint PRIMARY KEY);
CREATE TABLE posts (id bigint PRIMARY KEY, words text NOT NULL);
CREATE TABLE trackers (
  member bigint NOT NULL, mode text NOT NULL, last bigint NOT NULL, day date NOT NULL, items integer NOT NULL,
  unit uuid NOT NULL, sent integer NOT NULL DEFAULT 1, tx bigint NOT NULL DEFAULT txid_current(),
  PRIMARY KEY (member, mode));
INSERT INTO members SELECT generate_series(1, MEMBERS);
INSERT INTO posts SELECT i, 'post <' || i || '>' FROM generate_series(8, 11) AS i;
";

/// Writes down in which transactions units stop being leased.
const WATCH: &str = "
CREATE TABLE ends (unit uuid NOT NULL, tx bigint NOT NULL DEFAULT txid_current());
CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO ends (unit) VALUES (OLD.id); RETURN NULL; END $$;
CREATE TRIGGER left_by_update AFTER UPDATE ON longshore_unit
FOR EACH ROW WHEN (OLD.state = 3 AND NEW.state <> 3) EXECUTE FUNCTION note_end();
CREATE TRIGGER left_by_delete AFTER DELETE ON longshore_unit FOR EACH ROW EXECUTE FUNCTION note_end();
";

struct News {
    place: Place,
    server: PrivatePostgres,
}

impl News {
    fn new(members: usize) -> Self {
        let server = PrivatePostgres::start().unwrap();
        server.run(&SEED.replace("MEMBERS", &members.to_string())).unwrap();
        let place = Place::new();
        let config = format!("store = \"{}\"\n[worker]\nttl = \"1s\"\n", server.url());
        place.write("longshore.toml", config);
        place.write("batch.toml", FILE.replace("DATABASE", &server.url()));
        Self { place, server }
    }

    fn digest(&self, mode: &str) {
        self.place.run(&["mail", "digest", "batch.toml", "--mode", mode]).ok();
    }

    #[track_caller]
    fn ask(&self, sql: &str) -> usize {
        self.server.run(&format!("SELECT {sql}")).unwrap().trim().parse().unwrap()
    }

    fn trackers(&self, that: &str) -> usize {
        self.ask(&format!("count(*) FROM trackers WHERE {that}"))
    }

    fn kept(&self) -> usize {
        std::fs::read_dir(self.place.path("spool/keys")).map_or(0, Iterator::count)
    }

    /// Who got a message into the folder `out`, each of them one.
    fn recipients(&self) -> usize {
        let mut all = BTreeSet::new();
        for file in std::fs::read_dir(self.place.path("out")).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let to = text.lines().find_map(|line| line.strip_prefix("To: ")).expect("somebody");
            assert!(all.insert(to.to_owned()), "{to} has two");
        }
        all.len()
    }

    fn is_pending(&self) -> usize {
        std::fs::read_dir(self.place.path("spool/pending")).map_or(0, Iterator::count)
    }
}

#[test]
fn on_postgres_each_member_gets_one_a_day_and_at_once_whatever_is_new() {
    let news = News::new(40);
    news.digest("daily");
    assert_eq!((news.kept(), news.is_pending()), (40, 40));
    assert_eq!(news.trackers("mode = 'daily' AND last = 11 AND items = 4 AND sent = 1"), 40);
    news.digest("immediate");
    assert_eq!((news.kept(), news.trackers("mode = 'immediate' AND last = 11")), (80, 40));
    news.server.run("INSERT INTO posts VALUES (100, 'late')").unwrap();
    for mode in ["daily", "immediate"] {
        news.place
            .run(&["mail", "digest", "batch.toml", "--mode", mode, "--mod", "4", "--val", "1"])
            .ok();
    }
    assert_eq!(news.kept(), 90, "the day's is written; ten are told at once");
    assert_eq!(news.trackers("mode = 'immediate' AND last = 100 AND items = 1 AND sent = 2"), 10);
    assert_eq!(news.trackers("mode = 'daily' AND last = 11 AND sent = 1"), 40);
    // The next day it is in the daily one.
    news.server.run("UPDATE trackers SET day = day - 1 WHERE mode = 'daily'").unwrap();
    std::fs::remove_dir_all(news.place.path("spool")).unwrap();
    news.digest("daily");
    assert_eq!(news.trackers("mode = 'daily' AND last = 100 AND items = 1 AND sent = 2"), 40);
    news.place.run(&["verify"]).ok();
}

#[test]
fn on_postgres_the_tracker_moves_in_the_transaction_that_ends_the_row() {
    let news = News::new(40);
    news.place.run(&["migrate"]).ok();
    news.server.run(WATCH).unwrap();
    news.digest("daily");
    assert_eq!(news.trackers("true"), 40);
    let with_its_end =
        "EXISTS (SELECT 1 FROM ends e WHERE e.unit = trackers.unit AND e.tx = trackers.tx)";
    assert_eq!(news.trackers(with_its_end), 40);
    // What refuses the tracker refuses the end: no row is done of which the tracker does not know.
    let few = "[retry]\nattempts = 2\nbase = \"10ms\"\ncap = \"10ms\"\n";
    news.place.write("batch.toml", news.place.read("batch.toml") + few);
    news.server.run("ALTER TABLE trackers ADD CHECK (member % 10 <> 3 OR mode = 'daily')").unwrap();
    news.place.run(&["mail", "digest", "batch.toml", "--mode", "immediate"]).ends(3);
    assert_eq!(news.trackers("mode = 'immediate'"), 36);
    let batches = news.place.run(&["batch", "list", "--json"]).ok().json();
    let count = |what: &str| -> u64 {
        batches.as_array().unwrap().iter().map(|batch| batch[what].as_u64().unwrap()).sum()
    };
    assert_eq!((count("done"), count("failed")), (76, 4), "{batches}");
    news.place.run(&["verify"]).ok();
}

#[test]
fn on_postgres_a_rerun_moves_the_tracker_to_what_is_in_the_message_that_is_kept() {
    let news = News::new(20);
    for mode in ["daily", "immediate"] {
        news.digest(mode);
    }
    assert_eq!(news.kept(), 40);
    // As if all had died before their ends were recorded, and something came meanwhile.
    news.server.run("DELETE FROM trackers; INSERT INTO posts VALUES (100, 'late')").unwrap();
    for mode in ["daily", "immediate"] {
        news.digest(mode);
        assert_eq!(news.kept(), 40, "they are the same messages: {mode}");
        let told = format!("mode = '{mode}' AND last = 11 AND items = 4 AND sent = 1");
        assert_eq!(news.trackers(&told), 20, "{mode}");
    }
    news.digest("immediate");
    assert_eq!(news.kept(), 60, "the late one comes with the next");
    assert_eq!(news.trackers("mode = 'immediate' AND last = 100 AND items = 1 AND sent = 2"), 20);
}

#[test]
fn on_postgres_a_storm_of_kills_on_digests_leaves_one_file_per_member() {
    let (members, kills) = soaked((400, 8), (10_000, 40));
    let news = News::new(members);
    let mut dice = Dice(members as u64);
    for kill in 1..=kills {
        let mut running = news.place.start(&["mail", "digest", "batch.toml", "--mode", "daily"]);
        // Every other one brings it a step further, and then any moment is right.
        if kill % 2 == 1 {
            let share = members * kill / (kills + 2);
            eventually(limit(4 * SOON), || (news.kept() >= share).then_some(()));
        }
        dice.moment(700);
        running.kill();
    }
    news.digest("daily");
    assert_eq!(news.kept(), members, "one file per member and day");
    assert_eq!(news.trackers("last = 11 AND items = 4 AND sent = 1"), members);
    assert_eq!(news.trackers("true"), members);
    let run = news.place.run(&["mail", "digest", "batch.toml", "--mode", "daily"]).ok();
    run.says("no recipient is due");
    // Whoever died before its message was pending left that to the next sender.
    news.place.run(&["mail", "send", "--folder", "out"]).ok();
    assert_eq!(news.recipients(), members);
    news.place.run(&["verify"]).ok();
}
