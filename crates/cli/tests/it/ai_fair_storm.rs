//! Ten tenants of very different sizes and weights before one narrow gate; and one limit that several
//! processes share. The provider's own record of who came when is the judge.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use longshore_testkit::fake_ai::{Act, Say, Seen};
use longshore_testkit::servers::PrivatePostgres;
use serde_json::json;

use crate::ai_rig::Port;
use crate::support::{Place, Running, SOON, eventually, limit};

/// Served before shares are counted, and counted: while nobody's work is done.
const WARM: usize = 55;
const COUNTED: usize = 550;

/// A template of the house that asks the fake, with these settings.
fn house(port: &Port, more: &[&str]) {
    let add = ["profile", "add", "house", "--template", "--provider", "ollama", "--model", "m"];
    port.place.run(&[&add[..], &["--endpoint", &port.fake.url()], more].concat()).ok();
}

/// A tenant of this weight that sends so many requests.
fn tenant(port: &Port, name: &str, weight: u32, requests: usize) {
    let place = &port.place;
    place.run(&["tenant", "add", name, "--weight", &weight.to_string()]).ok();
    place.run(&["profile", "add", "p", "--extends", "house", "--tenant", name]).ok();
    let mut lines = String::new();
    for n in 0..requests {
        let request = json!({
            "version": "1.0", "request_id": format!("{name}-{n}"), "customer": name,
            "profile_ref": "p", "prompt": name, "timeout_ms": 600_000,
        });
        writeln!(lines, "{request}").unwrap();
    }
    let send = ["submit", "ai", "--queue", "ai", "--tenant", name, "--lines", "-"];
    place.run_with(&send, lines).ok();
}

/// Who asked, from what was asked.
fn who(seen: &Seen) -> String {
    seen.body["messages"].as_array().unwrap().last().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn served(port: &Port, count: usize) -> Vec<Seen> {
    eventually(limit(2 * SOON), || {
        let seen = port.fake.seen();
        (seen.len() >= count).then_some(seen)
    })
}

fn end(workers: Vec<Running>) {
    for mut worker in workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0);
    }
}

fn shares_follow_the_weights(port: &Port, processes: usize, in_flight: &str) {
    port.fake.usually(Act::Say(Say { delay: Duration::from_millis(20), ..Say::default() }));
    house(port, &[]);
    // The lighter, the more it has to do.
    for weight in 1..=10_u32 {
        tenant(port, &format!("t{weight}"), weight, 1500 / weight as usize + 100);
    }
    let start = |_| port.worker(&["--in-flight", in_flight]);
    let workers: Vec<Running> = (0..processes).map(start).collect();
    let seen = served(port, WARM + COUNTED);
    end(workers);
    let mut counts = BTreeMap::<String, usize>::new();
    for seen in &seen[WARM..WARM + COUNTED] {
        *counts.entry(who(seen)).or_default() += 1;
    }
    for weight in 1..=10_usize {
        let fair = COUNTED * weight / 55;
        let count = counts.get(&format!("t{weight}")).copied().unwrap_or_default();
        // A tenth, and what each process may have had in hand where the count began and ended.
        let most_off = fair / 10 + 2;
        assert!(count.abs_diff(fair) <= most_off, "t{weight}: {count}, not {fair}: {counts:?}");
    }
    port.place.run(&["verify"]).ok();
}

#[test]
fn nobody_starves_and_shares_follow_the_weights_in_one_process() {
    shares_follow_the_weights(&Port::bare(Place::new()), 1, "4");
}

#[test]
fn nobody_starves_and_shares_follow_the_weights_in_a_storm_of_four_processes_on_postgres() {
    let server = PrivatePostgres::start().unwrap();
    let place = Place::new();
    place.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    shares_follow_the_weights(&Port::bare(place), 4, "2");
}

/// Twenty a second, and twelve at once.
const RATE: [&str; 4] = ["--rpm", "1200", "--set", "limits.burst=0.01"];

fn no_window_exceeds_the_limit(port: &Port, processes: usize) {
    house(port, &RATE);
    tenant(port, "only", 1, 160);
    let start = |_| port.worker(&["--in-flight", "8"]);
    let workers: Vec<Running> = (0..processes).map(start).collect();
    let seen = served(port, 160);
    end(workers);
    let window = Duration::from_secs(3);
    for (i, first) in seen.iter().enumerate() {
        let count = seen[i..].iter().filter(|seen| seen.at - first.at < window).count();
        // What was let go late arrives with what was let go in time: a fifth of a second's worth.
        assert!(count <= 3 * 20 + 12 + 4, "{count} in three seconds");
    }
    port.place.run(&["verify"]).ok();
}

#[test]
fn the_rate_is_bounded_in_one_process() {
    no_window_exceeds_the_limit(&Port::bare(Place::new()), 1);
}

#[test]
fn the_rate_is_bounded_in_a_storm_of_four_processes_on_postgres() {
    let server = PrivatePostgres::start().unwrap();
    let place = Place::new();
    place.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    no_window_exceeds_the_limit(&Port::bare(place), 4);
}
