//! Steering batches while they run: pause, resume, drain, cancel, retry, recover, and Ctrl-C.

use serde_json::{Value, json};

use crate::batch_job::{Job, edited};
use crate::support::{Running, SOON, eventually};

const ROWS: u64 = 400;

/// So slow that there is time to steer.
fn slow(millis: u64) -> (String, String) {
    let script = "script = \"script.toml\"";
    (script.to_owned(), format!("{script}\ndelay = \"{millis}ms\""))
}

fn slow_job(rows: u64, millis: u64, more: &[(&str, &str)]) -> Job {
    let (right, wrong) = slow(millis);
    Job::good(rows).with(&[&[(right.as_str(), wrong.as_str())], more].concat())
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn ends(job: &Job) -> String {
    let sql =
        "SELECT group_concat(status || ' ' || generation || ' ' || done || ' ' || failed, ', ')
               FROM ends";
    job.query::<Option<String>>(sql).unwrap_or_default()
}

#[test]
fn a_paused_batch_stops_its_run_and_goes_on_after_resume() {
    let job = slow_job(ROWS, 20, &[]);
    let mut run = job.start(&[]);
    job.until_done(20);
    let paused = job.operate("pause", &["--reason", "tea"]).ok().json();
    assert_eq!((&paused["status"], &paused["reason"]), (&json!("paused"), &json!("tea")));
    assert_eq!(run.ends_within(SOON), 4);
    let at_rest = job.batch();
    assert!(number(&at_rest, "done") < ROWS, "{at_rest}");
    assert_eq!((&at_rest["leased"], job.count("effects")), (&json!(0), number(&at_rest, "done")));

    job.run(&[]).ends(1).says("is paused: tea").says("hint:");
    assert_eq!(job.operate("resume", &[]).ok().json()["status"], "running");
    let last = job.run(&[]).ok().json();
    assert_eq!((&last["done"], &last["batch"]), (&json!(ROWS), &at_rest["batch"]), "{last}");
    job.assert_exact();
    assert_eq!(ends(&job), format!("complete 1 {ROWS} 0"));
}

/// The last line is what scripts go by: it counts the rows that came to their end meanwhile.
#[test]
fn the_last_line_of_a_paused_run_counts_what_the_store_counts() {
    // Ten rows are under way when the others have failed too often.
    let edits = [("limit = \"none\"", "limit = 25"), ("workers = 8", "workers = 20")];
    let job = Job::new(2_000, "CASE WHEN i <= 10 THEN 'slow' ELSE 'bad' END").with(&edits);
    let last = job.run(&[]).ends(4).json();
    let batch = job.batch();
    for name in ["batch", "status", "total", "done", "failed", "cancelled"] {
        assert_eq!(last[name], batch[name], "{name}: {last} {batch}");
    }
}

#[test]
fn drain_waits_until_nothing_of_a_batch_runs() {
    let job = slow_job(ROWS, 50, &[]);
    job.create();
    let mut worker = job.place.start(&["worker", "--slots", "8"]);
    job.place.run(&["batch", "start", "."]).ok();
    job.until_done(10);
    let drained = job.operate("drain", &[]).ok().json();
    assert_eq!((&drained["status"], &drained["leased"]), (&json!("paused"), &json!(0)));
    let done = number(&drained, "done");
    assert!((10..ROWS).contains(&done), "{drained}");
    assert_eq!(job.count("effects"), done);
    job.operate("resume", &[]).ok();
    job.operate("watch", &[]).ok();
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 0);
    job.assert_exact();
}

#[test]
fn a_cancelled_batch_ends_its_run_and_is_announced_once() {
    let job = slow_job(ROWS, 20, &[]);
    let mut run = job.start(&[]);
    job.until_done(20);
    job.operate("cancel", &[]).ok();
    assert_eq!(run.ends_within(SOON), 4);
    let batch = job.batch();
    assert_eq!(batch["status"], "cancelled");
    let (done, cancelled) = (number(&batch, "done"), number(&batch, "cancelled"));
    assert_eq!(
        (done + cancelled, &batch["failed"]),
        (number(&batch, "total"), &json!(0)),
        "{batch}"
    );
    assert!(cancelled > 0, "{batch}");
    job.assert_exact();
    assert_eq!(ends(&job), format!("cancelled 1 {done} 0"));
    // Another run is another batch, over what is left.
    let next = job.run(&[]).ok().json();
    assert_ne!(next["batch"], batch["batch"]);
    assert_eq!(number(&next, "done") + done, ROWS);
    job.assert_exact();
}

