//! The change feed and wake-ups: what others hear, after the commit it speaks of.
//!
//! Commits leave what they have to say here; one task per process writes it, coalesced: whatever
//! gathered while the last entry was written goes into the next. A `NOTIFY` inside the commits
//! themselves would make all commits of the database wait for one lock, which a foreign one may hold
//! for long. One more task listens.
//! Both are hints: what is lost with a killed process is found by polling.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::poll_fn;
use longshore_core::{Error, Result, SessionId};
use longshore_postgres_address::Address;
use longshore_postgres_address::Pool;
use tokio::sync::{Notify, watch};
use tokio_postgres::AsyncMessage;

use crate::advisory_lock::AdvisoryLock;
use crate::connect;
use crate::error::{Translate, from_pool};
use crate::permits::PermitWakeups;
use crate::single_statement::ConnGuard;
use crate::typed_params::{Param, typed};

/// One entry to be made in the change feed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FeedEntry {
    pub(crate) topic: &'static str,
    pub(crate) name: String,
    pub(crate) tenant: Option<String>,
}

/// How many changes the feed keeps: enough for a reader that was away for a moment.
pub(crate) const MAX_FEED_ENTRIES: i64 = 20_000;
/// Entries that wait to be written at most. More means that the database is away.
const MAX_PENDING: usize = 10_000;
const CHANNEL: &str = "longshore";
/// Between two words of one process, so that a busy one does not wake everybody all the time.
const NOTIFY_DEBOUNCE: Duration = Duration::from_millis(5);
/// For how long an entry may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// For how long it is waited for.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Until an entry that could not be written is tried again.
const WRITE_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Until it is tried again whether notices come.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// This process's end of the feed.
#[derive(Debug)]
pub(crate) struct Notifier {
    pending: Mutex<PendingNotices>,
    has_pending: Notify,
    /// Somebody waits for what is to be written.
    flush_now: Notify,
    /// Grows when something may have become claimable.
    wakeups: watch::Sender<u64>,
    /// Grows when anything may have been added to the feed.
    changes: watch::Sender<u64>,
    /// How many rounds of writing are over, against those asked for.
    rounds_written: watch::Sender<u64>,
    /// Whether notices arrive.
    listening: watch::Sender<bool>,
    /// Who waits for a permit.
    pub(crate) permit_wakeups: PermitWakeups,
}

