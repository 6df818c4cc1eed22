//! The durable path: a request waits in a queue on SQLite, is claimed, admitted and sent to the model. Its reply
//! and its usage row are committed with the finish. The model is an echo that takes no time.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use longshore::store::Queues;
use longshore::{
    Client, Clock as _, Kind, Policy, Prefetch, ProfileName, QueueName, RetryPolicy, SystemClock, TenantId,
    Worker,
};
use longshore_ai::NoPrompts;
use longshore_ai::contract::{Libraries, Prompt, ReplyBody, ReplyTo, Request};
use longshore_ai::worker::{Inbox, KIND, QUEUE, REPLY_QUEUE_TTL, RequestClient, RequestHandler};
use serde_json::json;
use tokio::task::JoinSet;

use crate::figures::{Goal, Wanted, median};
use crate::gateway::{House, limits, open};
use crate::{Args, say};

/// The reply queue.
const REPLIES: &str = "bench";

/// Requests in flight.
const SLOTS: u32 = 64;

/// The measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// Requests per second with a full queue; replies are the units' results.
    Many,
    /// Requests per second with a full queue; replies also go to a reply queue.
    Replies,
    /// One client that waits for each reply: the median, in milliseconds.
    Alone,
}

/// Runs all measurements in turn, each in its own process.
pub(crate) fn measure(args: &Args) -> Result<Vec<Goal>> {
    let (mut many, mut replies, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..args.rounds {
        say(&format!("round {} of {}: durable", round + 1, args.rounds));
        many.push(run_alone(args, "many", args.requests)?);
        replies.push(run_alone(args, "replies", args.requests)?);
        alone.push(run_alone(args, "alone", (args.requests / 20).max(5))?);
    }
    let rate = |what: &str, of: &[f64]| {
        Goal::new(format!("durable, {SLOTS} in flight, {what}/s"), median(of), Wanted::AtLeast(3000.0))
    };
    Ok(vec![
        rate("requests", &many),
        rate("requests with a reply queue", &replies),
        Goal::new("durable, alone, p50 ms", median(&alone), Wanted::Under(5.0)),
    ])
}

fn run_alone(args: &Args, way: &str, requests: usize) -> Result<f64> {
    let folder = tempfile::tempdir_in(&args.dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["durable", way, &requests.to_string()]).arg(folder.path());
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{way} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

impl Way {
    /// Measures and prints the figure.
    pub(crate) async fn run(self, requests: usize, folder: &Path) -> Result<()> {
        let echo = json!({
            "provider": "echo", "prices": { "input": 1.25, "output": 10 }, "limits": limits(),
        });
        let house = open(folder, &[("echo", echo)]).await?;
        let caller = RequestClient::new(Client::new(Arc::clone(&house.store)), None)?;
        let measuring = async {
            match self {
                Self::Alone => alone(&house, &caller, requests).await,
                Self::Many => many(&house, &caller, requests, None).await,
                Self::Replies => {
                    let (store, ledger) = (Arc::clone(&house.store), Arc::clone(&house.ledger));
                    let inbox =
                        Inbox::open(store, ledger, TenantId::default(), REPLIES, REPLY_QUEUE_TTL).await?;
                    let rate = many(&house, &caller, requests, Some(REPLIES)).await?;
                    ensure!(inbox.receive(Duration::ZERO).await?.is_some(), "no reply came");
                    Ok(rate)
                }
            }
        };
        tokio::select! {
            figure = measuring => println!("{}", figure?),
            () = house.desk.run_journal() => {}
        }
        Ok(())
    }
}

fn worker(house: &House) -> Result<Worker> {
    let handler = RequestHandler::new(
        house.desk.clone(),
        Arc::clone(&house.ledger),
        Libraries::default(),
        Arc::new(NoPrompts),
        Arc::new(SystemClock),
    );
    let policy = Policy { retry: RetryPolicy::never(), ..Policy::default() };
    Ok(Worker::builder(Arc::clone(&house.store))
        .slots(SLOTS)
        .queues(Queues::Named(vec![QueueName::new(QUEUE)?]))
        .prefetch(Prefetch::Adaptive)
        .handle_erased(Kind::new(KIND)?, policy, Arc::new(handler))
        .build()?)
}

fn request(number: usize, replies: Option<&str>) -> Result<Request> {
    let prompt = Prompt::Text("Summarise the following text in one sentence. ".repeat(5));
    let tenant = TenantId::default();
    let reply_queue = replies.map(|name| ReplyTo { library: tenant.to_string(), name: name.to_owned() });
    let timeout = Duration::from_secs(600);
    let plain = Request::new(format!("r-{number}"), tenant, ProfileName::new("echo")?, prompt);
    Ok(Request { reply_queue, timeout, ..plain })
}

/// Runs a worker on a full queue and polls its counters. They change with each flush, so polling once per
/// millisecond is exact enough.
async fn many(house: &House, caller: &RequestClient, requests: usize, replies: Option<&str>) -> Result<f64> {
    let mut sending = JoinSet::new();
    for number in 0..requests {
        let (caller, request) = (caller.clone(), request(number, replies)?);
        sending.spawn(async move { caller.submit(&request, SystemClock.now()).await });
    }
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    let worker = worker(house)?;
    let (control, stats, begun) = (worker.control(), worker.stats(), Instant::now());
    let watching = async {
        while stats.ran() < requests as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        control.drain();
        begun.elapsed()
    };
    let (report, took) = tokio::join!(worker.run(), watching);
    ensure!(report?.done == requests as u64, "not every request was answered");
    Ok(requests as f64 / took.as_secs_f64())
}

/// Runs one client that sends a request and waits for the reply, repeatedly.
async fn alone(house: &House, caller: &RequestClient, requests: usize) -> Result<f64> {
    let worker = worker(house)?;
    let control = worker.control();
    let asking = async {
        let mut millis = Vec::new();
        for number in 0..requests {
            let request = request(number, None)?;
            let begun = Instant::now();
            let reply = caller.ask(&request, &SystemClock).await;
            ensure!(matches!(reply.body, ReplyBody::Success(_)), "{reply:?}");
            millis.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(&millis))
    };
    let asked = async {
        let figure = asking.await;
        control.drain();
        figure
    };
    let (report, figure) = tokio::join!(worker.run(), asked);
    report?;
    figure
}
