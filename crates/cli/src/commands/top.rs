//! `top`: shows queues, workers, batches and pools, live in the terminal (feature `tui`) or printed
//! once. [`stats`] computes the numbers, [`text_frame`] renders the printed frame.

mod list;
#[cfg(feature = "tui")]
mod live;
#[cfg(feature = "tui")]
mod selection;
mod stats;
mod text_frame;
#[cfg(feature = "tui")]
mod tui_view;

use std::time::Duration;

use longshore::{Permits, Store};

use super::{connect, now};
use crate::args::top::TopArgs as Typed;
use crate::exit::ExitCode;
use crate::semaphore_backend;
use crate::settings::Settings;
use crate::terminal::Screen;
use stats::{Snapshot, StatsWindow, TopStats};
use text_frame::TextFrame;

/// Batches that are shown, newest first.
const MAX_BATCHES: u32 = 50;
/// The columns of a printed frame.
const PRINT_WIDTH: usize = 100;

/// Runs the command: a live view on a terminal, else one frame.
pub async fn run(typed: &Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings).await?;
    let permits = semaphore_backend::open(settings).await?;
    let mut window = StatsWindow::default();
    let stats = window.add(load(&*store, &*permits, settings).await?, Duration::ZERO);
    #[cfg(feature = "tui")]
    if let Some(screen) = Screen::open(settings.output) {
        return live::run(typed, (&*store, &*permits), (window, stats), screen, settings).await;
    }
    #[cfg(not(feature = "tui"))]
    let _ = (Screen::open(settings.output), typed);
    print_once(&stats, settings)
}

fn print_once(stats: &TopStats, settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.output.is_json() {
        settings.output.json(stats)?;
        return Ok(ExitCode::Good);
    }
    for line in (TextFrame { stats, width: PRINT_WIDTH, now: now() }).lines() {
        settings.output.line(line.trim_end())?;
    }
    Ok(ExitCode::Good)
}

async fn load(store: &dyn Store, permits: &dyn Permits, settings: &Settings) -> anyhow::Result<Snapshot> {
    let scope = settings.scope();
    Ok(Snapshot {
        lanes: store.queues(&scope).await?,
        sessions: store.sessions().await?,
        batches: store.batches(&scope, None, None, MAX_BATCHES).await?.items,
        pools: permits.pools(None).await?,
    })
}
