//! The same figures on PostgreSQL: a private server with Debian's defaults, fsync on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench_queues::figures::{Row, median, percentile};
use bench_queues::ours;
use bench_queues::server::{Server, WAL, open};
use longshore::{Context, Policy, Store, Worker};
use longshore_postgres::Listen;

use crate::limit_pg::Limit;
use crate::{Args, rate, say};

/// Measures bulk send and processing, limit and ours alternating; and WAL and commits per unit.
pub(crate) async fn throughput(args: &Args, server: &Server) -> Result<Vec<Row>> {
    let (mut limit_send, mut limit_process) = (Vec::new(), Vec::new());
    let (mut our_send, mut our_process, mut our_few) = (Vec::new(), Vec::new(), Vec::new());
    let (mut wal, mut commits) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        say(&format!("PostgreSQL throughput, round {} of {}", round + 1, args.rounds));
        let (send, process) = limit_round(args, server).await?;
        limit_send.push(send);
        limit_process.push(process);
        let round = our_round(args, server, args.slots).await?;
        our_send.push(round.send);
        our_process.push(round.process);
        wal.push(round.wal);
        commits.push(round.commits);
        our_few.push(our_round(args, server, args.few_slots).await?.process);
    }
    let limit = median(&limit_process);
    let name = |slots| format!("PostgreSQL: process with {slots} slots, units/s");
    Ok(vec![
        Row::ratio("PostgreSQL: bulk send, units/s", median(&our_send), median(&limit_send), 0.7),
        Row::ratio(&name(args.slots), median(&our_process), limit, 0.8),
        Row::ratio(&name(args.few_slots), median(&our_few), limit, 0.6),
        Row::plain("PostgreSQL: WAL per unit sent and processed, bytes", median(&wal)),
        Row::plain("PostgreSQL: commits per 1000 units", median(&commits)),
    ])
}

/// The best of one, two and four connections, which depends on the machine.
async fn limit_round(args: &Args, server: &Server) -> Result<(f64, f64)> {
    let (mut best_send, mut best_process) = (0.0_f64, 0.0_f64);
    for connections in [1, 2, 4] {
        let limit = Limit::connect(&server.fresh()?, connections).await?;
        let start = Instant::now();
        limit.send(args.units).await?;
        best_send = best_send.max(rate(args.units, start.elapsed()));
        let start = Instant::now();
        let done = limit.process().await?;
        best_process = best_process.max(rate(done, start.elapsed()));
    }
    Ok((best_send, best_process))
}

struct Round {
    send: f64,
    process: f64,
    wal: f64,
    commits: f64,
}

const COMMITS: &str = "SELECT pg_stat_clear_snapshot(); SELECT xact_commit FROM pg_stat_database
                       WHERE datname = current_database()";

async fn our_round(args: &Args, server: &Server, slots: u32) -> Result<Round> {
    let url = server.fresh()?;
    let store = open(&url, Listen::Auto).await?;
    let (wal, commits) = (server.ask(&url, WAL)?, server.ask(&url, COMMITS)?);
    let start = Instant::now();
    ours::send(&store, args.units).await?;
    let send = rate(args.units, start.elapsed());
    let took = ours::process(&store, args.units, slots).await?;
    let units = args.units as f64;
    // A connection reports its counts to the statistics when it becomes idle.
    drop(store);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    Ok(Round {
        send,
        process: rate(args.units, took),
        wal: (server.ask(&url, WAL)? - wal) / units,
        commits: (server.ask(&url, COMMITS)? - commits) * 1000.0 / units,
    })
}

/// Measures a single unit on an idle system.
pub(crate) async fn latency(args: &Args, server: &Server) -> Result<Row> {
    let count = if args.once { 5 } else { 200 };
    say("PostgreSQL latency");
    let url = server.fresh()?;
    // As on two machines: the worker learns of a send by NOTIFY.
    let (sender, worker) = (open(&url, Listen::Off).await?, open(&url, Listen::Url(url.clone())).await?);
    let times = ours::latencies_between(&sender, &worker, count).await?;
    let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    Ok(Row::most("PostgreSQL: send to handler start, ms p50", percentile(&times, 50), 3.0))
}

