//! `dispatch top`: a live view of a pool in the terminal. [`render`] makes the frames; this module
//! polls the server and draws.

mod render;

use std::path::Path;
use std::time::Duration;

use longshore::UnitState;
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{ClientRequest, PoolStatus, ServerReply, UnitQuery, UnitSummary};
use tokio::time::Instant;

use super::{ask_status, connect_in, unexpected_reply};
use crate::args::dispatch::DispatchTopArgs;
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::terminal::Screen;
use render::{PoolFrame, Rates};

/// Failures that are shown.
const MAX_FAILURES: u32 = 5;
/// The window of a rate.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Runs the command: prints one frame if stdout is no terminal, else draws frames until `q` or
/// Ctrl-C.
pub async fn run(typed: &DispatchTopArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    let mut client = connect_in(&folder).await?;
    let snapshot = poll(&mut client, settings).await?;
    let Some(mut screen) = Screen::open(settings.output) else {
        return print_once(&folder, &snapshot, settings);
    };
    let mut view = PollState { client: Some(client), past: Vec::new() };
    let mut snapshot = Some(snapshot);
    loop {
        let (width, _) = screen.size();
        let now = now();
        let rates = snapshot.as_ref().map_or_else(Rates::default, |snapshot| view.rates(&snapshot.0));
        let frame = PoolFrame { folder: &folder, snapshot: snapshot.as_ref(), rates, width, now };
        screen.draw_lines(&frame.lines())?;
        tokio::select! {
            () = tokio::time::sleep(typed.every.0.max(Duration::from_millis(100))) => {}
            () = screen.quit() => return Ok(ExitCode::Good),
        }
        snapshot = view.poll(&folder, settings).await;
    }
}

fn now() -> longshore::Timestamp {
    crate::commands::now()
}

fn print_once(folder: &Path, snapshot: &PoolSnapshot, settings: &Settings) -> anyhow::Result<ExitCode> {
    #[derive(serde::Serialize)]
    struct TopJson<'a> {
        status: &'a PoolStatus,
        failures: &'a [UnitSummary],
    }
    if settings.output.is_json() {
        settings.output.json(&TopJson { status: &snapshot.0, failures: &snapshot.1 })?;
        return Ok(ExitCode::Good);
    }
    let rates = Rates::default();
    let frame = PoolFrame { folder, snapshot: Some(snapshot), rates, width: 100, now: now() };
    for line in frame.lines() {
        settings.output.line(line)?;
    }
    Ok(ExitCode::Good)
}

/// A pool's status and its last failures.
type PoolSnapshot = (PoolStatus, Vec<UnitSummary>);

async fn poll(client: &mut DispatchClient, settings: &Settings) -> anyhow::Result<PoolSnapshot> {
    let status = ask_status(client).await?;
    let state = Some(UnitState::Failed);
    let units = UnitQuery { state, batch: None, after: None, limit: MAX_FAILURES };
    let failures = match client.request(&ClientRequest::Units(settings.tenant.clone(), units)).await? {
        ServerReply::Units(failures, _) => failures,
        other => return Err(unexpected_reply(&other)),
    };
    Ok((status, failures))
}

/// State kept from one frame to the next.
struct PollState {
    client: Option<DispatchClient>,
    /// Times with the counts of done and failed units.
    past: Vec<(Instant, u64, u64)>,
}

impl PollState {
    /// Polls the server; reconnects if it was unavailable.
    async fn poll(&mut self, folder: &Path, settings: &Settings) -> Option<PoolSnapshot> {
        if self.client.is_none() {
            self.client = DispatchClient::connect(folder).await.ok();
        }
        let snapshot = poll(self.client.as_mut()?, settings).await.ok();
        if snapshot.is_none() {
            self.client = None;
        }
        snapshot
    }

    /// Finished units per second, over the window.
    fn rates(&mut self, status: &PoolStatus) -> Rates {
        let now = Instant::now();
        self.past.retain(|(at, ..)| now.duration_since(*at) <= RATE_WINDOW);
        self.past.push((now, status.done, status.failed));
        let Some((since, done, failed)) = self.past.first().copied() else {
            return Rates::default();
        };
        let seconds = now.duration_since(since).as_secs_f64();
        let rate = |now: u64, then: u64| per_second(now.saturating_sub(then), seconds);
        Rates { done: rate(status.done, done), failed: rate(status.failed, failed) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds < 0.05 { 0.0 } else { count as f64 / seconds }
}
