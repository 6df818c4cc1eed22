//! Whoever empties a spool.

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

use super::Carrier;
use super::rate::{DomainRate, Domains, Line};
use crate::spool::{
    Due, FileName, Held, Message, Outcome, Policy, Recovered, Shard, SpoolError, Verdict,
};

/// How a sender works.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// Messages under way at once; as many connections.
    pub connections: usize,
    /// What becomes of messages that were not taken.
    pub policy: Policy,
    /// How much goes to one domain; none for as much as there is.
    pub per_domain: Option<DomainRate>,
    /// Messages that are put on the list at one look.
    pub round: usize,
}

impl Default for SenderSettings {
    fn default() -> Self {
        Self { connections: 8, policy: Policy::default(), per_domain: None, round: 1_000 }
    }
}

/// What a round came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sent {
    /// Taken by the server.
    pub sent: usize,
    /// To be tried again.
    pub again: usize,
    /// Failed.
    pub failed: usize,
    /// Put off since their domain had its share.
    pub put_off: usize,
    /// Whether more was due at the last look.
    pub more: bool,
    /// When the next message is due, if none was then.
    pub next: Option<Timestamp>,
}

/// Sends the messages of a shard.
pub struct Sender {
    shard: Arc<Shard>,
    carrier: Arc<dyn Carrier>,
    settings: SenderSettings,
    clock: Arc<dyn Clock>,
    domains: Mutex<Domains>,
    /// Whether the last round came to its end: else something may be left in our own hands.
    whole: AtomicBool,
    /// Held by whatever is at the disk: that goes on when whoever waits for it is dropped.
    hands: Arc<RwLock<()>>,
}

/// What became of one message.
enum End {
    Gone,
    PutOff,
    Settled(Verdict),
}

/// What is due, as it was when somebody looked.
struct List {
    names: VecDeque<FileName>,
    more: bool,
    next: Option<Timestamp>,
    looked: Instant,
}

/// How soon a new message is seen by a sender that has a hand free.
const LOOK: Duration = Duration::from_millis(500);
/// How long a list is gone through before somebody looks whether anything more urgent has come.
const LIST: Duration = Duration::from_secs(5);

impl List {
    fn old_at(&self) -> Instant {
        match (self.names.is_empty(), self.more) {
            (true, true) => self.looked,
            (true, false) => self.looked + LOOK,
            (false, _) => self.looked + LIST,
        }
    }

    fn is_old(&self) -> bool {
        self.old_at() <= Instant::now()
    }
}

impl Sent {
    fn count(&mut self, end: &End) {
        match end {
            End::Gone => {}
            End::PutOff => self.put_off += 1,
            End::Settled(Verdict::Sent) => self.sent += 1,
            End::Settled(Verdict::Again(_)) => self.again += 1,
            End::Settled(Verdict::Failed) => self.failed += 1,
        }
    }
}

