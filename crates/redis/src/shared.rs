//! What asks and releases need, whoever carries them: the connection, and whom to tell.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::permits::{Answer, Ask, Done, Grant, Job};
use longshore_core::{PermitId, PoolName, Result};
use redis::cmd;
use tokio::time::Instant;

use crate::gathered::Caller;
use crate::hints::{Handed, Hints};
use crate::link::{Link, add};
use crate::pools::{self, Known};
use crate::script::{ASK, GATHERED, RELEASE};
use crate::server::micros;
use crate::{answer, gathered};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) hints: Arc<Hints>,
}

impl Shared {
    /// A pool that is new to us, or was made anew, gets into the list of all.
    pub(crate) async fn met(&self, pool: &PoolName, known: &Known, born: String) {
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

    /// Does what gathered, and answers each.
    pub(crate) async fn carry(&self, pool: &PoolName, known: &Known, jobs: Vec<Job>) -> Vec<Done> {
        // Where others wait, those that are next get theirs with the answer: sooner than through the channel.
        let (waiting, awake) = self.hints.waiting(pool);
        match &jobs[..] {
            [Job::Ask(ask)] if waiting <= 1 => {
                vec![self.ask_alone(pool, known, ask).await.map(Some)]
            }
            [Job::Release { ids, late }] if waiting == 0 => {
                vec![self.release_alone(known, ids, *late).await.map(|()| None)]
            }
            many => {
                let done = self.carry_many(pool, known, many, awake).await;
                done.unwrap_or_else(|error| Job::failed(jobs.len(), error))
            }
        }
    }

    /// Permits are handed over if all who wait are awake: one that hears of it late would keep it from others.
    async fn carry_many(
        &self,
        pool: &PoolName,
        known: &Known,
        jobs: &[Job],
        awake: bool,
    ) -> Result<Vec<Done>> {
        let (born, began) = (known.born(), Instant::now());
        let (born, told, handed, answers): gathered::Raw = self
            .link
            .script(&GATHERED, &known.keys, |server, command| {
                let caller = Caller { client: self.hints.client(), awake, born: &born };
                gathered::write(jobs, &caller, server, command);
            })
            .await?;
        for id in told.iter().filter_map(|id| id.parse().ok()) {
            self.hints.turn_of(pool, id);
        }
        for (id, fence, waited) in handed {
            if let Ok(id) = id.parse() {
                let grant = Grant { fence, waited: Duration::from_micros(waited) };
                self.hints.hand_over(pool, id, Handed { grant, began });
            }
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
}
