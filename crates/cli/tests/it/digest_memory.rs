//! Digests with a slow renderer: the process holds only the pages of the members in progress, however
//! many are due.

use std::time::Duration;

use longshore_sqlite::rusqlite::Connection;

use crate::slow_renderer::Slow;
use crate::support::{Place, Running, SOON, eventually, limit};

/// The size of a rendered page. Pages retained for all members would take several times [`GROWTH`].
const PAGE: usize = 100 << 10;
/// How much the process may grow between a tenth of the members and the last.
const GROWTH: usize = 40 << 20;

const FILE: &str = r#"
type = "memory"
database = "sqlite:members.db"
workers = 32
[candidates]
sql = "SELECT id FROM members WHERE day IS NULL OR day < :day"
key = "id"
[pre]
sql = "SELECT id FROM members WHERE id = :key"
[pre.lists]
items = "SELECT 1 AS id, 'one' AS words"
[mail]
from = "memory@example.org"
to = "member{{ id }}@example.org"
subject = "New"
timeout = "1h"
template = "<mjml><mj-body>{% for item in items %}<mj-text>{{ item.words }}</mj-text>{% endfor %}</mj-body></mjml>"
[post]
success = "UPDATE members SET day = :day WHERE id = :key"
"#;

/// A process's resident memory, in bytes.
fn resident(process: &Running) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is alive");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn memory_stays_flat_while_a_slow_renderer_is_waited_for() {
    let members = 1_500;
    let place = Place::new();
    // An HTML comment, so that the message's text part does not contain it.
    let line = "x".repeat(71) + "\n";
    let page = format!("<html><body>page<!--{}--></body></html>", line.repeat(PAGE / line.len()));
    let slow = Slow::start(page, Duration::from_millis(5));
    place.write(
        "longshore.toml",
        format!(
            "[pools.mjml]\nmax = 2\n[mail]\nrenderer = \"http://127.0.0.1:{}/\"\npool = \"mjml\"\n\
             render_timeout = \"1h\"\n",
            slow.port
        ),
    );
    place.write("batch.toml", FILE);
    let db = Connection::open(place.path("members.db")).unwrap();
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE members (id INTEGER PRIMARY KEY, day TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {members})
         INSERT INTO members (id) SELECT i FROM n;"
    ))
    .unwrap();
    let mut running = place.start(&["mail", "digest", "batch.toml"]);
    let kept = || std::fs::read_dir(place.path("spool/keys")).map_or(0, Iterator::count);
    // Waits until all rendered messages are in the spool and the next render request is waiting.
    let mut after = |answers: usize, all: usize| {
        slow.allow(answers);
        eventually(limit(6 * SOON), || {
            assert_eq!(running.0.try_wait().unwrap(), None, "{}", place.read("stderr"));
            (kept() == all && slow.at_once() >= 1).then_some(())
        });
        resident(&running)
    };
    let tenth = members / 10;
    let early = after(tenth, tenth);
    let late = after(members - tenth - 1, members - 1);
    let grown = late.saturating_sub(early);
    assert!(grown < GROWTH, "from {} to {} KiB", early >> 10, late >> 10);
    slow.allow(1);
    assert_eq!(running.ends_within(limit(SOON)), 0);
    assert_eq!(kept(), members);
    assert_eq!(slow.most(), 2, "no more than there are permits");
}
