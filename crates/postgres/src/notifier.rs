//! The change feed and the wake-ups of workers, both sent after the commit that they announce.
//!
//! Commits add their entries here, and one task per process writes them: entries that arrive while
//! a write is in flight go together into the next. `NOTIFY` inside the commits would serialise all
//! commits of the database behind one lock, which another transaction may hold for long. A second
//! task listens.
//!
//! Both are hints: if a process is killed before it sends them, readers find the changes by
//! polling.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::poll_fn;
use longshore_core::{DoublingDelay, Error, Result, SessionId};
use longshore_postgres_url::Pool;
use longshore_postgres_url::PostgresUrl;
use tokio::sync::{Notify, watch};
use tokio_postgres::{AsyncMessage, Client};

use crate::advisory_lock::AdvisoryLock;
use crate::connect;
use crate::error::{Translate, translate};
use crate::permits::PermitWakeups;
use crate::single_statement::ConnGuard;
use crate::timeline::NewestTimeline;
use crate::typed_params::{SqlParam, typed};

/// An entry of the change feed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FeedEntry {
    pub(crate) topic: &'static str,
    pub(crate) name: String,
    pub(crate) tenant: Option<String>,
}

/// Entries kept in the feed: enough for a reader that was disconnected for a moment.
pub(crate) const MAX_FEED_ENTRIES: i64 = 20_000;
/// Entries waiting to be written. Beyond this the database is unavailable, and further entries are
/// dropped.
const MAX_PENDING: usize = 10_000;
const CHANNEL: &str = "longshore";
/// Pause between two writes of one process, so that a busy process does not wake all others
/// continuously.
const NOTIFY_DEBOUNCE: Duration = Duration::from_millis(5);
/// Time limit of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a reader waits for pending entries to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before a failed write is repeated.
const WRITE_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Pause between two pings of the listening connection, and their time limit. TCP alone does not notice a proxy that has
/// lost its server.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for sending a probe, and then for its arrival.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between probes for notifications where none arrive.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Writes and receives notifications for this process.
#[derive(Debug)]
pub(crate) struct Notifier {
    pending: Mutex<PendingNotices>,
    has_pending: Notify,
    /// A reader waits for pending entries: skip the debounce.
    flush_now: Notify,
    /// Incremented when units may have become claimable.
    wakeups: watch::Sender<u64>,
    /// Incremented when entries may have been added to the feed.
    changes: watch::Sender<u64>,
    /// The last round of writing that is complete.
    rounds_written: watch::Sender<u64>,
    /// Whether notifications arrive.
    listening: watch::Sender<bool>,
    /// Requests of this process that wait for a permit.
    pub(crate) permit_wakeups: PermitWakeups,
}

#[derive(Debug, Default)]
struct PendingNotices {
    entries: BTreeSet<FeedEntry>,
    wake_workers: bool,
    /// The last round of writing that has begun.
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

    /// Wakes this process's workers at once, and buffers the entries for other processes.
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

    /// Buffers entries for the next round of writing.
    fn buffer(&self, entries: BTreeSet<FeedEntry>, wake_workers: bool) {
        self.with(|pending| {
            if pending.entries.len() < MAX_PENDING {
                pending.entries.extend(entries);
            }
            pending.wake_workers |= wake_workers;
        });
    }

    /// Waits until the pending entries are written, or the write failed, for at most
    /// [`FLUSH_TIMEOUT`].
    pub(crate) async fn flush(&self) {
        let round = self.with(|pending| {
            let empty = pending.entries.is_empty() && !pending.wake_workers;
            if empty { pending.round } else { pending.round + 1 }
        });
        let mut rounds_written = self.rounds_written.subscribe();
        self.flush_now.notify_one();
        // The sender lives as long as `self`. But if the writer has ended, or the server is
        // unavailable, the caller reads what is there.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, rounds_written.wait_for(|over| *over >= round)).await;
    }

    /// Wakes this process's workers: units may have become claimable without a notification.
    pub(crate) fn wake_workers(&self) {
        self.wakeups.send_modify(|count| *count += 1);
    }