impl Sender {
    /// Puts right what was left behind, and begins.
    pub async fn new(
        shard: Shard,
        carrier: Arc<dyn Carrier>,
        settings: SenderSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SpoolError> {
        let domains = Mutex::new(Domains::new(settings.per_domain));
        let (shard, whole) = (Arc::new(shard), AtomicBool::new(true));
        let hands = Arc::default();
        let sender = Self { shard, carrier, settings, clock, domains, whole, hands };
        sender.recover().await?;
        Ok(sender)
    }

    async fn recover(&self) -> Result<(), SpoolError> {
        let (shard, policy, now) =
            (Arc::clone(&self.shard), self.settings.policy.clone(), self.clock.now());
        let _all = self.hands.write().await;
        let found = blocking(move || shard.recover(&policy, now)).await?;
        if found != Recovered::default() {
            tracing::info!(?found, "left behind");
        }
        Ok(())
    }

    /// Sends what is due, and what falls due while any of it is in hand: one slow answer holds up nobody else.
    /// `stop` is asked before each message; after trouble with the spool none is taken either. Whoever drops
    /// this leaves messages in hand that the next round finds.
    pub async fn round(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Sent, SpoolError> {
        if !self.whole.swap(false, Ordering::SeqCst) {
            self.recover().await?;
        }
        let report = self.send_due(stop).await?;
        self.whole.store(true, Ordering::SeqCst);
        Ok(report)
    }

    async fn send_due(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Sent, SpoolError> {
        let most = self.settings.connections.max(1);
        let mut list = self.look().await?;
        let (mut report, mut trouble) = (Sent::default(), None);
        let mut ends = FuturesUnordered::new();
        loop {
            if trouble.is_none() && !ends.is_empty() && list.is_old() && !stop() {
                match self.look().await {
                    Ok(newer) => list = newer,
                    Err(error) => trouble = Some(error),
                }
            }
            // A disk that is full stays so: whoever went on would offer the server each message in vain.
            while trouble.is_none()
                && ends.len() < most
                && !stop()
                && let Some(name) = list.names.pop_front()
            {
                ends.push(self.send(name));
            }
            if ends.is_empty() {
                break;
            }
            let room = trouble.is_none() && ends.len() < most && !stop();
            let end = match room {
                true => timeout_at(list.old_at(), ends.next()).await,
                false => Ok(ends.next().await),
            };
            match end {
                // It is time to look again.
                Err(_) | Ok(None) => {}
                Ok(Some(Ok(end))) => report.count(&end),
                // Others are under way, and come to their ends first.
                Ok(Some(Err(error))) => trouble = trouble.or(Some(error)),
            }
        }
        (report.more, report.next) = (list.more || !list.names.is_empty(), list.next);
        trouble.map_or(Ok(report), Err)
    }

    async fn look(&self) -> Result<List, SpoolError> {
        let (shard, now, most) = (Arc::clone(&self.shard), self.clock.now(), self.settings.round);
        let due = blocking(move || {
            // Writers may die at any time, not only before we begin.
            shard.spool().deliver_promised(now)?;
            shard.due(now, most)
        });
        let Due { names, more, next } = due.await?;
        Ok(List { names: names.into(), more, next, looked: Instant::now() })
    }

    async fn send(&self, name: FileName) -> Result<End, SpoolError> {
        let (shard, due) = (Arc::clone(&self.shard), name.due);
        let Some(held) = self.at_disk(move || shard.take(&name)).await? else {
            return Ok(End::Gone);
        };
        if let Some(until) = self.wait(held.message(), due) {
            return self.at_disk(move || held.put_off(until)).await.map(|()| End::PutOff);
        }
        let (held, outcome) = match self.carrier.offer(held.message()).await {
            Err(outcome) => (held, outcome),
            Ok(offered) => {
                let (mut held, policy, now) =
                    (held, self.settings.policy.clone(), self.clock.now());
                let held =
                    self.at_disk(move || held.hands_over(&policy, now).map(|()| held)).await?;
                let outcome = offered.hand_over(held.message()).await;
                (held, outcome)
            }
        };
        self.settle(held, outcome).await.map(End::Settled)
    }

    async fn at_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, SpoolError> {
        let hand = Arc::clone(&self.hands).read_owned().await;
        // Its locks stay until this is done, also if nobody waits for it any more.
        let shard = Arc::clone(&self.shard);
        let work = move || {
            let result = work();
            drop((hand, shard));
            result
        };
        blocking(work).await
    }

    /// Until when its domains have it wait. One that is due later than it was at first has waited before.
    fn wait(&self, message: &Message, due: Timestamp) -> Option<Timestamp> {
        let line = match due > message.name.due {
            true => Line::Back,
            false => Line::New(message.name.priority),
        };
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        domains.wait(&message.left(), line, self.clock.now())
    }

    async fn settle(&self, held: Held, outcome: Outcome) -> Result<Verdict, SpoolError> {
        let (policy, now) = (self.settings.policy.clone(), self.clock.now());
        let (key, told) = (held.message().name.key.clone(), format!("{outcome:?}"));
        let verdict = self.at_disk(move || held.settle(outcome, &policy, now)).await?;
        match verdict {
            Verdict::Sent => tracing::debug!(%key, "sent"),
            Verdict::Again(due) => tracing::warn!(%key, %due, "{told}"),
            Verdict::Failed => tracing::error!(%key, "{told}"),
        }
        Ok(verdict)
    }
}

/// Disks may keep us waiting; others go on meanwhile.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    match spawn_blocking(work).await {
        Ok(result) => result,
        // It panicked, and so do we: there is one place that knows about panics, and it is not here.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Adds up rounds.
impl std::ops::AddAssign<&Self> for Sent {
    fn add_assign(&mut self, round: &Self) {
        self.sent += round.sent;
        self.again += round.again;
        self.failed += round.failed;
        self.put_off += round.put_off;
        (self.more, self.next) = (round.more, round.next);
    }
}
