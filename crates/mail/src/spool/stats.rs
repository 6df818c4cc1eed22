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
    /// Of those, due.
    pub due: usize,
    /// How long the oldest of those has been due.
    pub oldest_due: Duration,
    /// In senders' hands.
    pub sending: usize,
    /// Never to be sent.
    pub failed: usize,
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
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            warning: 100,
            critical: 1_000,
            warning_age: Duration::from_secs(15 * 60),
            critical_age: Duration::from_secs(60 * 60),
        }
    }
}

impl SpoolStats {
    /// How well it is.
    pub fn health(&self, thresholds: &Thresholds) -> Health {
        let Thresholds { warning, critical, warning_age, critical_age } = *thresholds;
        match (self.due, self.oldest_due) {
            (due, age) if due > critical || age > critical_age => Health::Critical,
            (due, age) if due > warning || age > warning_age => Health::Warning,
            _ => Health::Good,
        }
    }
}

impl Spool {
    /// How it stands.
    pub fn stats(&self, now: Timestamp) -> Result<SpoolStats, SpoolError> {
        let pending = self.names(State::Pending)?;
        let due = || pending.iter().filter(|name| name.due <= now).map(|name| name.due);
        let mut sent = BTreeMap::new();
        for day in disk::names(&self.within("sent"))? {
            let count = disk::names(&self.within("sent").join(&day))?.len();
            sent.insert(day, count);
        }
        Ok(SpoolStats {
            pending: pending.len(),
            due: due().count(),
            oldest_due: due().min().map_or(Duration::ZERO, |due| now.since(due)),
            sending: self.names(State::Sending)?.len(),
            failed: self.names(State::Failed)?.len(),
            sent,
        })
    }
}
