//! Bounded pools named by who uses them: kinds, worker processes, profiles and batch files. Three processes
//! work, and a witness beside them never sees more at once than there are permits.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::batch_job::Job;
use crate::http::server::{Server, answer};
use crate::support::{Place, Run, Running, SOON, eventually};

/// Three workers, until nothing is left.
fn three(place: &Place) {
    let work = ["worker", "--slots", "4", "--until-idle"];
    let mut all: Vec<Running> = (0..3).map(|_| place.start(&work)).collect();
    for worker in &mut all {
        assert_eq!(worker.ends_within(SOON * 3), 0, "{}", place.read("stderr"));
    }
}

fn in_use(place: &Place, pool: &str) -> u64 {
    let status = place.run(&["pool", "status", pool, "--json"]).ok().json();
    assert!(status["acquired"].as_u64() > Some(0), "nobody held a permit: {status}");
    status["in_use"].as_u64().unwrap()
}

/// A directory is made by one at a time.
const ALONE: &str = "mkdir busy && sleep 0.05 && rmdir busy && echo >> done";

#[test]
fn units_of_a_kind_hold_a_permit_of_the_pool_that_it_names() {
    let place = Place::new();
    place.write("longshore.toml", "[pools.licence]\nmax = 1\n[worker.pools]\nexec = \"licence\"\n");
    for _ in 0..12 {
        place.submit_script(ALONE, &[]);
    }
    three(&place);
    assert_eq!(place.read("done").lines().count(), 12, "{:?}", place.units("failed"));
    assert_eq!(in_use(&place, "licence"), 0);
}

#[test]
fn a_unit_that_gets_no_permit_in_time_comes_again_and_has_used_no_attempt() {
    let place = Place::new();
    let config = "[pools.licence]\nmax = 1\nwait = \"100ms\"\n[worker.pools]\nexec = \"licence\"\n";
    place.write("longshore.toml", config);
    let script = "while [ ! -e end ]; do sleep 0.05; done";
    let mut holder = place.start(&["pool", "exec", "licence", "--", "sh", "-c", script]);
    eventually(SOON, || {
        let status = place.run(&["pool", "status", "licence", "--json"]).json();
        (status["in_use"] == 1).then_some(())
    });
    let id = place.submit_script("echo >> done", &[]);
    let mut worker = place.start(&["worker", "--until-idle"]);
    eventually(SOON, || {
        let status = place.run(&["pool", "status", "licence", "--json"]).ok().json();
        (status["timeouts"].as_u64() >= Some(2)).then_some(())
    });
    assert!(!place.path("done").exists());
    place.write("end", "");
    assert_eq!((holder.ends_within(SOON), worker.ends_within(SOON)), (0, 0));
    let unit = place.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&"done".into(), &1.into()), "{unit}");
}

const PYTHON: &str = r#"
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
    let place = Place::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    place.write("worker.py", PYTHON.replace("SDK", &format!("{:?}", sdk.display().to_string())));
    let workers = "[workers.maths]\ncommand = [\"python3\", \"worker.py\"]\npool = \"maths\"\n";
    place.write("longshore.toml", format!("[pools.maths]\nmax = 1\n{workers}"));
    for n in 0..9 {
        place.run(&["submit", "alone", &n.to_string(), "--max-attempts", "1"]).ok();
    }
    three(&place);
    assert_eq!(place.read("done").lines().count(), 9, "{:?}", place.units("failed"));
    assert_eq!(in_use(&place, "maths"), 0);
}

/// A provider that counts who asks it at once.
fn provider(content: &str) -> (Server, Arc<AtomicU32>) {
    let (now, peak) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let body = json!({
        "id": "x", "object": "chat.completion", "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": content },
        }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
    });
    let said = answer(200, "content-type: application/json\r\n", &body.to_string());
    let seen = Arc::clone(&peak);
    let server = Server::new(move |_, _, stream| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // What an answer takes.
        std::thread::sleep(Duration::from_millis(50));
        now.fetch_sub(1, Ordering::SeqCst);
        let _ = stream.write_all(said.as_bytes());
    });
    (server, peak)
}

#[test]
fn questions_by_a_profile_hold_a_permit_of_the_pool_that_it_names() {
    let (place, (server, peak)) = (Place::new(), provider("hello"));
    place.write("longshore.toml", "[pools.model]\nmax = 2\n");
    let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m"];
    let more = ["--endpoint", &server.url, "--set", "pool=model"];
    place.run(&[&add[..], &more].concat()).ok();
    let mut workers: Vec<Running> =
        (0..3).map(|_| place.start(&["ai", "worker", "--in-flight", "4"])).collect();
    let ask = ["ai", "ask", "--queue", "--profile", "fake", "--timeout", "60s", "hello"];
    let asking: Vec<_> = (0..12).map(|_| place.command(&ask).spawn().unwrap()).collect();
    for asked in asking {
        Run::of(asked).ok();
    }
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0, "{}", place.read("stderr"));
    }
    assert_eq!(peak.load(Ordering::SeqCst), 2);
    assert_eq!(in_use(&place, "model"), 0);
}

