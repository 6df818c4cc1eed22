//! `ai worker` as a process: killed, drained, told to reload a key, recycled.

use std::time::Duration;

use longshore_testkit::fake_ai::{FakeAnswer, FakeBehaviour};
use serde_json::json;

use crate::ai_fixture::AiFixture;
use crate::support::{CliOutput, TIMEOUT, eventually};

const ASK: [&str; 7] = ["ai", "ask", "--queue", "--profile", "fake", "--json", "--timeout"];

fn slow_response(by: Duration) -> FakeBehaviour {
    FakeBehaviour::Answer(FakeAnswer { delay: by, ..FakeAnswer::default() })
}

#[test]
fn who_asked_a_worker_that_was_killed_has_its_answer_from_the_next() {
    let fixture = AiFixture::new("sk-one");
    fixture.fake.push_behaviours([FakeBehaviour::Hang]);
    let mut first = fixture.worker(&[]);
    let asking = fixture.dir.command(&[&ASK[..], &["30s", "hello"]].concat()).spawn().unwrap();
    fixture.wait_for_requests(1);
    first.kill();
    let mut second = fixture.worker(&[]);
    let reply = CliOutput::of(asking).ok().json();
    assert_eq!((&reply["status"], &reply["response"]), (&json!("success"), &json!("hello")));
    second.signal("TERM");
    assert_eq!(second.ends_within(TIMEOUT), 0);
    let usage = fixture.usage();
    assert_eq!((&usage["calls"], &usage["maybe_billed"]), (&json!(2), &json!(1)), "{usage}");
    fixture.dir.run(&["verify"]).ok();
}

#[test]
fn who_asked_a_worker_that_was_killed_hears_that_time_is_up() {
    let fixture = AiFixture::new("sk-one");
    fixture.fake.set_default(FakeBehaviour::Hang);
    let mut worker = fixture.worker(&[]);
    let asking = fixture.dir.command(&[&ASK[..], &["10s", "hello"]].concat()).spawn().unwrap();
    fixture.wait_for_requests(1);
    worker.kill();
    let reply = CliOutput::of(asking).ends(1).json();
    assert_eq!(reply["error_code"], "TIMEOUT", "{reply}");
    // Another worker must notice the death.
    fixture.fake.set_default(FakeBehaviour::default());
    let mut next = fixture.worker(&[]);
    eventually(TIMEOUT, || (fixture.usage()["maybe_billed"] == 1).then_some(()));
    next.signal("TERM");
    assert_eq!(next.ends_within(TIMEOUT), 0);
    fixture.dir.run(&["verify"]).ok();
}

#[test]
fn of_many_who_ask_through_a_crash_nobody_hears_anothers_answer() {
    let fixture = AiFixture::new("sk-one");
    fixture.fake.set_default(slow_response(Duration::from_millis(300)));
    let mut first = fixture.worker(&["--in-flight", "4"]);
    let asking: Vec<_> = (0..8)
        .map(|n| {
            let prompt = format!("prompt number {n}");
            let args = [&ASK[..], &["30s", &prompt]].concat();
            (prompt.clone(), fixture.dir.command(&args).spawn().unwrap())
        })
        .collect();
    fixture.wait_for_requests(3);
    first.kill();
    let mut second = fixture.worker(&["--in-flight", "4"]);
    for (prompt, asking) in asking {
        let reply = CliOutput::of(asking).ok().json();
        assert_eq!(reply["response"], json!(prompt));
    }
    second.signal("TERM");
    assert_eq!(second.ends_within(TIMEOUT), 0);
    let (usage, asked) = (fixture.usage(), fixture.fake.requests().len() as u64);
    let [calls, lost] = ["calls", "maybe_billed"].map(|what| usage[what].as_u64().unwrap());
    assert_eq!(calls - lost, 8, "each was answered once: {usage}");
    // A call is recorded before it is sent, so a call recorded by a killed worker may never have been
    // sent.
    assert!((asked..=asked + lost).contains(&calls), "the provider received {asked} requests: {usage}");
    fixture.dir.run(&["verify"]).ok();
}

#[test]
fn a_drain_finishes_what_is_in_flight() {
    let fixture = AiFixture::new("sk-one");
    fixture.fake.set_default(slow_response(Duration::from_millis(700)));
    let mut worker = fixture.worker(&[]);
    let asking = fixture.dir.command(&[&ASK[..], &["30s", "hello"]].concat()).spawn().unwrap();
    fixture.wait_for_requests(1);
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    assert_eq!(CliOutput::of(asking).ok().json()["response"], "hello");
    let usage = fixture.usage();
    assert_eq!((&usage["calls"], &usage["maybe_billed"]), (&json!(1), &json!(0)), "{usage}");
}

#[test]
fn a_hangup_makes_it_read_a_key_anew() {
    let fixture = AiFixture::new("sk-one");
    let key = fixture.dir.write("key", "sk-file-one");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, private).unwrap();
    let file = format!("file:{}", key.display());
    fixture.dir.run(&["profile", "set", "fake", "--key", &file]).ok();
    let mut worker = fixture.worker(&["--log-level", "info"]);
    let ask = |times: usize| {
        fixture.dir.run(&[&ASK[..], &["30s", "hello"]].concat()).ok();
        fixture.wait_for_requests(times)[times - 1].header("authorization").to_owned()
    };
    assert_eq!(ask(1), "Bearer sk-file-one");
    std::fs::write(&key, "sk-file-two").unwrap();
    worker.signal("HUP");
    eventually(TIMEOUT, || fixture.dir.read("stderr").contains("reloading profiles and keys").then_some(()));
    assert_eq!(ask(2), "Bearer sk-file-two");
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
}

#[test]
fn a_worker_ends_after_as_many_requests_as_it_was_told() {
    let fixture = AiFixture::new("sk-one");
    let mut worker = fixture.worker(&["--recycle-after", "2"]);
    for _ in 0..2 {
        fixture.dir.run(&[&ASK[..], &["30s", "hello"]].concat()).ok();
    }
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    assert_eq!(fixture.usage()["calls"], 2);
}
