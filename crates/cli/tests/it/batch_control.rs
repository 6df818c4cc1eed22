//! Controlling running batches: pause, resume, drain, cancel, retry, recover, and Ctrl-C.

use serde_json::{Value, json};

use crate::batch_job::{BatchJob, edit_batch};
use crate::support::{ChildGuard, TIMEOUT, eventually};

const ROWS: u64 = 400;

/// An edit that slows each answer, so that there is time to control the batch.
fn slow_edit(millis: u64) -> (String, String) {
    let script = "script = \"script.toml\"";
    (script.to_owned(), format!("{script}\ndelay = \"{millis}ms\""))
}

fn slow_job(rows: u64, millis: u64, more: &[(&str, &str)]) -> BatchJob {
    let (right, wrong) = slow_edit(millis);
    BatchJob::good(rows).with(&[&[(right.as_str(), wrong.as_str())], more].concat())
}

fn count_of(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn announced_ends(job: &BatchJob) -> String {
    let sql = "SELECT group_concat(status || ' ' || generation || ' ' || done || ' ' || failed, ', ')
               FROM ends";
    job.query::<Option<String>>(sql).unwrap_or_default()
}

#[test]
fn a_paused_batch_stops_its_run_and_goes_on_after_resume() {
    let job = slow_job(ROWS, 20, &[]);
    let mut run = job.start(&[]);
    job.wait_for_effects(20);
    let paused = job.operate("pause", &["--reason", "tea"]).ok().json();
    assert_eq!((&paused["status"], &paused["reason"]), (&json!("paused"), &json!("tea")));
    assert_eq!(run.ends_within(TIMEOUT), 4);
    let paused_batch = job.batch();
    assert!(count_of(&paused_batch, "done") < ROWS, "{paused_batch}");
    assert_eq!((&paused_batch["leased"], job.count("effects")), (&json!(0), count_of(&paused_batch, "done")));

    job.run(&[]).ends(1).says("is paused: tea").says("hint:");
    assert_eq!(job.operate("resume", &[]).ok().json()["status"], "running");
    let last = job.run(&[]).ok().json();
    assert_eq!((&last["done"], &last["batch"]), (&json!(ROWS), &paused_batch["batch"]), "{last}");
    job.assert_exact();
    assert_eq!(announced_ends(&job), format!("complete 1 {ROWS} 0"));
}

#[test]
fn a_running_batch_is_corrected_for_the_rows_that_remain() {
    let job = slow_job(ROWS, 100, &[]);
    let mut run = job.start(&[]);
    job.wait_for_effects(20);
    let name = job.name();
    let (right, wrong) = slow_edit(100);
    let slow = (right.as_str(), wrong.as_str());
    let fixed = job.write("fixed.toml", &[slow, ("key = \"id\"", "key = \"id\"\nlimit = 30")]);
    let fixed = fixed.display().to_string();
    job.dir.run(&["batch", "update", &name, &fixed]).ends(1).says("`candidates` differs").says("hint:");
    let corrected = ("VALUES (:key, :batch_id, :worker_id, :n)", "VALUES (:key, :batch_id, 'corrected', :n)");
    job.write("batch.toml", &[slow, corrected]);
    let shown = job.dir.run(&["batch", "update", &name, ".", "--dry-run", "--json"]).ok().json();
    assert_eq!((&shown["revision"], &shown["changed"]), (&json!(2), &json!(["post"])), "{shown}");
    let updated = job.dir.run(&["batch", "update", &name, ".", "--json"]).ok().json();
    assert_eq!(updated["revision"], 2, "{updated}");
    job.dir.run(&["batch", "update", &name, "."]).ends(1).says("has this definition already");
    assert_eq!(run.ends_within(4 * TIMEOUT), 0, "the run that was started before goes on");
    let (all, corrected) = (job.count("effects"), job.count("effects WHERE worker = 'corrected'"));
    assert!(all == ROWS && (1..ROWS).contains(&corrected), "{corrected} of {all}");
    let rows = job.rows(&name, "done");
    let second = rows.iter().filter(|row| row["revision"] == 2).count() as u64;
    assert_eq!(second, corrected, "each row knows its revision");
    let report = job.dir.run(&["batch", "report", &name]).ok().out;
    assert!(report.contains("post changed"), "{report}");
    job.dir.run(&["batch", "update", &name, "."]).ends(1).says("no rows left to correct");
    job.assert_exact();
}

/// Scripts read the last line: it counts rows that ended after the pause.
#[test]
fn the_last_line_of_a_paused_run_counts_what_the_store_counts() {
    // Ten slow rows are in flight when the failures reach the threshold.
    let edits = [("limit = \"none\"", "limit = 25"), ("workers = 8", "workers = 20")];
    let job = BatchJob::new(2_000, "CASE WHEN i <= 10 THEN 'slow' ELSE 'bad' END").with(&edits);
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
    let mut worker = job.dir.start(&["worker", "--slots", "8"]);
    job.dir.run(&["batch", "start", "."]).ok();
    job.wait_for_effects(10);
    let drained = job.operate("drain", &[]).ok().json();
    assert_eq!((&drained["status"], &drained["leased"]), (&json!("paused"), &json!(0)));
    let done = count_of(&drained, "done");
    assert!((10..ROWS).contains(&done), "{drained}");
    assert_eq!(job.count("effects"), done);
    job.operate("resume", &[]).ok();
    job.operate("watch", &[]).ok();
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    job.assert_exact();
}

#[test]
fn a_cancelled_batch_ends_its_run_and_is_announced_once() {
    let job = slow_job(ROWS, 20, &[]);
    let mut run = job.start(&[]);
    job.wait_for_effects(20);
    job.operate("cancel", &[]).ok();
    assert_eq!(run.ends_within(TIMEOUT), 4);
    let batch = job.batch();
    assert_eq!(batch["status"], "cancelled");
    let (done, cancelled) = (count_of(&batch, "done"), count_of(&batch, "cancelled"));
    assert_eq!((done + cancelled, &batch["failed"]), (count_of(&batch, "total"), &json!(0)), "{batch}");
    assert!(cancelled > 0, "{batch}");
    job.assert_exact();
    assert_eq!(announced_ends(&job), format!("cancelled 1 {done} 0"));
    // Another run creates another batch over the remaining rows.
    let next = job.run(&[]).ok().json();
    assert_ne!(next["batch"], batch["batch"]);
    assert_eq!(count_of(&next, "done") + done, ROWS);
    job.assert_exact();
}

#[test]
fn failures_that_are_retried_are_asked_anew_and_the_end_is_announced_once_more() {
    let job = BatchJob::new(60, "CASE WHEN i % 3 = 0 THEN 'bad' ELSE 'good' END");
    let first = job.run(&[]).ends(3).json();
    assert_eq!((&first["done"], &first["failed"]), (&json!(40), &json!(20)), "{first}");
    assert_eq!(announced_ends(&job), "complete 1 40 20");

    // Half of the failed rows are repaired; the others fail again.
    job.execute("UPDATE rows SET sort = 'good' WHERE id % 2 = 0");
    let retried = job.operate("retry", &["--failed"]).ok().json();
    assert_eq!((&retried["generation"], &retried["failed"]), (&json!(2), &json!(0)), "{retried}");
    let second = job.run(&[]).ends(3).says("resuming batch").json();
    assert_eq!(second["batch"], first["batch"]);
    assert_eq!((&second["done"], &second["failed"]), (&json!(50), &json!(10)), "{second}");
    assert_eq!(announced_ends(&job), "complete 1 40 20, complete 2 50 10");
    assert_eq!(job.batch()["sums"]["answers"], 80, "only failed rows asked again");

    job.execute("UPDATE rows SET sort = 'good'");
    job.operate("retry", &[]).ok();
    job.run(&[]).ok();
    assert_eq!(announced_ends(&job), "complete 1 40 20, complete 2 50 10, complete 3 60 0");
    job.assert_exact();
}

/// As after a reboot: no process runs, and one of the batches was not fully enqueued.
#[test]
fn recover_finishes_every_batch_that_was_killed() {
    let job = slow_job(ROWS, 40, &[("key = \"id\"", "key = \"id\"\nahead = 40")]);
    job.create();
    let (right, wrong) = slow_edit(40);
    let others = [(right.as_str(), wrong.as_str()), ("key = \"id\"", "key = \"id\"\nclaim = \"other\"")];
    let text = edit_batch(&others)
        .replace("effects (", "others (")
        .replace("SET done = done + 1", "SET sort = sort")
        .replace("WHERE done = 0", "");
    job.dir.write("other.toml", text);
    job.execute("CREATE TABLE others AS SELECT * FROM effects");
    let mut runs = [job.start(&[]), job.dir.start(&["batch", "run", "other.toml"])];
    job.wait_for_effects(20);
    eventually(TIMEOUT, || (job.count("others") >= 20).then_some(()));
    runs.iter_mut().for_each(ChildGuard::kill);
    let open = job.batches();
    assert!(open.iter().all(|batch| batch["status"] == "running"), "{open:?}");
    assert!(open.iter().any(|batch| batch["sealed"] == false), "{open:?}");

    let run = job.dir.run(&["batch", "recover", "--json"]).ok();
    let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", run.out);
    for line in &lines {
        assert_eq!((&line["status"], &line["done"]), (&json!("complete"), &line["total"]), "{line}");
    }
    assert_eq!((job.count("effects"), job.count("others")), (ROWS, ROWS));
    for table in ["effects", "others"] {
        assert_eq!(job.query::<u64>(&format!("SELECT count(DISTINCT row) FROM {table}")), ROWS);
    }
    assert_eq!(job.count("ends"), 2);
    assert_eq!(job.dir.run(&["batch", "recover", "--json"]).ok().json(), json!([]));
    job.dir.run(&["verify"]).ok();
}

#[test]
fn drain_is_clean_after_ctrl_c_and_the_next_run_takes_up() {
    for signal in ["INT", "TERM"] {
        let job = slow_job(ROWS, 20, &[]);
        let mut run = job.start(&[]);
        job.wait_for_effects(20);
        run.signal(signal);
        assert_eq!(run.ends_within(TIMEOUT), 130);
        let batch = job.batch();
        assert_eq!((&batch["status"], &batch["leased"]), (&json!("running"), &json!(0)), "{batch}");
        let done = count_of(&batch, "done");
        assert!((20..ROWS).contains(&done), "{batch}");
        assert_eq!(job.count("effects"), done, "what was under way came to its end");
        assert_eq!(batch["sums"]["answers"], done, "every answer was used");
        assert_eq!(job.dir.run(&["workers", "--json"]).ok().json(), json!([]));
        assert_eq!(job.count("ends"), 0);

        let last = job.run(&[]).ok().says("resuming batch").json();
        assert_eq!((&last["batch"], &last["done"]), (&batch["batch"], &json!(ROWS)), "{last}");
        job.assert_exact();
        assert_eq!(announced_ends(&job), format!("complete 1 {ROWS} 0"));
    }
}

/// The provider never answers, so a drain would wait for ever.
#[test]
fn a_second_ctrl_c_stops_at_once_and_uses_no_attempt() {
    let job = BatchJob::new(50, "'silent'");
    job.create();
    let mut run = job.start(&[]);
    let leased = || job.batches().first().is_some_and(|batch| batch["leased"] == 8);
    eventually(TIMEOUT, || leased().then_some(()));
    run.signal("INT");
    eventually(TIMEOUT, || job.dir.read("stderr").contains("draining").then_some(()));
    assert_eq!(run.0.try_wait().unwrap(), None, "the drain waits for answers");
    run.signal("INT");
    assert_eq!(run.ends_within(TIMEOUT), 130);
    let batch = job.batch();
    assert_eq!((&batch["leased"], &batch["failed"]), (&json!(0), &json!(0)), "{batch}");
    let rows = job.rows(batch["batch"].as_str().unwrap(), "ready");
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|row| row["attempt"] == 0), "{rows:?}");
    assert_eq!(job.dir.run(&["workers", "--json"]).ok().json(), json!([]));
    job.dir.run(&["verify"]).ok();
}

