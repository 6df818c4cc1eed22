//! `pool status`: shows statistics of pools, their holders and waiters.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::permits::{PoolStats, WaitHistogram};
use longshore::{AdaptiveMax, Permits, PoolName, duration};
use serde::Serialize;

use crate::args::pool::PoolStatusArgs as Typed;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::terminal::Screen;

/// The utilization at which a warning is printed.
const WARN_UTILIZATION: f64 = 0.8;

/// A pool as JSON.
#[derive(Serialize)]
struct PoolStatus {
    pool: PoolName,
    available: u32,
    utilization: f64,
    wait_p50_ms: Option<u64>,
    wait_p95_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive: Option<AdaptiveStatus>,
    #[serde(flatten)]
    stats: PoolStats,
}

/// The bounds of an adaptive maximum, and the process that adjusts it.
#[derive(Serialize)]
struct AdaptiveStatus {
    min: u32,
    max: u32,
    window_ms: u64,
    by: Option<String>,
}

impl PoolStatus {
    fn new(pool: PoolName, stats: PoolStats) -> Self {
        let millis = |share| {
            let wait: Option<Duration> = WaitHistogram::percentile(&stats.waits, share);
            wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        };
        Self {
            pool,
            available: stats.available(),
            utilization: stats.utilization(),
            wait_p50_ms: millis(0.5),
            wait_p95_ms: millis(0.95),
            adaptive: None,
            stats,
        }
    }

    /// The warning for a pool that is full or nearly so.
    fn warning(&self) -> Option<String> {
        let Self { pool, stats, .. } = self;
        if let Some(left) = stats.quarantine {
            return Some(format!(
                "pool `{pool}` grants nothing for {}: its server may have lost the holders",
                duration::format(left)
            ));
        }
        let waiting = stats.waiting.len();
        match self.utilization {
            _ if stats.max > 0 && self.available == 0 => {
                Some(format!("pool `{pool}` has no permit left, {waiting} wait"))
            }
            share if stats.max > 0 && share >= WARN_UTILIZATION => {
                Some(format!("pool `{pool}` is at {:.0} %", share * 100.0))
            }
            _ => None,
        }
    }
}

/// Runs the command.
pub async fn run(typed: &Typed, permits: &dyn Permits, settings: &Settings) -> anyhow::Result<ExitCode> {
    let shown = load(typed, permits, settings).await?;
    if !typed.watch {
        print(typed, &shown, settings)?;
        return Ok(ExitCode::Good);
    }
    watch(typed, permits, settings, shown).await
}

async fn watch(
    typed: &Typed,
    permits: &dyn Permits,
    settings: &Settings,
    mut shown: Vec<PoolStatus>,
) -> anyhow::Result<ExitCode> {
    let every = typed.every.0.max(Duration::from_millis(100));
    let Some(mut screen) = Screen::open(settings.output) else {
        // Not a terminal: print one status after the other.
        loop {
            print(typed, &shown, settings)?;
            tokio::time::sleep(every).await;
            shown = load(typed, permits, settings).await?;
        }
    };
    loop {
        let text = text(typed, &shown, false);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        screen.draw_lines(&lines)?;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = screen.quit() => return Ok(ExitCode::Good),
        }
        shown = load(typed, permits, settings).await?;
    }
}

/// Pools of the back end, and those of the configuration that were not used yet.
async fn load(typed: &Typed, permits: &dyn Permits, settings: &Settings) -> anyhow::Result<Vec<PoolStatus>> {
    let configured = &settings.bounded.pools;
    let wanted = |name: &PoolName| typed.name.as_ref().is_none_or(|one| one == name);
    let unused = |max| PoolStats { max, ..PoolStats::default() };
    let known = configured.iter().filter(|(name, _)| wanted(name));
    let mut pools: BTreeMap<PoolName, PoolStats> =
        known.map(|(name, shape)| (name.clone(), unused(shape.max))).collect();
    pools.extend(permits.pools(typed.name.as_ref()).await?);
    if let Some(name) = &typed.name
        && pools.is_empty()
    {
        return Err(longshore::Error::not_found("pool", name))
            .hint("`longshore pool status` shows the pools; a pool appears with its first acquire");
    }
    if typed.name.is_none() {
        // The internal pools of adaptive maxima are shown with the pools they belong to.
        pools.retain(|name, _| !AdaptiveMax::is_controller_pool(name));
    }
    let mut shown = Vec::new();
    for (name, stats) in pools {
        let adaptive = configured.get(&name).and_then(|shape| shape.adaptive);
        let adaptive = match adaptive {
            Some(adaptive) => Some(adaptive_status(&name, adaptive, permits).await?),
            None => None,
        };
        shown.push(PoolStatus { adaptive, ..PoolStatus::new(name, stats) });
    }
    Ok(shown)
}

