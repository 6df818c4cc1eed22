//! Digests under SIGKILL of writer, renderer, permit store and sender: each user still gets one
//! message per period.

use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::servers::{MailSecurity, PrivateRedis, PrivateSmtp, RedisPersistence};

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, pick_size, signal, stretch};

/// Messages rendered concurrently.
const DIGEST_PERMITS: usize = 16;
/// Messages sent to the server concurrently.
const SMTP_CONNECTIONS: usize = 4;

/// A render process: any text, at any path, with the protocol of adrianrudnik/mjml-server.
const RENDERER: &str = "
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        text = self.rfile.read(int(self.headers['Content-Length']))
        page = b'<html><body>' + text.replace(b'mj', b'x') + b'</body></html>'
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.send_header('Content-Length', str(len(page)))
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer.allow_reuse_address = True
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Page).serve_forever()
";

const BATCH_FILE: &str = r#"
type = "storm"
database = "sqlite:users.db"
workers = 32
[candidates]
sql = "SELECT u.id FROM users u WHERE u.day IS NULL OR u.day < :day"
key = "id"
ahead = 500
[pre]
sql = "SELECT id, last FROM users WHERE id = :key"
[pre.lists]
items = "SELECT i.id, i.words FROM items i, users u WHERE u.id = :key AND i.id > u.last"
[mail]
pool = "digest"
from = "storm@example.org"
to = "user{{ id }}@example.org"
subject = "{{ items | length }} new"
template = "<mjml><mj-body><mj-section><mj-column>{% for item in items %}<mj-text>{{ item.words }}</mj-text>{% endfor %}</mj-column></mj-section></mj-body></mjml>"
[post]
success = { sql = "UPDATE users SET last = max(last, :last), day = :day, sent = sent + 1 WHERE id = :key", rows = 1 }
[retry]
attempts = 1000
base = "20ms"
cap = "200ms"
[failures]
limit = "none"
"#;

/// The renderer that is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RendererKind {
    /// A process that stands in for a render server, over HTTP.
    Server,
    /// npm's mjml in the writer's own Node processes.
    Node,
}

struct DigestStorm {
    dir: TestDir,
    renderer_kind: RendererKind,
    port: u16,
    sink: PrivateSmtp,
    redis: PrivateRedis,
}

