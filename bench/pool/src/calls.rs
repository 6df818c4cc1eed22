//! Calls that do nothing: one at a time, and 32 in flight; the contestants alternate.

use std::collections::HashMap;

use anyhow::{Context as _, Result};

use crate::clock::Ways;
use crate::contest::{self, Contestant};
use crate::figures::{self, Goal, Measured, number};
use crate::{Args, say};

/// The measurements of one contestant.
#[derive(Default)]
struct Figures {
    p50: Measured,
    rate: Measured,
}

type All = HashMap<&'static str, Figures>;

/// Runs all contestants, prints the table, and returns the goals.
pub(crate) async fn compare(args: &Args) -> Result<Vec<Goal>> {
    let contestants = contest::all(args)?;
    let ways = Ways { part: args.part(), only: args.way };
    let mut all = All::new();
    for round in 0..args.rounds {
        // Each round starts with another contestant, so that none always follows the same one.
        let turn = round % contestants.len().max(1);
        for one in contestants[turn..].iter().chain(&contestants[..turn]) {
            say(&format!("round {} of {}: {}", round + 1, args.rounds, one.name));
            let sample = one.run(ways).await.with_context(|| one.name)?;
            let figures = all.entry(one.name).or_default();
            figures.p50.push(sample.p50);
            figures.rate.push(sample.rate);
        }
    }
    if args.once {
        contestants.iter().for_each(|one| println!("ran: {:<70}", one.name));
    } else if !contestants.is_empty() {
        println!("{}", table(&contestants, &all)?);
    }
    Ok(goals(&all))
}

fn table(contestants: &[Contestant], all: &All) -> Result<String> {
    let head = ["", "version", "one at a time, p50 µs", "32 in flight, calls/s", "ours: p50", "rate"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in contestants {
        let Some(own) = all.get(one.name) else { continue };
        let beside = all.get(one.beside);
        let ratio = |value: Option<f64>| value.map(|ratio| number(ratio) + " ×").unwrap_or_default();
        rows.push(vec![
            one.title.to_owned(),
            one.version()?,
            own.p50.shown(),
            own.rate.shown(),
            ratio(beside.map(|ours| ours.p50.median() / own.p50.median())),
            ratio(beside.map(|ours| ours.rate.median() / own.rate.median())),
        ]);
    }
    Ok(figures::table(rows))
}

fn goals(all: &All) -> Vec<Goal> {
    let p50 = |name: &str| all.get(name).map(|figures| figures.p50.median());
    let rate = |name: &str| all.get(name).map(|figures| figures.rate.median());
    let mut goals = Vec::new();
    for ours in ["ours-closures", "ours-threads"] {
        for theirs in ["spawn-blocking", "two-blocking"] {
            let what = format!("{ours}, one at a time, µs, over {theirs}");
            goals.extend(pair(p50(ours), p50(theirs), |a, b| Goal::at_most(what, a, b, 1.5)));
            let what = format!("{ours}, 32 in flight, calls/s, over {theirs}");
            goals.extend(pair(rate(ours), rate(theirs), |a, b| Goal::at_least(what, a, b, 0.667)));
        }
    }
    goals.extend(pair(p50("ours-processes"), p50("raw-turns"), |a, b| {
        Goal::at_most("processes, one at a time, µs, over the raw pipe", a, b, 2.0)
    }));
    goals.extend(pair(rate("ours-processes"), rate("raw-pipelined"), |a, b| {
        Goal::at_least("processes, 32 in flight, calls/s, over the raw pipe", a, b, 1.0)
    }));
    goals.extend(pair(p50("process-pool-executor"), p50("ours-python"), |theirs, ours| {
        Goal::at_least("ProcessPoolExecutor over a Python worker, one at a time, µs", theirs, ours, 5.0)
    }));
    goals.extend(pair(rate("ours-python"), rate("process-pool-executor"), |a, b| {
        Goal::at_least("Python worker over ProcessPoolExecutor, calls/s", a, b, 5.0)
    }));
    goals
}

fn pair(a: Option<f64>, b: Option<f64>, goal: impl FnOnce(f64, f64) -> Goal) -> Option<Goal> {
    Some(goal(a?, b?))
}
