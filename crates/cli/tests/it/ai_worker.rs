//! `ai worker` as a process: killed, drained, told that a key has changed, recycled.

use std::time::Duration;

use longshore_testkit::fake_ai::{Act, Say};
use serde_json::json;

use crate::ai_rig::Port;
use crate::support::{Run, SOON, eventually};

const ASK: [&str; 7] = ["ai", "ask", "--queue", "--profile", "fake", "--json", "--timeout"];

fn slow(by: Duration) -> Act {
    Act::Say(Say { delay: by, ..Say::default() })
}

#[test]
fn who_asked_a_worker_that_was_killed_has_its_answer_from_the_next() {
    let port = Port::new("sk-one");
    port.fake.next([Act::Hang]);
    let mut first = port.worker(&[]);
    let asking = port.place.command(&[&ASK[..], &["30s", "hello"]].concat()).spawn().unwrap();
    port.asked(1);
    first.kill();
    let mut second = port.worker(&[]);
    let reply = Run::of(asking).ok().json();
    assert_eq!((&reply["status"], &reply["response"]), (&json!("success"), &json!("hello")));
    second.signal("TERM");
    assert_eq!(second.ends_within(SOON), 0);
    let usage = port.usage();
    assert_eq!((&usage["calls"], &usage["maybe_billed"]), (&json!(2), &json!(1)), "{usage}");
    port.place.run(&["verify"]).ok();
}

#[test]
fn who_asked_a_worker_that_was_killed_hears_that_time_is_up() {
    let port = Port::new("sk-one");
    port.fake.usually(Act::Hang);
    let mut worker = port.worker(&[]);
    let asking = port.place.command(&[&ASK[..], &["10s", "hello"]].concat()).spawn().unwrap();
    port.asked(1);
    worker.kill();
    let reply = Run::of(asking).ends(1).json();
    assert_eq!(reply["error_code"], "TIMEOUT", "{reply}");
    // Somebody has to notice the death: the next worker does.
    port.fake.usually(Act::default());
    let mut next = port.worker(&[]);
    eventually(SOON, || (port.usage()["maybe_billed"] == 1).then_some(()));
    next.signal("TERM");
    assert_eq!(next.ends_within(SOON), 0);
    port.place.run(&["verify"]).ok();
}

#[test]
fn of_many_who_ask_through_a_crash_nobody_hears_anothers_answer() {
    let port = Port::new("sk-one");
    port.fake.usually(slow(Duration::from_millis(300)));
    let mut first = port.worker(&["--in-flight", "4"]);
    let asking: Vec<_> = (0..8)
        .map(|n| {
            let prompt = format!("prompt number {n}");
            let args = [&ASK[..], &["30s", &prompt]].concat();
            (prompt.clone(), port.place.command(&args).spawn().unwrap())
        })
        .collect();
    port.asked(3);
    first.kill();
    let mut second = port.worker(&["--in-flight", "4"]);
    for (prompt, asking) in asking {
        let reply = Run::of(asking).ok().json();
        assert_eq!(reply["response"], json!(prompt));
    }
    second.signal("TERM");
    assert_eq!(second.ends_within(SOON), 0);
    let (usage, asked) = (port.usage(), port.fake.seen().len() as u64);
    let [calls, lost] = ["calls", "maybe_billed"].map(|what| usage[what].as_u64().unwrap());
    assert_eq!(calls - lost, 8, "each was answered once: {usage}");
    // A call is in the books before it goes out: one that was killed in between never did.
    assert!((asked..=asked + lost).contains(&calls), "{asked} questions went out: {usage}");
    port.place.run(&["verify"]).ok();
}

#[test]
fn a_drain_finishes_what_is_in_flight() {
    let port = Port::new("sk-one");
    port.fake.usually(slow(Duration::from_millis(700)));
    let mut worker = port.worker(&[]);
    let asking = port.place.command(&[&ASK[..], &["30s", "hello"]].concat()).spawn().unwrap();
    port.asked(1);
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 0);
    assert_eq!(Run::of(asking).ok().json()["response"], "hello");
    let usage = port.usage();
    assert_eq!((&usage["calls"], &usage["maybe_billed"]), (&json!(1), &json!(0)), "{usage}");
}

#[test]
fn a_hangup_makes_it_read_a_key_anew() {
    let port = Port::new("sk-one");
    let key = port.place.write("key", "sk-file-one");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, private).unwrap();
    let file = format!("file:{}", key.display());
    port.place.run(&["profile", "set", "fake", "--key", &file]).ok();
    let mut worker = port.worker(&["--log-level", "info"]);
    let ask = |times: usize| {
        port.place.run(&[&ASK[..], &["30s", "hello"]].concat()).ok();
        port.asked(times)[times - 1].header("authorization").to_owned()
    };
    assert_eq!(ask(1), "Bearer sk-file-one");
    std::fs::write(&key, "sk-file-two").unwrap();
    worker.signal("HUP");
    eventually(SOON, || {
        port.place.read("stderr").contains("reloading profiles and keys").then_some(())
    });
    assert_eq!(ask(2), "Bearer sk-file-two");
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 0);
}

#[test]
fn a_worker_ends_after_as_many_requests_as_it_was_told() {
    let port = Port::new("sk-one");
    let mut worker = port.worker(&["--recycle-after", "2"]);
    for _ in 0..2 {
        port.place.run(&[&ASK[..], &["30s", "hello"]].concat()).ok();
    }
    assert_eq!(worker.ends_within(SOON), 0);
    assert_eq!(port.usage()["calls"], 2);
}
