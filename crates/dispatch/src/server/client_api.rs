//! Answers clients. Submissions and queries go to the store; what concerns workers goes to the
//! core.

mod admin;
mod allocations;
mod explain;
mod idle;
mod job;
mod queues;
mod submit;
mod target;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::Queues;
use longshore::{Client, Scope, Store, UnitId};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use admin::scope;

pub(super) use self::allocations::Allocations;
use super::core::{Event, LauncherView};
use super::handshake::AuthenticatedPeer;
use super::wait_marks::WaitMarks;
use crate::launch::Allocation;
use crate::request::{ClientRequest, PoolStatus, ScriptView, ServerReply, UnfitScripts};
use crate::scheduler::ResourceRequest;
use crate::wire::frame::{decode_json, encode_json};

type FoundUnfit = Option<(Instant, Vec<UnfitScripts>)>;

/// Answers clients.
#[derive(Clone)]
pub(super) struct ClientApi {
    client: Client,
    core: mpsc::Sender<Event>,
    /// The part of the status that does not change.
    fixed_status: PoolStatus,
    /// Snapshots of the launchers. The launchers themselves may wait long for their base systems.
    allocations: Option<Allocations>,
    /// What status says of ready scripts that no worker can run, and when that was found.
    unfit: Arc<Mutex<FoundUnfit>>,
    /// For each request of ready scripts that was seen, one of them.
    seen_requests: Arc<Mutex<BTreeMap<ResourceRequest, UnitId>>>,
    wait_marks: Arc<WaitMarks>,
}

impl ClientApi {
    pub(super) fn new(
        store: Arc<dyn Store>,
        core: mpsc::Sender<Event>,
        allocations: Option<Allocations>,
        fixed_status: PoolStatus,
        wait_marks: Arc<WaitMarks>,
    ) -> Self {
        let client = Client::new(store);
        Self {
            client,
            core,
            fixed_status,
            allocations,
            unfit: Arc::default(),
            seen_requests: Arc::default(),
            wait_marks,
        }
    }

    /// Number of units that are ready in the store.
    async fn ready(&self) -> u64 {
        let totals = self.client.store().totals(&Scope::All, &Queues::All).await;
        totals.map_or(0, |totals| totals.counts.ready)
    }

    /// Answers one client until it disconnects.
    pub(super) async fn serve(self, peer: AuthenticatedPeer) {
        if let Err(error) = self.serve_requests(peer).await {
            tracing::debug!(%error, "client connection failed");
        }
    }

    async fn serve_requests(self, peer: AuthenticatedPeer) -> io::Result<()> {
        let AuthenticatedPeer { mut reader, mut writer, .. } = peer;
        let (mut bytes, mut submitter) = (Vec::new(), None);
        while let Some(frame) = reader.next().await? {
            let reply = match decode_json(&frame) {
                Ok(ClientRequest::Identify(name)) => {
                    submitter = Some(name);
                    ServerReply::Yes
                }
                Ok(request) => {
                    self.answer(request, submitter.as_deref()).await.unwrap_or_else(ServerReply::Error)
                }
                Err(error) => ServerReply::Error(format!("invalid request: {error}")),
            };
            bytes.clear();
            encode_json(&reply, &mut bytes)?;
            writer.write_all(&bytes).await?;
            writer.flush().await?;
        }
        Ok(())
    }

