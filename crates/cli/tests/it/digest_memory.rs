//! Digests with a slow renderer: the process holds only the pages of the members in progress, however
//! many are due.

use std::time::Duration;

use longshore_sqlite::rusqlite::Connection;

use crate::slow_renderer::SlowRenderer;
use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, stretch};

/// The size of a rendered page. Pages retained for all members would take several times [`MAX_GROWTH`].
const PAGE_BYTES: usize = 100 << 10;
/// How much the process may grow between a tenth of the members and the last.
const MAX_GROWTH: usize = 40 << 20;

const BATCH_FILE: &str = r#"
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
fn resident_bytes(process: &ChildGuard) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is alive");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn memory_stays_flat_while_a_slow_renderer_is_waited_for() {
    let members = 1_500;
    let dir = TestDir::new();
    // An HTML comment, so that the message's text part does not contain it.
    let line = "x".repeat(71) + "\n";
    let page = format!("<html><body>page<!--{}--></body></html>", line.repeat(PAGE_BYTES / line.len()));
    let renderer = SlowRenderer::start(page, Duration::from_millis(5));
    dir.write(
        "longshore.toml",
        format!(
            "[pools.mjml]\nmax = 2\n[mail]\nrenderer = \"http://127.0.0.1:{}/\"\npool = \"mjml\"\n\
             render_timeout = \"1h\"\n",
            renderer.port
        ),
    );
    dir.write("batch.toml", BATCH_FILE);
    let db = Connection::open(dir.path("members.db")).unwrap();
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE members (id INTEGER PRIMARY KEY, day TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {members})
         INSERT INTO members (id) SELECT i FROM n;"
    ))
    .unwrap();
    let mut running = dir.start(&["mail", "digest", "batch.toml"]);
    let spooled = || std::fs::read_dir(dir.path("spool/keys")).map_or(0, Iterator::count);
    // Waits until all rendered messages are in the spool and the next render request is waiting.
    let mut after = |answers: usize, all: usize| {
        renderer.allow(answers);
        eventually(stretch(6 * TIMEOUT), || {
            assert_eq!(running.0.try_wait().unwrap(), None, "{}", dir.read("stderr"));
            (spooled() == all && renderer.in_flight() >= 1).then_some(())
        });
        resident_bytes(&running)
    };
    let tenth = members / 10;
    let early = after(tenth, tenth);
    let late = after(members - tenth - 1, members - 1);
    let grown = late.saturating_sub(early);
    assert!(grown < MAX_GROWTH, "from {} to {} KiB", early >> 10, late >> 10);
    renderer.allow(1);
    assert_eq!(running.ends_within(stretch(TIMEOUT)), 0);
    assert_eq!(spooled(), members);
    assert_eq!(renderer.max_in_flight(), 2, "bounded by the permits");
}
