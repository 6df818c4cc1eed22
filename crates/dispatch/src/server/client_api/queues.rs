//! Lists and changes the pool's queues.

use longshore::Scope;
use longshore::store::{LaneChange, QueueChange, UnitAction, UnitSelection};

use super::ClientApi;
use super::admin::error_text;
use crate::request::{QueueAction, QueueSettings, ServerReply};

impl ClientApi {
    pub(super) async fn queues(
        &self,
        scope: &Scope,
        action: Option<QueueAction>,
    ) -> Result<ServerReply, String> {
        let store = self.client.store();
        match action {
            None => {}
            Some(QueueAction::Cancel(queue, state)) => {
                let selection = UnitSelection::Queue(queue, state);
                let done = store.apply_unit_action(scope, selection, UnitAction::Cancel).await;
                return done.map(|done| ServerReply::Operated(done.into())).map_err(error_text);
            }
            Some(QueueAction::Set(queue, lane, settings)) => {
                let QueueSettings { paused, capacity, weight, cap } = settings;
                let cap = cap.map(|cap| Some(cap).filter(|cap| *cap > 0));
                let changed = match &lane {
                    None => store.change_queue(scope, &queue, QueueChange { paused, capacity }).await,
                    Some(tenant) => {
                        let change = LaneChange { paused, weight, cap, capacity };
                        store.change_lane(scope, &queue, tenant, change).await
                    }
                };
                changed.map_err(error_text)?;
            }
        }
        store.queues(scope).await.map(ServerReply::Queues).map_err(error_text)
    }
}
