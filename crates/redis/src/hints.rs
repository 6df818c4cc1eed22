//! Hints that it is worth asking again: a channel per process, a message per turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use longshore_core::permits::Grant;
use longshore_core::{PermitId, PoolName, SessionId};
use redis::Client;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Who waits in this process, and whether hints come.
#[derive(Debug)]
pub(crate) struct Hints {
    /// The channel's own part.
    client: String,
    lines: Mutex<HashMap<PoolName, Line>>,
    listening: watch::Sender<bool>,
}

/// Those of one pool.
#[derive(Debug, Default)]
struct Line {
    places: HashMap<PermitId, Place>,
    /// How many of them neither ask nor wait for a hint just now.
    asleep: usize,
    /// How many there may be before those are looked for who left without a word.
    enough: usize,
}

#[derive(Debug)]
struct Place {
    /// Keeps one hint until somebody waits for it.
    hint: Arc<Notify>,
    /// When the place in the line is lost.
    until: Instant,
    awake: bool,
    /// The permit that it got meanwhile.
    handed: Option<Handed>,
}

impl Line {
    /// Drops those whose places are lost, once there are many.
    fn tidy(&mut self, now: Instant) {
        if self.places.len() > self.enough.max(FEW) {
            self.places.retain(|_, place| place.until > now);
            self.enough = self.places.len() * 2;
            self.asleep = self.places.values().filter(|place| !place.awake).count();
        }
    }

    fn wake(&mut self, id: PermitId, awake: bool) -> Option<&mut Place> {
        let place = self.places.get_mut(&id)?;
        match (std::mem::replace(&mut place.awake, awake), awake) {
            (false, true) => self.asleep -= 1,
            (true, false) => self.asleep += 1,
            (false, false) | (true, true) => {}
        }
        Some(place)
    }
}

/// A permit that somebody else's call brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handed {
    pub(crate) grant: Grant,
    /// Before it was given.
    pub(crate) began: Instant,
}

/// Those who hear of a permit later than this ask once more. The script gives them this much longer.
const HEARD: Duration = Duration::from_secs(1);

/// Fewer are not worth looking through.
const FEW: usize = 1024;
/// How often it is made sure that the connection is there.
const PULSE: Duration = Duration::from_secs(5);
/// How long the first who wait wait for the channel.
const SETTLES: Duration = Duration::from_secs(1);

impl Hints {
    pub(crate) fn new() -> Self {
        let client = SessionId::new().to_string();
        Self { client, lines: Mutex::default(), listening: watch::Sender::new(false) }
    }

    /// What the server tells this process by.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<PoolName, Line>) -> T) -> T {
        change(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn place<T>(
        &self,
        pool: &PoolName,
        id: PermitId,
        change: impl FnOnce(&mut Place) -> T,
    ) -> Option<T> {
        self.with(|lines| lines.get_mut(pool)?.places.get_mut(&id).map(change))
    }

    /// Takes care that no hint is lost from now on, for as long as the place is good. It is about to ask.
    pub(crate) fn expect(&self, pool: &PoolName, id: PermitId, place: Duration) {
        let now = Instant::now();
        self.with(|lines| {
            let line = match lines.get_mut(pool) {
                Some(line) => line,
                None => lines.entry(pool.clone()).or_default(),
            };
            line.tidy(now);
            let until = now + place;
            match line.wake(id, true) {
                Some(known) => known.until = until,
                None => {
                    let fresh = Place { hint: Arc::default(), until, awake: true, handed: None };
                    line.places.insert(id, fresh);
                }
            }
        });
    }

    /// How many wait, or ask and would; and whether all of them would hear at once of a permit.
    pub(crate) fn waiting(&self, pool: &PoolName) -> (usize, bool) {
        self.with(|lines| {
            lines.get(pool).map_or((0, true), |line| (line.places.len(), line.asleep == 0))
        })
    }

    /// It was told to wait, and does not yet.
    pub(crate) fn rests(&self, pool: &PoolName, id: PermitId) {
        self.with(|lines| lines.get_mut(pool).map(|line| line.wake(id, false).is_some()));
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&self, pool: &PoolName, id: PermitId) {
        self.with(|lines| {
            let Some(line) = lines.get_mut(pool) else { return };
            line.wake(id, true);
            line.places.remove(&id);
            if line.places.is_empty() {
                lines.remove(pool);
            }
        });
    }

    /// Returns with the next hint, or with one that came since it was expected.
    pub(crate) async fn hinted(&self, pool: &PoolName, id: PermitId) {
        let hint = self
            .with(|lines| lines.get_mut(pool)?.wake(id, true).map(|place| Arc::clone(&place.hint)));
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
        self.turn_of(&pool, id);
    }

    /// It is worth asking again for this one.
    pub(crate) fn turn_of(&self, pool: &PoolName, id: PermitId) {
        self.place(pool, id, |place| place.hint.notify_one());
    }

    /// This one has a permit. If nobody wants it any more, whoever did gives it back or has done so.
    pub(crate) fn hand_over(&self, pool: &PoolName, id: PermitId, handed: Handed) {
        self.place(pool, id, |place| {
            place.handed = Some(handed);
            place.hint.notify_one();
        });
    }

    /// The permit that this one was handed, if it was just now.
    pub(crate) fn handed(&self, pool: &PoolName, id: PermitId) -> Option<Grant> {
        let handed = self.place(pool, id, |place| place.handed.take()).flatten()?;
        (handed.began.elapsed() < HEARD).then_some(handed.grant)
    }

    /// Whatever was said while nobody listened was said to nobody.
    fn tell_all(&self) {
        self.with(|lines| {
            lines
                .values()
                .flat_map(|line| line.places.values())
                .for_each(|one| one.hint.notify_one());
        });
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
        // Before those come who wait until hints come: they have missed nothing.
        self.tell_all();
        self.listening.send_replace(true);
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