#[test]
fn a_question_that_gets_no_permit_in_its_time_may_be_asked_again() {
    let (place, (server, peak)) = (Place::new(), provider("hello"));
    place.write("longshore.toml", "[pools.model]\nmax = 1\n");
    let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m"];
    let more = ["--endpoint", &server.url, "--set", "pool=model"];
    place.run(&[&add[..], &more].concat()).ok();
    let mut holder = place.start(&["pool", "exec", "model", "--", "sleep", "60"]);
    eventually(SOON, || {
        let status = place.run(&["pool", "status", "model", "--json"]).json();
        (status["in_use"] == 1).then_some(())
    });
    let ask = ["ai", "ask", "--profile", "fake", "--timeout", "5s", "hello"];
    place.run(&ask).ends(1).says("RATE_LIMITED: no permit of pool `model` within");
    let status = place.run(&["pool", "status", "model", "--json"]).ok().json();
    assert_eq!((&status["timeouts"], &status["waiting"]), (&1.into(), &json!([])), "{status}");
    assert_eq!(peak.load(Ordering::SeqCst), 0, "nobody was asked");
    holder.kill();
    place.run(&["profile", "set", "fake", "--set", "pool=elsewhere"]).ok();
    place.run(&ask).ends(1).says("PROFILE_DISABLED: profile `fake` names pool `elsewhere`");
}

#[test]
fn questions_of_a_batch_hold_a_permit_of_the_pool_that_its_file_names() {
    let (server, peak) = provider("{\"n\": 1}");
    let written = "provider = \"scripted\"\nmodel = \"script\"\nscript = \"script.toml\"";
    let real = format!("provider = \"openai\"\nmodel = \"m\"\nendpoint = \"{}\"", server.url);
    let job = Job::good(24).with(&[
        (written, &real),
        ("profile = \"script\"", "profile = \"script\"\npool = \"model\""),
    ]);
    let config = job.place.read("longshore.toml") + "[pools.model]\nmax = 2\n";
    job.place.write("longshore.toml", config);
    job.create();
    let work = ["worker", "--slots", "4"];
    let mut workers: Vec<Running> = (0..2).map(|_| job.place.start(&work)).collect();
    job.run(&[]).ok();
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0, "{}", job.place.read("stderr"));
    }
    assert_eq!(peak.load(Ordering::SeqCst), 2);
    assert_eq!(job.count("effects"), 24);
    assert_eq!(in_use(&job.place, "model"), 0);
}

#[test]
fn a_pool_that_is_named_and_not_there_is_answered_with_a_hint() {
    let place = Place::new();
    for config in [
        "[pools.licence]\nmax = 1\n[worker.pools]\nexec = \"licens\"\n",
        "[pools.licence]\nmax = 1\n[workers.w]\ncommand = [\"true\"]\npool = \"licens\"\n",
    ] {
        place.write("longshore.toml", config);
        let run = place.run(&["worker", "--until-idle"]).ends(2);
        run.says("did you mean `licence`?").says("hint:");
    }
    let adaptive = "[pools.licence]\nmax = 9\nadaptive = { least = 2, most = 5 }\n";
    place.write("longshore.toml", adaptive);
    place.run(&["pool", "status"]).ends(2).says("not within 2 and 5").says("hint:");
}

/// A maximum that finds itself: somebody steers, and `pool status` says between what and who.
#[test]
fn an_adaptive_maximum_is_steered_and_shown() {
    let place = Place::new();
    let adaptive = "adaptive = { least = 1, most = 9, window = \"100ms\" }";
    place.write("longshore.toml", format!("[pools.licence]\nmax = 2\n{adaptive}\n"));
    let script = "while [ ! -e end ]; do sleep 0.05; done";
    let mut holder = place.start(&["pool", "exec", "licence", "--", "sh", "-c", script]);
    let status = eventually(SOON, || {
        let status = place.run(&["pool", "status", "licence", "--json"]).json();
        status["adaptive"]["by"].is_string().then_some(status)
    });
    assert_eq!((&status["adaptive"]["least"], &status["adaptive"]["most"]), (&1.into(), &9.into()));
    let shown = place.run(&["pool", "status", "licence"]).ok().out;
    assert!(shown.contains("(1 to 9)") && shown.contains("is adjusted by"), "{shown}");
    let all = place.run(&["pool", "status", "--json"]).ok().json();
    assert_eq!(
        all.as_array().unwrap().len(),
        1,
        "the pool of who steers is none of its own: {all}"
    );
    place.write("end", "");
    assert_eq!(holder.ends_within(SOON), 0);
}
