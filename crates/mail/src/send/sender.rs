//! Sends the messages of a spool shard.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longshore::{Clock, Timestamp};
use tokio::sync::RwLock;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::Transport;
use super::domain_limiter::{DomainLimiter, DomainRate, WaitClass};
use crate::spool::{
    DeliveryOutcome, DeliveryPolicy, DueMessages, FileName, LeasedMessage, NextState, RecoveryReport, Shard,
    SpoolError, SpooledMessage,
};

/// Settings of a sender.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// Concurrent messages, each on its own connection.
    pub connections: usize,
    /// What to do with messages that were not accepted.
    pub policy: DeliveryPolicy,
    /// Rate limit per recipient domain; none for no limit.
    pub per_domain: Option<DomainRate>,
    /// Maximum number of messages per scan of the spool.
    pub scan_limit: usize,
}

impl Default for SenderSettings {
    fn default() -> Self {
        Self { connections: 8, policy: DeliveryPolicy::default(), per_domain: None, scan_limit: 1_000 }
    }
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendReport {
    /// Accepted by the server.
    pub sent: usize,
    /// To be retried.
    pub retried: usize,
    /// Failed.
    pub failed: usize,
    /// Postponed by the rate limit of their domain.
    pub put_off: usize,
    /// Whether more messages were due at the last scan.
    pub more: bool,
    /// When the next message is due, if none was due at the last scan.
    pub next: Option<Timestamp>,
}

/// Sends the messages of a shard.
pub struct Sender {
    shard: Arc<Shard>,
    carrier: Arc<dyn Transport>,
    settings: SenderSettings,
    clock: Arc<dyn Clock>,
    domains: Mutex<DomainLimiter>,
    /// Whether the last round completed. Otherwise claimed messages may be left in `sending`.
    completed: AtomicBool,
    /// Held shared by each disk operation and exclusively by recovery. The blocking task owns the guard, so
    /// that it keeps the lock even if the caller is dropped.
    disk_lock: Arc<RwLock<()>>,
}

/// The result of one message.
enum MailSendResult {
    Gone,
    Postponed,
    Settled(NextState),
}

/// The due messages of the last scan.
struct DueList {
    names: VecDeque<FileName>,
    more: bool,
    next: Option<Timestamp>,
    scanned_at: Instant,
}

/// Scan interval while a connection is free.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// How long a scan's result is used before the spool is scanned again for more urgent messages.
const MAX_LIST_AGE: Duration = Duration::from_secs(5);

impl DueList {
    fn stale_at(&self) -> Instant {
        match (self.names.is_empty(), self.more) {
            (true, true) => self.scanned_at,
            (true, false) => self.scanned_at + SCAN_INTERVAL,
            (false, _) => self.scanned_at + MAX_LIST_AGE,
        }
    }

