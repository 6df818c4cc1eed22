//! What operators see of batches: progress, cost and pauses in lists, rows by code and key, and exports.

use std::cell::RefCell;
use std::rc::Rc;

use longshore_testkit::servers::PrivatePostgres;
use serde_json::{Value, json};

use crate::batch_job::{BatchJob, ROWS_IN_POSTGRES, SharedPostgres};

/// Row 3 fails, each tenth row of the others is refused by POST.
const SORTS: &str = "CASE WHEN i = 3 THEN 'bad' WHEN i % 10 = 0 THEN 'refused' ELSE 'good' END";

fn run_job() -> (BatchJob, String) {
    let job =
        BatchJob::new(30, SORTS).with(&[("timeout = \"30s\"", "timeout = \"30s\"\nkeep_answers = true")]);
    job.run(&[]).ends(3);
    let name = job.name();
    (job, name)
}

fn keys(rows: &Value) -> Vec<u64> {
    let mut keys: Vec<u64> =
        rows.as_array().unwrap().iter().map(|row| row["key"].as_u64().unwrap()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_list_and_a_status_show_progress_rate_cost_and_pauses() {
    let job = BatchJob::good(400)
        .with(&[("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"20ms\"")]);
    let mut run = job.start(&[]);
    job.wait_for_effects(50);
    let name = job.name();
    job.operate("pause", &["--reason", "lunch"]).ok();
    assert_eq!(run.ends_within(crate::support::TIMEOUT), 4);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let paused = job.batch();
    let number = |batch: &Value, field: &str| batch[field].as_f64().unwrap_or(-1.0);
    assert!((10.0..100.0).contains(&number(&paused, "percent")), "{paused}");
    assert_eq!((&paused["expected"], &paused["seconds_left"]), (&json!(400), &Value::Null), "{paused}");
    assert!(number(&paused, "seconds_paused") >= 1.0 && number(&paused, "rate") > 0.0, "{paused}");
    let (cost, projected) = (number(&paused, "cost"), number(&paused, "projected_cost"));
    assert!(cost > 0.0 && projected > cost, "{paused}");
    let list = job.dir.run(&["batch", "list"]).ok().out;
    let heading = list.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        heading, "NUMBER BATCH TYPE STATUS % TOTAL DONE RATE PAUSED COST PROJECTED INITIATED",
        "{list}"
    );
    let status = job.dir.run(&["batch", "status", &name]).ok().out;
    for words in ["type ", "tenant ", "ended ", "ran ", "paused ", "rate ", "projected cost "] {
        assert!(status.lines().any(|line| line.starts_with(words)), "no {words}in {status}");
    }
    job.operate("resume", &[]).ok();
    job.run(&[]).ok();
    let ended = job.batch();
    assert_eq!((&ended["percent"], &ended["projected_cost"]), (&json!(100), &Value::Null), "{ended}");
    assert!(number(&ended, "seconds_paused") >= 1.0, "{ended}");
    let took: f64 = job.query(&format!(
        "SELECT SECONDS_RUNNING + SECONDS_PAUSED + 0.0 FROM longshore_batches WHERE BATCH_ID = '{name}'"
    ));
    assert!(took >= 1.0, "{took}");
}

#[test]
fn rows_are_found_by_code_key_range_and_attempt() {
    let (job, _) = run_job();
    let rows = |more: &[&str]| keys(&job.operate("rows", more).ok().json());
    assert_eq!(rows(&["--code", "bad-answer"]), [3]);
    assert_eq!(rows(&["--code", "bad-answer", "--code", "effect"]), [3, 10, 20, 30]);
    assert_eq!(rows(&["--key", "7", "--key", "9..11"]), [7, 9, 10, 11]);
    assert_eq!(rows(&["--key", "..12", "--state", "failed"]), [3, 10]);
    assert_eq!(rows(&["--attempt", "2", "--failed"]), [10, 20, 30], "POST's errors are retried once");
    assert_eq!(rows(&["--code", "nonsense"]), Vec::<u64>::new());
    // Pages of a selection are exact.
    let args = ["batch", "rows", &job.name(), "--key", "5..", "--limit", "7"];
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let more: Vec<&str> = after.iter().flat_map(|after| ["--after", after.as_str()]).collect();
        let page = job.dir.run(&[args.as_slice(), &more, &["--json"]].concat()).ok();
        found.extend(keys(&page.json()));
        after = page.err.split("--after ").nth(1).map(|cursor| cursor.trim().to_owned());
        if after.is_none() {
            break;
        }
    }
    found.sort_unstable();
    assert!(found.iter().copied().eq(5..=30), "{found:?}");
    job.dir.run(&["batch", "rows", &job.name(), "--key", ".."]).ends(2).says("a range has at least one end");
}