/// Measures the same work with a short and with a deep queue, and beside many other units.
pub(crate) async fn depth(args: &Args, server: &Server) -> Result<Vec<Row>> {
    let stretch = if args.once { 1_000 } else { 10_000 };
    let beside = args.deep / 10;
    say("PostgreSQL depth: filling");
    let (few, many, mixed) = (server.fresh()?, server.fresh()?, server.fresh()?);
    Limit::connect(&few, 1).await?.company(stretch * (args.rounds + 1) * 2, 2).await?;
    Limit::connect(&many, 1).await?.company(args.deep, 2).await?;
    let company = Limit::connect(&mixed, 1).await?;
    for (count, state) in [(args.deep, 2), (beside, 0), (beside, 1)] {
        company.company(count, state).await?;
    }
    drop(company);
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..args.rounds {
        for (url, rates) in [&few, &many, &mixed].into_iter().zip(&mut rates) {
            let store = open(url, Listen::Auto).await?;
            let took = ours::process(&store, stretch, args.slots).await?;
            rates.push(rate(stretch, took));
        }
    }
    let [few, many, mixed] = rates.map(|rates| median(&rates));
    let deep = format!("PostgreSQL: process with {} waiting, units/s (over {stretch})", args.deep);
    let among = format!("PostgreSQL: the same beside {beside} blocked, {beside} scheduled");
    Ok(vec![Row::ratio(&deep, many, few, 0.8), Row::ratio(&among, mixed, few, 0.8)])
}

/// Measures work before and while an open snapshot prevents VACUUM from cleaning up.
pub(crate) async fn horizon(args: &Args, server: &Server) -> Result<Row> {
    let (calm, held) = if args.once { (1, 2) } else { (15, 60) };
    say("PostgreSQL with a long-running reader");
    let url = server.fresh()?;
    let (reader, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move {
        let _ = connection.await;
    });
    let store = open(&url, Listen::Auto).await?;
    let before = busy(&store, args.slots, Duration::from_secs(calm)).await?;
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM longshore_unit")
        .await?;
    busy(&store, args.slots, Duration::from_secs(held * 3 / 4)).await?;
    // The last quarter is the slowest: by then the most dead rows have accumulated.
    let during = busy(&store, args.slots, Duration::from_secs(held / 4)).await?;
    reader.batch_execute("COMMIT").await?;
    let name = format!("PostgreSQL: process, reader open for {held} s, units/s (over none)");
    Ok(Row::ratio(&name, during, before, 0.8))
}

/// Sends and processes for a while and returns units per second. Sending stays slightly ahead.
async fn busy(store: &Arc<dyn Store>, slots: u32, time: Duration) -> Result<f64> {
    let worker = Worker::builder(Arc::clone(store))
        .slots(slots)
        .handle_fn(ours::noop()?, Policy::default(), |_: Context, _: serde::de::IgnoredAny| async {
            Ok::<(), String>(())
        })
        .build()?;
    let (control, stats) = (worker.control(), worker.stats());
    let start = Instant::now();
    let feed = async {
        let mut sent = 0;
        while start.elapsed() < time {
            if sent < stats.report().done + 20_000 {
                ours::send(store, 5_000).await?;
                sent += 5_000;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let done = stats.report().done;
        control.drain();
        anyhow::Ok(done as f64 / start.elapsed().as_secs_f64())
    };
    let (report, rate) = tokio::join!(worker.run(), feed);
    report?;
    rate
}

/// Counts the queries of an idle worker.
pub(crate) async fn idle(args: &Args, server: &Server) -> Result<Row> {
    let seconds = if args.once { 2 } else { 30 };
    say("PostgreSQL: idle worker");
    let url = server.fresh()?;
    let store = open(&url, Listen::Auto).await?;
    let worker = Worker::builder(store)
        .slots(64)
        .handle_fn(ours::noop()?, Policy::default(), |_: Context, (): ()| async { Ok::<(), String>(()) })
        .build()?;
    let control = worker.control();
    let watch = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = server.ask(&url, QUERIES)?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let after = server.ask(&url, QUERIES)?;
        control.drain();
        // The query for the statistics is a transaction, too.
        anyhow::Ok((after - before - 1.0) / seconds as f64)
    };
    let (report, rate) = tokio::join!(worker.run(), watch);
    report?;
    Ok(Row::most("PostgreSQL: idle worker, transactions/s", rate?, 2.0))
}

const QUERIES: &str = "SELECT xact_commit + xact_rollback FROM pg_stat_database
                       WHERE datname = current_database()";
