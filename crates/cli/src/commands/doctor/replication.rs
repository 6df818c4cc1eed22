//! Checks what a failover of PostgreSQL would lose.

use longshore::byte_size;
use longshore_postgres::{ReplicationStatus, Standby, replication_status};

use super::check_result::CheckResult;
use crate::settings::Settings;
use crate::store::StoreUrl;

/// More WAL than this that a standby has not applied is a warning: a failover would take long, or lose it.
const LAG_WARNING: u64 = 64 << 20;

const AREA: &str = "replication";
const GUIDE: &str = "docs/guides/high-availability.md says how";

/// Checks the standbys of a PostgreSQL store.
pub(super) async fn check(settings: &Settings) -> Option<CheckResult> {
    let StoreUrl::Postgres(url) = &settings.store else { return None };
    Some(match replication_status(url.with_password()).await {
        Ok(status) => judge(&status),
        Err(problem) => {
            CheckResult::doubtful(AREA, format!("cannot read the standbys: {problem}"), "run it again")
        }
    })
}

fn judge(status: &ReplicationStatus) -> CheckResult {
    if status.synchronous_commit == "off" {
        let says = "synchronous_commit is off: a crash of the server loses units that were confirmed";
        return CheckResult::doubtful(AREA, says, "ALTER DATABASE … SET synchronous_commit = on");
    }
    if status.standbys.is_empty() {
        return match status.hosts {
            0 | 1 => CheckResult::good(AREA, "no standby: if the server is lost, only its backup is left"),
            hosts => {
                let says = format!("--store names {hosts} hosts, and no standby follows the primary");
                CheckResult::doubtful(AREA, says, format!("start a standby; {GUIDE}"))
            }
        };
    }
    let list: Vec<String> = status.standbys.iter().map(describe).collect();
    let list = list.join("; ");
    if let Some(slow) = status.standbys.iter().find(|standby| is_behind(standby)) {
        return CheckResult::doubtful(AREA, list, format!("see why {} does not follow", slow.name));
    }
    if !status.standbys.iter().any(|standby| standby.synchronous) {
        return CheckResult::good(
            AREA,
            format!("{list}: a failover loses what the standby has not received"),
        );
    }
    let commit = status.synchronous_commit.as_str();
    if !["on", "remote_apply"].contains(&commit) {
        let says = format!(
            "{list}: synchronous_commit is {commit}: units are confirmed before the standby has stored them, and \
             a failover may lose them"
        );
        return CheckResult::doubtful(AREA, says, "ALTER DATABASE … SET synchronous_commit = on");
    }
    let says = format!("{list}: a failover to the most advanced synchronous standby loses nothing");
    CheckResult::good(AREA, says)
}

fn is_behind(standby: &Standby) -> bool {
    let lag = standby.lag_bytes.map_or(0, i64::unsigned_abs);
    lag > LAG_WARNING || standby.state.as_deref().is_some_and(|state| state != "streaming")
}

fn describe(standby: &Standby) -> String {
    let Standby { name, state, synchronous, lag_bytes } = standby;
    let mode = if *synchronous { "synchronous" } else { "asynchronous" };
    let state = state.as_deref().unwrap_or("state unknown without the role pg_monitor");
    let lag = lag_bytes
        .map_or_else(String::new, |lag| format!(", {} behind", byte_size::format(lag.unsigned_abs())));
    format!("standby {name} ({mode}, {state}{lag})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check_result::State;

    fn status(hosts: usize, standbys: Vec<Standby>) -> ReplicationStatus {
        ReplicationStatus { hosts, synchronous_commit: "on".into(), standbys }
    }

    fn standby(synchronous: bool, lag: i64) -> Standby {
        let state = Some("streaming".to_owned());
        Standby { name: "b".into(), state, synchronous, lag_bytes: Some(lag) }
    }

    #[test]
    fn what_a_failover_would_lose_is_said() {
        let says = |status| judge(&status).says;
        assert!(says(status(2, vec![standby(true, 0)])).ends_with("loses nothing"));
        for (commit, state) in [
            ("local", State::Doubtful),
            ("remote_write", State::Doubtful),
            ("on", State::Good),
            ("remote_apply", State::Good),
        ] {
            let status =
                ReplicationStatus { synchronous_commit: commit.into(), ..status(2, vec![standby(true, 0)]) };
            assert_eq!(judge(&status).state, state, "{commit}");
        }
        assert!(says(status(2, vec![standby(false, 0)])).ends_with("has not received"));
        assert!(says(status(1, vec![])).contains("only its backup"));
    }

    #[test]
    fn a_second_host_without_a_standby_and_a_standby_far_behind_are_doubtful() {
        let state = |status| judge(&status).state;
        assert_eq!(state(status(2, vec![])), State::Doubtful);
        assert_eq!(state(status(2, vec![standby(true, 1 << 30)])), State::Doubtful);
        let off = ReplicationStatus { synchronous_commit: "off".into(), ..status(1, vec![]) };
        assert_eq!(state(off), State::Doubtful);
    }
}
