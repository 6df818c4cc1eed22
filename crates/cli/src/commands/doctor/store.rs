//! Checks that the store can be opened, is consistent, and has the same time as this machine.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::Ledger;
use longshore::{Error, Store, SystemClock, duration};
use longshore_postgres::{CLOCK_SKEW_WARNING, ClockSkew, clock_skew};

use super::check_result::CheckResult;
use crate::error;
use crate::settings::Settings;
use crate::store::{StoreUrl, open_with_ledger};

/// Maximum time of the recount.
const RECOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// A store with its ledger.
type OpenStore = Option<(Arc<dyn Store>, Arc<dyn Ledger>)>;

/// Checks the store; returns it if it is usable.
pub(super) async fn check(settings: &Settings) -> (Vec<CheckResult>, OpenStore) {
    if let StoreUrl::Sqlite(path) = &settings.store
        && !path.exists()
        && longshore_sqlite::is_local(folder(path))
    {
        // A check must not create a store.
        let says = format!("{} does not exist yet; the first command creates it", path.display());
        return (vec![CheckResult::good("store", says)], None);
    }
    let settings = &Settings { inspect_only: true, ..settings.clone() };
    match open_with_ledger(settings).await {
        Err(problem) if has_no_schema(&problem) => {
            let says = format!("{} is empty; the first command creates the schema", settings.store);
            (vec![CheckResult::good("store", says), clock(settings).await], None)
        }
        Err(problem) => {
            let mend = error::hint(&problem).unwrap_or_else(|| "check --store".to_owned());
            (vec![CheckResult::wrong("store", format!("{problem:#}"), mend)], None)
        }
        Ok((store, ledger)) => {
            let says = format!("{} is usable, and no migration is missing", settings.store);
            let mut all = vec![CheckResult::good("store", says)];
            all.push(integrity(&*store).await);
            all.push(clock(settings).await);
            (all, Some((store, ledger)))
        }
    }
}

fn has_no_schema(problem: &anyhow::Error) -> bool {
    let is_empty = |error: &Error| matches!(error, Error::Schema { found: 0, .. });
    problem.chain().any(|cause| cause.downcast_ref().is_some_and(is_empty))
}

fn folder(path: &std::path::Path) -> &std::path::Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| ".".as_ref())
}

async fn integrity(store: &dyn Store) -> CheckResult {
    match tokio::time::timeout(RECOUNT_TIMEOUT, store.verify()).await {
        Ok(Ok(violations)) if violations.is_empty() => {
            CheckResult::good("integrity", "recounted: nothing is lost, every counter is right")
        }
        Ok(Ok(violations)) => {
            let says = format!("{} violations", violations.len());
            let mend = "`longshore verify` lists them; restore a backup, and report a bug";
            CheckResult::wrong("integrity", says, mend)
        }
        Ok(Err(problem)) => {
            let says = format!("cannot recount the store: {problem}");
            CheckResult::wrong("integrity", says, "`longshore verify` says more")
        }
        Err(_) => {
            let says =
                format!("it takes longer than {} to recount the store", duration::format(RECOUNT_TIMEOUT));
            CheckResult::doubtful("integrity", says, "run `longshore verify` when there is time")
        }
    }
}

async fn clock(settings: &Settings) -> CheckResult {
    let StoreUrl::Postgres(url) = &settings.store else {
        return CheckResult::good("clock", "the store has this machine's clock");
    };
    match clock_skew(url.with_password(), &SystemClock).await {
        Ok(skew) => judge_clock(skew),
        Err(problem) => {
            let says = format!("cannot read the server's time: {problem}");
            CheckResult::doubtful("clock", says, "run it again")
        }
    }
}

/// A skew beyond the limit is an error of the store, which does not open then.
fn judge_clock(skew: ClockSkew) -> CheckResult {
    if skew.apart < CLOCK_SKEW_WARNING {
        return CheckResult::good("clock", "this clock and the server's are the same");
    }
    let says = format!("{skew}; the store uses the server's clock");
    CheckResult::doubtful(
        "clock",
        says,
        "have both machines follow a time server (chrony, systemd-timesyncd)",
    )
}

/// Checks that workers of this version process the queue.
pub(super) async fn workers(store: &dyn Store) -> Vec<CheckResult> {
    let (Ok(sessions), Ok(totals)) =
        (store.sessions().await, store.totals(&longshore::Scope::All, &longshore::store::Queues::All).await)
    else {
        return Vec::new();
    };
    let ours = env!("CARGO_PKG_VERSION");
    let other = sessions.iter().find(|session| session.version != ours);
    if let Some(other) = other {
        let says = format!("worker {} is version {}, this is {ours}", other.label, other.version);
        let mend = "`longshore workers refresh`, or restart it, once the new version is installed";
        return vec![CheckResult::doubtful("workers", says, mend)];
    }
    // `serve` has a session too, and runs no units.
    let at_work = sessions.iter().filter(|session| session.own_slots() > 0).count();
    if at_work == 0 && totals.counts.ready > 0 {
        let says = format!("{} units are ready, and no worker runs", totals.counts.ready);
        let mend = "`longshore worker`, or `longshore supervise` as a service";
        return vec![CheckResult::doubtful("workers", says, mend)];
    }
    vec![CheckResult::good("workers", format!("{at_work} at work"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check_result::State;

    #[test]
    fn a_skew_of_a_second_is_noticed() {
        let state =
            |millis| judge_clock(ClockSkew { apart: Duration::from_millis(millis), ahead: false }).state;
        assert_eq!([state(999), state(1000)], [State::Good, State::Doubtful]);
    }
}
