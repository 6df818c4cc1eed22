//! Whether the store is there, is whole, and has our time.

use std::sync::Arc;
use std::time::Duration;

use longshore::Store;
use longshore::ledger::Ledger;

use super::finding::Finding;
use crate::commands::now;
use crate::error;
use crate::settings::Settings;
use crate::span::brief;
use crate::store::{StoreUrl, open_both};

/// How long the store is recounted.
const RECOUNT: Duration = Duration::from_secs(10);
/// Clocks further apart are noticed: deadlines and schedules are off by as much.
const APART: Duration = Duration::from_secs(2);
/// Further apart is wrong.
const FAR_APART: Duration = Duration::from_secs(30);

/// A store from both its sides.
type Opened = Option<(Arc<dyn Store>, Arc<dyn Ledger>)>;

/// Looks at the store; returns it if it can be used.
pub(super) async fn look(settings: &Settings) -> (Vec<Finding>, Opened) {
    if let StoreUrl::Sqlite(path) = &settings.store
        && !path.exists()
        && longshore_sqlite::is_local(folder(path))
    {
        // Looking must not make one.
        let says = format!("there is no {} yet; the first command makes it", path.display());
        return (vec![Finding::good("store", says)], None);
    }
    match open_both(settings).await {
        Err(problem) => {
            let mend = error::hint(&problem).unwrap_or_else(|| "check --store".to_owned());
            (vec![Finding::wrong("store", format!("{problem:#}"), mend)], None)
        }
        Ok((store, ledger)) => {
            let says = format!("{} can be used, and its schema is ours", settings.store);
            let mut all = vec![Finding::good("store", says)];
            all.push(whole(&*store).await);
            all.push(clock(settings).await);
            (all, Some((store, ledger)))
        }
    }
}

fn folder(path: &std::path::Path) -> &std::path::Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| ".".as_ref())
}

async fn whole(store: &dyn Store) -> Finding {
    match tokio::time::timeout(RECOUNT, store.verify()).await {
        Ok(Ok(violations)) if violations.is_empty() => {
            Finding::good("integrity", "recounted: nothing is lost, every counter is right")
        }
        Ok(Ok(violations)) => {
            let says = format!("{} things are not as they should be", violations.len());
            let mend = "`longshore verify` lists them; restore a backup, and tell us how it came";
            Finding::wrong("integrity", says, mend)
        }
        Ok(Err(problem)) => {
            let says = format!("the store cannot be recounted: {problem}");
            Finding::wrong("integrity", says, "`longshore verify` says more")
        }
        Err(_) => {
            let says = format!("it takes longer than {} to recount the store", brief(RECOUNT));
            Finding::doubtful("integrity", says, "run `longshore verify` when there is time")
        }
    }
}

async fn clock(settings: &Settings) -> Finding {
    let StoreUrl::Postgres(url) = &settings.store else {
        return Finding::good("clock", "the store has this machine's clock");
    };
    let before = now();
    let theirs = longshore_postgres::server_time(url.with_password()).await;
    let after = now();
    match theirs {
        Err(problem) => {
            let says = format!("the server does not tell its time: {problem}");
            Finding::doubtful("clock", says, "ask again")
        }
        // Somewhere between asking and hearing it, the server looked at its clock.
        Ok(theirs) => judged(apart(before.as_micros(), theirs.as_micros(), after.as_micros())),
    }
}

/// How far a clock that was read between `before` and `after` is away from ours, at least.
fn apart(before: i64, theirs: i64, after: i64) -> Duration {
    let early = before.saturating_sub(theirs).max(0);
    let late = theirs.saturating_sub(after).max(0);
    Duration::from_micros(early.max(late).unsigned_abs())
}

fn judged(apart: Duration) -> Finding {
    let mend = "have both machines follow a time server (chrony, systemd-timesyncd)";
    match apart {
        apart if apart >= FAR_APART => {
            let says = format!("this clock and the server's are {} apart", brief(apart));
            Finding::wrong("clock", says, mend)
        }
        apart if apart >= APART => {
            let says = format!("this clock and the server's are {} apart", brief(apart));
            Finding::doubtful("clock", says, mend)
        }
        _ => Finding::good("clock", "this clock and the server's are the same"),
    }
}

/// Whether somebody works, with our version, on what waits.
pub(super) async fn workers(store: &dyn Store) -> Vec<Finding> {
    let (Ok(sessions), Ok(totals)) = (
        store.sessions().await,
        store.totals(&longshore::Scope::All, &longshore::store::Queues::All).await,
    ) else {
        return Vec::new();
    };
    let ours = env!("CARGO_PKG_VERSION");
    let other = sessions.iter().find(|session| session.version != ours);
    if let Some(other) = other {
        let says = format!("worker {} is version {}, this is {ours}", other.label, other.version);
        let mend = "`longshore workers refresh`, or restart it, once all is installed";
        return vec![Finding::doubtful("workers", says, mend)];
    }
    // `serve` has a session too, and runs nothing.
    let at_work = sessions.iter().filter(|session| session.own_slots() > 0).count();
    if at_work == 0 && totals.counts.ready > 0 {
        let says = format!("{} units are ready, and nobody works", totals.counts.ready);
        let mend = "`longshore worker`, or `longshore supervise` for good";
        return vec![Finding::doubtful("workers", says, mend)];
    }
    vec![Finding::good("workers", format!("{at_work} at work"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::State;

    #[test]
    fn clocks_are_apart_by_what_the_way_cannot_explain() {
        assert_eq!(apart(10, 15, 20), Duration::ZERO);
        assert_eq!(apart(10, 7, 20), Duration::from_micros(3));
        assert_eq!(apart(10, 26, 20), Duration::from_micros(6));
    }

    #[test]
    fn clocks_that_are_apart_are_noticed() {
        let state = |seconds| judged(Duration::from_secs(seconds)).state;
        assert_eq!([state(1), state(5), state(60)], [State::Good, State::Doubtful, State::Wrong]);
    }
}
