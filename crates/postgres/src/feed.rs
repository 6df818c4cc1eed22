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

use crate::connect;
use crate::error::{Translate, from_pool};
use crate::lock::Lock;
use crate::lone::Lent;
use crate::param::{Param, typed};
use crate::permits::Hints;

/// One entry to be made in the change feed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicRow {
    pub(crate) topic: &'static str,
    pub(crate) name: String,
    pub(crate) tenant: Option<String>,
}

/// How many changes the feed keeps: enough for a reader that was away for a moment.
pub(crate) const KEPT: i64 = 20_000;
/// Entries that wait to be written at most. More means that the database is away.
const MOST: usize = 10_000;
const CHANNEL: &str = "longshore";
/// Between two words of one process, so that a busy one does not wake everybody all the time.
const BREATH: Duration = Duration::from_millis(5);
/// For how long an entry may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long it is waited for.
const SETTLES: Duration = Duration::from_secs(2);
/// Until an entry that could not be written is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// Until it is tried again whether notices come.
const NOT_YET: Duration = Duration::from_secs(60);

/// This process's end of the feed.
#[derive(Debug)]
pub(crate) struct Feed {
    waiting: Mutex<Waiting>,
    filled: Notify,
    /// Somebody waits for what is to be written.
    hurry: Notify,
    /// Grows when something may have become claimable.
    woke: watch::Sender<u64>,
    /// Grows when anything may have been added to the feed.
    changed: watch::Sender<u64>,
    /// How many rounds of writing are over, against those asked for.
    written: watch::Sender<u64>,
    /// Whether notices arrive.
    listening: watch::Sender<bool>,
    /// Who waits for a permit.
    pub(crate) hints: Hints,
}

#[derive(Debug, Default)]
struct Waiting {
    topics: BTreeSet<TopicRow>,
    woke: bool,
    /// The round that will write what waits now.
    round: u64,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            filled: Notify::new(),
            hurry: Notify::new(),
            woke: watch::Sender::new(1),
            changed: watch::Sender::new(1),
            written: watch::Sender::new(0),
            listening: watch::Sender::new(false),
            hints: Hints::default(),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells this process at once and the others soon.
    pub(crate) fn announce(&self, topics: BTreeSet<TopicRow>, woke: bool) {
        if topics.is_empty() && !woke {
            return;
        }
        self.keep(topics, woke);
        if woke {
            self.woke.send_modify(|count| *count += 1);
        }
        self.filled.notify_one();
    }

    /// Keeps what is to be written in the next round.
    fn keep(&self, topics: BTreeSet<TopicRow>, woke: bool) {
        self.with(|waiting| {
            if waiting.topics.len() < MOST {
                waiting.topics.extend(topics);
            }
            waiting.woke |= woke;
        });
    }

    /// Waits until what was announced so far is written (or could not be), for a while.
    pub(crate) async fn settled(&self) {
        let round = self.with(|waiting| {
            let empty = waiting.topics.is_empty() && !waiting.woke;
            if empty { waiting.round } else { waiting.round + 1 }
        });
        let mut written = self.written.subscribe();
        self.hurry.notify_one();
        // The sender lives as long as `self`; but a writer that is dead, or whose server is away,
        // must not keep anybody from reading what is there.
        let _ = tokio::time::timeout(SETTLES, written.wait_for(|over| *over >= round)).await;
    }

    /// Says that something may have become claimable, as nobody would tell us.
    pub(crate) fn suspect(&self) {
        self.woke.send_modify(|count| *count += 1);
    }

    /// Grows when something may have become claimable.
    pub(crate) fn wakes(&self) -> watch::Receiver<u64> {
        self.woke.subscribe()
    }

    /// Grows when the feed may have grown.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether notices of other processes arrive.
    pub(crate) fn is_listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// Writes what is announced, for ever. Workers are woken at once; entries follow after a moment,
    /// in which the claim that a send led to is not held up by them, and more of them gather.
    pub(crate) async fn write(self: Arc<Self>, pool: Pool) {
        loop {
            self.filled.notified().await;
            loop {
                let woke = self.with(|waiting| std::mem::take(&mut waiting.woke));
                let told = if woke { in_time(notify(&pool, WOKE)).await } else { Ok(()) };
                self.breathe().await;
                let (topics, round) = self.with(|waiting| {
                    waiting.round += 1;
                    (std::mem::take(&mut waiting.topics), waiting.round)
                });
                let nothing = topics.is_empty() && !woke;
                let written = in_time(entry(&pool, &topics)).await;
                if let Err(error) = told.and(written) {
                    tracing::debug!(%error, "the change feed could not be written");
                    self.keep(topics, woke);
                    tokio::time::sleep(AGAIN).await;
                }
                self.changed.send_modify(|count| *count += 1);
                self.written.send_replace(round);
                if nothing {
                    break;
                }
            }
        }
    }