#[test]
fn failures_that_are_retried_are_asked_anew_and_the_end_is_announced_once_more() {
    let job = Job::new(60, "CASE WHEN i % 3 = 0 THEN 'bad' ELSE 'good' END");
    let first = job.run(&[]).ends(3).json();
    assert_eq!((&first["done"], &first["failed"]), (&json!(40), &json!(20)), "{first}");
    assert_eq!(ends(&job), "complete 1 40 20");

    // Half of them are mended; the others fail as before.
    job.execute("UPDATE rows SET sort = 'good' WHERE id % 2 = 0");
    let retried = job.operate("retry", &["--failed"]).ok().json();
    assert_eq!((&retried["generation"], &retried["failed"]), (&json!(2), &json!(0)), "{retried}");
    let second = job.run(&[]).ends(3).says("resuming batch").json();
    assert_eq!(second["batch"], first["batch"]);
    assert_eq!((&second["done"], &second["failed"]), (&json!(50), &json!(10)), "{second}");
    assert_eq!(ends(&job), "complete 1 40 20, complete 2 50 10");
    assert_eq!(job.batch()["sums"]["answers"], 80, "only the failed were asked again");

    job.execute("UPDATE rows SET sort = 'good'");
    job.operate("retry", &[]).ok();
    job.run(&[]).ok();
    assert_eq!(ends(&job), "complete 1 40 20, complete 2 50 10, complete 3 60 0");
    job.assert_exact();
}

/// As after a reboot: nobody is there, and one of the batches was not even filled.
#[test]
fn recover_finishes_every_batch_that_was_killed() {
    let job = slow_job(ROWS, 40, &[("key = \"id\"", "key = \"id\"\nahead = 40")]);
    job.create();
    let (right, wrong) = slow(40);
    let others =
        [(right.as_str(), wrong.as_str()), ("key = \"id\"", "key = \"id\"\nclaim = \"other\"")];
    let text = edited(&others)
        .replace("effects (", "others (")
        .replace("SET done = done + 1", "SET sort = sort")
        .replace("WHERE done = 0", "");
    job.place.write("other.toml", text);
    job.execute("CREATE TABLE others AS SELECT * FROM effects");
    let mut runs = [job.start(&[]), job.place.start(&["batch", "run", "other.toml"])];
    job.until_done(20);
    eventually(SOON, || (job.count("others") >= 20).then_some(()));
    runs.iter_mut().for_each(Running::kill);
    let open = job.batches();
    assert!(open.iter().all(|batch| batch["status"] == "running"), "{open:?}");
    assert!(open.iter().any(|batch| batch["sealed"] == false), "{open:?}");

    let run = job.place.run(&["batch", "recover", "--json"]).ok();
    let lines: Vec<Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", run.out);
    for line in &lines {
        assert_eq!(
            (&line["status"], &line["done"]),
            (&json!("complete"), &line["total"]),
            "{line}"
        );
    }
    assert_eq!((job.count("effects"), job.count("others")), (ROWS, ROWS));
    for table in ["effects", "others"] {
        assert_eq!(job.query::<u64>(&format!("SELECT count(DISTINCT row) FROM {table}")), ROWS);
    }
    assert_eq!(job.count("ends"), 2);
    assert_eq!(job.place.run(&["batch", "recover", "--json"]).ok().json(), json!([]));
    job.place.run(&["verify"]).ok();
}