#[test]
fn all_rows_are_exported_with_their_answers() {
    let (job, name) = run_job();
    let ndjson = job.dir.run(&["batch", "rows", &name, "--format", "ndjson"]).ok().out;
    let lines: Vec<Value> = ndjson.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(keys(&Value::Array(lines.clone())), (1..=30).collect::<Vec<_>>());
    let row = |key: u64| lines.iter().find(|row| row["key"] == key).unwrap();
    assert_eq!((&row(1)["answer"], &row(1)["state"]), (&json!("{\"n\": 1}"), &json!("done")));
    assert!(row(3)["answer"].as_str().unwrap().starts_with("I am sorry, as"), "{}", row(3));

    let wrote = job.dir.run(&["batch", "rows", &name, "--format", "csv", "-o", "rows.csv", "--failed"]).ok();
    assert_eq!(wrote.says("wrote 4 rows to rows.csv").out, "", "stdout is for data");
    let csv = job.dir.read("rows.csv");
    let mut lines = csv.split("\r\n");
    assert_eq!(
        lines.next(),
        Some(
            "key,state,attempt,code,reason,unit,verdict,model,tokens_in,tokens_out,cost_usd,latency_ms,simulated,answer"
        )
    );
    let bad = lines.find(|line| line.starts_with("3,failed,1,bad-answer,")).unwrap();
    assert!(bad.ends_with(",\"I am sorry, as a model of language I cannot.\""), "{bad}");
    job.dir.run(&["batch", "rows", &name, "-o", "rows.csv"]).ends(2).says("--format");
    job.dir.run(&["batch", "rows", &name, "--format", "csv", "-o", "no/such/x"]).ends(1).says("no/such/x");
}

/// The operator is warned before a row is asked, and duplicate keys open no batch.
#[test]
fn mistakes_that_cost_money_are_named_before_the_first_question() {
    let all_rows = ("UPDATE rows SET done = done + 1 WHERE id = :key", "UPDATE rows SET done = done + 1");
    let job = BatchJob::good(3).with(&[all_rows]);
    job.run(&["--dry-run"]).ok().says("batch.toml, line ").says("the UPDATE has no WHERE");
    let twice = ("SELECT id FROM rows WHERE done = 0", "SELECT id FROM rows UNION ALL SELECT 2");
    let job = BatchJob::good(3).with(&[twice]);
    job.run(&[]).ends(1).says("in `id` one key has several candidates: `2`").says("hint: ");
    assert_eq!(job.dir.run(&["batch", "list", "--json"]).ok().json(), json!([]), "no batch was opened");
    assert_eq!(job.count("effects"), 0);
    let job = BatchJob::good(3).with(&[("timeout = \"30s\"", "timeout = \"30s\"\nmax_prompt = \"10B\"")]);
    let shown = job.run(&["--dry-run"]).ends(3).out;
    assert!(shown.contains("the prompt has 14 B, `ai.max_prompt` is 10 B"), "{shown}");
    job.run(&[]).ends(3);
    assert_eq!(job.count("failures WHERE code = 'PROMPT_TOO_LONG'"), 3);
}

#[test]
fn a_batch_stops_at_its_budget_and_says_so() {
    let job = BatchJob::good(300).with(&[("timeout = \"30s\"", "timeout = \"30s\"\nbudget = \"$0.001\"")]);
    let ended = job.run(&[]).ends(4);
    let batch = job.batch();
    assert_eq!(batch["status"], "paused");
    assert!(
        batch["reason"].as_str().unwrap().starts_with("the budget of $0.0010 is reached: $0.00"),
        "{batch}"
    );
    assert!(batch["cost"].as_f64().unwrap() <= 0.001 && batch["done"].as_u64().unwrap() > 3, "{batch}");
    assert!(ended.err.is_empty() || !ended.err.contains("panicked"), "{}", ended.err);
    job.execute("UPDATE rows SET done = 1");
    let job = BatchJob::good(3).with(&[("timeout = \"30s\"", "timeout = \"30s\"\nbudget = \"lots\"")]);
    job.run(&[]).ends(1).says("batch.toml, line ").says("is not an amount of dollars");
}

/// The columns that the users' own monitoring queries read, in both stores.
#[test]
fn a_view_of_both_stores_shows_batches_to_monitoring_queries() {
    let monitor = |job: &BatchJob| {
        job.run(&[]).ends(3);
        job.query::<String>(
            "SELECT STATUS || ' ' || TOTAL_UNITS || ' ' || PROCESSED_UNITS || ' ' || FAILED_UNITS || ' ' || WORKER_COUNT
             FROM longshore_batches WHERE PCT = 100 AND SECONDS_RUNNING >= 0 AND BATCH_ID <> '' AND CANCELLED_UNITS = 0",
        )
    };
    let on_sqlite = BatchJob::new(30, SORTS);
    assert_eq!(monitor(&on_sqlite), "complete 30 26 4 8");
    let server: SharedPostgres = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
    let on_postgres = BatchJob::new(30, SORTS).with(&[ROWS_IN_POSTGRES]).move_to(&server, &server, &[]);
    on_postgres.seed();
    assert_eq!(monitor(&on_postgres), "complete 30 26 4 8");
}