    /// Tells those of other processes that wait for a permit, for ever.
    pub(crate) async fn pass_on(self: Arc<Self>, pool: Pool) {
        self.hints.pass_on(&pool, CHANNEL).await;
    }

    /// Waits a moment, unless somebody waits for what is to be written.
    async fn breathe(&self) {
        // It ended either way.
        let _ = tokio::time::timeout(BREATH, self.hurry.notified()).await;
    }

    /// Hears of others' commits, for ever; connects again whenever it must.
    pub(crate) async fn listen(self: Arc<Self>, address: Address, pool: Pool) {
        let mut pause = Duration::from_millis(100);
        loop {
            let heard = self.listen_once(&address, &pool).await;
            let was_listening = self.listening.send_replace(false);
            match heard {
                // Behind a pooler they never do; or the server was busy.
                Ok(Heard::Nothing) => {
                    tracing::debug!("no notices come through here: polling");
                    pause = NOT_YET;
                }
                Ok(Heard::Lost) | Err(_) if was_listening => pause = Duration::from_millis(100),
                Ok(Heard::Lost) => {}
                Err(error) => tracing::debug!(%error, "cannot listen for changes"),
            }
            tokio::time::sleep(pause).await;
            pause = if pause == NOT_YET { pause } else { (pause * 2).min(Duration::from_secs(5)) };
        }
    }

    async fn listen_once(&self, address: &Address, pool: &Pool) -> Result<Heard> {
        let (client, mut connection) = connect::connect(address).await?;
        let token = SessionId::new().to_string();
        let ask = async {
            client.batch_execute(&format!("LISTEN {CHANNEL}")).await.or_translate()?;
            // Through the pool, as all others' notices will come.
            notify(pool, &token).await
        };
        let mut proof = false;
        let patience = tokio::time::sleep(Duration::from_secs(3));
        tokio::pin!(ask, patience);
        let mut asked = false;
        loop {
            tokio::select! {
                answer = &mut ask, if !asked => { asked = true; answer?; }
                () = &mut patience, if !proof => return Ok(Heard::Nothing),
                message = poll_fn(|cx| connection.poll_message(cx)) => match message {
                    None | Some(Err(_)) => return Ok(Heard::Lost),
                    Some(Ok(AsyncMessage::Notification(notice))) => {
                        if self.hints.hear(notice.payload()) {
                            continue;
                        }
                        if notice.payload() == token {
                            proof = true;
                            self.listening.send_replace(true);
                            // Whatever happened while nobody listened.
                            self.woke.send_modify(|count| *count += 1);
                            self.hints.suspect();
                        } else if notice.payload() == WOKE {
                            self.woke.send_modify(|count| *count += 1);
                        }
                        self.changed.send_modify(|count| *count += 1);
                    }
                    Some(Ok(_)) => {}
                },
            }
        }
    }
}

enum Heard {
    /// The connection was lost.
    Lost,
    /// Our own notice did not come back.
    Nothing,
}

/// Says that something may have become claimable.
const WOKE: &str = "woke";
/// Says that the feed has grown.
const CHANGED: &str = "changed";

/// No entry takes for ever, or none would be made any more.
async fn in_time(entry: impl Future<Output = Result<()>>) -> Result<()> {
    let late = || Error::unavailable("PostgreSQL did not answer in time");
    tokio::time::timeout(PATIENCE, entry).await.map_err(|_| late())?
}

/// Makes the entries of one round, in one statement. It does not wait for the disk, and its lock
/// makes the numbers of the feed come in the order in which they can be seen.
async fn entry(pool: &Pool, topics: &BTreeSet<TopicRow>) -> Result<()> {
    if topics.is_empty() {
        return Ok(());
    }
    let lent = Lent::by(pool).await?;
    let client = lent.client()?;
    let names: Vec<&str> = topics.iter().map(|row| row.name.as_str()).collect();
    let kinds: Vec<&str> = topics.iter().map(|row| row.topic).collect();
    let tenants: Vec<Option<&str>> = topics.iter().map(|row| row.tenant.as_deref()).collect();
    let params: [&dyn Param; 6] =
        [&Lock::Feed.number(), &kinds, &names, &tenants, &CHANNEL, &CHANGED];
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
        && newest % 1000 < i64::try_from(topics.len()).unwrap_or(1000)
    {
        let old = newest - KEPT;
        client
            .execute_typed("DELETE FROM longshore_change WHERE seq <= $1", &typed(&[&old]))
            .await
            .or_translate()?;
    }
    lent.give_back();
    Ok(())
}

async fn notify(pool: &Pool, token: &str) -> Result<()> {
    let client = pool.get().await.map_err(from_pool)?;
    let params: [&dyn Param; 2] = [&CHANNEL, &token];
    client.query_typed("SELECT pg_notify($1, $2)", &typed(&params)).await.or_translate()?;
    Ok(())
}
