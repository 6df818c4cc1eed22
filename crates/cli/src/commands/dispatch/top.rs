//! `dispatch top`: a pool as it lives, in the terminal. What a frame looks like is decided in `frame`;
//! here is when one is drawn, and the terminal.

mod frame;

use std::path::Path;
use std::time::Duration;

use longshore::UnitState;
use longshore_dispatch::client::Client;
use longshore_dispatch::request::{Listed, Reply, Request, Status, Units};
use tokio::time::Instant;

use super::{ask_status, connect_in, unexpected};
use crate::args::dispatch::Top;
use crate::exit::ExitCode;
use crate::screen::Screen;
use crate::settings::Settings;
use frame::{Frame, Rates};

/// Failures that are shown.
const FAILURES: u32 = 5;
/// How far back a rate looks.
const WINDOW: Duration = Duration::from_secs(10);

/// Runs the command: one frame if nobody watches, else one after the other until `q` or Ctrl-C.
pub async fn run(typed: &Top, settings: &Settings) -> anyhow::Result<ExitCode> {
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    let mut client = connect_in(&folder).await?;
    let seen = look(&mut client, settings).await?;
    let Some(mut screen) = Screen::open(settings.output) else {
        return once(&folder, &seen, settings);
    };
    let mut view = View { client: Some(client), past: Vec::new() };
    let mut seen = Some(seen);
    loop {
        let (width, _) = screen.size();
        let now = now();
        let rates = seen.as_ref().map_or_else(Rates::default, |seen| view.rates(&seen.0));
        let frame = Frame { folder: &folder, seen: seen.as_ref(), rates, width, now };
        screen.draw_lines(&frame.lines())?;
        tokio::select! {
            () = tokio::time::sleep(typed.every.0.max(Duration::from_millis(100))) => {}
            () = screen.quit() => return Ok(ExitCode::Good),
        }
        seen = view.look(&folder, settings).await;
    }
}

fn now() -> longshore::Timestamp {
    crate::commands::now()
}

fn once(folder: &Path, seen: &Seen, settings: &Settings) -> anyhow::Result<ExitCode> {
    #[derive(serde::Serialize)]
    struct Answer<'a> {
        status: &'a Status,
        failures: &'a [Listed],
    }
    if settings.output.is_json() {
        settings.output.json(&Answer { status: &seen.0, failures: &seen.1 })?;
        return Ok(ExitCode::Good);
    }
    let rates = Rates::default();
    let frame = Frame { folder, seen: Some(seen), rates, width: 100, now: now() };
    for line in frame.lines() {
        settings.output.line(line)?;
    }
    Ok(ExitCode::Good)
}

/// How a pool does, and its last failures.
type Seen = (Status, Vec<Listed>);

async fn look(client: &mut Client, settings: &Settings) -> anyhow::Result<Seen> {
    let status = ask_status(client).await?;
    let state = Some(UnitState::Failed);
    let units = Units { state, batch: None, after: None, limit: FAILURES };
    let failures = match client.ask(&Request::Units(settings.tenant.clone(), units)).await? {
        Reply::Units(failures, _) => failures,
        other => return Err(unexpected(&other)),
    };
    Ok((status, failures))
}

/// What is kept from one frame to the next.
struct View {
    client: Option<Client>,
    /// When it was seen how many were done and failed.
    past: Vec<(Instant, u64, u64)>,
}

impl View {
    /// Looks; connects again if the server was away.
    async fn look(&mut self, folder: &Path, settings: &Settings) -> Option<Seen> {
        if self.client.is_none() {
            self.client = Client::connect(folder).await.ok();
        }
        let seen = look(self.client.as_mut()?, settings).await.ok();
        if seen.is_none() {
            self.client = None;
        }
        seen
    }

    /// Ends a second, over the last few.
    fn rates(&mut self, status: &Status) -> Rates {
        let now = Instant::now();
        self.past.retain(|(at, ..)| now.duration_since(*at) <= WINDOW);
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
