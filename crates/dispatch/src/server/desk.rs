//! The desk: what clients ask, and who answers. Submissions and looks go to the store; what concerns
//! workers goes to the core.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore::batch::{FailureLimit, FailureThreshold, NewBatch, OnThreshold};
use longshore::store::{Queues, Sent};
use longshore::unit::{After, Cap, Weight};
use longshore::{Client, Counts, Kind, NewUnit, Payload, Scope, Store, UnitId, WhenFull};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::core::{Event, View};
use super::door::Guest;
use crate::launch::Launcher;
use crate::request::{ArrayView, Items, Many, Reply, Request, Status, Submission, UnitView};
use crate::script::{Item, KIND};
use crate::wire::frame::{put_json, take_json};

/// Units of an array that are sent at once.
const CHUNK: usize = 1000;

/// Answers clients.
#[derive(Clone)]
pub(super) struct Desk {
    client: Client,
    core: mpsc::Sender<Event>,
    base: String,
    pub(super) launcher: Option<Arc<Mutex<Launcher>>>,
}

impl Desk {
    pub(super) fn new(
        store: Arc<dyn Store>,
        core: mpsc::Sender<Event>,
        launcher: Option<Arc<Mutex<Launcher>>>,
        base: String,
    ) -> Self {
        Self { client: Client::new(store), core, base, launcher }
    }

    /// Scripts that wait in the store.
    pub(super) async fn ready(&self) -> u64 {
        let totals = self.client.store().totals(&Scope::All, &Queues::All).await;
        totals.map_or(0, |totals| totals.counts.ready)
    }

    /// Answers one client until it leaves.
    pub(super) async fn serve(self, guest: Guest) {
        if let Err(error) = self.answer_all(guest).await {
            tracing::debug!(%error, "a client's line ended");
        }
    }

    async fn answer_all(self, guest: Guest) -> io::Result<()> {
        let Guest { mut reader, mut writer, .. } = guest;
        let mut bytes = Vec::new();
        while let Some(frame) = reader.next().await? {
            let reply = match take_json(&frame) {
                Ok(request) => self.answer(request).await.unwrap_or_else(Reply::Error),
                Err(error) => Reply::Error(format!("this is not a request: {error}")),
            };
            bytes.clear();
            put_json(&reply, &mut bytes)?;
            writer.write_all(&bytes).await?;
            writer.flush().await?;
        }
        Ok(())
    }

    async fn answer(&self, request: Request) -> Result<Reply, String> {
        match request {
            Request::Submit(submission) => {
                let units = self.submit(*submission).await?;
                Ok(Reply::Submitted { units })
            }
            Request::Status => self.status().await.map(|status| Reply::Status(Box::new(status))),
            Request::Unit(id, wait) => {
                self.unit(id, wait).await.map(|unit| Reply::Unit(Box::new(unit)))
            }
            Request::Array(id) => {
                let batch = self.client.store().batch(&Scope::All, &id).await;
                let batch = batch.map_err(|error| error.to_string())?;
                let Counts { done, failed, cancelled, .. } = batch.counts;
                let total = batch.counts.total();
                let status = batch.status;
                Ok(Reply::Array(ArrayView { batch: id, status, total, done, failed, cancelled }))
            }
            Request::Explain => {
                let launcher = self.launcher()?.lock().await;
                Ok(Reply::Explained(launcher.explain(self.view().await?.now)))
            }
            Request::Scale { min, max } => {
                self.launcher()?.lock().await.resize(min, max);
                Ok(Reply::Yes)
            }
            Request::Stop(ending) => {
                let told = self.core.send(Event::End(ending)).await;
                told.map(|()| Reply::Yes).map_err(|_| "the server has ended".to_owned())
            }
        }
    }

    fn launcher(&self) -> Result<&Mutex<Launcher>, String> {
        let launcher = self.launcher.as_deref();
        launcher.ok_or_else(|| "this server launches no workers: others start them".to_owned())
    }

    /// What the core sees.
    pub(super) async fn view(&self) -> Result<View, String> {
        self.of_core(Event::View).await
    }

    async fn of_core<T>(&self, ask: fn(oneshot::Sender<T>) -> Event) -> Result<T, String> {
        let (send, answer) = oneshot::channel();
        let gone = "the server has ended";
        self.core.send(ask(send)).await.map_err(|_| gone.to_owned())?;
        answer.await.map_err(|_| gone.to_owned())
    }

