//! Ten tenants of very different weights and sizes before one limited profile, asked by real workers.
//! The provider's own record of who came when is the judge: shares follow the weights, no window of
//! any length exceeds limit and burst, and nobody starves.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use longshore_testkit::fake_ai::{Act, Say, Seen};
use longshore_testkit::servers::PrivatePostgres;
use serde_json::json;

use crate::ai_rig::Port;
use crate::support::{Place, Running, SOON, eventually, limit, soaked};

/// What the tenants weigh, and how many times more each has to do than it will get done: the lighter,
/// the more.
const TENANTS: [(u32, usize); 10] =
    [(1, 10), (1, 2), (2, 8), (2, 2), (3, 5), (3, 2), (4, 3), (5, 2), (8, 1), (10, 1)];

/// All weights together: so many calls are one round of everybody's turns.
const ROUND: usize = 39;

/// So many a second, and half a second's worth at once.
const RATE: f64 = 100.0;
const BURST: f64 = 50.0;

/// Calls in rounds: before shares are counted, and counted.
struct Rounds {
    warm: usize,
    counted: usize,
}

impl Rounds {
    fn calls(&self) -> usize {
        (self.warm + self.counted) * ROUND
    }
}

/// A template of the house with the limits that all who extend it share.
fn house(port: &Port) {
    let add = ["profile", "add", "house", "--template", "--provider", "ollama", "--model", "m"];
    let rate = (RATE * 60.0).to_string();
    let burst = format!("limits.burst={}", BURST / RATE / 60.0);
    let limits = ["--endpoint", &port.fake.url(), "--rpm", &rate, "--set", &burst];
    port.place.run(&[&add[..], &limits].concat()).ok();
}

/// A tenant of this weight that has more to do than it can get done.
fn tenant(port: &Port, name: &str, weight: u32, requests: usize) {
    let place = &port.place;
    place.run(&["tenant", "add", name, "--weight", &weight.to_string()]).ok();
    place.run(&["profile", "add", "p", "--extends", "house", "--tenant", name]).ok();
    let mut lines = String::new();
    for n in 0..requests {
        let request = json!({
            "version": "1.0", "request_id": format!("{name}-{n}"), "customer": name,
            "profile_ref": "p", "prompt": format!("{name} {n}"), "timeout_ms": 600_000,
        });
        writeln!(lines, "{request}").unwrap();
    }
    let send = ["submit", "ai", "--queue", "ai", "--tenant", name, "--lines", "-"];
    place.run_with(&send, lines).ok();
}

/// Who asked, and which of its requests.
fn who(seen: &Seen) -> (&str, usize) {
    let messages = seen.body["messages"].as_array().unwrap();
    let (name, n) = messages.last().unwrap()["content"].as_str().unwrap().split_once(' ').unwrap();
    (name, n.parse().unwrap())
}

fn fair(port: &Port, processes: usize, rounds: &Rounds) {
    port.fake.usually(Act::Say(Say { delay: Duration::from_millis(20), ..Say::default() }));
    house(port);
    for (at, (weight, times)) in TENANTS.iter().enumerate() {
        // What it gets done, and what workers hold beside that.
        let enough = (rounds.warm + rounds.counted + 10) * *weight as usize + 100;
        tenant(port, &format!("t{at}"), *weight, enough * times);
    }
    let workers: Vec<Running> = (0..processes).map(|_| port.worker(&[])).collect();
    let seen = eventually(limit(4 * SOON), || {
        let seen = port.fake.seen();
        (seen.len() >= rounds.calls()).then_some(seen)
    });
    for mut worker in workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0, "{}", port.place.read("stderr"));
    }
    let seen = &seen[..rounds.calls()];
    shares_follow_the_weights(&seen[rounds.warm * ROUND..], rounds.counted);
    no_window_exceeds_the_limit(seen);
    nobody_starves(seen);
    port.place.run(&["verify"]).ok();
}

/// To a tenth.
fn shares_follow_the_weights(seen: &[Seen], rounds: usize) {
    let mut counts = BTreeMap::<&str, usize>::new();
    seen.iter().for_each(|seen| *counts.entry(who(seen).0).or_default() += 1);
    for (at, (weight, _)) in TENANTS.iter().enumerate() {
        let fair = *weight as usize * rounds;
        let count = counts.get(format!("t{at}").as_str()).copied().unwrap_or_default();
        assert!(count.abs_diff(fair) * 10 <= fair, "t{at}: {count}, not {fair}: {counts:?}");
    }
}

/// Of every length: from each call to each later one. And all that may be used is.
fn no_window_exceeds_the_limit(seen: &[Seen]) {
    // The limit is about when calls are let go (on paused time that is proved to the call); here it is seen
    // when they arrive, and on a machine that stands still for a moment those of that moment arrive together.
    let late = 1.5 * RATE;
    for (first, begin) in seen.iter().enumerate() {
        for (more, end) in seen[first..].iter().enumerate() {
            let (count, span) = ((more + 1) as f64, (end.at - begin.at).as_secs_f64());
            assert!(count <= RATE * span + BURST + late, "{count} calls in {span} s, from {first}");
        }
    }
    let all = (seen[seen.len() - 1].at - seen[0].at).as_secs_f64();
    assert!(seen.len() as f64 > 0.1 * RATE * all, "{} calls in {all} s", seen.len());
}

/// Everybody's oldest request was served, and none waited while many younger ones were served.
fn nobody_starves(seen: &[Seen]) {
    for at in 0..TENANTS.len() {
        let name = format!("t{at}");
        let served = seen.iter().map(who).filter(|(who, _)| *who == name).map(|(_, n)| n);
        let served: Vec<usize> = served.collect();
        assert!(served.contains(&0), "{name}");
        for (place, n) in served.iter().enumerate() {
            assert!(place.abs_diff(*n) <= 64, "{name}: request {n} was the {place}th");
        }
    }
}

#[test]
fn nobody_starves_and_the_rate_is_bounded_in_one_process() {
    let rounds = Rounds { warm: 3, counted: soaked(22, 200) };
    fair(&Port::bare(Place::new()), 1, &rounds);
}

#[test]
fn nobody_starves_and_the_rate_is_bounded_in_a_storm_of_four_processes_on_postgres() {
    let server = PrivatePostgres::start().unwrap();
    let place = Place::new();
    place.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    let rounds = Rounds { warm: 5, counted: soaked(42, 200) };
    fair(&Port::bare(place), 4, &rounds);
}
