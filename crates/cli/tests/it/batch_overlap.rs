//! Concurrent batches: over the same rows, of different tenants, with shared workers.

use serde_json::{Value, json};

use crate::batch_job::BatchJob;
use crate::support::{CliOutput, TIMEOUT, eventually};

const ROWS: u64 = 600;

/// Slow enough that two runs overlap.
const SLOW_ANSWERS: (&str, &str) = ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"20ms\"");

/// Two batch files over the same rows: `one.toml` and `two.toml`.
fn two_batch_files() -> BatchJob {
    let job = BatchJob::good(ROWS);
    job.create();
    job.write("one.toml", &[SLOW_ANSWERS]);
    job.write("two.toml", &[SLOW_ANSWERS]);
    job
}

/// Runs both concurrently to their ends.
fn run_concurrently(job: &BatchJob, runs: [&[&str]; 2]) -> [CliOutput; 2] {
    let children = runs.map(|args| {
        let args = [&["batch", "run", "--json", "--new"], args].concat();
        job.dir.command(&args).spawn().unwrap()
    });
    children.map(CliOutput::of)
}

fn count_of(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn no_row_is_done_twice_by_two_batches_at_once() {
    let job = two_batch_files();
    // Enqueue a few rows at a time, or the first initiator would claim them all.
    for file in ["one.toml", "two.toml"] {
        job.write(file, &[SLOW_ANSWERS, ("key = \"id\"", "key = \"id\"\nahead = 60")]);
    }
    let [one, two] = run_concurrently(&job, [&["one.toml"], &["two.toml"]]).map(|run| run.ok().json());
    assert_ne!(one["batch"], two["batch"]);
    let done = [&one, &two].map(|batch| count_of(batch, "done"));
    assert_eq!(done[0] + done[1], ROWS, "{one} {two}");
    for batch in [&one, &two] {
        assert_eq!(batch["total"], batch["done"], "{batch}");
        // A row that the other batch finished before this one selected candidates is not counted as
        // skipped.
        assert!(count_of(batch, "done") + count_of(batch, "skipped") <= ROWS, "{batch}");
        let name = batch["batch"].as_str().unwrap();
        assert_eq!(job.count(&format!("effects WHERE batch = '{name}'")), count_of(batch, "done"));
    }
    assert_eq!(job.count("effects"), ROWS);
    job.assert_exact();
}

/// No row of the first batch is done when the second selects candidates, so it meets all of them.
#[test]
fn what_another_batch_has_is_skipped_and_done_and_skipped_add_up() {
    let job = two_batch_files();
    let sent = job.dir.run(&["batch", "start", "one.toml", "--limit", "400", "--json"]).ok().json();
    assert_eq!((&sent["sent"], &sent["sealed"]), (&json!(400), &json!(true)));
    let two = job.dir.run(&["batch", "run", "two.toml", "--json"]).ok().json();
    assert_eq!((&two["done"], &two["skipped"]), (&json!(ROWS - 400), &json!(400)), "{two}");
    let status = job.dir.batch(sent["batch"].as_str().unwrap());
    assert_eq!(status["ready"], 400, "the first batch has no workers: {status}");
    job.dir.run(&["worker", "--slots", "20", "--until-idle"]).ok();
    assert_eq!(job.dir.batch(sent["batch"].as_str().unwrap())["done"], 400);
    job.assert_exact();
}

#[test]
fn duplicates_that_are_allowed_are_done_by_both() {
    let job = two_batch_files();
    let allow = |file| [file, "--allow-duplicates"];
    // Both batches are enqueued before any row is processed, so the second meets the first one's
    // rows.
    for file in ["one.toml", "two.toml"] {
        let args = [&["batch", "start", "--new", "--json"][..], &allow(file)].concat();
        assert_eq!(job.dir.run(&args).ok().json()["sent"], ROWS);
    }
    job.dir.run(&["worker", "--slots", "40", "--until-idle"]).ok();
    for batch in job.batches() {
        assert_eq!((&batch["done"], &batch["status"]), (&json!(ROWS), &json!("complete")));
    }
    assert_eq!(job.count("(SELECT row FROM effects GROUP BY row HAVING count(*) = 2)"), ROWS);
    job.dir.run(&["verify"]).ok();
}

#[test]
fn another_claim_takes_the_same_rows() {
    let job = two_batch_files();
    job.write("two.toml", &[SLOW_ANSWERS, ("key = \"id\"", "key = \"id\"\nclaim = \"another matter\"")]);
    for file in ["one.toml", "two.toml"] {
        let sent = job.dir.run(&["batch", "start", "--new", "--json", file]).ok().json();
        assert_eq!((&sent["sent"], &sent["skipped"]), (&json!(ROWS), &json!(0)), "{sent}");
    }
}

/// A second run of the same file joins the running batch.
#[test]
fn one_holder_when_two_runs_work_on_the_same_batch() {
    let job = two_batch_files();
    let slower = (SLOW_ANSWERS.0, "script = \"script.toml\"\ndelay = \"100ms\"");
    job.write("one.toml", &[slower]);
    let mut first = job.dir.start(&["batch", "run", "one.toml"]);
    job.wait_for_effects(10);
    let second = job.dir.run(&["batch", "run", "one.toml", "--json"]).ok().says("resuming batch").json();
    assert_eq!(first.ends_within(TIMEOUT), 0);
    assert_eq!((&second["done"], &second["status"]), (&json!(ROWS), &json!("complete")), "{second}");
    assert_eq!(second["batch"], job.name());
    let workers = "SELECT count(DISTINCT substr(worker, 1, instr(worker, '-') - 1)) FROM effects";
    assert_eq!(job.query::<u64>(workers), 2, "both runs did rows");
    job.assert_exact();
    assert_eq!(job.count("ends"), 1);
}

/// Both tenants process the same rows concurrently; one tenant's claim does not affect the other's.
#[test]
fn tenants_neither_see_nor_hinder_each_other() {
    let job = two_batch_files();
    let [blue, red] =
        run_concurrently(&job, [&["one.toml", "--tenant", "blue"], &["one.toml", "--tenant", "red"]]);
    let names = [blue, red].map(|run| run.ok().json()["batch"].as_str().unwrap().to_owned());
    assert_ne!(names[0], names[1]);
    let [blue, red] = [("blue", &names[0]), ("red", &names[1])];
    for ((mine, own), (_, others)) in [(blue, red), (red, blue)] {
        let as_tenant = |args: &[&str]| job.dir.run(&[&["--tenant", mine, "--json"], args].concat());
        let list = as_tenant(&["batch", "list"]).ok().json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!((&list[0]["batch"], &list[0]["tenant"]), (&json!(own), &json!(mine)));
        let rows = as_tenant(&["batch", "rows", own, "--limit", "10000"]).ok().json();
        assert_eq!(rows.as_array().unwrap().len() as u64, count_of(&list[0], "total"));
        for verb in ["status", "rows", "report", "pause", "resume", "cancel", "retry", "watch"] {
            as_tenant(&["batch", verb, others]).ends(1).says("there is no batch").says("hint:");
        }
        as_tenant(&["batch", "recover", others]).ends(1).says("there is no batch");
        let units = as_tenant(&["unit", "list", "--limit", "10000"]).ok().json();
        assert!(units.as_array().unwrap().iter().all(|unit| unit["tenant"] == mine));
    }
}

/// A row claimed by one tenant's batch is still a candidate for another tenant's.
#[test]
fn the_rows_of_two_tenants_are_counted_for_each() {
    let job = two_batch_files();
    for tenant in ["blue", "red"] {
        let args = ["batch", "start", "one.toml", "--tenant", tenant, "--json"];
        let sent = job.dir.run(&args).ok().json();
        assert_eq!((&sent["sent"], &sent["skipped"]), (&json!(ROWS), &json!(0)), "{sent}");
    }
    let work = ["worker", "--slots", "20", "--until-idle", "--tenant"];
    job.dir.run(&[&work[..], &["blue"]].concat()).ok();
    let done = |tenant: &str| {
        let list = job.dir.run(&["batch", "list", "--json", "--tenant", tenant]).ok().json();
        count_of(&list[0], "done")
    };
    assert_eq!((done("blue"), done("red")), (ROWS, 0), "a worker works for its tenant");
    job.dir.run(&[&work[..], &["red"]].concat()).ok();
    assert_eq!((done("blue"), done("red")), (ROWS, ROWS));
    assert_eq!(job.count("effects"), 2 * ROWS);
    job.dir.run(&["verify"]).ok();
}

/// Workers shared by two batches process each row with its own batch's prompt, script and POST.
#[test]
fn a_worker_shared_by_two_batches_works_for_both() {
    let job = two_batch_files();
    job.execute("CREATE TABLE notes (row INTEGER, batch TEXT, words TEXT)");
    let post = "fail = \"INSERT INTO failures";
    let notes =
        "always = \"INSERT INTO notes VALUES (:key, :batch_id, 'SORT')\"\nfail = \"INSERT INTO failures";
    for (file, sort) in [("one.toml", "even"), ("two.toml", "odd")] {
        let notes = notes.replace("SORT", sort);
        let rest = if sort == "even" { 0 } else { 1 };
        let rows = format!("WHERE done = 0 AND id % 2 = {rest}");
        job.write(file, &[SLOW_ANSWERS, ("WHERE done = 0", &rows), (post, &notes)]);
        job.dir.run(&["batch", "start", file, "--tenant", "blue"]).ok();
    }
    let work = ["worker", "--slots", "10", "--tenant", "blue"];
    let mut workers = [job.dir.start(&work), job.dir.start(&work)];
    let complete = || job.batches().iter().all(|batch| batch["status"] == "complete");
    eventually(2 * TIMEOUT, || complete().then_some(()));
    eventually(TIMEOUT, || (job.count("ends") == 2).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0);
    }
    for batch in job.batches() {
        assert_eq!((&batch["total"], &batch["done"]), (&json!(ROWS / 2), &json!(ROWS / 2)));
        let name = batch["batch"].as_str().unwrap();
        assert_eq!(job.count(&format!("effects WHERE batch = '{name}'")), ROWS / 2);
    }
    assert_eq!(job.count("notes WHERE words = CASE row % 2 WHEN 0 THEN 'even' ELSE 'odd' END"), ROWS);
    let batches = "SELECT count(DISTINCT batch || words) FROM notes";
    assert_eq!(job.query::<u64>(batches), 2, "each note belongs to its own batch");
    job.assert_exact();
    assert_eq!(job.count("ends"), 2);
}
