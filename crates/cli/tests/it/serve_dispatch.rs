//! `serve --dispatch`: the dispatch server inside the API server.

use std::time::Duration;

use serde_json::Value;

use crate::serve::Served;
use crate::support::{Place, Running, SOON, eventually, limit};

const LONG: Duration = Duration::from_secs(80);

/// A test directory with a pool of script workers that `serve` hosts.
struct Pool {
    place: Place,
}

impl Pool {
    fn new() -> Self {
        let place = Place::new();
        place.write("longshore.toml", "[dispatch]\ndir = \"pool\"\n[web]\ndispatch = true\n");
        Self { place }
    }

    fn worker(&self) -> Running {
        self.place.start(&["worker", "--server", "pool", "--nthr", "4"])
    }

    fn submit(&self, text: &str, more: &[&str]) -> Value {
        self.place.write("job.sh", text);
        self.place.run(&[&["submit", "--json", "--script", "job.sh"], more].concat()).ok().json()
    }

    fn lines(&self, name: &str) -> usize {
        self.place.read(name).lines().count()
    }
}

#[test]
fn scripts_go_through_serve_to_a_worker_and_the_dashboard_shows_both() {
    let pool = Pool::new();
    let served = Served::start(&pool.place, &[]);
    let mut worker = pool.worker();
    let ended = pool.submit("echo hello", &["--wait"]);
    assert!(ended.to_string().contains("hello"), "{ended}");
    let (status, page) = served.ask("GET", "/dispatch", None, "");
    assert_eq!(status, 200);
    assert!(page.contains(&worker.0.id().to_string()), "the worker's process: {page}");
    // The script is a unit like any other, in the store that `serve` serves.
    let unit = ended["id"].as_str().or(ended["unit"].as_str()).expect("an id").to_owned();
    let (status, shown) = served.ask("GET", &format!("/api/v1/units/{unit}"), None, "");
    assert!(status == 200 && shown.contains(r#""state":"done""#), "{shown}");
    // A drain finishes running scripts first, then stops the worker.
    pool.submit("echo >> begun; until [ -e go ]; do sleep 0.05; done; echo >> ended", &[]);
    eventually(limit(SOON), || (pool.lines("begun") == 1).then_some(()));
    assert!(crate::support::signal(served.child.id(), "TERM"));
    eventually(limit(SOON), || {
        std::net::TcpStream::connect(&served.address).is_err().then_some(())
    });
    pool.place.write("go", "");
    served.ends_well();
    assert_eq!(pool.lines("ended"), 1);
    assert_eq!(worker.ends_within(limit(SOON)), 0);
    pool.place.run(&["verify"]).ok();
}

#[test]
fn a_killed_serve_that_is_started_again_takes_running_scripts_back() {
    let pool = Pool::new();
    let mut served = Served::start(&pool.place, &[]);
    let mut worker = pool.worker();
    let held = "echo $LONGSHORE_ARRAY_INDEX >> runs; until [ -e go ]; do sleep 0.05; done";
    pool.submit(held, &["--array", "1-20", "--name", "twenty"]);
    eventually(limit(LONG), || (pool.lines("runs") == 4).then_some(()));
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let served = Served::start(&pool.place, &[]);
    pool.place.write("go", "");
    let batch = eventually(limit(LONG), || {
        Some(pool.place.batch("twenty")).filter(|batch| batch["status"] == "complete")
    });
    assert_eq!(batch["done"], 20, "{batch}");
    let ran = pool.place.read("runs");
    let mut ran: Vec<u32> = ran.lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (1..=20).collect::<Vec<_>>(), "each exactly once");
    served.stop();
    assert_eq!(worker.ends_within(limit(SOON)), 0);
    pool.place.run(&["verify"]).ok();
}

#[test]
fn a_pool_has_one_server_and_stopping_it_leaves_the_rest_of_serve() {
    let pool = Pool::new();
    let served = Served::start(&pool.place, &[]);
    let second = pool.place.run(&["serve", "--listen", "127.0.0.1:0"]).ends(1);
    assert!(
        second.err.contains("another server") && second.err.contains("hint:"),
        "{}",
        second.err
    );
    pool.place.run(&["dispatch", "stop"]).ok();
    assert_eq!(served.ask("GET", "/healthz", None, "").0, 200);
    served.stop();
}
