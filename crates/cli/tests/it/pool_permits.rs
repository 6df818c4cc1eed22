//! Bounded pools named by their users: kinds, worker processes, profiles and batch files. Three
//! processes run, and an observer never sees more concurrent holders than permits.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::batch_job::BatchJob;
use crate::http::server::{HttpServer, answer};
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually};

/// Runs three workers until idle.
fn run_three_workers(dir: &TestDir) {
    let work = ["worker", "--slots", "4", "--until-idle"];
    let mut all: Vec<ChildGuard> = (0..3).map(|_| dir.start(&work)).collect();
    for worker in &mut all {
        assert_eq!(worker.ends_within(TIMEOUT * 3), 0, "{}", dir.read("stderr"));
    }
}

fn permits_in_use(dir: &TestDir, pool: &str) -> u64 {
    let status = dir.run(&["pool", "status", pool, "--json"]).ok().json();
    assert!(status["acquired"].as_u64() > Some(0), "no permit was ever held: {status}");
    status["in_use"].as_u64().unwrap()
}

/// Fails if two run concurrently: `mkdir` succeeds for one at a time.
const EXCLUSIVE_SCRIPT: &str = "mkdir busy && sleep 0.05 && rmdir busy && echo >> done";

#[test]
fn units_of_a_kind_hold_a_permit_of_the_pool_that_it_names() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[pools.licence]\nmax = 1\n[worker.pools]\nexec = \"licence\"\n");
    for _ in 0..12 {
        dir.submit_script(EXCLUSIVE_SCRIPT, &[]);
    }
    run_three_workers(&dir);
    assert_eq!(dir.read("done").lines().count(), 12, "{:?}", dir.units("failed"));
    assert_eq!(permits_in_use(&dir, "licence"), 0);
}

#[test]
fn a_unit_that_gets_no_permit_in_time_comes_again_and_has_used_no_attempt() {
    let dir = TestDir::new();
    let config = "[pools.licence]\nmax = 1\nwait = \"100ms\"\n[worker.pools]\nexec = \"licence\"\n";
    dir.write("longshore.toml", config);
    let script = "while [ ! -e end ]; do sleep 0.05; done";
    let mut holder = dir.start(&["pool", "exec", "licence", "--", "sh", "-c", script]);
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "licence", "--json"]).json();
        (status["in_use"] == 1).then_some(())
    });
    let id = dir.submit_script("echo >> done", &[]);
    let mut worker = dir.start(&["worker", "--until-idle"]);
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "licence", "--json"]).ok().json();
        (status["timeouts"].as_u64() >= Some(2)).then_some(())
    });
    assert!(!dir.path("done").exists());
    dir.write("end", "");
    assert_eq!((holder.ends_within(TIMEOUT), worker.ends_within(TIMEOUT)), (0, 0));
    let unit = dir.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&"done".into(), &1.into()), "{unit}");
}

const WORKER_PROGRAM: &str = r#"
import os, sys, time
sys.path.insert(0, SDK)
from longshore.worker import Worker
worker = Worker()

@worker.operation("alone")
def alone(number: int):
    os.mkdir("busy")
    time.sleep(0.05)
    os.rmdir("busy")
    with open("done", "a") as done:
        done.write(f"{number}\n")

worker.run()
"#;

#[test]
fn calls_of_worker_processes_hold_a_permit_of_the_pool_that_they_name() {
    let dir = TestDir::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    dir.write("worker.py", WORKER_PROGRAM.replace("SDK", &format!("{:?}", sdk.display().to_string())));
    let workers = "[workers.maths]\ncommand = [\"python3\", \"worker.py\"]\npool = \"maths\"\n";
    dir.write("longshore.toml", format!("[pools.maths]\nmax = 1\n{workers}"));
    for n in 0..9 {
        dir.run(&["submit", "alone", &n.to_string(), "--max-attempts", "1"]).ok();
    }
    run_three_workers(&dir);
    assert_eq!(dir.read("done").lines().count(), 9, "{:?}", dir.units("failed"));
    assert_eq!(permits_in_use(&dir, "maths"), 0);
}

/// A provider that records its peak of concurrent requests.
fn start_provider(content: &str) -> (HttpServer, Arc<AtomicU32>) {
    let (now, peak) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let body = json!({
        "id": "x", "object": "chat.completion", "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": content },
        }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
    });
    let response = answer(200, "content-type: application/json\r\n", &body.to_string());
    let seen = Arc::clone(&peak);
    let server = HttpServer::new(move |_, _, stream| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // The time that an answer takes.
        std::thread::sleep(Duration::from_millis(50));
        now.fetch_sub(1, Ordering::SeqCst);
        let _ = stream.write_all(response.as_bytes());
    });
    (server, peak)
}

