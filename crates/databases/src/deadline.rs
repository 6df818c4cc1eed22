//! Deadline and cancellation of a statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{DbError, Reason};

/// Interval between two checks for cancellation.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a statement that was asked to stop may take to do so; then the connection is dropped.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);

/// The deadline of a call, and its cancellation.
#[derive(Clone)]
pub struct Deadline {
    is_cancelled: Arc<dyn Fn() -> bool + Send + Sync>,
    until: Option<Instant>,
}

impl Deadline {
    /// For a call that its caller can cancel.
    pub fn new(until: Option<Instant>, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_cancelled: Arc::new(is_cancelled), until }
    }

    /// For work that is not cancelled: a time limit only.
    pub fn until(until: Instant) -> Self {
        Self::new(Some(until), || false)
    }

    /// For one statement, which may have its own time limit.
    pub fn with_limit(&self, limit: Option<Duration>) -> Self {
        let own = limit.and_then(|limit| Instant::now().checked_add(limit));
        let until = [self.until, own].into_iter().flatten().min();
        Self { is_cancelled: Arc::clone(&self.is_cancelled), until }
    }

    /// The remaining time; `None` without a limit.
    pub fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Why the statement has to be stopped, if it has to.
    pub fn stop_reason(&self) -> Option<DbError> {
        if self.remaining().is_some_and(|left| left.is_zero()) {
            return Some(DbError::timeout());
        }
        (self.is_cancelled)().then(|| DbError::new(Reason::Cancelled, "cancelled by the caller"))
    }

    /// How long to sleep until the next check.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn next_check(&self) -> Duration {
        self.remaining().map_or(CHECK_INTERVAL, |left| left.clamp(Duration::from_millis(1), CHECK_INTERVAL))
    }

    /// Returns when the statement has to be stopped, with the reason.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) async fn wait_for_stop(&self) -> DbError {
        loop {
            match self.stop_reason() {
                Some(reason) => return reason,
                None => tokio::time::sleep(self.next_check()).await,
            }
        }
    }

    /// Runs `work`, and stops it by `stop` at the deadline or on cancellation. Both end in time.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) async fn run_or_stop<T>(
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
    pub fn sleep(&self, time: Duration) -> Result<(), DbError> {
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

impl std::fmt::Debug for Deadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadline").field("until", &self.until).finish_non_exhaustive()
    }
}
