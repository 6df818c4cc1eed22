//! Hints that it is worth asking again: a channel per process, a message per turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use longshore_core::{PermitId, PoolName, SessionId};
use redis::Client;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Who waits in this process, and whether hints come.
#[derive(Debug)]
pub(crate) struct Hints {
    /// The channel's own part.
    client: String,
    waiting: Mutex<Waiting>,
    listening: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    ids: HashMap<(PoolName, PermitId), Place>,
    /// How many there may be before those are looked for who left without a word.
    enough: usize,
}

#[derive(Debug)]
struct Place {
    /// Keeps one hint until somebody waits for it.
    hint: Arc<Notify>,
    /// When the place in the line is lost.
    until: Instant,
}

/// Fewer are not worth looking through.
const FEW: usize = 1024;
/// How often it is made sure that the connection is there.
const PULSE: Duration = Duration::from_secs(5);
/// How long the first who wait wait for the channel.
const SETTLES: Duration = Duration::from_secs(1);

impl Hints {
    pub(crate) fn new() -> Self {
        let client = SessionId::new().to_string();
        Self { client, waiting: Mutex::default(), listening: watch::Sender::new(false) }
    }

    /// What the server tells this process by.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes care that no hint is lost from now on, for as long as the place is good.
    pub(crate) fn expect(&self, pool: &PoolName, id: PermitId, place: Duration) {
        let now = Instant::now();
        self.with(|waiting| {
            if waiting.ids.len() > waiting.enough.max(FEW) {
                waiting.ids.retain(|_, place| place.until > now);
                waiting.enough = waiting.ids.len() * 2;
            }
            let until = now + place;
            let fresh = || Place { hint: Arc::default(), until };
            waiting.ids.entry((pool.clone(), id)).or_insert_with(fresh).until = until;
        });
    }

    /// How many wait, or ask and would.
    pub(crate) fn count(&self) -> usize {
        self.with(|waiting| waiting.ids.len())
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&self, pool: &PoolName, id: PermitId) {
        self.with(|waiting| waiting.ids.remove(&(pool.clone(), id)));
    }

    /// Returns with the next hint, or with one that came since it was expected.
    pub(crate) async fn hinted(&self, pool: &PoolName, id: PermitId) {
        let waiter = (pool.clone(), id);
        let hint = self.with(|waiting| Some(Arc::clone(&waiting.ids.get(&waiter)?.hint)));
        match hint {
            Some(hint) => hint.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until hints come, for a moment: then it is done without.
    pub(crate) async fn settled(&self) {
        let mut listening = self.listening.subscribe();
        let _ = tokio::time::timeout(SETTLES, listening.wait_for(|listening| *listening)).await;
    }

    /// Whether hints come.
    pub(crate) fn is_listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// A message is a pool's name and an id.
    fn tell(&self, message: &str) {
        let Some((pool, id)) = message.split_once(' ') else { return };
        let (Ok(pool), Ok(id)) = (pool.parse(), id.parse()) else { return };
        self.turn_of(pool, id);
    }

    /// It is worth asking again for this one.
    pub(crate) fn turn_of(&self, pool: PoolName, id: PermitId) {
        self.with(|waiting| {
            if let Some(place) = waiting.ids.get(&(pool, id)) {
                place.hint.notify_one();
            }
        });
    }

    /// Whatever was said while nobody listened was said to nobody.
    fn tell_all(&self) {
        self.with(|waiting| waiting.ids.values().for_each(|place| place.hint.notify_one()));
    }

    /// Listens for ever; connects again whenever it must.
    pub(crate) async fn listen(self: Arc<Self>, client: Client, patience: Duration) {
        let mut pause = Duration::from_millis(50);
        loop {
            let heard = self.listen_once(&client, patience).await;
            if self.listening.send_replace(false) {
                pause = Duration::from_millis(50);
            }
            if let Err(error) = heard {
                tracing::debug!(%error, "no hints from Redis for now");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    async fn listen_once(&self, client: &Client, patience: Duration) -> redis::RedisResult<()> {
        let subscribe = async {
            let (mut sink, messages) = client.get_async_pubsub().await?.split();
            sink.subscribe(format!("longshore:turns:{}", self.client)).await?;
            Ok::<_, redis::RedisError>((sink, messages))
        };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let (mut sink, mut messages) =
            tokio::time::timeout(patience, subscribe).await.map_err(late)??;
        self.listening.send_replace(true);
        self.tell_all();
        let mut pulse = tokio::time::interval(PULSE);
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    None => return Ok(()),
                    Some(message) => {
                        if let Ok(words) = message.get_payload::<String>() {
                            self.tell(&words);
                            // Whoever was told first is to ask first: else it is told to wait, and
                            // must be told again. Of tasks woken in one go the last would run first.
                            tokio::task::yield_now().await;
                        }
                    }
                },
                // What comes meanwhile is kept by the driver.
                _ = pulse.tick() => {
                    let ping = sink.ping::<redis::Value>();
                    tokio::time::timeout(patience, ping).await.map_err(late)??;
                }
            }
        }
    }
}