    async fn answer(&self, request: ClientRequest, submitter: Option<&str>) -> Result<ServerReply, String> {
        match request {
            ClientRequest::Submit(submission) => {
                // A client that waits for its submission learns of its failure itself.
                if let Some(submitter) = submitter.filter(|_| !submission.awaited) {
                    self.mark_submission(submitter).await?;
                }
                self.submit(*submission).await
            }
            ClientRequest::SubmitJob(job) => {
                let is_awaited = job.tasks.iter().all(|task| task.submission.awaited);
                if let Some(submitter) = submitter.filter(|_| !is_awaited) {
                    self.mark_submission(submitter).await?;
                }
                self.submit_job(*job).await
            }
            ClientRequest::Status => self.status().await.map(|status| ServerReply::Status(Box::new(status))),
            ClientRequest::Unit(id, wait) => {
                self.unit(id, wait).await.map(|unit| ServerReply::Unit(Box::new(unit)))
            }
            ClientRequest::Show(tenant, id) => {
                self.show(tenant, id).await.map(|shown| ServerReply::Shown(Box::new(shown)))
            }
            ClientRequest::Units(tenant, units) => {
                self.list(tenant, units).await.map(|(units, next)| ServerReply::Units(units, next))
            }
            ClientRequest::Operate(tenant, units, action_requested) => {
                self.operate(&scope(tenant), units, action_requested).await.map(ServerReply::Operated)
            }
            ClientRequest::Arrays(tenant, arrays) => {
                self.arrays(tenant, arrays).await.map(|(arrays, next)| ServerReply::Arrays(arrays, next))
            }
            ClientRequest::FindTask(tenant, name) => {
                self.find_task(&scope(tenant), &name).await.map(ServerReply::Found)
            }
            ClientRequest::Steer(tenant, id, action) => {
                let array = self.steer(&scope(tenant), &id, action).await;
                array.map(|array| ServerReply::Steered(Box::new(array)))
            }
            ClientRequest::Queues(tenant, action) => self.queues(&scope(tenant), action).await,
            ClientRequest::Explain => self.explain_launches().await.map(ServerReply::Explained),
            ClientRequest::ExplainUnit(tenant, id) => {
                let explained = self.explain_unit(tenant, id).await;
                explained.map(|explained| ServerReply::UnitExplained(Box::new(explained)))
            }
            ClientRequest::Allocations => self.list_allocations().await.map(ServerReply::Allocations),
            ClientRequest::AddAllocation(allocation, dry_run) => {
                self.add_allocation(*allocation, dry_run).map(ServerReply::JobScript)
            }
            ClientRequest::ChangeAllocation(change) => {
                self.change_allocation(change).map(|()| ServerReply::Yes)
            }
            ClientRequest::Workers(selection, action) => {
                let changed = self.query_core(|answer| Event::Workers(selection, action, answer)).await?;
                changed.map(ServerReply::Workers)
            }
            ClientRequest::Stop(ending) => {
                let sent = self.core.send(Event::Shutdown(ending)).await;
                sent.map(|()| ServerReply::Yes).map_err(|_| "the server has shut down".to_owned())
            }
            ClientRequest::Identify(_) => Ok(ServerReply::Yes),
            ClientRequest::Idle => self.idle_report(submitter).await.map(ServerReply::Idle),
        }
    }

    /// The launcher's view of the core.
    pub(super) async fn view(&self) -> Result<LauncherView, String> {
        self.query_core(Event::LauncherView).await
    }

    async fn query_core<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Event) -> Result<T, String> {
        let (send, answer) = oneshot::channel();
        let gone = "the server has shut down";
        self.core.send(ask(send)).await.map_err(|_| gone.to_owned())?;
        answer.await.map_err(|_| gone.to_owned())
    }

    async fn unit(&self, id: UnitId, wait: Duration) -> Result<ScriptView, String> {
        let unit = match self.client.wait(id, Some(wait)).await {
            Ok(unit) => unit,
            Err(_) => {
                let unit = self.client.store().unit(&Scope::All, id).await;
                unit.map_err(|error| error.to_string())?
            }
        };
        Ok(admin::unit_view(&unit))
    }

    async fn status(&self) -> Result<PoolStatus, String> {
        let status = self.query_core(Event::Status).await?;
        let entries = self.allocations.as_ref().map(|all| all.table.entries()).unwrap_or_default();
        let sum = |number: fn(&Allocation) -> u32| {
            entries.iter().fold(0, |sum: u32, entry| sum.saturating_add(number(&entry.allocation)))
        };
        let totals = self.client.store().totals(&Scope::All, &Queues::All).await;
        let counts = totals.map_err(|error| error.to_string())?.counts;
        let PoolStatus { base, roots, allowed_env, .. } = self.fixed_status.clone();
        Ok(PoolStatus {
            base,
            roots,
            allowed_env,
            size: (sum(|allocation| allocation.min), sum(|allocation| allocation.max)),
            threads: entries.first().map_or(0, |entry| entry.allocation.threads),
            ready: counts.ready,
            // As the store counts it: a unit stays leased until its result is written.
            claimed: counts.leased,
            not_ready: counts.blocked + counts.scheduled,
            done: counts.done,
            failed: counts.failed,
            cancelled: counts.cancelled,
            unfit: [status.unfit, self.unfit_ready(counts.ready).await].concat(),
            pending_query: entries.iter().find_map(|entry| entry.status.pending_query()),
            ..status
        })
    }
}
