//! `/`: the overview.

use std::time::Duration;

use longshore::accounts::Role;
use longshore::store::QueueInfo;
use longshore::{Counts, Scope};
use maud::{Markup, html};

use super::chart::{ChartLine, chart};
use super::format::{duration, number, rate};
use super::layout::layout;
use super::{PageRequest, alerts, batches, queues};
use crate::problem::Problem;
use crate::timeseries::Sample;

/// Number of batches shown; the rest is on their page.
const MAX_BATCHES: u32 = 8;
/// Number of lanes shown, fullest first.
const MAX_LANES: usize = 12;

pub(super) async fn page(req: &PageRequest) -> Result<Markup, Problem> {
    let (store, scope) = (&req.app.store, &req.caller.scope);
    let lanes = store.queues(scope).await?;
    let found = store.batches(scope, None, None, MAX_BATCHES).await?.items;
    let is_all = *scope == Scope::All && req.caller.role >= Role::Admin;
    let sessions = if is_all { store.sessions().await? } else { Vec::new() };
    let workers = sessions.iter().filter(|session| session.own_slots() > 0).count();
    let now = req.app.now();
    let mut counts = Counts::default();
    lanes.iter().for_each(|lane| counts += lane.counts);
    let mut found_alerts: Vec<_> = lanes
        .iter()
        .flat_map(|lane| alerts::lane_alerts(lane, queues::trend(req, lane), now))
        .chain(found.iter().filter_map(alerts::batch_alert))
        .collect();
    if is_all {
        found_alerts.extend(alerts::worker_alerts(&sessions, counts.ready, now));
    }
    found_alerts.sort();
    let oldest = lanes.iter().filter_map(|lane| lane.oldest_ready).min();
    let tile = |name: &str, value: String, class: Option<&str>| {
        html! { div class={ "tile " (class.unwrap_or_default()) } { b { (value) } span { (name) } } }
    };
    let main = html! {
        h1 { "Overview" }
        (alerts::list(&found_alerts))
        div.tiles {
            (tile("ready", number(counts.ready), None))
            (tile("running", number(counts.leased), None))
            (tile("later", number(counts.scheduled + counts.blocked), None))
            (tile("failed", number(counts.failed), (counts.failed > 0).then_some("bad")))
            (tile("done", number(counts.done), None))
            (tile("oldest waits", oldest.map_or("–".to_owned(), |then| duration(now.since(then))), None))
            @if is_all { (tile("workers", number(workers as u64), None)) }
        }
        (charts(&req.app.timeseries.of(scope)))
        h2 { "Newest batches" }
        (batches::table(req, found))
        h2 { "Queues" }
        (fullest(req, lanes))
    };
    Ok(layout(&req.caller, "/", "Overview", main))
}

fn fullest(req: &PageRequest, mut lanes: Vec<QueueInfo>) -> Markup {
    let all = lanes.len();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.counts.live()));
    lanes.truncate(MAX_LANES);
    html! {
        (queues::table(req, &lanes))
        @if all > lanes.len() {
            p { a href="/queues" { "All " (number(all as u64)) " lanes" } }
        }
    }
}

/// Charts of throughput, depth and latency in the last hour, since the process started.
fn charts(samples: &[Sample]) -> Markup {
    let [first, .., last] = samples else {
        return html! { p.soft { "Charts begin after this server's second sample." } };
    };
    let whole = last.at.since(first.at);
    let position = |sample: &Sample| sample.at.since(first.at).as_secs_f64() / whole.as_secs_f64().max(1e-9);
    let along = |of: &dyn Fn(usize) -> Option<f64>| {
        samples.iter().enumerate().map(|(at, sample)| (position(sample), of(at))).collect::<Vec<_>>()
    };
    let rates = along(&|at| at.checked_sub(1).and_then(|before| samples[at].rate(&samples[before])));
    #[expect(clippy::cast_precision_loss, reason = "a line for people")]
    let depths = along(&|at| Some(samples[at].backlog as f64));
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let (latency_p50, most) =
        (along(&|at| seconds(samples[at].latency_p50)), along(&|at| seconds(samples[at].latency_p95)));
    let newest = |points: &[(f64, Option<f64>)]| points.iter().rev().find_map(|(_, value)| *value);
    let now_rate = newest(&rates).map_or("–".to_owned(), rate);
    let now_took = newest(&latency_p50).map_or("–".to_owned(), time);
    html! {
        div.charts {
            (chart("Done per second", &now_rate, rate, &[ChartLine { class: "good", points: rates }]))
            (chart("Waiting and running", &number(last.backlog), whole_number,
                &[ChartLine { class: "accent", points: depths }]))
            (chart("From sent to done", &now_took, time,
                &[ChartLine { class: "warn", points: most }, ChartLine { class: "accent", points: latency_p50 }]))
        }
        p.soft { "The last " (duration(whole)) ", as sampled by this server process. From sent to done: the median, "
            "and above it the 95th percentile." }
    }
}

fn time(seconds: f64) -> String {
    duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, once")]
fn whole_number(value: f64) -> String {
    number(value.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use longshore::Timestamp;

    use super::*;

    fn sample(second: u64, backlog: u64, done: u64) -> Sample {
        let at = Timestamp::ZERO + Duration::from_secs(second);
        let latency_p50 = Some(Duration::from_millis(250));
        Sample { at, backlog, done, latency_p50, latency_p95: latency_p50, ..Sample::default() }
    }

    #[test]
    fn charts_say_what_is_now_and_begin_with_the_second_look() {
        let page = charts(&[sample(0, 9, 0)]).into_string();
        assert!(page.contains("second sample"), "{page}");
        let page = charts(&[sample(0, 9, 0), sample(10, 1_400, 50)]).into_string();
        for words in ["5.00/s", "1,400", "250 ms", "The last 10 s"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert_eq!(page.matches("<svg").count(), 3, "{page}");
    }
}
