//! The seam, verb by verb.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{Answer, Ask, Done, Job, Leaving, Otherwise, Permits, PoolStats};
use longshore_core::{Error, PermitId, PoolName, Result, SessionId};
use redis::cmd;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::error::damaged;
use crate::hints::Hints;
use crate::link::{Link, add};
use crate::pools::{self, Pools};
use crate::script::{ALERT, EXTEND, INIT, RESET, RESIZE, STATS};
use crate::server::micros;
use crate::shared::Shared;
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
    shared: Arc<Shared>,
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
        let shared = Arc::new(Shared { link, hints: Arc::new(Hints::new()) });
        let (pools, listener) = (Pools::default(), Mutex::default());
        Ok(Self { shared, pools, listener, listened: OnceCell::new() })
    }

    /// Connects, and says what is wrong if there is no Redis that can be trusted with permits.
    pub async fn check(&self) -> Result<()> {
        self.shared.link.live().await.map(drop)
    }

    /// Takes care that hints come, from the first wait on.
    async fn listen(&self) {
        {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            if listener.is_empty() {
                let hints = Arc::clone(&self.shared.hints);
                listener.spawn(
                    hints.listen(self.shared.link.client().clone(), self.shared.link.patience()),
                );
            }
        }
        // Once: without hints it is slower, but it goes on.
        self.listened.get_or_init(|| self.shared.hints.settled()).await;
    }

    /// Does it alone, or with what others want of the same pool meanwhile.
    async fn have_done(&self, pool: &PoolName, job: Job) -> Done {
        let known = self.pools.known(pool);
        let (shared, name) = (Arc::clone(&self.shared), pool.clone());
        let its = Arc::clone(&known);
        let call = move |jobs| {
            let (shared, name, its) = (Arc::clone(&shared), name.clone(), Arc::clone(&its));
            async move { shared.carry(&name, &its, jobs).await }
        };
        known.jobs.run(job, call).await.unwrap_or_else(|| Err(damaged("it came to no end")))
    }

    async fn give_back(&self, pool: &PoolName, ids: &[PermitId], late: bool) -> Result<()> {
        ids.iter().for_each(|id| self.shared.hints.forget(pool, *id));
        self.have_done(pool, Job::Release { ids: ids.to_vec(), late }).await.map(drop)
    }
}

#[async_trait]
impl Permits for RedisPermits {
    async fn ask(&self, pool: &PoolName, ask: &Ask) -> Result<Answer> {
        if ask.weight == 0 {
            return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
        }
        if let Some(grant) = self.shared.hints.handed(pool, ask.id) {
            self.shared.hints.forget(pool, ask.id);
            return Ok(Answer::Granted(grant));
        }
        if let Otherwise::Wait(place) = ask.otherwise {
            self.listen().await;
            self.shared.hints.expect(pool, ask.id, place);
        }
        let done = self.have_done(pool, Job::Ask(ask.clone())).await?;
        let answer = done.ok_or_else(|| damaged("no answer for an ask"))?;
        Ok(match answer {
            Answer::Waiting { before, look_again } => {
                self.shared.hints.rests(pool, ask.id);
                let hinted = self.shared.hints.is_listening();
                let most = if hinted { look_again } else { UNHINTED };
                Answer::Waiting { before, look_again: look_again.min(most) }
            }
            Answer::Granted(_) | Answer::Full | Answer::TooHeavy { .. } => {
                self.shared.hints.forget(pool, ask.id);
                answer
            }
        })
    }

    async fn turn(&self, pool: &PoolName, id: PermitId) {
        self.shared.hints.hinted(pool, id).await;
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
            .shared
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

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        let known = self.pools.known(pool);
        let knew = known.born();
        let (born, its_max): (String, String) = self
            .shared
            .link
            .script(&INIT, &known.keys, |server, command| {
                command.arg(ANY).arg(max).arg(&server.run).arg(server.started);
                command.arg(u8::from(server.trusted)).arg(&knew);
            })
            .await?;
        self.shared.met(pool, &known, born).await;
        Ok(its_max.parse().ok())
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        let known = self.pools.known(pool);
        let knew = known.born();
        let born: String = self
            .shared
            .link
            .script(&RESIZE, &known.keys, |server, command| {
                command.arg(ANY).arg(max).arg(&server.run).arg(server.started);
                command.arg(u8::from(server.trusted)).arg(&knew);
            })
            .await?;
        self.shared.met(pool, &known, born).await;
        Ok(())
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        let known = self.pools.known(pool);
        self.shared
            .link
            .script(&RESET, &known.keys, |_, command| {
                command.arg(ANY);
            })
            .await
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        let known = self.pools.known(pool);
        let asked = self.shared.link.script(&STATS, &known.keys, |_, command| {
            command.arg(ANY);
        });
        let raw = asked.await?;
        stats::read(raw)
    }

    async fn pools(&self) -> Result<Vec<PoolName>> {
        let listed = self.shared.link.run(|_| {
            let mut command = cmd("SMEMBERS");
            command.arg(pools::ALL);
            command
        });
        let listed: Vec<String> = listed.await?;
        let mut names = Vec::new();
        for name in listed.iter().filter_map(|name| name.parse::<PoolName>().ok()) {
            let there = self.shared.link.run(|_| {
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
        let told = self.shared.link.script(&ALERT, &keys, |_, command| {
            command.arg(&token).arg(millis);
        });
        told.await
    }
}