/// A drained initiator leaves the remaining rows to the next run.
#[test]
fn an_interrupted_start_ends_with_130_and_is_taken_up() {
    let job = slow_job(ROWS, 5, &[("key = \"id\"", "key = \"id\"\nahead = 40")]);
    job.create();
    let mut start = job.dir.start(&["batch", "start", "."]);
    // Without workers the initiator waits for room.
    let sent = || job.batches().first().map(|batch| count_of(batch, "total"));
    eventually(TIMEOUT, || sent().filter(|sent| *sent == 40));
    start.signal("INT");
    assert_eq!(start.ends_within(TIMEOUT), 130);
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

/// No row of a batch starts after its deadline; the remaining rows fail with the reason.
#[test]
fn one_deadline_ends_what_was_not_asked_in_time() {
    let job = slow_job(ROWS, 50, &[("workers = 8", "workers = 4\ndeadline = \"1s\"")]);
    let last = job.run(&[]).ends(3).json();
    assert_eq!(count_of(&last, "done") + count_of(&last, "failed"), ROWS, "{last}");
    let failed = job.rows(&job.name(), "failed");
    assert!(!failed.is_empty() && failed.iter().all(|row| row["code"] == "timeout"), "{failed:?}");
    assert_eq!(job.batch()["sums"]["answers"], count_of(&last, "done"));
    job.assert_exact();
}
