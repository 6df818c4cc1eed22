//! Echoed payloads, one call at a time: ours compared with the raw pipe.

use anyhow::Result;
use longshore_pool::CallPayload;

use crate::clock::one_at_a_time;
use crate::figures::{Goal, Measured};
use crate::ours::{self, Echo};
use crate::raw::ByTurns;
use crate::{Args, say};

/// The sizes, their names, and the allowed ratio to the raw pipe.
const SIZES: [(usize, &str, Option<f64>); 2] = [(64 * 1024, "64 KiB", None), (1_000_000, "1 MB", Some(1.3))];

/// Measures both, alternating.
pub(crate) async fn compare(args: &Args) -> Result<Vec<Goal>> {
    if !args.wants("payloads") {
        return Ok(Vec::new());
    }
    let mut goals = Vec::new();
    for (size, name, most) in SIZES {
        let (mut ours, mut raw) = (Measured::default(), Measured::default());
        for round in 0..args.rounds {
            say(&format!("{name} there and back, round {} of {}", round + 1, args.rounds));
            raw.push(one_at_a_time(args.part(), &ByTurns::open(size)?).await?);
            let pool = ours::processes().await?;
            let echo = Echo { pool, payload: CallPayload::bytes(vec![7; size]) };
            ours.push(one_at_a_time(args.part(), &echo).await?);
        }
        let what = format!("processes, {name} there and back, µs, over the raw pipe");
        let (ours, raw) = (ours.median(), raw.median());
        goals.push(match most {
            Some(most) => Goal::at_most(what, ours, raw, most),
            None => Goal::shown(what, ours, raw),
        });
    }
    Ok(goals)
}
