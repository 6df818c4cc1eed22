//! The contents of a report, and that no value is taken for markup.

use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, Clock, Scope, SystemClock, TenantId};
use longshore_ai::Code;
use longshore_batch::Report;
use longshore_batch::definition::{Database, Definition};
use serde_json::{Value, json};

use crate::handler::fixture::{FakeProvider, FakeReply, Fixture, answer, definition};

async fn report(fixture: &Fixture, id: &BatchId) -> Report {
    let now = SystemClock.now();
    Report::gather(&*fixture.store, &Scope::All, id, now).await.unwrap()
}

/// Ten rows: the answers to 3 and 6 are invalid, and the provider rejects 9.
fn seven_of_ten() -> Arc<FakeProvider> {
    FakeProvider::new(|question, _| {
        let row = question.prompt.trim_end_matches('?').parse::<u64>().unwrap_or_default();
        match row {
            9 => FakeReply::Error(longshore_ai::AskError::new(Code::ProviderAuth, "key 12345 refused")),
            3 | 6 => FakeReply::Answer(answer(&format!("row {row} is odd"))),
            _ => FakeReply::Answer(answer(r#"{"verdict": "fine"}"#)),
        }
    })
}

fn keys(count: u64) -> Vec<Value> {
    (1..=count).map(|key| json!(key)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_report_has_the_tally_the_money_and_the_failures_by_reason() {
    let fixture = Fixture::in_memory(seven_of_ten());
    let id = fixture.start(&definition(), &keys(10)).await;
    fixture.work(fixture.handler()).await;
    let report = report(&fixture, &id).await;

    assert_eq!((report.batch.counts.done, report.batch.counts.failed), (7, 3));
    assert_eq!((report.usage.answers, report.usage.simulated), (9, 9));
    assert_eq!(report.usage.cost.0, 9 * 150_000_000);
    assert_eq!(report.latency.total(), 9);
    assert_eq!(report.latency.quantile(50).unwrap().to_string(), "≤ 10 ms");
    let groups: Vec<_> = report.failures.iter().map(|one| (one.code.as_str(), one.count)).collect();
    assert_eq!(groups, [("bad-answer", 2), ("provider-auth", 1)]);
    let mut examples = report.failures[0].examples.clone();
    examples.sort();
    assert_eq!(examples, ["3", "6"]);

    let page = report.markdown();
    for words in ["# Batch b-1", "**Simulated", "| Done | 7 |", "bad-answer", "≤ 10 ms", "| Cost | $0.0014 |"]
    {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    let page = report.html();
    for words in ["<h1>Batch b-1</h1>", "<svg", "prefers-color-scheme:dark", "class=\"mark\""] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "nothing is run or loaded");
}

#[tokio::test(start_paused = true)]
async fn nothing_from_outside_is_taken_for_markup() {
    let hostile = "</td><script>alert('1')</script>\" onload=\"x | **b** `c` [l](u)\n# h";
    let fixture = Fixture::in_memory(FakeProvider::new(move |_, _| {
        FakeReply::Error(longshore_ai::AskError::new(Code::InvalidRequest, hostile))
    }));
    let mut definition = definition();
    definition.kind = hostile.to_owned();
    definition.source = hostile.to_owned();
    definition.candidates.sql = hostile.to_owned();
    let id = fixture.start(&definition, &[json!(hostile)]).await;
    fixture.work(fixture.handler()).await;
    let report = report(&fixture, &id).await;

    let page = report.html();
    assert_eq!(page.matches("<script").count(), 0, "{page}");
    assert!(!page.contains("onload=\"") && !page.contains("alert('"), "{page}");
    let times = page.matches("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;").count();
    assert!(times >= 5, "type, source, SQL, message and key are shown as they are: {times}");

    let page = report.markdown();
    assert!(!page.contains("<script") && !page.contains("\n# h"), "{page}");
    assert!(!page.contains("x | ") && !page.contains(" **b**"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn many_failures_are_read_page_by_page_and_named_by_three() {
    let fixture = Fixture::in_memory(FakeProvider::new(|question, _| {
        FakeReply::Answer(answer(&format!("nonsense number {}", question.prompt)))
    }));
    let id = fixture.start(&definition(), &keys(2_500)).await;
    fixture.work(fixture.handler()).await;
    let report = report(&fixture, &id).await;
    assert_eq!(report.failures.len(), 1, "{:?}", &report.failures[..2]);
    assert_eq!((report.failures[0].count, report.failures[0].examples.len()), (2_500, 3));
}

#[tokio::test(start_paused = true)]
async fn a_report_shows_no_password_and_no_other_tenants_batch() {
    let fixture = Fixture::in_memory(seven_of_ten());
    let database = Database::Url("postgres://erp:s3cret@db.local/erp".to_owned());
    let definition = Definition { database, ..definition() };
    let id = fixture.start(&definition, &keys(1)).await;
    let report = report(&fixture, &id).await;
    for page in [report.markdown(), report.html()] {
        assert!(page.contains("db.local") && !page.contains("s3cret"), "{page}");
    }
    let other = Scope::Tenant(TenantId::new("other").unwrap());
    let refused = Report::gather(&*fixture.store, &other, &id, SystemClock.now()).await;
    assert!(refused.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_has_not_begun_has_a_report_too() {
    let fixture = Fixture::in_memory(seven_of_ten());
    let id = fixture.start(&definition(), &keys(4)).await;
    let report = report(&fixture, &id).await;
    assert_eq!((report.duration(), report.progress().rate), (None, None));
    let page = report.markdown();
    assert!(page.contains("| Status | queued |") && page.contains("| Not ended | 4 |"), "{page}");
    assert!(!page.contains("Simulated") && !page.contains("## Latency"), "{page}");
    assert!(report.html().ends_with("</html>\n"));
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_rows_per_second_of_work() {
    let fixture = Fixture::in_memory(seven_of_ten());
    let id = fixture.start(&definition(), &keys(10)).await;
    fixture.work(fixture.handler()).await;
    let mut report = report(&fixture, &id).await;
    report.batch.completed_at = report.batch.started_at.map(|at| at + Duration::from_secs(4));
    assert_eq!(report.progress().rate, Some(2.5));
}
