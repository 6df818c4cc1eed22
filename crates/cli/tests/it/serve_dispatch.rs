//! `serve --dispatch`: the dispatch server inside the API server.

use std::time::Duration;

use serde_json::Value;

use crate::serve::ServeProcess;
use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, stretch};

const POOL_TIMEOUT: Duration = Duration::from_secs(80);

/// A test directory with a pool of script workers that `serve` hosts.
struct HostedPool {
    dir: TestDir,
}

impl HostedPool {
    fn new() -> Self {
        let dir = TestDir::new();
        dir.write("longshore.toml", "[dispatch]\ndir = \"pool\"\n[web]\ndispatch = true\n");
        Self { dir }
    }

    fn worker(&self) -> ChildGuard {
        self.dir.start(&["worker", "--server", "pool", "--nthr", "4"])
    }

    fn submit(&self, text: &str, more: &[&str]) -> Value {
        self.dir.write("job.sh", text);
        self.dir.run(&[&["submit", "--json", "--script", "job.sh"], more].concat()).ok().json()
    }

    fn lines(&self, name: &str) -> usize {
        self.dir.read(name).lines().count()
    }
}

#[test]
fn scripts_go_through_serve_to_a_worker_and_the_dashboard_shows_both() {
    let pool = HostedPool::new();
    let server = ServeProcess::start(&pool.dir, &[]);
    let mut worker = pool.worker();
    let ended = pool.submit("echo hello", &["--wait"]);
    assert!(ended.to_string().contains("hello"), "{ended}");
    let (status, page) = server.send("GET", "/dispatch", None, "");
    assert_eq!(status, 200);
    assert!(page.contains(&worker.0.id().to_string()), "the worker's process: {page}");
    // The script is a unit like any other, in the store that `serve` serves.
    let unit = ended["id"].as_str().or(ended["unit"].as_str()).expect("an id").to_owned();
    let (status, shown) = server.send("GET", &format!("/api/v1/units/{unit}"), None, "");
    assert!(status == 200 && shown.contains(r#""state":"done""#), "{shown}");
    // A drain finishes running scripts first, then stops the worker.
    pool.submit("echo >> begun; until [ -e go ]; do sleep 0.05; done; echo >> ended", &[]);
    eventually(stretch(TIMEOUT), || (pool.lines("begun") == 1).then_some(()));
    assert!(crate::support::signal(server.child.id(), "TERM"));
    eventually(stretch(TIMEOUT), || std::net::TcpStream::connect(&server.address).is_err().then_some(()));
    pool.dir.write("go", "");
    server.wait_for_exit();
    assert_eq!(pool.lines("ended"), 1);
    assert_eq!(worker.ends_within(stretch(TIMEOUT)), 0);
    pool.dir.run(&["verify"]).ok();
}

#[test]
fn a_killed_serve_that_is_started_again_takes_running_scripts_back() {
    let pool = HostedPool::new();
    let mut server = ServeProcess::start(&pool.dir, &[]);
    let mut worker = pool.worker();
    let held = "echo $LONGSHORE_ARRAY_INDEX >> runs; until [ -e go ]; do sleep 0.05; done";
    pool.submit(held, &["--array", "1-20", "--name", "twenty"]);
    eventually(stretch(POOL_TIMEOUT), || (pool.lines("runs") == 4).then_some(()));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = ServeProcess::start(&pool.dir, &[]);
    pool.dir.write("go", "");
    let batch = eventually(stretch(POOL_TIMEOUT), || {
        Some(pool.dir.batch("twenty")).filter(|batch| batch["status"] == "complete")
    });
    assert_eq!(batch["done"], 20, "{batch}");
    let ran = pool.dir.read("runs");
    let mut ran: Vec<u32> = ran.lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (1..=20).collect::<Vec<_>>(), "each exactly once");
    server.stop();
    assert_eq!(worker.ends_within(stretch(TIMEOUT)), 0);
    pool.dir.run(&["verify"]).ok();
}

#[test]
fn a_pool_has_one_server_and_stopping_it_leaves_the_rest_of_serve() {
    let pool = HostedPool::new();
    let server = ServeProcess::start(&pool.dir, &[]);
    let second = pool.dir.run(&["serve", "--listen", "127.0.0.1:0"]).ends(1);
    assert!(second.err.contains("another server") && second.err.contains("hint:"), "{}", second.err);
    pool.dir.run(&["dispatch", "stop"]).ok();
    assert_eq!(server.send("GET", "/healthz", None, "").0, 200);
    server.stop();
}