#[derive(Debug, Default)]
struct PendingNotices {
    entries: BTreeSet<FeedEntry>,
    wake_workers: bool,
    /// The round that will write what waits now.
    round: u64,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self {
            pending: Mutex::default(),
            has_pending: Notify::new(),
            flush_now: Notify::new(),
            wakeups: watch::Sender::new(1),
            changes: watch::Sender::new(1),
            rounds_written: watch::Sender::new(0),
            listening: watch::Sender::new(false),
            permit_wakeups: PermitWakeups::default(),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut PendingNotices) -> T) -> T {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells this process at once and the others soon.
    pub(crate) fn announce(&self, entries: BTreeSet<FeedEntry>, wake_workers: bool) {
        if entries.is_empty() && !wake_workers {
            return;
        }
        self.buffer(entries, wake_workers);
        if wake_workers {
            self.wakeups.send_modify(|count| *count += 1);
        }
        self.has_pending.notify_one();
    }

    /// Keeps what is to be written in the next round.
    fn buffer(&self, entries: BTreeSet<FeedEntry>, wake_workers: bool) {
        self.with(|pending| {
            if pending.entries.len() < MAX_PENDING {
                pending.entries.extend(entries);
            }
            pending.wake_workers |= wake_workers;
        });
    }

    /// Waits until what was announced so far is written (or could not be), for a while.
    pub(crate) async fn flush(&self) {
        let round = self.with(|pending| {
            let empty = pending.entries.is_empty() && !pending.wake_workers;
            if empty { pending.round } else { pending.round + 1 }
        });
        let mut rounds_written = self.rounds_written.subscribe();
        self.flush_now.notify_one();
        // The sender lives as long as `self`; but a writer that is dead, or whose server is away,
        // must not keep anybody from reading what is there.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, rounds_written.wait_for(|over| *over >= round))
            .await;
    }

    /// Says that something may have become claimable, as nobody would tell us.
    pub(crate) fn wake_workers(&self) {
        self.wakeups.send_modify(|count| *count += 1);
    }

    /// Grows when something may have become claimable.
    pub(crate) fn subscribe_wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    /// Grows when the feed may have grown.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether notices of other processes arrive.
    pub(crate) fn is_listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// Writes what is announced, for ever. Workers are woken at once; entries follow after a moment,
    /// in which the claim that a send led to is not held up by them, and more of them gather.
    pub(crate) async fn run_writer(self: Arc<Self>, pool: Pool) {
        loop {
            self.has_pending.notified().await;
            loop {
                let wake_workers = self.with(|pending| std::mem::take(&mut pending.wake_workers));
                let notified = if wake_workers {
                    with_timeout(notify(&pool, WAKE_WORKERS)).await
                } else {
                    Ok(())
                };
                self.debounce().await;
                let (entries, round) = self.with(|pending| {
                    pending.round += 1;
                    (std::mem::take(&mut pending.entries), pending.round)
                });
                let nothing = entries.is_empty() && !wake_workers;
                let rounds_written = with_timeout(write_entries(&pool, &entries)).await;
                if let Err(error) = notified.and(rounds_written) {
                    tracing::debug!(%error, "the change feed could not be written");
                    self.buffer(entries, wake_workers);
                    tokio::time::sleep(WRITE_RETRY_DELAY).await;
                }
                self.changes.send_modify(|count| *count += 1);
                self.rounds_written.send_replace(round);
                if nothing {
                    break;
                }
            }
        }
    }

    /// Tells those of other processes that wait for a permit, for ever.
    pub(crate) async fn run_permit_sender(self: Arc<Self>, pool: Pool) {
        self.permit_wakeups.run_sender(&pool, CHANNEL).await;
    }

    /// Waits a moment, unless somebody waits for what is to be written.
    async fn debounce(&self) {
        // It ended either way.
        let _ = tokio::time::timeout(NOTIFY_DEBOUNCE, self.flush_now.notified()).await;
    }

    /// Hears of others' commits, for ever; connects again whenever it must.
    pub(crate) async fn run_listener(self: Arc<Self>, address: Address, pool: Pool) {
        let mut delay = Duration::from_millis(100);
        loop {
            let end = self.listen_until_lost(&address, &pool).await;
            let was_listening = self.listening.send_replace(false);
            match end {
                // Behind a pooler they never do; or the server was busy.
                Ok(ListenEnd::NoNotifications) => {
                    tracing::debug!("no notices come through here: polling");
                    delay = PROBE_INTERVAL;
                }
                Ok(ListenEnd::ConnectionLost) | Err(_) if was_listening => {
                    delay = Duration::from_millis(100)
                }
                Ok(ListenEnd::ConnectionLost) => {}
                Err(error) => tracing::debug!(%error, "cannot listen for changes"),
            }
            tokio::time::sleep(delay).await;
            delay = if delay == PROBE_INTERVAL {
                delay
            } else {
                (delay * 2).min(Duration::from_secs(5))
            };
        }
    }

    async fn listen_until_lost(&self, address: &Address, pool: &Pool) -> Result<ListenEnd> {
        let (client, mut connection) = connect::connect(address).await?;
        let payload = SessionId::new().to_string();
        let send_probe = async {
            client.batch_execute(&format!("LISTEN {CHANNEL}")).await.or_translate()?;
            // Through the pool, as all others' notices will come.
            notify(pool, &payload).await
        };
        let mut probe_received = false;
        let timeout = tokio::time::sleep(Duration::from_secs(3));
        tokio::pin!(send_probe, timeout);
        let mut probe_sent = false;
        loop {
            tokio::select! {
                answer = &mut send_probe, if !probe_sent => { probe_sent = true; answer?; }
                () = &mut timeout, if !probe_received => return Ok(ListenEnd::NoNotifications),
                message = poll_fn(|cx| connection.poll_message(cx)) => match message {
                    None | Some(Err(_)) => return Ok(ListenEnd::ConnectionLost),
                    Some(Ok(AsyncMessage::Notification(notice))) => {
                        if self.permit_wakeups.on_notification(notice.payload()) {
                            continue;
                        }
                        if notice.payload() == payload {
                            probe_received = true;
                            self.listening.send_replace(true);
                            // Whatever happened while nobody listened.
                            self.wakeups.send_modify(|count| *count += 1);
                            self.permit_wakeups.wake_all();
                        } else if notice.payload() == WAKE_WORKERS {
                            self.wakeups.send_modify(|count| *count += 1);
                        }
                        self.changes.send_modify(|count| *count += 1);
                    }
                    Some(Ok(_)) => {}
                },
            }
        }
    }
}