    /// A counter that is incremented when units may have become claimable.
    pub(crate) fn subscribe_wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    /// A counter that is incremented when the feed may have grown.
    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether notifications of other processes arrive.
    pub(crate) fn is_listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// Writes buffered entries until the store closes. It wakes workers at once. The feed entries
    /// follow after the debounce, so that they do not delay the claims of the woken workers, and
    /// more entries go into one write.
    pub(crate) async fn run_writer(self: Arc<Self>, pool: Pool) {
        loop {
            self.has_pending.notified().await;
            loop {
                let wake_workers = self.with(|pending| std::mem::take(&mut pending.wake_workers));
                let notified =
                    if wake_workers { with_timeout(notify(&pool, WAKE_WORKERS)).await } else { Ok(()) };
                self.debounce().await;
                let (entries, round) = self.with(|pending| {
                    pending.round += 1;
                    (std::mem::take(&mut pending.entries), pending.round)
                });
                let nothing = entries.is_empty() && !wake_workers;
                let written = with_timeout(write_entries(&pool, &entries)).await;
                if let Err(error) = notified.and(written) {
                    tracing::debug!(%error, "cannot write the change feed");
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

    /// Notifies other processes' permit requests until the store closes.
    pub(crate) async fn run_permit_sender(self: Arc<Self>, pool: Pool) {
        self.permit_wakeups.run_sender(&pool, CHANNEL).await;
    }

    /// Waits for the debounce, or until a reader asks for the entries.
    async fn debounce(&self) {
        // A timeout and a request continue alike.
        let _ = tokio::time::timeout(NOTIFY_DEBOUNCE, self.flush_now.notified()).await;
    }

    /// Listens for other processes' notifications until the store closes, and reconnects after
    /// errors.
    pub(crate) async fn run_listener(
        self: Arc<Self>,
        address: PostgresUrl,
        pool: Pool,
        newest: NewestTimeline,
    ) {
        let mut reconnect = DoublingDelay::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut is_polling = false;
        loop {
            let end = self.listen_until_lost(&address, &pool, &newest).await;
            let was_listening = self.listening.send_replace(false);
            match end {
                // Behind a transaction pooler none ever arrive; or the server was too busy.
                Ok(ListenEnd::NoNotifications) => {
                    tracing::debug!("no notifications arrive on this connection: polling");
                    is_polling = true;
                }
                Ok(ListenEnd::ConnectionLost) | Err(_) if was_listening => {
                    is_polling = false;
                    reconnect.reset();
                }
                Ok(ListenEnd::ConnectionLost) => {}
                Err(error) => tracing::debug!(%error, "cannot listen for notifications"),
            }
            let delay = if is_polling { PROBE_INTERVAL } else { reconnect.advance() };
            tokio::time::sleep(delay).await;
        }
    }

    async fn listen_until_lost(
        &self,
        address: &PostgresUrl,
        pool: &Pool,
        newest: &NewestTimeline,
    ) -> Result<ListenEnd> {
        let (client, mut connection) = with_timeout(connect::connect(address)).await?;
        let payload = SessionId::new().to_string();
        let send_probe = async {
            newest.check(&client).await.map_err(Error::unavailable)?;
            client.batch_execute(&format!("LISTEN {CHANNEL}")).await.or_translate()?;
            // Through the pool, as the notifications of other processes come.
            notify(pool, &payload).await
        };
        let late = |_| Error::unavailable("PostgreSQL did not answer in time");
        let send_probe = async { tokio::time::timeout(PROBE_TIMEOUT, send_probe).await.map_err(late)? };
        let ping = ping_until_lost(&client);
        let mut probe_received = false;
        let timeout = tokio::time::sleep(PROBE_TIMEOUT);
        tokio::pin!(send_probe, timeout, ping);
        let mut probe_sent = false;
        loop {
            tokio::select! {
                answer = &mut send_probe, if !probe_sent => {
                    answer?;
                    probe_sent = true;
                    timeout.as_mut().reset(tokio::time::Instant::now() + PROBE_TIMEOUT);
                }
                () = &mut timeout, if probe_sent && !probe_received => return Ok(ListenEnd::NoNotifications),
                error = &mut ping => return Err(error),
                message = poll_fn(|cx| connection.poll_message(cx)) => match message {
                    None | Some(Err(_)) => return Ok(ListenEnd::ConnectionLost),
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        if self.permit_wakeups.on_notification(notification.payload()) {
                            continue;
                        }
                        if notification.payload() == payload {
                            probe_received = true;
                            self.listening.send_replace(true);
                            // Notifications sent before this connection listened were missed.
                            self.wakeups.send_modify(|count| *count += 1);
                            self.permit_wakeups.wake_all();
                        } else if notification.payload() == WAKE_WORKERS {
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

/// Pings the server until it does not answer.
async fn ping_until_lost(client: &Client) -> Error {
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        match tokio::time::timeout(PING_INTERVAL, client.batch_execute("")).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return translate(error),
            Err(_) => return Error::unavailable("the listening connection does not answer"),
        }
    }
}

enum ListenEnd {
    /// The connection was lost.
    ConnectionLost,
    /// Our own notification did not arrive.
    NoNotifications,
}

/// Payload: units may have become claimable.
const WAKE_WORKERS: &str = "woke";
/// Payload: the feed has grown.
const FEED_CHANGED: &str = "changed";

/// Limits the time of one write, so that a blocked write does not block all later ones.
pub(crate) async fn with_timeout<T>(entry: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::unavailable("PostgreSQL did not answer in time");
    tokio::time::timeout(WRITE_TIMEOUT, entry).await.map_err(|_| late())?
}

/// Writes the entries of one round in one statement. The statement does not wait for the disk. Its
/// lock makes the feed's numbers become visible in ascending order.
async fn write_entries(pool: &Pool, entries: &BTreeSet<FeedEntry>) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let guard = ConnGuard::acquire(pool).await?;
    let client = guard.client()?;
    let names: Vec<&str> = entries.iter().map(|row| row.name.as_str()).collect();
    let kinds: Vec<&str> = entries.iter().map(|row| row.topic).collect();
    let tenants: Vec<Option<&str>> = entries.iter().map(|row| row.tenant.as_deref()).collect();
    let params: [&dyn SqlParam; 6] =
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
    // Delete old entries about once per thousand.
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
    let sql = "SELECT pg_notify($1, $2)";
    ConnGuard::acquire(pool).await?.query_and_release(sql, &[&CHANNEL, &payload]).await.map(drop)
}
