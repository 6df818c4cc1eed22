//! What somebody should look at, gathered from what the pages know anyway.

use std::time::Duration;

use longshore::batch::Batch;
use longshore::session::Session;
use longshore::store::QueueInfo;
use longshore::{BatchStatus, Timestamp};
use maud::{Markup, html};

use super::words::{number, span};
use crate::Trend;

/// For so long a unit may wait before somebody should know of it.
const LONG: Duration = Duration::from_secs(600);
/// A queue is nearly full from this part on.
const FULL: f64 = 0.9;

/// Something to look at, the grave ones first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alert {
    is_mild: bool,
    words: String,
    /// The page that says more.
    page: String,
}

impl Alert {
    fn grave(words: String, page: impl Into<String>) -> Self {
        Self { is_mild: false, words, page: page.into() }
    }

    fn mild(words: String, page: impl Into<String>) -> Self {
        Self { is_mild: true, words, page: page.into() }
    }
}

/// Alerts as they are shown; nothing if there are none.
pub(super) fn list(alerts: &[Alert]) -> Markup {
    html! {
        @if !alerts.is_empty() {
            ul.alerts aria-label="Alerts" { @for alert in alerts {
                li class=(if alert.is_mild { "mild" } else { "grave" }) {
                    a href=(alert.page) { (alert.words) }
                }
            } }
        }
    }
}

/// Of a lane.
pub(super) fn of_lane(lane: &QueueInfo, trend: Option<Trend>, now: Timestamp) -> Vec<Alert> {
    let mut found = Vec::new();
    let name = format!("Queue {} of {}", lane.queue, lane.tenant);
    let waiting = lane.counts.ready;
    if lane.paused && waiting > 0 {
        found.push(Alert::mild(format!("{name} is paused: {} wait", number(waiting)), "/queues"));
        return found;
    }
    if let Some(room) = lane.lane_capacity.units.or(lane.capacity.units)
        && is_nearly(lane.counts.live(), room)
    {
        let words =
            format!("{name} is nearly full: {} of {}", number(lane.counts.live()), number(room));
        found.push(Alert::grave(words, "/queues"));
    }
    let waits = lane.oldest_ready.map_or(Duration::ZERO, |then| now.since(then));
    if waits > LONG && !lane.suspended && trend != Some(Trend::Draining) {
        let words = format!("{name}: the oldest has waited for {}", span(waits));
        found.push(Alert::mild(words, "/queues"));
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn is_nearly(live: u64, room: u64) -> bool {
    live as f64 >= room as f64 * FULL
}

/// Of a batch that ended badly, or that somebody or something has stopped.
pub(super) fn of_batch(batch: &Batch) -> Option<Alert> {
    let page = format!("/batches/{}", batch.id);
    let why = batch.reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    match batch.status {
        BatchStatus::Failed => Some(Alert::grave(format!("Batch {} failed{why}", batch.id), page)),
        BatchStatus::Paused => {
            Some(Alert::mild(format!("Batch {} is paused{why}", batch.id), page))
        }
        _ => None,
    }
}

/// Of workers: that there are none for what is ready, or that one is silent.
pub(super) fn of_workers(sessions: &[Session], ready: u64, now: Timestamp) -> Vec<Alert> {
    let mut found = Vec::new();
    // Some processes only keep their books under a session, or hand units on: they have no slots of their own.
    if !sessions.iter().any(|session| session.own_slots() > 0 || session.held > 0) && ready > 0 {
        let words = format!("Nobody works, and {} wait: start `longshore worker`", number(ready));
        found.push(Alert::grave(words, "/workers"));
    }
    for session in sessions {
        let silent = now.since(session.beat_at);
        if silent > session.ttl {
            let words = format!("Worker {} has been silent for {}", session.label, span(silent));
            found.push(Alert::grave(words, "/workers"));
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
            of_lane(&lane, trend, now).len()
        };
        assert_eq!(count(5, None, 10, None), 0);
        assert_eq!(count(5, Some(100), 10, None), 0);
        assert_eq!(count(90, Some(100), 10, None), 1);
        assert_eq!(count(5, None, 3_600, Some(Trend::Growing)), 1);
        assert_eq!(count(5, None, 3_600, Some(Trend::Draining)), 0);
        let (lane, now) = lane(5, None, 0);
        let paused = QueueInfo { paused: true, ..lane };
        assert!(of_lane(&paused, None, now)[0].words.contains("paused: 5 wait"));
    }

    #[test]
    fn grave_ones_come_first() {
        let mut all = [Alert::mild("a".to_owned(), "/"), Alert::grave("b".to_owned(), "/")];
        all.sort();
        assert_eq!(all[0].words, "b");
        assert!(of_workers(&[], 3, Timestamp::ZERO)[0].words.contains("Nobody works"));
        assert!(of_workers(&[], 0, Timestamp::ZERO).is_empty());
    }
}