#[test]
fn questions_by_a_profile_hold_a_permit_of_the_pool_that_it_names() {
    let (dir, (server, peak)) = (TestDir::new(), start_provider("hello"));
    dir.write("longshore.toml", "[pools.model]\nmax = 2\n");
    let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m"];
    let more = ["--endpoint", &server.url, "--set", "pool=model"];
    dir.run(&[&add[..], &more].concat()).ok();
    let mut workers: Vec<ChildGuard> =
        (0..3).map(|_| dir.start(&["ai", "worker", "--in-flight", "4"])).collect();
    let ask = ["ai", "ask", "--queue", "--profile", "fake", "--timeout", "60s", "hello"];
    let asking: Vec<_> = (0..12).map(|_| dir.command(&ask).spawn().unwrap()).collect();
    for asked in asking {
        CliOutput::of(asked).ok();
    }
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    }
    assert_eq!(peak.load(Ordering::SeqCst), 2);
    assert_eq!(permits_in_use(&dir, "model"), 0);
}

#[test]
fn a_question_that_gets_no_permit_in_its_time_may_be_asked_again() {
    let (dir, (server, peak)) = (TestDir::new(), start_provider("hello"));
    dir.write("longshore.toml", "[pools.model]\nmax = 1\n");
    let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m"];
    let more = ["--endpoint", &server.url, "--set", "pool=model"];
    dir.run(&[&add[..], &more].concat()).ok();
    let mut holder = dir.start(&["pool", "exec", "model", "--", "sleep", "60"]);
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "model", "--json"]).json();
        (status["in_use"] == 1).then_some(())
    });
    let ask = ["ai", "ask", "--profile", "fake", "--timeout", "5s", "hello"];
    dir.run(&ask).ends(1).says("RATE_LIMITED: no permit of pool `model` within");
    let status = dir.run(&["pool", "status", "model", "--json"]).ok().json();
    assert_eq!((&status["timeouts"], &status["waiting"]), (&1.into(), &json!([])), "{status}");
    assert_eq!(peak.load(Ordering::SeqCst), 0, "no request reached the provider");
    holder.kill();
    dir.run(&["profile", "set", "fake", "--set", "pool=elsewhere"]).ok();
    dir.run(&ask).ends(1).says("PROFILE_DISABLED: profile `fake` names pool `elsewhere`");
}

#[test]
fn questions_of_a_batch_hold_a_permit_of_the_pool_that_its_file_names() {
    let (server, peak) = start_provider("{\"n\": 1}");
    let written = "provider = \"scripted\"\nmodel = \"script\"\nscript = \"script.toml\"";
    let real = format!("provider = \"openai\"\nmodel = \"m\"\nendpoint = \"{}\"", server.url);
    let job = BatchJob::good(24)
        .with(&[(written, &real), ("profile = \"script\"", "profile = \"script\"\npool = \"model\"")]);
    let config = job.dir.read("longshore.toml") + "[pools.model]\nmax = 2\n";
    job.dir.write("longshore.toml", config);
    job.create();
    let work = ["worker", "--slots", "4"];
    let mut workers: Vec<ChildGuard> = (0..2).map(|_| job.dir.start(&work)).collect();
    job.run(&[]).ok();
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", job.dir.read("stderr"));
    }
    assert_eq!(peak.load(Ordering::SeqCst), 2);
    assert_eq!(job.count("effects"), 24);
    assert_eq!(permits_in_use(&job.dir, "model"), 0);
}

#[test]
fn a_pool_that_is_named_and_not_there_is_answered_with_a_hint() {
    let dir = TestDir::new();
    for config in [
        "[pools.licence]\nmax = 1\n[worker.pools]\nexec = \"licens\"\n",
        "[pools.licence]\nmax = 1\n[workers.w]\ncommand = [\"true\"]\npool = \"licens\"\n",
    ] {
        dir.write("longshore.toml", config);
        let run = dir.run(&["worker", "--until-idle"]).ends(2);
        run.says("did you mean `licence`?").says("hint:");
    }
    let adaptive = "[pools.licence]\nmax = 9\nadaptive = { min = 2, max = 5 }\n";
    dir.write("longshore.toml", adaptive);
    dir.run(&["pool", "status"]).ends(2).says("not within 2 and 5").says("hint:");
}

/// An adaptive maximum: one process adjusts it, and `pool status` shows the bounds and that process.
#[test]
fn an_adaptive_maximum_is_steered_and_shown() {
    let dir = TestDir::new();
    let adaptive = "adaptive = { min = 1, max = 9, window = \"100ms\" }";
    dir.write("longshore.toml", format!("[pools.licence]\nmax = 2\n{adaptive}\n"));
    let script = "while [ ! -e end ]; do sleep 0.05; done";
    let mut holder = dir.start(&["pool", "exec", "licence", "--", "sh", "-c", script]);
    let status = eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "licence", "--json"]).json();
        status["adaptive"]["by"].is_string().then_some(status)
    });
    assert_eq!((&status["adaptive"]["min"], &status["adaptive"]["max"]), (&1.into(), &9.into()));
    let shown = dir.run(&["pool", "status", "licence"]).ok().out;
    assert!(shown.contains("(1 to 9)") && shown.contains("is adjusted by"), "{shown}");
    let all = dir.run(&["pool", "status", "--json"]).ok().json();
    assert_eq!(all.as_array().unwrap().len(), 1, "the controller's own lease is not listed as a pool: {all}");
    dir.write("end", "");
    assert_eq!(holder.ends_within(TIMEOUT), 0);
}