impl DigestStorm {
    fn new(users: usize, renderer_kind: RendererKind) -> Self {
        let dir = TestDir::new();
        let sink = PrivateSmtp::start(MailSecurity::None).unwrap();
        let redis = PrivateRedis::start(RedisPersistence::EverySecond).unwrap();
        // The port was free a moment ago; no other process binds an ephemeral port on purpose.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let renderer = match renderer_kind {
            RendererKind::Server => format!("renderer = \"http://127.0.0.1:{port}/\""),
            RendererKind::Node => format!("renderer = \"reference\"\nmjml_dir = {:?}", mjml_dir()),
        };
        let config = format!(
            "permits = \"{}\"\n[worker]\nttl = \"2s\"\n\
             [pools.digest]\nmax = {DIGEST_PERMITS}\nlease = \"2s\"\n[pools.mjml]\nmax = 4\nlease = \"2s\"\n\
             [mail]\n{renderer}\npool = \"mjml\"\n\
             [mail.smtp]\nserver = \"127.0.0.1:{}\"\nsecurity = \"none\"\nconnections = {SMTP_CONNECTIONS}\n",
            redis.url(),
            sink.port(),
        );
        dir.write("longshore.toml", config);
        dir.write("batch.toml", BATCH_FILE);
        let db = Connection::open(dir.path("users.db")).unwrap();
        db.execute_batch(&format!(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE users (id INTEGER PRIMARY KEY, last INTEGER NOT NULL DEFAULT 0, day TEXT,
                                 sent INTEGER NOT NULL DEFAULT 0);
             CREATE TABLE items (id INTEGER PRIMARY KEY, words TEXT NOT NULL);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {users})
             INSERT INTO users (id) SELECT i FROM n;
             INSERT INTO items VALUES (1, 'one'), (2, 'two <b>'), (3, 'three & more');"
        ))
        .unwrap();
        Self { dir, renderer_kind, port, sink, redis }
    }

    fn start(&self, args: &[&str]) -> ChildGuard {
        let mut command = self.dir.command(args);
        ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Starts the render server, unless the writer's own processes render.
    fn start_renderer(&self) -> Option<ChildGuard> {
        let mut command = Command::new("python3");
        command.args(["-c", RENDERER, &self.port.to_string()]).stderr(Stdio::null());
        (self.renderer_kind == RendererKind::Server).then(|| ChildGuard(command.spawn().unwrap()))
    }

    /// Kills this writer's renderer, and waits until the writer has recovered.
    fn kill_renderer(&self, renderer: &mut Option<ChildGuard>, writer: &ChildGuard, users: usize) {
        match renderer {
            Some(server) => {
                server.kill();
                *renderer = self.start_renderer();
            }
            None => eventually(stretch(2 * TIMEOUT), || {
                let nodes = node_descendants(writer.0.id());
                nodes.iter().for_each(|node| _ = signal(*node, "KILL"));
                (!nodes.is_empty()).then_some(())
            }),
        }
        // More messages than may have been rendered before the kill without being spooled: each holds
        // a permit of `digest`.
        let enough = (self.spooled_count() + DIGEST_PERMITS + 1).min(users);
        eventually(stretch(4 * TIMEOUT), || (self.spooled_count() >= enough).then_some(()));
    }

    fn start_writer(&self) -> ChildGuard {
        self.start(&["mail", "digest", "batch.toml", "--daemon", "--every", "100ms"])
    }

    fn start_sender(&self) -> ChildGuard {
        self.start(&["mail", "send", "--daemon"])
    }

    fn spooled_count(&self) -> usize {
        std::fs::read_dir(self.dir.path("spool/keys")).map_or(0, Iterator::count)
    }

    fn arrived(&self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        for one in self.sink.messages().unwrap() {
            *times.entry(one["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        times
    }

    fn query_number(&self, sql: &str) -> usize {
        let db = Connection::open(self.dir.path("users.db")).unwrap();
        db.busy_timeout(TIMEOUT).unwrap();
        usize::try_from(db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()).unwrap()
    }
}

/// Where `./test` installs npm's mjml.
fn mjml_dir() -> PathBuf {
    let folder = std::env::var_os("LONGSHORE_MJML")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mjml"), PathBuf::from);
    assert!(folder.join("node_modules/mjml").exists(), "npm's mjml is missing: ./test installs it");
    folder
}

/// The Node processes below a process; all of them belong to this test.
fn node_descendants(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let children: Vec<u32> = lists
        .flat_map(|list| {
            let list = list.unwrap_or_default();
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    let is_node = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).next().is_some_and(|word| word.ends_with(b"node"))
    };
    let below = children.iter().flat_map(|child| node_descendants(*child));
    children.iter().copied().filter(is_node).chain(below).collect()
}

#[test]
fn a_storm_on_digests_leaves_one_message_per_user_and_repeats_only_what_was_in_hand() {
    storm_on_digests(pick_size((250, 6), (20_000, 40)), RendererKind::Server);
}

#[test]
fn a_storm_on_digests_does_no_harm_where_node_renders_and_is_killed() {
    storm_on_digests(pick_size((120, 4), (2_000, 20)), RendererKind::Node);
}

fn storm_on_digests((users, kills): (usize, usize), renderer_kind: RendererKind) {
    let mut storm = DigestStorm::new(users, renderer_kind);
    let (mut renderer, mut sender) = (storm.start_renderer(), storm.start_sender());
    let mut sender_kills = 0;
    for kill in 1..=kills {
        let mut writer = storm.start_writer();
        let share = users * kill / (kills + 2);
        // Progress is measured by spooled messages, not by time.
        eventually(stretch(10 * TIMEOUT), || (storm.spooled_count() >= share).then_some(()));
        if kill % 3 == 0 {
            storm.kill_renderer(&mut renderer, &writer, users);
        }
        writer.kill();
        if kill % 2 == 0 {
            sender.kill();
            sender_kills += 1;
            sender = storm.start_sender();
        }
        if kill % 4 == 0 {
            storm.redis.restart_killed().unwrap();
        }
    }
    let mut writer = storm.start_writer();
    eventually(stretch(20 * TIMEOUT), || {
        (storm.query_number("SELECT count(*) FROM users WHERE day IS NOT NULL") == users).then_some(())
    });
    writer.signal("TERM");
    assert_eq!(writer.ends_within(stretch(TIMEOUT)), 0);
    eventually(stretch(20 * TIMEOUT), || (storm.arrived().len() >= users).then_some(()));
    eventually(stretch(TIMEOUT), || {
        let stats = storm.dir.run(&["mail", "stats", "--json"]).ok().json();
        (stats["pending"] == 0 && stats["sending"] == 0).then_some(())
    });
    sender.signal("TERM");
    assert_eq!(sender.ends_within(stretch(TIMEOUT)), 0);
    assert_eq!(storm.spooled_count(), users, "one file per user and period");
    assert_eq!(storm.query_number("SELECT count(*) FROM users WHERE last = 3 AND sent = 1"), users);
    let times = storm.arrived();
    assert_eq!(times.len(), users, "no message is lost, and each has its id");
    let to: BTreeSet<String> =
        storm.sink.messages().unwrap().iter().map(|one| one["to"].to_string()).collect();
    assert_eq!(to.len(), users);
    let repeats: usize = times.values().map(|times| times - 1).sum();
    assert!(repeats <= sender_kills * SMTP_CONNECTIONS, "{repeats} after {sender_kills} kills");
    storm.dir.run(&["--store", "sqlite:users.db", "verify"]).ok();
    // A failed row would have been due again.
    let list = ["--store", "sqlite:users.db", "batch", "list", "--limit", "1000", "--json"];
    let batches = storm.dir.run(&list).ok().json();
    let failed = |batch: &serde_json::Value| batch["failed"].as_u64().unwrap();
    assert_eq!(batches.as_array().unwrap().iter().map(failed).sum::<u64>(), 0, "{batches}");
    drop(renderer);
}
