//! The seam, verb by verb.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Done, Job, Leaving, Otherwise, Permits, PoolStats};
use longshore_core::{Error, PermitId, PoolName, Result, SessionId};
use redis::cmd;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::answer;
use crate::error::damaged;
use crate::gathered;
use crate::hints::Hints;
use crate::link::{Link, add};
use crate::pools::{self, Known, Pools};
use crate::script::{ALERT, ASK, EXTEND, GATHERED, RELEASE, RESET, RESIZE, STATS};
use crate::server::micros;
use crate::stats;

/// How a Redis is spoken to.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// How long a verb may take.
    pub patience: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5) }
    }
}

/// Where a script wants an id and there is none to name.
const ANY: &str = "-";
/// How soon whoever waits looks again while no hints come.
const UNHINTED: Duration = Duration::from_millis(250);

/// Bounded pools on a Redis or Valkey: one connection for all verbs, one for hints.
#[derive(Debug)]
pub struct RedisPermits {
    link: Link,
    hints: Arc<Hints>,
    pools: Pools,
    /// Listens for hints once somebody waits; ends with us.
    listener: Mutex<JoinSet<()>>,
    /// Whether the first who waited have waited for that.
    listened: OnceCell<()>,
}

impl RedisPermits {
    /// Reads `redis://USER:PASSWORD@HOST:PORT/NUMBER`, or `rediss://…` with TLS. Connects when it is first
    /// needed; see [`Self::check`].
    pub fn open(url: &str, options: &RedisOptions) -> Result<Self> {
        let link = Link::new(url, options.patience)?;
        let (hints, pools) = (Arc::new(Hints::new()), Pools::default());
        Ok(Self { link, hints, pools, listener: Mutex::default(), listened: OnceCell::new() })
    }

    /// Connects, and says what is wrong if there is no Redis that can be trusted with permits.
    pub async fn check(&self) -> Result<()> {
        self.link.live().await.map(drop)
    }

    /// Takes care that hints come, from the first wait on.
    async fn listen(&self) {
        {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            if listener.is_empty() {
                let hints = Arc::clone(&self.hints);
                listener.spawn(hints.listen(self.link.client().clone(), self.link.patience()));
            }
        }
        // Once: without hints it is slower, but it goes on.
        self.listened.get_or_init(|| self.hints.settled()).await;
    }

    /// A pool that is new to us, or was made anew, gets into the list of all.
    async fn met(&self, pool: &PoolName, known: &Known, born: String) {
        if !known.is_news(&born) {
            return;
        }
        let listed = self.link.run(|_| {
            let mut command = cmd("SADD");
            command.arg(pools::ALL).arg(pool.as_str());
            command
        });
        match listed.await {
            Ok(()) => known.remember(born),
            // The next ask tries again.
            Err(error) => tracing::debug!(%pool, %error, "a pool is not in the list of all"),
        }
    }

    /// Does it alone, or with what others want of the same pool meanwhile.
    async fn have_done(&self, pool: &PoolName, job: Job) -> Done {
        let known = self.pools.known(pool);
        known.jobs.run(job, |jobs| self.carry(pool, &known, jobs)).await
    }

    async fn carry(&self, pool: &PoolName, known: &Known, jobs: Vec<Job>) -> Vec<Done> {
        // Where others wait, those that are next are told with the answer: sooner than through the channel.
        let alone = self.hints.count() <= 1;
        match &jobs[..] {
            [Job::Ask(ask)] if alone => vec![self.ask_alone(pool, known, ask).await.map(Some)],
            [Job::Release { ids, late }] if alone => {
                vec![self.release_alone(known, ids, *late).await.map(|()| None)]
            }
            many => {
                let done = self.carry_many(pool, known, many).await;
                done.unwrap_or_else(|error| Job::failed(jobs.len(), error))
            }
        }
    }

    async fn carry_many(&self, pool: &PoolName, known: &Known, jobs: &[Job]) -> Result<Vec<Done>> {
        let born = known.born();
        let (born, told, answers): gathered::Raw = self
            .link
            .script(&GATHERED, &known.keys, |server, command| {
                gathered::write(jobs, self.hints.client(), server, &born, command);
            })
            .await?;
        for id in told.iter().filter_map(|id| id.parse().ok()) {
            self.hints.turn_of(pool.clone(), id);
        }
        if !born.is_empty() {
            self.met(pool, known, born).await;
        }
        Ok(gathered::read(jobs, &answers))
    }

