//! Deadline and cancellation of a statement.

use std::time::{Duration, Instant};

use super::error::{DbError, Reason};
use crate::call::PoolCall;

/// Interval between two checks for cancellation.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A statement is stopped this much before its call's deadline, so that the caller gets the reason
/// and the connection stays usable: a tenth of the remaining time, at most 250 ms.
const MARGIN: (u32, Duration) = (10, Duration::from_millis(250));

/// How long a statement that was asked to stop may take to do so; then the connection is dropped.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const STOP_GRACE: Duration = Duration::from_secs(5);

/// The deadline of a call, and its cancellation.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    call: Option<PoolCall>,
    until: Option<Instant>,
}

impl Deadline {
    /// For a call.
    pub(super) fn for_call(call: &PoolCall, now: Instant) -> Self {
        let until = call.deadline().map(|deadline| {
            let left = deadline.saturating_duration_since(now);
            deadline - (left / MARGIN.0).min(MARGIN.1)
        });
        Self { call: Some(call.clone()), until }
    }

    /// For work without a call: a time limit only.
    pub(super) fn until(until: Instant) -> Self {
        Self { call: None, until: Some(until) }
    }

    /// For one statement, which may have its own time limit.
    pub(super) fn with_limit(&self, limit: Option<Duration>) -> Self {
        let own = limit.and_then(|limit| Instant::now().checked_add(limit));
        let until = [self.until, own].into_iter().flatten().min();
        Self { call: self.call.clone(), until }
    }

    /// The remaining time; `None` without a limit.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Why the statement has to be stopped, if it has to.
    pub(super) fn stop_reason(&self) -> Option<DbError> {
        if self.remaining().is_some_and(|left| left.is_zero()) {
            return Some(Self::timeout_error());
        }
        let cancelled = self.call.as_ref().is_some_and(PoolCall::is_cancelled);
        cancelled.then(|| DbError::new(Reason::Cancelled, "cancelled by the caller"))
    }

    /// The error of a statement that took too long.
    pub(super) fn timeout_error() -> DbError {
        DbError::new(Reason::TimeLimit, "stopped: the statement exceeded its time limit").code("57014")
    }

    /// How long to sleep until the next check.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn next_check(&self) -> Duration {
        self.remaining().map_or(CHECK_INTERVAL, |left| left.clamp(Duration::from_millis(1), CHECK_INTERVAL))
    }

    /// Returns when the statement has to be stopped, with the reason.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) async fn wait_for_stop(&self) -> DbError {
        loop {
            match self.stop_reason() {
                Some(reason) => return reason,
                None => tokio::time::sleep(self.next_check()).await,
            }
        }
    }

    /// Runs `work`, and stops it by `stop` at the deadline or on cancellation. Both end in time.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) async fn run_or_stop<T>(
        &self,
        work: impl Future<Output = Result<T, DbError>>,
        stop: impl Future<Output = ()>,
    ) -> Result<T, DbError> {
        futures_util::pin_mut!(work);
        let reason = tokio::select! {
            biased;
            done = &mut work => return done,
            reason = self.wait_for_stop() => reason,
        };
        let stopped = async {
            stop.await;
            work.await
        };
        match tokio::time::timeout(STOP_GRACE, stopped).await {
            // It finished at the last moment: that counts.
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) if error.broken => Err(reason.stuck()),
            Ok(Err(_)) => Err(reason),
            Err(_) => Err(reason.stuck()),
        }
    }

    /// Sleeps on this thread. Returns the reason if the statement has to be stopped earlier.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), DbError> {
        let end = Instant::now() + time;
        loop {
            if let Some(reason) = self.stop_reason() {
                return Err(reason);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(CHECK_INTERVAL).min(self.remaining().unwrap_or(CHECK_INTERVAL)));
        }
    }
}
