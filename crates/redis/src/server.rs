//! What must be known of a server before it is trusted with permits.

use std::collections::HashMap;
use std::time::Duration;

use longshore_core::{Error, Result};

/// The oldest that has all we use. Valkey tells the Redis that it stands for.
const OLDEST: u32 = 6;
/// The server counts its age in whole seconds.
const ROUNDED: Duration = Duration::from_secs(1);

/// One life of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its name for this life.
    pub(crate) run: String,
    /// When it began at the latest, in microseconds of its own clock.
    pub(crate) started: u64,
    /// Whether it remembers what it was told before it began.
    pub(crate) trusted: bool,
}

impl Server {
    /// Reads what `INFO` and `TIME` answered.
    pub(crate) fn read(info: &str, now: Duration) -> Result<Self> {
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        let version = field("redis_version");
        let (run, age) = (field("run_id"), field("uptime_in_seconds").parse().ok());
        let (Some(major), Some(age), false) = (major(version), age, run.is_empty()) else {
            return Err(broken("this is no Redis: it does not say which version it is"));
        };
        if major < OLDEST {
            let words = format!("this is Redis {version}; permits need Redis {OLDEST} or Valkey");
            return Err(Error::Unsupported(words));
        }
        let policy = field("maxmemory_policy");
        if policy.starts_with("allkeys") && field("maxmemory") != "0" {
            let words = format!(
                "this Redis throws keys away when it is full (maxmemory-policy {policy}), permits \
                 too: set noeviction or volatile-ttl, or name a Redis of its own"
            );
            return Err(Error::Unsupported(words));
        }
        let started = now.saturating_sub(Duration::from_secs(age)) + ROUNDED;
        // A replica that was made a master may have missed what was said last.
        let promoted = field("master_replid2").contains(|digit| digit != '0');
        let trusted = field("aof_enabled") == "1" && !promoted;
        Ok(Self { run: run.to_owned(), started: micros(started), trusted })
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

fn broken(message: &str) -> Error {
    Error::Broken { message: message.to_owned(), source: None }
}

/// Whole microseconds; more than half a million years are as good as for ever.
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

    fn changed(from: &str, to: &str) -> Result<Server> {
        assert!(INFO.contains(from));
        Server::read(&INFO.replace(from, to), NOW)
    }

    #[test]
    fn a_server_with_an_append_only_file_is_trusted() {
        let server = Server::read(INFO, NOW).unwrap();
        assert_eq!(server, Server { run: "abc".into(), started: 991_000_000, trusted: true });
    }

    #[test]
    fn one_without_and_one_that_was_a_replica_are_not() {
        assert!(!changed("aof_enabled:1", "aof_enabled:0").unwrap().trusted);
        assert!(!changed("replid2:000", "replid2:a00").unwrap().trusted);
    }

    #[test]
    fn an_old_one_and_one_that_throws_keys_away_are_refused() {
        let old = changed("7.0.15", "5.0.14").unwrap_err().to_string();
        assert!(old.contains("this is Redis 5.0.14"), "{old}");
        let full = INFO.replace("maxmemory:0", "maxmemory:1000");
        assert!(Server::read(&full, NOW).is_ok());
        let full = Server::read(&full.replace("noeviction", "allkeys-lru"), NOW).unwrap_err();
        assert!(full.to_string().contains("allkeys-lru"), "{full}");
        assert!(changed("noeviction", "allkeys-lru").is_ok());
    }

    #[test]
    fn what_says_nothing_of_itself_is_no_redis() {
        let error = Server::read("hello\r\n", NOW).unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    }
}