async fn adaptive_status(
    name: &PoolName,
    adaptive: AdaptiveMax,
    permits: &dyn Permits,
) -> anyhow::Result<AdaptiveStatus> {
    let AdaptiveMax { min, max, window } = adaptive;
    let stats = permits.stats(&AdaptiveMax::controller_pool(name)?).await?;
    let by = stats.and_then(|stats| stats.holders.into_iter().next());
    let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
    Ok(AdaptiveStatus { min, max, window_ms, by: by.map(|holder| holder.owner) })
}

fn print(typed: &Typed, shown: &[PoolStatus], settings: &Settings) -> anyhow::Result<()> {
    if settings.output.is_json() {
        return match (&typed.name, shown) {
            (Some(_), [one]) => settings.output.json(one),
            _ => settings.output.json(&shown),
        };
    }
    settings.output.piece(&text(typed, shown, settings.output.is_coloured()))?;
    for warning in shown.iter().filter_map(PoolStatus::warning) {
        settings.output.note(format!("warning: {warning}"));
    }
    Ok(())
}

fn text(typed: &Typed, shown: &[PoolStatus], colour: bool) -> String {
    let mut text = table(shown).render(colour);
    if let (Some(_), [one]) = (&typed.name, shown) {
        if let Some(by) = one.adaptive.as_ref().and_then(|adaptive| adaptive.by.as_ref()) {
            text.push_str(&format!("\nits maximum is adjusted by {by}\n"));
        }
        if !one.stats.holders.is_empty() {
            text.push('\n');
            text.push_str(&holders(&one.stats).render(colour));
        }
        if !one.stats.waiting.is_empty() {
            text.push('\n');
            text.push_str(&waiting(&one.stats).render(colour));
        }
    }
    text
}

fn table(shown: &[PoolStatus]) -> Table {
    let [max, available, in_use, waiting] = ["max", "available", "in use", "waiting"].map(right);
    let [utilization, acquired, timeouts] = ["utilization", "acquired", "timeouts"].map(right);
    let [half, most] = ["wait p50", "p95"].map(right);
    let heading =
        [cell("pool"), max, available, in_use, waiting, utilization, acquired, timeouts, half, most];
    let mut table = Table::new(heading, "no pools");
    let wait = |stats: &PoolStats, share| {
        right(
            stats
                .waits
                .percentile(share)
                .map_or(String::new(), |wait| format!("<{}", duration::format(wait))),
        )
    };
    for PoolStatus { pool, stats, available, utilization, adaptive, .. } in shown {
        let max = match adaptive {
            Some(AdaptiveStatus { min, max, .. }) => format!("{} ({min} to {max})", stats.max),
            None => stats.max.to_string(),
        };
        table.row([
            cell(pool),
            right(max),
            right(available),
            right(stats.in_use),
            right(stats.waiting.len()),
            right(format!("{:.0} %", utilization * 100.0)),
            right(stats.acquired),
            right(stats.timeouts),
            wait(stats, 0.5),
            wait(stats, 0.95),
        ]);
    }
    table
}

fn holders(stats: &PoolStats) -> Table {
    let heading = [cell("holder"), right("weight"), right("fence"), right("held for"), right("lease")];
    let mut table = Table::new(heading, "");
    for holder in &stats.holders {
        table.row([
            cell(&holder.owner),
            right(holder.weight),
            right(holder.fence),
            right(duration::format(holder.held_for)),
            right(duration::format(holder.expires_in)),
        ]);
    }
    table
}

fn waiting(stats: &PoolStats) -> Table {
    let heading = [cell("waits"), right("weight"), cell("priority"), right("for")];
    let mut table = Table::new(heading, "");
    for waiter in &stats.waiting {
        table.row([
            cell(&waiter.owner),
            right(waiter.weight),
            cell(waiter.priority),
            right(duration::format(waiter.waited)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(max: u32, in_use: u32) -> PoolStatus {
        let stats = PoolStats { max, in_use, ..PoolStats::default() };
        PoolStatus::new(PoolName::new("mjml").unwrap(), stats)
    }

    #[test]
    fn a_pool_warns_at_eighty_percent_and_when_nothing_is_left() {
        assert_eq!(shown(20, 15).warning(), None);
        assert!(shown(20, 16).warning().unwrap().contains("80 %"));
        assert!(shown(20, 20).warning().unwrap().contains("no permit left"));
        assert!(shown(20, 30).warning().unwrap().contains("no permit left"));
        assert_eq!(shown(0, 0).warning(), None, "a pool without permits is intended");
    }
}
