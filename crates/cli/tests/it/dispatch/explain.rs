//! Why a script waits: said for each worker, and for what no worker can ever run.

use serde_json::{Value, json};

use super::fixture::PoolFixture;

fn explain(pool: &PoolFixture, unit: &str) -> Value {
    pool.run(&["unit", "explain", unit, "--json"]).ok().json()
}

/// What keeps each worker from the unit.
fn obstacles(explained: &Value) -> Vec<&Value> {
    explained["workers"].as_array().unwrap().iter().map(|worker| &worker["obstacles"]).collect()
}

#[test]
fn unit_explain_says_what_each_worker_lacks() {
    let pool = PoolFixture::start(&["--nthr", "2", "--mem", "1000MiB", "--resource", "gpu=1"]);
    let hold = "until [ -e go ]; do sleep 0.05; done";
    let holder = pool.unit("hold.sh", hold, &["--nthr", "2", "--resource", "gpu=1", "--mem", "600MiB"]);
    pool.wait_for_status(|status| status["running"] == 1);
    assert_eq!(explain(&pool, &holder)["position"]["place"], "running");

    let more = ["--nthr", "1", "--resource", "gpu=1", "--mem", "500MiB", "--time", "1h"];
    let waiting = pool.unit("next.sh", "true", &more);
    let explained = explain(&pool, &waiting);
    assert_eq!(
        explained["request"],
        json!({"threads": 1, "resources": {"gpu": 1, "mem": 500}, "time": 3600.0})
    );
    let why = json!([
        {"obstacle": "threads", "needs": 1, "has": 2, "free": 0},
        {"obstacle": "resource", "name": "gpu", "needs": 1, "has": 1, "free": 0},
        {"obstacle": "resource", "name": "mem", "needs": 500, "has": 1000, "free": 400},
    ]);
    assert_eq!(obstacles(&explained), [&why]);
    assert_eq!(explained["unfit"], json!([]));
    let text = pool.run(&["unit", "explain", &waiting]).ok().out;
    assert!(text.contains("threads: 1 needed, 0 of 2 are free; gpu: 1 needed, 0 of 1 are free"), "{text}");
    let shown = pool.run(&["unit", "show", &waiting, "--dir", "pool"]).ok().out;
    assert!(shown.contains("1 thread, 1 gpu, 524.3 MB memory, at most 1 h"), "{shown}");

    // Held back in the store, not by the workers.
    let after = pool.unit("after.sh", "true", &["--after", &holder]);
    assert_eq!(explain(&pool, &after)["reasons"], json!([{"reason": "dependencies"}]));
    pool.submit("array.sh", "true", &["--array", "1-3", "--name", "some"]);
    pool.run(&["batch", "pause", "some", "--reason", "lunch", "--dir", "pool"]).ok();
    let units = pool.run(&["unit", "list", "--batch", "some", "--dir", "pool", "--json"]).ok().json();
    let of_array = units[0]["unit"].as_str().unwrap();
    let paused = json!([{"reason": "batch_paused", "batch": "some", "why": "lunch"}]);
    assert_eq!(explain(&pool, of_array)["reasons"], paused);
    pool.run(&["batch", "resume", "some", "--dir", "pool"]).ok();

    pool.dir.write("go", "");
    pool.wait_until_idle();
    let ended = explain(&pool, &waiting);
    assert_eq!((&ended["state"], &ended["workers"]), (&json!("done"), &json!([])));
    pool.stop();
}

#[test]
fn what_no_worker_can_ever_run_is_said_at_submit_and_in_status() {
    let pool = PoolFixture::start(&["--nthr", "2", "--resource", "gpu=1", "--time", "1h"]);
    pool.dir.write("wide.sh", "true");
    let run =
        pool.run(&["submit", "--json", "--script", "wide.sh", "--nthr", "3", "--resource", "gpu=2"]).ok();
    let warning =
        "no worker of this pool can ever run it: threads: 3 needed, it has 2; gpu: 2 needed, it has 1";
    assert!(run.err.contains(warning), "{}", run.err);
    let why = json!([
        {"obstacle": "threads", "needs": 3, "has": 2, "free": 2},
        {"obstacle": "resource", "name": "gpu", "needs": 2, "has": 1, "free": 1},
    ]);
    let wide = run.json();
    assert_eq!(wide["unfit"], why);
    let long = pool.submit("long.sh", "true", &["--time", "2h"]);
    assert_eq!(long["unfit"][0]["obstacle"], "time_left");
    let fine = pool.submit("fine.sh", "true", &["--nthr", "2"]);
    assert_eq!(fine["unfit"], Value::Null);

    let status = pool.wait_for_status(|status| status["unfit"].as_array().unwrap().len() == 2);
    let of = |unit: &Value| {
        let all = status["unfit"].as_array().unwrap();
        all.iter().find(|unfit| unfit["unit"] == *unit).unwrap()
    };
    assert_eq!((&of(&wide["unit"])["scripts"], &of(&wide["unit"])["obstacles"]), (&json!(1), &why));
    assert_eq!(of(&long["unit"])["obstacles"][0]["obstacle"], "time_left");
    let text = pool.run(&["dispatch", "status"]).ok().out;
    assert!(text.contains("time left: 2 h needed, it interrupts scripts in 59 min"), "{text}");
    let unit = wide["unit"].as_str().unwrap();
    assert_eq!(explain(&pool, unit)["unfit"], why);
    pool.run(&["dispatch", "stop"]).ok();
}

#[test]
fn a_script_starts_only_where_its_time_is_left() {
    let pool = PoolFixture::start(&["--nthr", "2", "--time", "10m", "--drain-timeout", "1s"]);
    let long = pool.submit("long.sh", "touch started", &["--time", "1h"]);
    let unit = long["unit"].as_str().unwrap();
    pool.wait_for_status(|status| status["claimed"] == 1);
    // A shorter one overtakes it.
    assert_eq!(pool.wait_for("short.sh", "true", &["--time", "5s"]).0, 0);
    assert!(!pool.dir.path("started").exists());
    let explained = explain(&pool, unit);
    assert_eq!(explained["position"], json!({"place": "queued"}));
    let obstacle = &explained["workers"][0]["obstacles"][0];
    assert_eq!((&obstacle["obstacle"], &obstacle["needs"]), (&json!("time_left"), &json!(3600.0)));
    let left = obstacle["left"].as_f64().unwrap();
    assert!((0.0..=585.0).contains(&left), "{left}");
    // Another worker, without an end, is started by hand and runs it.
    let mut command = pool.command(&["worker", "--server", "pool", "--nthr", "1", "--lifetime", "2h"]);
    let mut worker = command.spawn().unwrap();
    let done = pool.wait_for_status(|status| status["done"] == 2);
    assert!(pool.dir.path("started").exists(), "{done}");
    worker.kill().unwrap();
    worker.wait().unwrap();
    pool.run(&["dispatch", "stop", "--now"]).ok();
}