enum ListenEnd {
    /// The connection was lost.
    ConnectionLost,
    /// Our own notice did not come back.
    NoNotifications,
}

/// Says that something may have become claimable.
const WAKE_WORKERS: &str = "woke";
/// Says that the feed has grown.
const FEED_CHANGED: &str = "changed";

/// No entry takes for ever, or none would be made any more.
async fn with_timeout(entry: impl Future<Output = Result<()>>) -> Result<()> {
    let late = || Error::unavailable("PostgreSQL did not answer in time");
    tokio::time::timeout(WRITE_TIMEOUT, entry).await.map_err(|_| late())?
}

/// Makes the entries of one round, in one statement. It does not wait for the disk, and its lock
/// makes the numbers of the feed come in the order in which they can be seen.
async fn write_entries(pool: &Pool, entries: &BTreeSet<FeedEntry>) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let guard = ConnGuard::acquire(pool).await?;
    let client = guard.client()?;
    let names: Vec<&str> = entries.iter().map(|row| row.name.as_str()).collect();
    let kinds: Vec<&str> = entries.iter().map(|row| row.topic).collect();
    let tenants: Vec<Option<&str>> = entries.iter().map(|row| row.tenant.as_deref()).collect();
    let params: [&dyn Param; 6] =
        [&AdvisoryLock::ChangeFeed.key(), &kinds, &names, &tenants, &CHANNEL, &FEED_CHANGED];
    let rows = client
        .query_typed(
            "WITH first AS MATERIALIZED (
               SELECT set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock($1)),
             made AS (
               INSERT INTO longshore_change (topic, name, tenant)
               SELECT t.topic, t.name, t.tenant
               FROM first, unnest($2, $3, $4) AS t (topic, name, tenant) RETURNING seq)
             SELECT pg_notify($5, $6), (SELECT max(seq) FROM made) FROM first",
            &typed(&params),
        )
        .await
        .or_translate()?;
    let newest: Option<i64> = rows.first().and_then(|row| row.get(1));
    // Now and then, by whoever comes across a round number.
    if let Some(newest) = newest
        && newest % 1000 < i64::try_from(entries.len()).unwrap_or(1000)
    {
        let old = newest - MAX_FEED_ENTRIES;
        client
            .execute_typed("DELETE FROM longshore_change WHERE seq <= $1", &typed(&[&old]))
            .await
            .or_translate()?;
    }
    guard.release();
    Ok(())
}

async fn notify(pool: &Pool, payload: &str) -> Result<()> {
    let client = pool.get().await.map_err(from_pool)?;
    let params: [&dyn Param; 2] = [&CHANNEL, &payload];
    client.query_typed("SELECT pg_notify($1, $2)", &typed(&params)).await.or_translate()?;
    Ok(())
}
