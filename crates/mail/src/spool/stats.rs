//! How a spool stands, and whether that is well.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::Timestamp;
use serde::Serialize;

use super::error::SpoolError;
use super::{Spool, State, disk};

/// How a spool stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SpoolStats {
    /// To be sent.
    pub pending: usize,
    /// Of those, due: also those that were tried and are to be tried again later.
    pub due: usize,
    /// Of those, put off: by the server, for want of one, or by the rate of their domain.
    pub put_off: usize,
    /// How long the oldest of those has been waiting for a sender: since it was due, or was to be tried again.
    pub oldest_due: Duration,
    /// How long the oldest of those that were put off has been due, all in all.
    pub oldest_put_off: Duration,
    /// How long ago a message was sent last, if one that is known was.
    pub last_sent: Option<Duration>,
    /// In senders' hands.
    pub sending: usize,
    /// Never to be sent.
    pub failed: usize,
    /// Of those, failed in the last 24 hours.
    pub failed_lately: usize,
    /// Taken by the server, by day.
    pub sent: BTreeMap<String, usize>,
}

/// How well a spool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All is well.
    Good,
    /// Somebody should look.
    Warning,
    /// Somebody must look.
    Critical,
}

/// From where on a spool is not well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// More due messages than these are worth a look.
    pub warning: usize,
    /// More than these must be looked at.
    pub critical: usize,
    /// A message that has been due for longer is worth a look.
    pub warning_age: Duration,
    /// One that has been due for longer must be looked at.
    pub critical_age: Duration,
    /// More failures within a day are worth a look.
    pub warning_failed: usize,
    /// More than these must be looked at.
    pub critical_failed: usize,
}

/// Failures older than this were somebody's yesterday.
const LATELY: Duration = Duration::from_secs(24 * 3600);

impl Default for Thresholds {
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
    /// How well it is.
    pub fn health(&self, thresholds: &Thresholds) -> Health {
        let Thresholds { warning, critical, warning_age, critical_age, .. } = *thresholds;
        let (due, age, failed) = (self.due, self.late(), self.failed_lately);
        if due > critical || age > critical_age || failed > thresholds.critical_failed {
            Health::Critical
        } else if due > warning || age > warning_age || failed > thresholds.warning_failed {
            Health::Warning
        } else {
            Health::Good
        }
    }

    /// How late mail is. What was put off counts for as long as nothing at all was sent: a server that is away
    /// is everybody's trouble, a mailbox that is full is not.
    pub fn late(&self) -> Duration {
        let silent = self.last_sent.unwrap_or(Duration::MAX);
        self.oldest_due.max(self.oldest_put_off.min(silent))
    }
}

impl Spool {
    /// How it stands, by names alone: no message is opened, and none is kept in mind.
    pub fn stats(&self, now: Timestamp) -> Result<SpoolStats, SpoolError> {
        let mut stats = SpoolStats::default();
        self.walk(State::Pending, |name| {
            stats.pending += 1;
            stats.due += usize::from(name.wanted() <= now);
            // Zero if it is not yet.
            stats.oldest_due = stats.oldest_due.max(now.since(name.due));
            if let Some(since) = name.since {
                stats.put_off += 1;
                stats.oldest_put_off = stats.oldest_put_off.max(now.since(since));
            }
            Ok(())
        })?;
        self.walk(State::Failed, |name| {
            stats.failed += 1;
            stats.failed_lately += usize::from(now.since(name.due) < LATELY);
            Ok(())
        })?;
        stats.sending = self.names(State::Sending)?.len();
        for day in disk::names(&self.within("sent"))? {
            let mut count = 0;
            disk::walk(&self.within("sent").join(&day), |_| {
                count += 1;
                Ok(())
            })?;
            stats.sent.insert(day, count);
        }
        stats.last_sent = self.last_sent(now);
        Ok(stats)
    }

    /// The folder of a day changes whenever a message comes into it.
    fn last_sent(&self, now: Timestamp) -> Option<Duration> {
        let last = disk::names(&self.within("sent")).ok()?.into_iter().max()?;
        let changed = disk::changed(&self.within("sent").join(last))?;
        Some(now.since(changed))
    }
}