#[test]
fn drain_is_clean_after_ctrl_c_and_the_next_run_takes_up() {
    for signal in ["INT", "TERM"] {
        let job = slow_job(ROWS, 20, &[]);
        let mut run = job.start(&[]);
        job.until_done(20);
        run.signal(signal);
        assert_eq!(run.ends_within(SOON), 130);
        let batch = job.batch();
        assert_eq!((&batch["status"], &batch["leased"]), (&json!("running"), &json!(0)), "{batch}");
        let done = number(&batch, "done");
        assert!((20..ROWS).contains(&done), "{batch}");
        assert_eq!(job.count("effects"), done, "what was under way came to its end");
        assert_eq!(batch["sums"]["answers"], done, "and nothing was asked in vain");
        assert_eq!(job.place.run(&["workers", "--json"]).ok().json(), json!([]));
        assert_eq!(job.count("ends"), 0);

        let last = job.run(&[]).ok().says("resuming batch").json();
        assert_eq!((&last["batch"], &last["done"]), (&batch["batch"], &json!(ROWS)), "{last}");
        job.assert_exact();
        assert_eq!(ends(&job), format!("complete 1 {ROWS} 0"));
    }
}

/// Questions that nobody answers: a drain would wait for them.
#[test]
fn a_second_ctrl_c_stops_at_once_and_uses_no_attempt() {
    let job = Job::new(50, "'silent'");
    job.create();
    let mut run = job.start(&[]);
    let leased = || job.batches().first().is_some_and(|batch| batch["leased"] == 8);
    eventually(SOON, || leased().then_some(()));
    run.signal("INT");
    eventually(SOON, || job.place.read("stderr").contains("draining").then_some(()));
    assert_eq!(run.0.try_wait().unwrap(), None, "it waits for the answers");
    run.signal("INT");
    assert_eq!(run.ends_within(SOON), 130);
    let batch = job.batch();
    assert_eq!((&batch["leased"], &batch["failed"]), (&json!(0), &json!(0)), "{batch}");
    let rows = job.rows(batch["batch"].as_str().unwrap(), "ready");
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|row| row["attempt"] == 0), "{rows:?}");
    assert_eq!(job.place.run(&["workers", "--json"]).ok().json(), json!([]));
    job.place.run(&["verify"]).ok();
}

/// A drained initiator leaves the rest for the next one.
#[test]
fn an_interrupted_start_ends_with_130_and_is_taken_up() {
    let job = slow_job(ROWS, 5, &[("key = \"id\"", "key = \"id\"\nahead = 40")]);
    job.create();
    let mut start = job.place.start(&["batch", "start", "."]);
    // Without workers it waits for room.
    let sent = || job.batches().first().map(|batch| number(batch, "total"));
    eventually(SOON, || sent().filter(|sent| *sent == 40));
    start.signal("INT");
    assert_eq!(start.ends_within(SOON), 130);
    assert_eq!((sent(), &job.batch()["sealed"]), (Some(40), &json!(false)));
    let last = job.run(&[]).ok().json();
    assert_eq!((&last["done"], &last["total"]), (&json!(ROWS), &json!(ROWS)), "{last}");
    job.assert_exact();
}

#[test]
fn a_batch_with_its_own_number_of_workers_completes() {
    let job = slow_job(ROWS, 5, &[]);
    let last = job.run(&["--workers", "auto"]).ok().json();
    assert_eq!((&last["done"], &last["status"]), (&json!(ROWS), &json!("complete")), "{last}");
    job.assert_exact();
    let job = slow_job(30, 5, &[("workers = 8", "workers = \"auto\"")]);
    assert_eq!(job.run(&[]).ok().json()["done"], 30);
    let job = slow_job(30, 5, &[]);
    assert_eq!(job.run(&["--workers", "1"]).ok().json()["done"], 30);
    assert_eq!(job.query::<u64>("SELECT count(DISTINCT worker) FROM effects"), 1);
}

/// Nothing of a batch is begun after its deadline; what is left fails with the reason.
#[test]
fn one_deadline_ends_what_was_not_asked_in_time() {
    let job = slow_job(ROWS, 50, &[("workers = 8", "workers = 4\ndeadline = \"1s\"")]);
    let last = job.run(&[]).ends(3).json();
    assert_eq!(number(&last, "done") + number(&last, "failed"), ROWS, "{last}");
    let failed = job.rows(&job.name(), "failed");
    assert!(!failed.is_empty() && failed.iter().all(|row| row["code"] == "timeout"), "{failed:?}");
    assert_eq!(job.batch()["sums"]["answers"], number(&last, "done"));
    job.assert_exact();
}
