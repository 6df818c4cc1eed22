//! Alerts, derived from data that the pages load anyway.

use std::time::Duration;

use longshore::batch::Batch;
use longshore::store::QueueInfo;
use longshore::worker_session::Session;
use longshore::{BatchStatus, Timestamp};
use maud::{Markup, html};

use super::batches::query;
use super::format::{duration, number};
use crate::Trend;

/// Warn if a unit has been ready for longer.
const MAX_READY_WAIT: Duration = Duration::from_secs(600);
/// A queue is nearly full above this share of its capacity.
const NEARLY_FULL: f64 = 0.9;

/// An alert; critical ones sort first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alert {
    is_warning: bool,
    text: String,
    /// The page with details.
    page: String,
}

impl Alert {
    fn critical(text: String, page: impl Into<String>) -> Self {
        Self { is_warning: false, text, page: page.into() }
    }

    fn warning(text: String, page: impl Into<String>) -> Self {
        Self { is_warning: true, text, page: page.into() }
    }
}

/// Renders alerts; empty if there are none.
pub(super) fn list(alerts: &[Alert]) -> Markup {
    html! {
        @if !alerts.is_empty() {
            ul.alerts aria-label="Alerts" { @for alert in alerts {
                li class=(if alert.is_warning { "warning" } else { "critical" }) {
                    a href=(alert.page) { (alert.text) }
                }
            } }
        }
    }
}

/// Alerts of a lane.
pub(super) fn lane_alerts(lane: &QueueInfo, trend: Option<Trend>, now: Timestamp) -> Vec<Alert> {
    let mut found = Vec::new();
    let name = format!("Queue {} of {}", lane.queue, lane.tenant);
    let waiting = lane.counts.ready;
    if lane.paused && waiting > 0 {
        found.push(Alert::warning(format!("{name} is paused: {} wait", number(waiting)), "/queues"));
        return found;
    }
    if let Some(room) = lane.lane_capacity.units.or(lane.capacity.units)
        && is_nearly_full(lane.counts.live(), room)
    {
        let text = format!("{name} is nearly full: {} of {}", number(lane.counts.live()), number(room));
        found.push(Alert::critical(text, "/queues"));
    }
    let waits = lane.oldest_ready.map_or(Duration::ZERO, |then| now.since(then));
    if waits > MAX_READY_WAIT && !lane.suspended && trend != Some(Trend::Draining) {
        let text = format!("{name}: the oldest has waited for {}", duration(waits));
        found.push(Alert::warning(text, "/queues"));
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn is_nearly_full(live: u64, room: u64) -> bool {
    live as f64 >= room as f64 * NEARLY_FULL
}

/// The alert of a failed or paused batch.
pub(super) fn batch_alert(batch: &Batch) -> Option<Alert> {
    let page = format!("/batches/{}", query(batch.id.as_str()));
    let why = batch.reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    match batch.status {
        BatchStatus::Failed => Some(Alert::critical(format!("Batch {} failed{why}", batch.id), page)),
        BatchStatus::Paused => Some(Alert::warning(format!("Batch {} is paused{why}", batch.id), page)),
        _ => None,
    }
}

/// Alerts of workers: none for ready units, or one without heartbeats.
pub(super) fn worker_alerts(sessions: &[Session], ready: u64, now: Timestamp) -> Vec<Alert> {
    let mut found = Vec::new();
    // Some processes have a session without slots: they record calls, or forward units.
    if !sessions.iter().any(|session| session.own_slots() > 0 || session.held > 0) && ready > 0 {
        let text = format!("No workers, and {} units wait: start `longshore worker`", number(ready));
        found.push(Alert::critical(text, "/workers"));
    }
    for session in sessions {
        let silent = now.since(session.beat_at);
        if silent > session.ttl {
            let text = format!("Worker {} has sent no heartbeat for {}", session.label, duration(silent));
            found.push(Alert::critical(text, "/workers"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use longshore::store::Capacity;
    use longshore::{Counts, QueueName, TenantId};

    use super::*;

    fn lane(ready: u64, room: Option<u64>, waited: u64) -> (QueueInfo, Timestamp) {
        let now = Timestamp::ZERO + Duration::from_secs(100_000);
        let none = Capacity { units: None, bytes: None };
        let lane = QueueInfo {
            queue: QueueName::new("mail").unwrap(),
            tenant: TenantId::default(),
            paused: false,
            queue_paused: false,
            lane_paused: false,
            suspended: false,
            weight: 1,
            cap: None,
            capacity: Capacity { units: room, bytes: None },
            lane_capacity: none,
            counts: Counts { ready, ..Counts::default() },
            bytes: 0,
            oldest_ready: Some(now - Duration::from_secs(waited)),
        };
        (lane, now)
    }

    #[test]
    fn a_lane_is_told_of_when_it_is_full_late_or_paused() {
        let count = |ready, room, waited, trend| {
            let (lane, now) = lane(ready, room, waited);
            lane_alerts(&lane, trend, now).len()
        };
        assert_eq!(count(5, None, 10, None), 0);
        assert_eq!(count(5, Some(100), 10, None), 0);
        assert_eq!(count(90, Some(100), 10, None), 1);
        assert_eq!(count(5, None, 3_600, Some(Trend::Growing)), 1);
        assert_eq!(count(5, None, 3_600, Some(Trend::Draining)), 0);
        let (lane, now) = lane(5, None, 0);
        let paused = QueueInfo { paused: true, ..lane };
        assert!(lane_alerts(&paused, None, now)[0].text.contains("paused: 5 wait"));
    }

    #[test]
    fn grave_ones_come_first() {
        let mut all = [Alert::warning("a".to_owned(), "/"), Alert::critical("b".to_owned(), "/")];
        all.sort();
        assert_eq!(all[0].text, "b");
        assert!(worker_alerts(&[], 3, Timestamp::ZERO)[0].text.contains("No workers"));
        assert!(worker_alerts(&[], 0, Timestamp::ZERO).is_empty());
    }
}
