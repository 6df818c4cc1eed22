//! One process of a storm: uses permits as rudely as processes do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{Answer, Ask, Leaving, Otherwise, Permits};
use longshore_core::{PermitId, PoolName, Priority, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chance::Chance;
use super::witness::Word;

/// What a process of a storm is told when it is started, through its environment.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Where the pool is, in words of the back end.
    pub place_of_pool: String,
    pub(super) pool: PoolName,
    pub(super) witness: String,
    pub(super) seed: u64,
    pub(super) max: u32,
    pub(super) ttl: Duration,
    pub(super) place: Duration,
}

const NAME: &str = "LONGSHORE_STORM_ORDERS";
/// Longer than a storm.
const FOREVER: Duration = Duration::from_secs(86_400);
/// So many use permits in each process.
const TASKS: u64 = 2;

impl Orders {
    /// As a variable of the environment.
    pub(super) fn variable(&self) -> (&'static str, String) {
        let Self { place_of_pool, pool, witness, seed, max, ttl, place } = self;
        let (ttl, place) = (ttl.as_millis(), place.as_millis());
        (NAME, format!("{pool} {witness} {seed} {max} {ttl} {place} {place_of_pool}"))
    }

    /// Ours, if this process is one of a storm's.
    pub fn ours() -> Option<Self> {
        let text = std::env::var(NAME).ok()?;
        let mut words = text.splitn(7, ' ');
        let pool = words.next()?.parse().ok()?;
        let witness = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (seed, max, ttl, place) = (number()?, number()?, number()?, number()?);
        Some(Self {
            place_of_pool: words.next()?.to_owned(),
            pool,
            witness,
            seed,
            max: u32::try_from(max).ok()?,
            ttl: Duration::from_millis(ttl),
            place: Duration::from_millis(place),
        })
    }
}

/// Takes and gives back permits until the witness has seen enough.
pub async fn member(orders: Orders, permits: Arc<dyn Permits>) {
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let (orders, permits) = (orders.clone(), Arc::clone(&permits));
        tasks.spawn(async move {
            // The witness goes when the storm is over, or has failed.
            if let Ok(told) = TcpStream::connect(&orders.witness).await {
                let chance = Chance::new(orders.seed + n);
                let told = BufReader::new(told);
                let _ = User { orders, permits, told, chance, enough: false }.rage().await;
            }
        });
    }
    tasks.join_all().await;
}

struct User {
    orders: Orders,
    permits: Arc<dyn Permits>,
    told: BufReader<TcpStream>,
    chance: Chance,
    enough: bool,
}

impl User {
    async fn rage(&mut self) -> io::Result<()> {
        while !self.enough {
            let ask = self.ask();
            let gives_up = self.chance.percent(15);
            let after = Duration::from_micros(self.chance.below(30_000));
            let patience = if gives_up { after } else { FOREVER };
            let acquired = self.acquire(&ask, Instant::now() + patience).await?;
            if acquired {
                self.hold(&ask).await?;
            }
            self.give_back(&ask, acquired).await?;
        }
        Ok(())
    }

    fn ask(&mut self) -> Ask {
        let waits = self.chance.percent(90);
        Ask {
            id: PermitId::new(),
            max: self.orders.max,
            weight: if self.chance.percent(20) { 2 } else { 1 },
            priority: Priority::NORMAL,
            owner: "storm".into(),
            ttl: self.orders.ttl,
            otherwise: if waits { Otherwise::Wait(self.orders.place) } else { Otherwise::GoAway },
        }
    }

    /// Asks until it is given or refused, or calls are dropped wherever they are just then; whether it is
    /// given.
    async fn acquire(&mut self, ask: &Ask, until: Instant) -> io::Result<bool> {
        loop {
            self.tell(Word::Asks(ask.id)).await?;
            let call = self.permits.ask(&self.orders.pool, ask);
            match tokio::time::timeout_at(until, call).await {
                Err(_) => return Ok(false),
                Ok(Ok(Answer::Granted(grant))) => {
                    self.tell(Word::Holds(ask.id, grant.fence, ask.weight)).await?;
                    return Ok(true);
                }
                Ok(Ok(Answer::Waiting { look_again, .. })) => {
                    self.tell(Word::Waits(ask.id)).await?;
                    let turn = self.permits.turn(&self.orders.pool, ask.id);
                    // Its place must not be lost because the machine is busy.
                    let again = Instant::now() + look_again.min(self.orders.place / 3);
                    let _ = tokio::time::timeout_at(again.min(until), turn).await;
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
                Ok(Ok(Answer::Full | Answer::TooHeavy { .. })) => {
                    breath().await;
                    return Ok(false);
                }
                Ok(Err(_)) => breath().await,
            }
        }
    }

    /// Mostly for a moment, sometimes for longer than a lease.
    async fn hold(&mut self, ask: &Ask) -> io::Result<()> {
        let long = self.chance.percent(3);
        let moment = Duration::from_micros(self.chance.below(20_000));
        if !long {
            tokio::time::sleep(moment).await;
            return Ok(());
        }
        for _ in 0..5 {
            tokio::time::sleep(self.orders.ttl / 3).await;
            self.tell(Word::Asks(ask.id)).await?;
            match self.permits.extend(&self.orders.pool, &[ask.id], self.orders.ttl).await {
                Ok(lost) if lost.is_empty() => self.tell(Word::Extended(ask.id)).await?,
                Ok(_) => return self.tell(Word::Drops(ask.id)).await,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Until the back end has heard it; sometimes twice.
    async fn give_back(&mut self, ask: &Ask, acquired: bool) -> io::Result<()> {
        self.tell(Word::Drops(ask.id)).await?;
        let twice = u32::from(self.chance.percent(10));
        for _ in 0..=twice {
            while self.leave(ask.id, acquired).await.is_err() {
                breath().await;
            }
        }
        Ok(())
    }

    async fn leave(&self, id: PermitId, acquired: bool) -> Result<()> {
        if acquired {
            self.permits.release(&self.orders.pool, &[id]).await
        } else {
            self.permits.leave(&self.orders.pool, id, Leaving::CalledOff).await
        }
    }

    /// Says a word and waits until it is heard.
    async fn tell(&mut self, word: Word) -> io::Result<()> {
        self.told.get_mut().write_all(format!("{word}\n").as_bytes()).await?;
        let mut answer = String::new();
        if self.told.read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.enough |= answer == "enough\n";
        Ok(())
    }
}

/// Before it is tried again.
async fn breath() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