    fn is_stale(&self) -> bool {
        self.stale_at() <= Instant::now()
    }
}

impl SendReport {
    fn count(&mut self, result: &MailSendResult) {
        match result {
            MailSendResult::Gone => {}
            MailSendResult::Postponed => self.put_off += 1,
            MailSendResult::Settled(NextState::Sent) => self.sent += 1,
            MailSendResult::Settled(NextState::Pending(_)) => self.retried += 1,
            MailSendResult::Settled(NextState::Failed) => self.failed += 1,
        }
    }
}

impl Sender {
    /// Recovers the shard, and creates the sender.
    pub async fn new(
        shard: Shard,
        carrier: Arc<dyn Transport>,
        settings: SenderSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SpoolError> {
        let domains = Mutex::new(DomainLimiter::new(settings.per_domain));
        let (shard, completed) = (Arc::new(shard), AtomicBool::new(true));
        let disk_lock = Arc::default();
        let sender = Self { shard, carrier, settings, clock, domains, completed, disk_lock };
        sender.recover().await?;
        Ok(sender)
    }

    async fn recover(&self) -> Result<(), SpoolError> {
        let (shard, policy, now) = (Arc::clone(&self.shard), self.settings.policy.clone(), self.clock.now());
        let _all = self.disk_lock.write().await;
        let found = blocking(move || shard.recover(&policy, now)).await?;
        if found != RecoveryReport::default() {
            tracing::info!(?found, "recovered messages of a previous sender");
        }
        Ok(())
    }

    /// Sends all due messages, including messages that become due while any is in flight: a slow reply does
    /// not delay others. `stop` is called before each message. After a spool error no further message is
    /// claimed. If this future is dropped, the next round recovers the messages in flight.
    pub async fn round(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<SendReport, SpoolError> {
        if !self.completed.swap(false, Ordering::SeqCst) {
            self.recover().await?;
        }
        let report = self.send_due(stop).await?;
        self.completed.store(true, Ordering::SeqCst);
        Ok(report)
    }

    async fn send_due(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<SendReport, SpoolError> {
        let limit = self.settings.connections.max(1);
        let mut list = self.scan().await?;
        let (mut report, mut first_error) = (SendReport::default(), None);
        let mut in_flight = FuturesUnordered::new();
        loop {
            if first_error.is_none() && !in_flight.is_empty() && list.is_stale() && !stop() {
                match self.scan().await {
                    Ok(newer) => list = newer,
                    Err(error) => first_error = Some(error),
                }
            }
            // After a spool error (such as a full disk) claim no more: the server would be offered each
            // message in vain.
            while first_error.is_none()
                && in_flight.len() < limit
                && !stop()
                && let Some(name) = list.names.pop_front()
            {
                in_flight.push(self.send(name));
            }
            if in_flight.is_empty() {
                break;
            }
            let room = first_error.is_none() && in_flight.len() < limit && !stop();
            let result = match room {
                true => timeout_at(list.stale_at(), in_flight.next()).await,
                false => Ok(in_flight.next().await),
            };
            match result {
                // The scan is stale: scan again.
                Err(_) | Ok(None) => {}
                Ok(Some(Ok(result))) => report.count(&result),
                // Let the messages in flight complete first.
                Ok(Some(Err(error))) => first_error = first_error.or(Some(error)),
            }
        }
        (report.more, report.next) = (list.more || !list.names.is_empty(), list.next);
        first_error.map_or(Ok(report), Err)
    }

    async fn scan(&self) -> Result<DueList, SpoolError> {
        let (shard, now, limit) = (Arc::clone(&self.shard), self.clock.now(), self.settings.scan_limit);
        let due = blocking(move || {
            // Writers may crash at any time, not only before a sender starts.
            shard.spool().move_committed(now)?;
            shard.due(now, limit)
        });
        let DueMessages { names, more, next } = due.await?;
        Ok(DueList { names: names.into(), more, next, scanned_at: Instant::now() })
    }

    async fn send(&self, name: FileName) -> Result<MailSendResult, SpoolError> {
        let (shard, due) = (Arc::clone(&self.shard), name.due);
        let Some(leased) = self.on_disk(move || shard.claim(&name)).await? else {
            return Ok(MailSendResult::Gone);
        };
        if let Some(until) = self.postpone_until(leased.message(), due) {
            return self.on_disk(move || leased.postpone(until)).await.map(|()| MailSendResult::Postponed);
        }
        let next = match self.carrier.begin(leased.message()).await {
            Err(outcome) => self.settle(leased, outcome).await?,
            Ok(mut transaction) => {
                let (mut leased, policy, now) = (leased, self.settings.policy.clone(), self.clock.now());
                let leased = self.on_disk(move || leased.record_data(&policy, now).map(|()| leased)).await?;
                let outcome = transaction.send_data(leased.message()).await;
                let next = self.settle(leased, outcome).await?;
                transaction.close().await;
                next
            }
        };
        Ok(MailSendResult::Settled(next))
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, SpoolError> {
        let guard = Arc::clone(&self.disk_lock).read_owned().await;
        // The shard's locks must outlive this operation, even if the caller is dropped.
        let shard = Arc::clone(&self.shard);
        let work = move || {
            let result = work();
            drop((guard, shard));
            result
        };
        blocking(work).await
    }

    /// The time to postpone a message to, by its domains' limits. A message that is due later than originally
    /// was postponed before.
    fn postpone_until(&self, message: &SpooledMessage, due: Timestamp) -> Option<Timestamp> {
        let class = match due > message.name.due {
            true => WaitClass::Postponed,
            false => WaitClass::New(message.name.priority),
        };
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        domains.reserve(&message.remaining(), class, self.clock.now())
    }

    async fn settle(&self, leased: LeasedMessage, outcome: DeliveryOutcome) -> Result<NextState, SpoolError> {
        let (policy, now) = (self.settings.policy.clone(), self.clock.now());
        let (key, result) = (leased.message().name.key.clone(), format!("{outcome:?}"));
        let next = self.on_disk(move || leased.settle(outcome, &policy, now)).await?;
        match next {
            NextState::Sent => tracing::debug!(%key, "sent"),
            NextState::Pending(due) => tracing::warn!(%key, %due, "message deferred: {result}"),
            NextState::Failed => tracing::error!(%key, "message failed: {result}"),
        }
        Ok(next)
    }
}

/// Runs disk operations outside of the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    match spawn_blocking(work).await {
        Ok(result) => result,
        // Panics are propagated: they are handled in one place only.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Sums up rounds.
impl std::ops::AddAssign<&Self> for SendReport {
    fn add_assign(&mut self, round: &Self) {
        self.sent += round.sent;
        self.retried += round.retried;
        self.failed += round.failed;
        self.put_off += round.put_off;
        (self.more, self.next) = (round.more, round.next);
    }
}