    async fn unit(&self, id: UnitId, wait: Duration) -> Result<UnitView, String> {
        let unit = match self.client.wait(id, Some(wait)).await {
            Ok(unit) => unit,
            Err(_) => {
                let unit = self.client.store().unit(&Scope::All, id).await;
                unit.map_err(|error| error.to_string())?
            }
        };
        Ok(UnitView {
            unit: id,
            state: unit.state,
            attempt: unit.attempt,
            lost: unit.lost,
            failure: unit.failure,
            report: unit.result.and_then(|result| result.parse().ok()),
        })
    }

    async fn status(&self) -> Result<Status, String> {
        let status = self.of_core(Event::Status).await?;
        let size = match &self.launcher {
            Some(launcher) => Some(launcher.lock().await.size()),
            None => None,
        };
        let totals = self.client.store().totals(&Scope::All, &Queues::All).await;
        let counts = totals.map_err(|error| error.to_string())?.counts;
        Ok(Status {
            base: self.base.clone(),
            size: size.map_or((0, 0), |size| (size.min, size.max)),
            threads: size.map_or(0, |size| size.threads),
            ready: counts.ready,
            // As the store has it: an end that is being written is not over yet.
            claimed: counts.leased,
            later: counts.blocked + counts.scheduled,
            done: counts.done,
            failed: counts.failed,
            cancelled: counts.cancelled,
            ..status
        })
    }

    async fn submit(&self, submission: Submission) -> Result<u64, String> {
        let script = Payload::json(&submission.script).map_err(|error| error.to_string())?;
        match &submission.items {
            Items::Once(id) => self.submit_one(*id, script, &submission).await,
            Items::Each { .. } => self.submit_array(script, &submission).await,
        }
    }

    async fn submit_one(
        &self,
        id: UnitId,
        script: Payload,
        submission: &Submission,
    ) -> Result<u64, String> {
        let unit = NewUnit { id, ..pattern(submission, script)? };
        let sent = self.client.send_many(vec![unit], WhenFull::Refuse).await;
        match sent.map_err(|error| error.to_string())?.pop() {
            Some(Sent::Created(_) | Sent::Existing(_)) => Ok(1),
            Some(Sent::Refused(refusal)) => Err(refusal.to_string()),
            None => Err("the store gave no answer".to_owned()),
        }
    }

    async fn submit_array(&self, script: Payload, submission: &Submission) -> Result<u64, String> {
        let Items::Each { batch, of, at_most, max_fails } = &submission.items else { return Ok(0) };
        let words = |error: longshore::SendError| error.to_string();
        let threshold = max_fails.map(|most| FailureThreshold {
            limit: FailureLimit::Units(most),
            then: OnThreshold::Fail,
        });
        let new = NewBatch {
            tenant: submission.tenant.clone(),
            kind: KIND.to_owned(),
            threshold,
            definition: Some(script),
            ..NewBatch::new(batch.clone())
        };
        let mut writer = self.client.open_batch(new).await.map_err(words)?;
        let done: u64 = writer.cursor().parse().unwrap_or(0);
        let mut items = items(of).skip(usize::try_from(done).unwrap_or(usize::MAX)).peekable();
        let mut sent = done;
        let blank = pattern(submission, Payload::from(Vec::new()))?;
        while items.peek().is_some() {
            let mut units = Vec::with_capacity(CHUNK);
            for item in items.by_ref().take(CHUNK) {
                let payload = Payload::json(&item).map_err(|error| error.to_string())?;
                let cap = at_most.map(|limit| Cap { key: format!("array {batch}"), limit });
                units.push(NewUnit { id: UnitId::new(), payload, cap, ..blank.clone() });
            }
            sent += units.len() as u64;
            writer.add(units, sent.to_string()).await.map_err(words)?;
        }
        writer.seal().await.map_err(words)?;
        Ok(sent)
    }
}

fn items(of: &Many) -> Box<dyn Iterator<Item = Item> + Send + '_> {
    match of {
        Many::Ranges(ranges) => {
            let numbers = ranges.iter().flat_map(|(first, last)| *first..=*last);
            Box::new(numbers.map(|number| Item(number, None)))
        }
        Many::Lines(lines) => {
            let numbered = (0..).zip(lines);
            Box::new(numbered.map(|(number, line)| Item(number, Some(line.clone()))))
        }
    }
}

fn pattern(submission: &Submission, payload: Payload) -> Result<NewUnit, String> {
    let kind = Kind::new(KIND).map_err(|error| error.to_string())?;
    let after = After { units: submission.after.clone(), ..After::default() };
    Ok(NewUnit {
        tenant: submission.tenant.clone(),
        priority: submission.priority,
        weight: Weight {
            slots: submission.threads.max(1),
            resources: submission.resources.clone(),
        },
        after,
        policy: Some(submission.policy.clone()),
        awaited: submission.awaited,
        ..NewUnit::new(kind, payload)
    })
}
