//! One run for the comparison with peers, with the output format that `bench/peers/run` reads from every product.
//! It takes the same settings as the peers and sends a thousand units per call, too.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench_queues::{ours, server};
use clap::Args;
use longshore::{Client, NewUnit, Store, WhenFull};
use longshore_postgres::Listen;
use longshore_sqlite::{SqliteOptions, SqliteStore};

use crate::limit;
use crate::limit_pg::Limit;

/// Units per call of the bulk send.
const CHUNK: usize = 1000;

/// Options of the run.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    /// Use this store: the path of a SQLite database, or `postgres://…`.
    #[arg(long, env = "STORE")]
    store: String,
    /// Run this many units.
    #[arg(long, env = "UNITS", default_value_t = 20_000)]
    units: usize,
    /// Run the worker with this many slots.
    #[arg(long, default_value_t = 256)]
    slots: u32,
    /// Run the store's statements in a plain loop instead of the engine.
    #[arg(long)]
    limit: bool,
    /// Use this many connections in the loop, on PostgreSQL.
    #[arg(long, default_value_t = 2)]
    connections: usize,
}

impl Peer {
    /// Sends and processes once, and prints one line for each.
    pub(crate) async fn run(self) -> Result<()> {
        if self.limit { self.run_limit().await } else { self.run_ours().await }
    }

    async fn run_ours(&self) -> Result<()> {
        let store = open(&self.store).await?;
        let start = Instant::now();
        send(&store, self.units).await?;
        line("send", self.units, start.elapsed());
        let took = ours::process(&store, self.units, self.slots).await?;
        line("process", self.units, took);
        Ok(())
    }

    async fn run_limit(&self) -> Result<()> {
        // Opening the store creates its tables.
        drop(open(&self.store).await?);
        let done =
            if is_postgres(&self.store) { self.limit_on_postgres().await? } else { self.limit_on_sqlite()? };
        ensure!(done == self.units, "{done} processed of {}", self.units);
        Ok(())
    }

    fn limit_on_sqlite(&self) -> Result<usize> {
        let db = limit::connect(Path::new(&self.store))?;
        let start = Instant::now();
        limit::send(&db, self.units)?;
        line("send", self.units, start.elapsed());
        let start = Instant::now();
        let done = limit::process(&db)?;
        line("process", done, start.elapsed());
        Ok(done)
    }

    async fn limit_on_postgres(&self) -> Result<usize> {
        let loops = Limit::connect(&self.store, self.connections).await?;
        let start = Instant::now();
        loops.send(self.units).await?;
        line("send", self.units, start.elapsed());
        let start = Instant::now();
        let done = loops.process().await?;
        line("process", done, start.elapsed());
        Ok(done)
    }
}

fn is_postgres(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// Opens a store with default options, as users do.
async fn open(store: &str) -> Result<Arc<dyn Store>> {
    if is_postgres(store) {
        return server::open(store, Listen::Auto).await;
    }
    Ok(Arc::new(SqliteStore::open(Path::new(store), SqliteOptions::default())?))
}

async fn send(store: &Arc<dyn Store>, count: usize) -> Result<()> {
    let client = Client::new(Arc::clone(store));
    let kind = ours::noop()?;
    for start in (0..count).step_by(CHUNK) {
        let units = (start..(start + CHUNK).min(count))
            .map(|i| NewUnit::new(kind.clone(), format!("{{\"i\":{i}}}").into_bytes()))
            .collect();
        client.send_many(units, WhenFull::Wait).await?;
    }
    Ok(())
}

fn line(what: &str, units: usize, took: Duration) {
    println!("{what} {units} {:.6}", took.as_secs_f64());
}
