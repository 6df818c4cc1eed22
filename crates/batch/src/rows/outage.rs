//! Notices that a database is unavailable, and spares it.
//!
//! During an outage one call at a time tries the database, with a growing delay between two tries. The others wait
//! up to a second for its return and then fail without a try, so that rows are put off slowly instead of running
//! through the queue in vain. An outage is one line in the log and one alert, however many rows it meets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{AlertSink, Backoff, Effect, ServiceAlert, SqlValue};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Candidate, DatabaseFingerprint, PriorityPass, Row, RowSource, SourceError, StatementInfo};
use crate::definition::Candidates;
use crate::throttled_log::{self, Throttle};

/// How long a call waits for the end of an outage before it fails.
const MAX_HOLD: Duration = Duration::from_secs(1);
/// Delays between two tries of an unavailable database.
const PROBE_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// A database that is watched for outages.
pub(super) struct WatchedRows {
    source: Arc<dyn RowSource>,
    alerts: Arc<dyn AlertSink>,
    state: Mutex<WatchState>,
    /// Notified at the end of an outage.
    returned: Notify,
}

#[derive(Default)]
struct WatchState {
    outage: Option<Outage>,
    /// One line and one alert for outages that follow each other.
    throttle: Throttle,
}

struct Outage {
    began: Instant,
    message: String,
    backoff: Backoff,
    next_probe: Instant,
    /// Calls that failed.
    calls: u64,
    /// Whether a message was written.
    reported: bool,
}

/// What a call may do.
enum Gate {
    Open,
    Closed { until: Instant, message: String },
}

impl WatchedRows {
    pub(super) fn new(source: Arc<dyn RowSource>, alerts: Arc<dyn AlertSink>) -> Self {
        Self { source, alerts, state: Mutex::default(), returned: Notify::new() }
    }

    /// Runs a call unless the database is unavailable.
    async fn watch<T>(
        &self,
        call: impl Future<Output = Result<T, SourceError>> + Send,
    ) -> Result<T, SourceError> {
        self.pass().await?;
        let answer = call.await;
        match &answer {
            Err(SourceError::Unavailable(message)) => {
                if let Some(alert) = self.fail(message) {
                    self.alerts.send_service_alert(&alert).await;
                }
            }
            Err(SourceError::Busy(message)) => {
                self.succeed();
                let cause = "rows wait for a lock in their database, without using an attempt";
                throttled_log::warn(cause, "", message);
            }
            Err(SourceError::TimedOut(message)) => {
                self.succeed();
                throttled_log::warn(
                    "a statement of the rows' database took too long; its row waits",
                    "",
                    message,
                );
            }
            Err(error @ SourceError::WrongDatabase { .. }) => {
                self.succeed();
                report_unusable(error);
            }
            Ok(_) | Err(_) => self.succeed(),
        }
        answer
    }

    /// Waits during an outage, up to [`MAX_HOLD`].
    async fn pass(&self) -> Result<(), SourceError> {
        let give_up = Instant::now() + MAX_HOLD;
        loop {
            let returned = self.returned.notified();
            let Gate::Closed { until, message } = self.gate() else { return Ok(()) };
            let now = Instant::now();
            if now >= give_up {
                return Err(SourceError::Unavailable(message));
            }
            let _ = timeout_at(until.max(now + Duration::from_millis(1)).min(give_up), returned).await;
        }
    }

    /// Whether a call may try the database. A try during an outage postpones the next.
    fn gate(&self) -> Gate {
        let mut state = self.lock();
        let Some(outage) = &mut state.outage else { return Gate::Open };
        let now = Instant::now();
        if now < outage.next_probe {
            return Gate::Closed { until: outage.next_probe, message: outage.message.clone() };
        }
        outage.next_probe = now + outage.backoff.next_wait();
        Gate::Open
    }

    /// Records a failed call. Returns the alert if one is due.
    fn fail(&self, message: &str) -> Option<ServiceAlert> {
        let mut state = self.lock();
        if let Some(outage) = &mut state.outage {
            outage.calls += 1;
            message.clone_into(&mut outage.message);
            return None;
        }
        let began = Instant::now();
        let reported = state.throttle.admit("outage", began).is_some();
        let mut backoff = Backoff::new(PROBE_DELAY.0, PROBE_DELAY.1);
        let next_probe = began + backoff.next_wait();
        let text = format!("the rows' database is unavailable: {message}; rows wait and use no attempt");
        state.outage =
            Some(Outage { began, message: message.to_owned(), backoff, next_probe, calls: 1, reported });
        reported.then_some(ServiceAlert { service: "batch", message: text })
    }

    /// Ends the outage, if there is one.
    fn succeed(&self) {
        let ended = self.lock().outage.take();
        let Some(outage) = ended else { return };
        self.returned.notify_waiters();
        if outage.reported {
            let (seconds, calls) = (outage.began.elapsed().as_secs_f64(), outage.calls);
            tracing::info!("the rows' database is back after {seconds:.1} s; {calls} calls had failed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs that a database cannot be used until an operator mends something.
pub(super) fn report_unusable(error: &SourceError) {
    throttled_log::warn(
        "the rows' database cannot be used; rows wait for it and use no attempt",
        error,
        error,
    );
}

#[async_trait]
impl RowSource for WatchedRows {
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
        // Of checks: no row waits for it.
        self.source.describe(sql).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        self.watch(self.source.count(candidates)).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        self.watch(self.source.candidates(candidates, from, limit)).await
    }

    fn in_pass(&self, candidates: &Candidates, pass: PriorityPass) -> Option<Candidates> {
        self.source.in_pass(candidates, pass)
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        self.watch(self.source.fetch(sql, params)).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        self.watch(self.source.apply(effects)).await
    }

    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        self.watch(self.source.fingerprint()).await
    }

    fn retry_delay(&self) -> Duration {
        let state = self.lock();
        let until_probe = state.outage.as_ref().map(|outage| outage.next_probe - Instant::now());
        until_probe.unwrap_or_default().max(self.source.retry_delay())
    }
}