    async fn ask_alone(&self, pool: &PoolName, known: &Known, ask: &Ask) -> Result<Answer> {
        let (id, born) = (ask.id.to_string(), known.born());
        let (code, first, second, born): answer::Raw = self
            .link
            .script(&ASK, &known.keys, |server, command| {
                command.arg(&id).arg(ask.max).arg(ask.weight).arg(gathered::behind(ask));
                command.arg(micros(ask.ttl)).arg(micros(gathered::place(ask)));
                command.arg(self.hints.client()).arg(&*ask.owner);
                command.arg(&server.run).arg(server.started).arg(u8::from(server.trusted));
                command.arg(&born);
            })
            .await?;
        self.met(pool, known, born).await;
        answer::read(code, first, second)
    }

    async fn release_alone(&self, known: &Known, ids: &[PermitId], late: bool) -> Result<()> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let done = self.link.script(&RELEASE, &known.keys, |_, command| {
            let (first, others) =
                ids.split_first().map_or(("", &[][..]), |(id, more)| (id.as_str(), more));
            command.arg(first).arg(u8::from(late));
            add(command, others);
        });
        done.await
    }

    async fn give_back(&self, pool: &PoolName, ids: &[PermitId], late: bool) -> Result<()> {
        ids.iter().for_each(|id| self.hints.forget(pool, *id));
        self.have_done(pool, Job::Release { ids: ids.to_vec(), late }).await.map(drop)
    }
}

#[async_trait]
impl Permits for RedisPermits {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        if ask.weight == 0 {
            return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
        }
        if let Otherwise::Wait(place) = ask.otherwise {
            self.listen().await;
            self.hints.expect(pool, ask.id, place);
        }
        let done = self.have_done(pool, Job::Ask(ask.clone())).await?;
        let answer = done.ok_or_else(|| damaged("no answer for an ask"))?;
        Ok(match answer {
            Answer::Waiting { before, look_again } if !self.hints.is_listening() => {
                Answer::Waiting { before, look_again: look_again.min(UNHINTED) }
            }
            Answer::Waiting { .. } => answer,
            Answer::Granted(_) | Answer::Full | Answer::TooHeavy { .. } => {
                self.hints.forget(pool, ask.id);
                answer
            }
        })
    }

    async fn turn(&self, pool: &PoolName, id: PermitId) {
        self.hints.hinted(pool, id).await;
    }

    async fn extend(
        &self,
        pool: &PoolName,
        ids: &[PermitId],
        ttl: Duration,
    ) -> Result<Vec<PermitId>> {
        let known = self.pools.known(pool);
        let born = known.born();
        let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let gone: Vec<String> = self
            .link
            .script(&EXTEND, &known.keys, |_, command| {
                command.arg(ANY).arg(micros(ttl)).arg(&born);
                add(command, &texts);
            })
            .await?;
        Ok(ids
            .iter()
            .zip(&texts)
            .filter(|(_, text)| gone.contains(text))
            .map(|(id, _)| *id)
            .collect())
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId]) -> Result<()> {
        self.give_back(pool, ids, false).await
    }

    async fn leave(&self, pool: &PoolName, id: PermitId, why: Leaving) -> Result<()> {
        self.give_back(pool, &[id], why == Leaving::TimedOut).await
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        let known = self.pools.known(pool);
        let knew = known.born();
        let born: String = self
            .link
            .script(&RESIZE, &known.keys, |server, command| {
                command.arg(ANY).arg(max).arg(&server.run).arg(server.started);
                command.arg(u8::from(server.trusted)).arg(&knew);
            })
            .await?;
        self.met(pool, &known, born).await;
        Ok(())
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        let known = self.pools.known(pool);
        self.link
            .script(&RESET, &known.keys, |_, command| {
                command.arg(ANY);
            })
            .await
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        let known = self.pools.known(pool);
        let asked = self.link.script(&STATS, &known.keys, |_, command| {
            command.arg(ANY);
        });
        let raw = asked.await?;
        stats::read(raw)
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        let listed = self.link.run(|_| {
            let mut command = cmd("SMEMBERS");
            command.arg(pools::ALL);
            command
        });
        let listed: Vec<String> = listed.await?;
        let mut names = Vec::new();
        for name in listed.iter().filter_map(|name| name.parse::<PoolName>().ok()) {
            let there = self.link.run(|_| {
                let mut command = cmd("HEXISTS");
                command.arg(pools::pool_key(&name)).arg("state");
                command
            });
            if there.await? {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    async fn may_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        let (key, token) = (pools::alert_key(pool, alert), SessionId::new().to_string());
        let millis = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
        let keys = [key];
        let told = self.link.script(&ALERT, &keys, |_, command| {
            command.arg(&token).arg(millis);
        });
        told.await
    }
}
