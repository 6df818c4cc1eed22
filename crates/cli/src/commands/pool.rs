//! `pool`: shows and resizes bounded pools, and holds a permit for a command.

mod exec;
mod status;

use longshore::{Permits, PoolName};
use serde::Serialize;

use super::confirm;
use crate::args::pool::PoolCommand as Typed;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::semaphore_backend::{self, BoundedPoolSettings};
use crate::settings::Settings;

/// Whether the command handles SIGTERM and SIGINT itself.
pub fn handles_signals(typed: &Typed) -> bool {
    matches!(typed, Typed::Exec(_))
}

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let permits = semaphore_backend::open(settings).await?;
    match typed {
        Typed::Status(typed) => return status::run(&typed, &*permits, settings).await,
        Typed::Init { name, max } => init(&*permits, name, max, settings).await?,
        Typed::Resize { name, max, .. } => {
            permits.resize(&name, max).await?;
            print_pool(&name, max, "resized", settings)?;
        }
        Typed::Reset { name, yes } => return reset(&*permits, &name, yes, settings).await,
        Typed::Exec(typed) => return exec::run(typed, permits, settings).await,
    }
    Ok(ExitCode::Good)
}

#[derive(Serialize)]
struct PoolResult<'a> {
    pool: &'a PoolName,
    max: u32,
    #[serde(rename = "was")]
    done: &'static str,
}

fn print_pool(pool: &PoolName, max: u32, done: &'static str, settings: &Settings) -> anyhow::Result<()> {
    let answer = PoolResult { pool, max, done };
    settings.output.answer(&answer, || format!("{pool} has {max} permits ({done})"))
}

async fn init(
    permits: &dyn Permits,
    name: Option<PoolName>,
    max: Option<u32>,
    settings: &Settings,
) -> anyhow::Result<()> {
    let bounded = &settings.bounded;
    let pools: Vec<(PoolName, BoundedPoolSettings)> = match name {
        Some(name) => vec![(name.clone(), bounded.shape(&name, max)?)],
        None => bounded.pools.clone().into_iter().collect(),
    };
    if pools.is_empty() {
        return Err(usage("the configuration has no pools"))
            .hint("name one with --max N, or write [pools.NAME] max = N into longshore.toml");
    }
    for (name, shape) in pools {
        match permits.create(&name, shape.max).await? {
            Some(max) => print_pool(&name, max, "known before", settings)?,
            None => print_pool(&name, shape.max, "made known", settings)?,
        }
    }
    Ok(())
}

async fn reset(
    permits: &dyn Permits,
    name: &PoolName,
    yes: bool,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let Some(stats) = permits.stats(name).await? else {
        return Err(longshore::Error::not_found("pool", name))
            .hint("`longshore pool status` shows the pools");
    };
    let holders = stats.holders.len();
    let question = format!("Take the permits of pool `{name}` from {holders} holders?");
    if !yes && !confirm(&question, settings)? {
        return Ok(ExitCode::Cancelled);
    }
    permits.reset(name).await?;
    print_pool(name, stats.max, "reset", settings)?;
    Ok(ExitCode::Good)
}
