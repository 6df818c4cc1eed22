//! `queue set`: sets a queue's bounds, or a lane's weight, cap and bounds.

use longshore::store::{Capacity, QueueInfo};
use longshore::{QueueName, TenantId, byte_size};
use longshore_dispatch::request::QueueSettings;

use super::source::QueueSource;
use crate::args::queue::{LaneArg, QueueSetArgs as Typed};
use crate::commands::tenant::shown;
use crate::error::{WithHint, usage};
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Runs the command.
pub async fn run(queues: &mut QueueSource, typed: &Typed, settings: &Settings) -> anyhow::Result<()> {
    if typed.bounds.is_empty() && typed.weight.is_none() && typed.cap.is_none() {
        return Err(usage("nothing to set"))
            .hint("name --max-units or --max-bytes; with --lane also --weight or --cap");
    }
    let queue = &typed.lane.queue;
    match lane(&typed.lane, settings) {
        Some(tenant) => set_lane(queues, typed, tenant, settings).await?,
        None => set_queue(queues, typed).await?,
    }
    let mut lanes = queues.list().await?;
    lanes.retain(|lane| lane.queue == *queue);
    settings.output.list(&lanes, || table(&lanes))
}

async fn set_queue(queues: &mut QueueSource, typed: &Typed) -> anyhow::Result<()> {
    let queue = &typed.lane.queue;
    let lanes = queues.list().await?;
    let now = lanes.iter().find(|lane| lane.queue == *queue).map(|lane| lane.capacity);
    let capacity = typed.bounds.apply_to(now.unwrap_or_default());
    queues.change(queue, None, QueueSettings { capacity, ..QueueSettings::default() }).await
}

async fn set_lane(
    queues: &mut QueueSource,
    typed: &Typed,
    tenant: &TenantId,
    settings: &Settings,
) -> anyhow::Result<()> {
    let queue = &typed.lane.queue;
    let own = |lane: &&QueueInfo| lane.queue == *queue && lane.tenant == *tenant;
    let lanes = queues.list().await?;
    let now = lanes.iter().find(own).map_or(Capacity::default(), |lane| lane.lane_capacity);
    let change = QueueSettings {
        paused: None,
        weight: typed.weight.map(|weight| weight.0),
        cap: typed.cap.map(|cap| cap.0.map_or(0, |cap| cap.0)),
        capacity: typed.bounds.apply_to(now),
    };
    let changed = queues.change(queue, Some(tenant), change).await;
    if settings.tenant.is_some() {
        return changed.hint("a tenant cannot set its own weight in a shared queue: leave out --tenant");
    }
    changed
}

/// The named lane, or the settings' tenant's own if the queue is shared.
pub fn lane<'a>(typed: &'a LaneArg, settings: &'a Settings) -> Option<&'a TenantId> {
    let own = settings.tenant.as_ref().filter(|_| typed.queue.owner().is_none());
    typed.lane.as_ref().or(own)
}

/// The queue or lane, for people.
pub fn name(queue: &QueueName, lane: Option<&TenantId>) -> String {
    match lane {
        Some(tenant) => format!("lane `{tenant}` of queue `{queue}`"),
        None => format!("queue `{queue}`"),
    }
}

/// The settings of a queue and its lanes.
pub fn table(lanes: &[QueueInfo]) -> Table {
    let [units, bytes] = ["max units", "max bytes"].map(right);
    let [weight, cap] = ["weight", "cap"].map(right);
    let [lane_units, lane_bytes] = ["lane max units", "lane max bytes"].map(right);
    let heading = [cell("queue"), units, bytes, cell("lane"), weight, cap, lane_units, lane_bytes];
    let mut table = Table::new(heading, "no queues");
    for lane in lanes {
        table.row([
            cell(&lane.queue),
            right(shown(lane.capacity.units)),
            right(shown(lane.capacity.bytes.map(byte_size::format))),
            cell(&lane.tenant),
            right(lane.weight),
            right(shown(lane.cap)),
            right(shown(lane.lane_capacity.units)),
            right(shown(lane.lane_capacity.bytes.map(byte_size::format))),
        ]);
    }
    table
}
