//! Checks whether a server can be trusted with permits.

use std::collections::HashMap;
use std::time::Duration;

use longshore_core::{Error, Result};

/// The oldest version with all commands in use. Valkey reports the Redis version it is compatible
/// with.
const MIN_MAJOR_VERSION: u32 = 6;
/// The server reports its uptime in whole seconds.
const UPTIME_RESOLUTION: Duration = Duration::from_secs(1);

/// Leases are rarely longer.
const LONG_LEASE: Duration = Duration::from_secs(60);

/// One run of a server process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// The server's id of this run.
    pub(crate) run_id: String,
    /// The latest time at which it can have started, in microseconds of its own clock.
    pub(crate) started_at: u64,
    /// Whether the data of earlier runs is kept: it has an append-only file.
    pub(crate) keeps_data: bool,
}

impl ServerInfo {
    /// Parses the replies to `INFO` and `TIME`.
    pub(crate) fn parse(info: &str, now: Duration) -> Result<Self> {
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        let version = field("redis_version");
        let (run, age) = (field("run_id"), field("uptime_in_seconds").parse().ok());
        let (Some(major), Some(age), false) = (major(version), age, run.is_empty()) else {
            return Err(broken("this is not a Redis server: INFO reports no version"));
        };
        if major < MIN_MAJOR_VERSION {
            let words = format!("this is Redis {version}; permits need Redis {MIN_MAJOR_VERSION} or Valkey");
            return Err(Error::Unsupported(words));
        }
        let policy = field("maxmemory_policy");
        if policy.starts_with("allkeys") && field("maxmemory") != "0" {
            let words = format!(
                "this Redis evicts keys when its memory is full (maxmemory-policy {policy}), permits \
                 included: set noeviction or volatile-ttl, or use a separate Redis"
            );
            return Err(Error::Unsupported(words));
        }
        let started = now.saturating_sub(Duration::from_secs(age)) + UPTIME_RESOLUTION;
        // A replica that was promoted to master may have missed the last writes.
        let promoted = field("master_replid2").contains(|digit| digit != '0');
        let keeps_data = field("aof_enabled") == "1" && !promoted;
        Ok(Self { run_id: run.to_owned(), started_at: micros(started), keeps_data })
    }

    /// Whether an earlier run of the server may have granted permits that are still held. A new server
    /// looks like one that has lost its data.
    pub(crate) fn may_have_lost_leases(&self, now: Duration) -> bool {
        !self.keeps_data && micros(now.saturating_sub(LONG_LEASE)) < self.started_at
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

fn broken(message: &str) -> Error {
    Error::Broken { message: message.to_owned(), source: None }
}

/// Whole microseconds; saturates after half a million years.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:10\r\n\
        maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n\
        master_replid2:0000000000\r\n";
    const NOW: Duration = Duration::from_secs(1000);

    fn changed(from: &str, to: &str) -> Result<ServerInfo> {
        assert!(INFO.contains(from));
        ServerInfo::parse(&INFO.replace(from, to), NOW)
    }

    #[test]
    fn a_server_with_an_append_only_file_is_trusted() {
        let server = ServerInfo::parse(INFO, NOW).unwrap();
        assert_eq!(server, ServerInfo { run_id: "abc".into(), started_at: 991_000_000, keeps_data: true });
    }

    #[test]
    fn one_without_and_one_that_was_a_replica_are_not() {
        assert!(!changed("aof_enabled:1", "aof_enabled:0").unwrap().keeps_data);
        assert!(!changed("replid2:000", "replid2:a00").unwrap().keeps_data);
    }

    #[test]
    fn only_a_young_server_without_a_file_may_have_lost_leases() {
        assert!(!ServerInfo::parse(INFO, NOW).unwrap().may_have_lost_leases(NOW));
        let young = changed("aof_enabled:1", "aof_enabled:0").unwrap();
        assert!(young.may_have_lost_leases(NOW));
        assert!(!young.may_have_lost_leases(NOW + LONG_LEASE));
    }

    #[test]
    fn an_old_one_and_one_that_throws_keys_away_are_refused() {
        let old = changed("7.0.15", "5.0.14").unwrap_err().to_string();
        assert!(old.contains("this is Redis 5.0.14"), "{old}");
        let full = INFO.replace("maxmemory:0", "maxmemory:1000");
        assert!(ServerInfo::parse(&full, NOW).is_ok());
        let full = ServerInfo::parse(&full.replace("noeviction", "allkeys-lru"), NOW).unwrap_err();
        assert!(full.to_string().contains("allkeys-lru"), "{full}");
        assert!(changed("noeviction", "allkeys-lru").is_ok());
    }

    #[test]
    fn what_says_nothing_of_itself_is_no_redis() {
        let error = ServerInfo::parse("hello\r\n", NOW).unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    }
}
