//! What asks and releases need, whoever carries them: the connection, and whom to tell.

use std::sync::Arc;

use longshore_core::permits::{Answer, Ask, Done, Job};
use longshore_core::{PermitId, PoolName, Result};
use redis::cmd;

use crate::hints::Hints;
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
}
