//! The compared contestants, and one run of each.

use anyhow::Result;

use crate::Args;
use crate::clock::{Sample, Ways};
use crate::foreign::{self, Foreign};
use crate::install::{Toolbox, Words};
use crate::ours::{self, Closures, Ours};
use crate::raw::{ByTurns, Pipelined, SMALL};
use crate::rust_peers::{Rayon, SpawnBlocking, TwoBlocking};

/// One row of the table.
pub(crate) struct Contestant {
    /// The name that `--only` matches.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    who: Who,
    /// The entry of ours that it is compared with.
    pub(crate) beside: &'static str,
}

enum Who {
    SpawnBlocking,
    TwoBlocking,
    Rayon,
    Threads,
    Closures,
    RawByTurns,
    RawPipelined,
    Processes(&'static str),
    Python,
    Node,
    Perl,
    Foreign(Foreign, Words),
}

const fn entry(name: &'static str, title: &'static str, who: Who, beside: &'static str) -> Contestant {
    Contestant { name, title, who, beside }
}

/// All contestants, in the order of the table.
pub(crate) fn all(args: &Args) -> Result<Vec<Contestant>> {
    let mut all = vec![
        entry("ours-threads", "**Longshore, threads**", Who::Threads, ""),
        entry("ours-closures", "**Longshore, threads**, closures", Who::Closures, ""),
        entry("spawn-blocking", "tokio `spawn_blocking`", Who::SpawnBlocking, "ours-closures"),
        entry("two-blocking", "the same, two threads", Who::TwoBlocking, "ours-closures"),
        entry("rayon", "rayon and a oneshot channel", Who::Rayon, "ours-closures"),
        entry("raw-turns", "raw pipe, one call at a time each", Who::RawByTurns, "ours-processes"),
        entry("raw-pipelined", "raw pipe, pipelined", Who::RawPipelined, "ours-processes"),
        entry("ours-processes", "**Longshore, processes**", Who::Processes("noop"), ""),
        entry("ours-unmarked", "**Longshore, processes**, not idempotent", Who::Processes("nothing"), ""),
        entry("ours-python", "**Longshore, Python workers**", Who::Python, ""),
        entry("ours-node", "**Longshore, Node workers**", Who::Node, ""),
        entry("ours-perl", "**Longshore, Perl workers** (JSON lines)", Who::Perl, ""),
    ];
    all.retain(|one| args.wants(one.name));
    let toolbox = Toolbox::new(args);
    for peer in foreign::PEERS.into_iter().filter(|peer| args.wants(peer.name)) {
        if let Some(words) = toolbox.words(peer.tool)? {
            all.push(entry(peer.name, peer.title, Who::Foreign(peer, words), peer.beside));
        }
    }
    Ok(all)
}

impl Contestant {
    /// Its runtime, or its version.
    pub(crate) fn version(&self) -> Result<String> {
        match &self.who {
            Who::SpawnBlocking | Who::TwoBlocking => locked("tokio"),
            Who::Rayon => locked("rayon"),
            Who::Foreign(peer, words) => peer.version(words),
            Who::RawByTurns | Who::RawPipelined => Ok("the limit".to_owned()),
            _ => Ok(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// One run.
    pub(crate) async fn run(&self, ways: Ways) -> Result<Sample> {
        match &self.who {
            Who::SpawnBlocking => ways.measure(SpawnBlocking).await,
            Who::TwoBlocking => ways.measure(TwoBlocking::new()?).await,
            Who::Rayon => ways.measure(Rayon::new()?).await,
            Who::RawByTurns => ways.measure(ByTurns::open(SMALL)?).await,
            Who::RawPipelined => ways.measure(Pipelined::open()?).await,
            Who::Closures => ways.measure(Closures(ours::threads().await?)).await,
            Who::Threads => pool(ways, Ours { pool: ours::threads().await?, operation: "noop" }).await,
            Who::Processes(operation) => pool(ways, Ours { pool: ours::processes().await?, operation }).await,
            Who::Python => pool(ways, Ours { pool: ours::python().await?, operation: "nothing" }).await,
            Who::Node => pool(ways, Ours { pool: ours::node().await?, operation: "nothing" }).await,
            Who::Perl => pool(ways, Ours { pool: ours::perl().await?, operation: "noop" }).await,
            Who::Foreign(peer, words) => peer.run(words, ways.part),
        }
    }
}

async fn pool(ways: Ways, ours: Ours) -> Result<Sample> {
    let sample = ways.measure(ours.clone()).await?;
    ours.close().await;
    Ok(sample)
}

/// The version of a linked crate.
fn locked(package: &str) -> Result<String> {
    let lock = include_str!("../../../Cargo.lock");
    let after = lock.split(&format!("name = \"{package}\"\nversion = \"")).nth(1);
    Ok(after.and_then(|text| text.split('"').next()).unwrap_or("?").to_owned())
}
