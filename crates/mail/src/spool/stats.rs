//! Counts and health of a spool.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::Timestamp;
use serde::Serialize;

use super::error::SpoolError;
use super::{Spool, State, durable_fs};

/// The counts of a spool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SpoolStats {
    /// Messages to be sent.
    pub pending: usize,
    /// Of those, due, including messages that were tried and are to be retried later.
    pub due: usize,
    /// Of those, postponed: by the server, an unreachable server, or the rate limit of their domain.
    #[serde(rename = "put_off")]
    pub postponed: usize,
    /// How long the oldest message has been waiting for a sender since it was due or was to be retried.
    pub oldest_due: Duration,
    /// How long ago the oldest postponed message was originally due.
    pub oldest_put_off: Duration,
    /// How long ago the last known message was sent, if any.
    pub last_sent: Option<Duration>,
    /// Messages claimed by senders.
    pub sending: usize,
    /// Failed messages.
    pub failed: usize,
    /// Of those, failed in the last 24 hours.
    pub failed_lately: usize,
    /// Messages accepted by the server, by day.
    pub sent: BTreeMap<String, usize>,
}

/// The health of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpoolHealth {
    /// Within all thresholds.
    Good,
    /// Above a warning threshold.
    Warning,
    /// Above a critical threshold.
    Critical,
}

/// Thresholds for the health of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthThresholds {
    /// Warn above so many due messages.
    pub warning: usize,
    /// Critical above so many due messages.
    pub critical: usize,
    /// Warn if a message has been due for longer.
    pub warning_age: Duration,
    /// Critical if a message has been due for longer.
    pub critical_age: Duration,
    /// Warn above so many failures within a day.
    pub warning_failed: usize,
    /// Critical above so many failures within a day.
    pub critical_failed: usize,
}

/// The window of recent failures.
const RECENT: Duration = Duration::from_secs(24 * 3600);

impl Default for HealthThresholds {
    fn default() -> Self {
        Self {
            warning: 100,
            critical: 1_000,
            warning_age: Duration::from_secs(15 * 60),
            critical_age: Duration::from_secs(60 * 60),
            warning_failed: 10,
            critical_failed: 100,
        }
    }
}

impl SpoolStats {
    /// Compares the counts with the thresholds.
    pub fn health(&self, thresholds: &HealthThresholds) -> SpoolHealth {
        let HealthThresholds { warning, critical, warning_age, critical_age, .. } = *thresholds;
        let (due, age, failed) = (self.due, self.late(), self.failed_lately);
        if due > critical || age > critical_age || failed > thresholds.critical_failed {
            SpoolHealth::Critical
        } else if due > warning || age > warning_age || failed > thresholds.warning_failed {
            SpoolHealth::Warning
        } else {
            SpoolHealth::Good
        }
    }

    /// How late mail is. Postponed messages count only while nothing at all is sent: an unreachable server
    /// delays all mail, a full mailbox only its own.
    pub fn late(&self) -> Duration {
        let silent = self.last_sent.unwrap_or(Duration::MAX);
        self.oldest_due.max(self.oldest_put_off.min(silent))
    }
}

impl Spool {
    /// Counts messages by their file names, without opening them or collecting the names.
    pub fn stats(&self, now: Timestamp) -> Result<SpoolStats, SpoolError> {
        let mut stats = SpoolStats::default();
        self.walk(State::Pending, |name| {
            stats.pending += 1;
            stats.due += usize::from(name.first_due() <= now);
            // Zero if it is not due yet.
            stats.oldest_due = stats.oldest_due.max(now.since(name.due));
            if let Some(since) = name.since {
                stats.postponed += 1;
                stats.oldest_put_off = stats.oldest_put_off.max(now.since(since));
            }
            Ok(())
        })?;
        self.walk(State::Failed, |name| {
            stats.failed += 1;
            stats.failed_lately += usize::from(now.since(name.due) < RECENT);
            Ok(())
        })?;
        stats.sending = self.names(State::Sending)?.len();
        for day in durable_fs::names(&self.dir("sent"))? {
            let mut count = 0;
            durable_fs::walk(&self.dir("sent").join(&day), |_| {
                count += 1;
                Ok(())
            })?;
            stats.sent.insert(day, count);
        }
        stats.last_sent = self.last_sent(now);
        Ok(stats)
    }

    /// A day's folder is modified whenever a message is moved into it.
    fn last_sent(&self, now: Timestamp) -> Option<Duration> {
        let last = durable_fs::names(&self.dir("sent")).ok()?.into_iter().max()?;
        let changed = durable_fs::changed(&self.dir("sent").join(last))?;
        Some(now.since(changed))
    }
}
