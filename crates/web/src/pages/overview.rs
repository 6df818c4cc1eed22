//! `/`: how it all stands.

use std::time::Duration;

use longshore::ledger::Role;
use longshore::store::QueueInfo;
use longshore::{Counts, Scope};
use maud::{Markup, html};

use super::chart::{Line, chart, short};
use super::frame::frame;
use super::words::{number, rate, span};
use super::{Visit, alerts, batches, queues};
use crate::history::Sample;
use crate::problem::Problem;

/// Batches shown here; the rest is on their page.
const NEWEST: u32 = 8;
/// Lanes shown here, the fullest first.
const FULLEST: usize = 12;

pub(super) async fn page(visit: &Visit) -> Result<Markup, Problem> {
    let (store, scope) = (&visit.house.store, &visit.caller.scope);
    let lanes = store.queues(scope).await?;
    let found = store.batches(scope, None, None, NEWEST).await?.items;
    let is_all = *scope == Scope::All && visit.caller.role >= Role::Admin;
    let sessions = if is_all { store.sessions().await? } else { Vec::new() };
    let workers = sessions.iter().filter(|session| session.own_slots() > 0).count();
    let now = visit.house.now();
    let mut counts = Counts::default();
    lanes.iter().for_each(|lane| counts += lane.counts);
    let mut told: Vec<_> = lanes
        .iter()
        .flat_map(|lane| alerts::of_lane(lane, queues::trend(visit, lane), now))
        .chain(found.iter().filter_map(alerts::of_batch))
        .collect();
    if is_all {
        told.extend(alerts::of_workers(&sessions, counts.ready, now));
    }
    told.sort();
    let oldest = lanes.iter().filter_map(|lane| lane.oldest_ready).min();
    let tile = |name: &str, value: String, class: Option<&str>| {
        html! { div class={ "tile " (class.unwrap_or_default()) } { b { (value) } span { (name) } } }
    };
    let main = html! {
        h1 { "Overview" }
        (alerts::list(&told))
        div.tiles {
            (tile("ready", number(counts.ready), None))
            (tile("running", number(counts.leased), None))
            (tile("later", number(counts.scheduled + counts.blocked), None))
            (tile("failed", number(counts.failed), (counts.failed > 0).then_some("bad")))
            (tile("done", number(counts.done), None))
            (tile("oldest waits", oldest.map_or("–".to_owned(), |then| span(now.since(then))), None))
            @if is_all { (tile("workers", number(workers as u64), None)) }
        }
        (charts(&visit.house.history.of(scope)))
        h2 { "Newest batches" }
        (batches::table(visit, found))
        h2 { "Queues" }
        (fullest(visit, lanes))
    };
    Ok(frame(&visit.caller, "/", "Overview", main))
}

fn fullest(visit: &Visit, mut lanes: Vec<QueueInfo>) -> Markup {
    let all = lanes.len();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.counts.live()));
    lanes.truncate(FULLEST);
    html! {
        (queues::table(visit, &lanes))
        @if all > lanes.len() {
            p { a href="/queues" { "All " (number(all as u64)) " lanes" } }
        }
    }
}

/// Throughput, depth and latency of the last hour, as far as this process has seen it.
fn charts(samples: &[Sample]) -> Markup {
    let [first, .., last] = samples else {
        return html! { p.soft { "Charts begin when this server has watched for a moment." } };
    };
    let whole = last.at.since(first.at);
    let place =
        |sample: &Sample| sample.at.since(first.at).as_secs_f64() / whole.as_secs_f64().max(1e-9);
    let along = |of: &dyn Fn(usize) -> Option<f64>| {
        samples.iter().enumerate().map(|(at, sample)| (place(sample), of(at))).collect::<Vec<_>>()
    };
    let rates =
        along(&|at| at.checked_sub(1).and_then(|before| samples[at].rate(&samples[before])));
    #[expect(clippy::cast_precision_loss, reason = "a line for people")]
    let depths = along(&|at| Some(samples[at].backlog as f64));
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let (took, most) =
        (along(&|at| seconds(samples[at].took)), along(&|at| seconds(samples[at].took_most)));
    let newest = |points: &[(f64, Option<f64>)]| points.iter().rev().find_map(|(_, value)| *value);
    let now_rate = newest(&rates).map_or("–".to_owned(), rate);
    let now_took = newest(&took).map_or("–".to_owned(), time);
    html! {
        div.charts {
            (chart("Done per second", &now_rate, rate, &[Line { class: "good", points: rates }]))
            (chart("Waiting and running", &number(last.backlog), whole_number,
                &[Line { class: "accent", points: depths }]))
            (chart("From sent to done", &now_took, time,
                &[Line { class: "warn", points: most }, Line { class: "accent", points: took }]))
        }
        p.soft { "The last " (span(whole)) ", as this server process has seen it. From sent to done: the median, "
            "and above it all but the slowest twentieth." }
    }
}

fn time(seconds: f64) -> String {
    short(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
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
        let took = Some(Duration::from_millis(250));
        Sample { at, backlog, done, took, took_most: took, ..Sample::default() }
    }

    #[test]
    fn charts_say_what_is_now_and_begin_with_the_second_look() {
        let page = charts(&[sample(0, 9, 0)]).into_string();
        assert!(page.contains("begin when"), "{page}");
        let page = charts(&[sample(0, 9, 0), sample(10, 1_400, 50)]).into_string();
        for words in ["5.00/s", "1,400", "250 ms", "The last 10 s"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert_eq!(page.matches("<svg").count(), 3, "{page}");
    }
}
