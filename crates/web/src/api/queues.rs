//! Queues and lanes.

use longshore::store::{LaneChange, Page, QueueChange, QueueInfo};
use longshore::{Error, QueueName, Scope};

use crate::call::{Call, json};
use crate::problem::Problem;
use crate::table::Answer;

pub(super) async fn list(call: Call) -> Answer {
    let items = call.house.store.queues(&call.scope()?).await?;
    json(&Page { items, next: None })
}

pub(super) async fn show(call: Call) -> Answer {
    let queue = call.path("queue")?;
    json(&Page { items: lanes(&call, &call.scope()?, &queue).await?, next: None })
}

async fn lanes(call: &Call, scope: &Scope, queue: &QueueName) -> Result<Vec<QueueInfo>, Problem> {
    let mut lanes = call.house.store.queues(scope).await?;
    lanes.retain(|lane| lane.queue == *queue);
    match lanes.is_empty() {
        true => Err(Error::not_found("queue", queue).into()),
        false => Ok(lanes),
    }
}

pub(super) async fn pause(call: Call) -> Answer {
    switch(call, true).await
}

pub(super) async fn resume(call: Call) -> Answer {
    switch(call, false).await
}

/// Who is in charge of a queue switches all of it; a tenant, its lane of a shared one.
async fn switch(call: Call, paused: bool) -> Answer {
    let queue: QueueName = call.path("queue")?;
    let scope = call.scope()?;
    // One that is not there, or not for them, is not made by pausing it.
    let found = lanes(&call, &scope, &queue).await?;
    let store = &call.house.store;
    let lane = LaneChange { paused: Some(paused), ..LaneChange::default() };
    match &scope {
        Scope::Tenant(tenant) if queue.owner().is_none() => {
            call.note(Some(tenant), &queue, "its lane").await?;
            store.change_lane(&scope, &queue, tenant, lane).await?;
        }
        Scope::Tenant(tenant) => {
            call.note(Some(tenant), &queue, "").await?;
            store.change_queue(&scope, &queue, whole(paused)).await?;
            // Somebody may have paused the one lane that it has instead.
            if !paused && found.iter().any(|lane| lane.lane_paused) {
                store.change_lane(&scope, &queue, tenant, lane).await?;
            }
        }
        Scope::All => {
            call.note(None, &queue, "").await?;
            store.change_queue(&scope, &queue, whole(paused)).await?;
        }
    }
    json(&Page { items: lanes(&call, &scope, &queue).await?, next: None })
}

fn whole(paused: bool) -> QueueChange {
    QueueChange { paused: Some(paused), ..QueueChange::default() }
}
