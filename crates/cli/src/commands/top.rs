//! `top`: how it all stands, live in the terminal (feature `tui`) or printed once. What the figures are is
//! decided in `figures`, what a printed frame looks like in `frame`.

#[cfg(feature = "tui")]
mod choice;
mod figures;
mod frame;
mod list;
#[cfg(feature = "tui")]
mod live;
#[cfg(feature = "tui")]
mod view;

use std::time::Duration;

use longshore::{Permits, Store};

use super::{connect, now};
use crate::args::top::Top as Typed;
use crate::exit::ExitCode;
use crate::permits;
use crate::screen::Screen;
use crate::settings::Settings;
use figures::{Figures, Past, Seen};
use frame::Frame;

/// Batches that are shown, newest first.
const BATCHES: u32 = 50;
/// The columns of a frame that is printed once.
const PRINTED: usize = 100;

/// Runs the command: a live view on a terminal, else one frame.
pub async fn run(typed: &Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings).await?;
    let permits = permits::open(settings).await?;
    let mut past = Past::default();
    let figures = past.add(look(&*store, &*permits, settings).await?, Duration::ZERO);
    #[cfg(feature = "tui")]
    if let Some(screen) = Screen::open(settings.output) {
        return live::run(typed, (&*store, &*permits), (past, figures), screen, settings).await;
    }
    #[cfg(not(feature = "tui"))]
    let _ = (Screen::open(settings.output), typed);
    once(&figures, settings)
}

fn once(figures: &Figures, settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.output.is_json() {
        settings.output.json(figures)?;
        return Ok(ExitCode::Good);
    }
    for line in (Frame { figures, width: PRINTED, now: now() }).lines() {
        settings.output.line(line.trim_end())?;
    }
    Ok(ExitCode::Good)
}

async fn look(
    store: &dyn Store,
    permits: &dyn Permits,
    settings: &Settings,
) -> anyhow::Result<Seen> {
    let scope = settings.scope();
    let mut pools = Vec::new();
    for name in permits.pools().await? {
        pools.extend(permits.stats(&name).await?.map(|stats| (name, stats)));
    }
    Ok(Seen {
        lanes: store.queues(&scope).await?,
        sessions: store.sessions().await?,
        batches: store.batches(&scope, None, None, BATCHES).await?.items,
        pools,
    })
}
