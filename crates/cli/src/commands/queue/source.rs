//! The queues of a store, or of a pool through its server.

use std::path::PathBuf;
use std::sync::Arc;

use longshore::store::{LaneChange, QueueChange, QueueInfo, UnitAction, UnitActionResult, UnitSelection};
use longshore::{QueueName, Scope, Store, TenantId, UnitState};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{ClientRequest, QueueAction, QueueSettings, ServerReply};

use crate::commands::connect;
use crate::commands::dispatch::{connect_in, unexpected_reply};
use crate::commands::names::pool_folder;
use crate::settings::Settings;

/// Where queues are listed and changed.
pub enum QueueSource {
    Store(Arc<dyn Store>, Scope),
    Pool(Box<DispatchClient>, Option<TenantId>),
}

impl QueueSource {
    /// Of the pool in this folder or of the environment, or else of the store.
    pub async fn open(folder: Option<PathBuf>, settings: &Settings) -> anyhow::Result<Self> {
        if let Some(folder) = pool_folder(folder, settings) {
            return Ok(Self::Pool(Box::new(connect_in(&folder).await?), settings.tenant.clone()));
        }
        let (store, _) = connect(settings).await?;
        Ok(Self::Store(store, settings.scope()))
    }

    pub async fn list(&mut self) -> anyhow::Result<Vec<QueueInfo>> {
        match self {
            Self::Store(store, scope) => Ok(store.queues(scope).await?),
            Self::Pool(..) => match self.ask(None).await? {
                ServerReply::Queues(lanes) => Ok(lanes),
                other => Err(unexpected_reply(&other)),
            },
        }
    }

    /// Changes a queue, or one lane of it.
    pub async fn change(
        &mut self,
        queue: &QueueName,
        lane: Option<&TenantId>,
        settings: QueueSettings,
    ) -> anyhow::Result<()> {
        let Self::Store(store, scope) = self else {
            self.ask(Some(QueueAction::Set(queue.clone(), lane.cloned(), settings))).await?;
            return Ok(());
        };
        let QueueSettings { paused, capacity, weight, cap } = settings;
        let cap = cap.map(|cap| Some(cap).filter(|cap| *cap > 0));
        match lane {
            None => store.change_queue(scope, queue, QueueChange { paused, capacity }).await?,
            Some(lane) => {
                store.change_lane(scope, queue, lane, LaneChange { paused, weight, cap, capacity }).await?;
            }
        }
        Ok(())
    }

    /// Cancels the units of a queue that are in this state.
    pub async fn cancel(&mut self, queue: &QueueName, state: UnitState) -> anyhow::Result<UnitActionResult> {
        if let Self::Store(store, scope) = self {
            let selection = UnitSelection::Queue(queue.clone(), state);
            return Ok(store.apply_unit_action(scope, selection, UnitAction::Cancel).await?);
        }
        match self.ask(Some(QueueAction::Cancel(queue.clone(), state))).await? {
            ServerReply::Operated(done) => Ok(UnitActionResult {
                changed: done.changed,
                requested: done.requested,
                skipped: done.skipped,
            }),
            other => Err(unexpected_reply(&other)),
        }
    }

    async fn ask(&mut self, action: Option<QueueAction>) -> anyhow::Result<ServerReply> {
        let Self::Pool(client, tenant) = self else { anyhow::bail!("the queues are in a store") };
        Ok(client.request(&ClientRequest::Queues(tenant.clone(), action)).await?)
    }
}
