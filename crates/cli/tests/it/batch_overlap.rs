//! Batches beside each other: over the same rows, of different tenants, with workers in common.

use serde_json::{Value, json};

use crate::batch_job::Job;
use crate::support::{Run, SOON, eventually};

const ROWS: u64 = 600;

/// A little slow, so that two are at work at once.
const SLOW: (&str, &str) =
    ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"20ms\"");

/// Two batch files over the same rows, `one.toml` and `two.toml`.
fn twins() -> Job {
    let job = Job::good(ROWS);
    job.create();
    job.write("one.toml", &[SLOW]);
    job.write("two.toml", &[SLOW]);
    job
}

/// Runs each of these at once, to their ends.
fn at_once(job: &Job, runs: [&[&str]; 2]) -> [Run; 2] {
    let children = runs.map(|args| {
        let args = [&["batch", "run", "--json", "--new"], args].concat();
        job.place.command(&args).spawn().unwrap()
    });
    children.map(Run::of)
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn no_row_is_done_twice_by_two_batches_at_once() {
    let job = twins();
    // A few rows at a time, or the first to look would have them all.
    for file in ["one.toml", "two.toml"] {
        job.write(file, &[SLOW, ("key = \"id\"", "key = \"id\"\nahead = 60")]);
    }
    let [one, two] = at_once(&job, [&["one.toml"], &["two.toml"]]).map(|run| run.ok().json());
    assert_ne!(one["batch"], two["batch"]);
    let done = [&one, &two].map(|batch| number(batch, "done"));
    assert_eq!(done[0] + done[1], ROWS, "{one} {two}");
    for batch in [&one, &two] {
        assert_eq!(batch["total"], batch["done"], "{batch}");
        // A row that the other ended before this batch looked was no candidate any more.
        assert!(number(batch, "done") + number(batch, "skipped") <= ROWS, "{batch}");
        let name = batch["batch"].as_str().unwrap();
        assert_eq!(job.count(&format!("effects WHERE batch = '{name}'")), number(batch, "done"));
    }
    assert_eq!(job.count("effects"), ROWS);
    job.assert_exact();
}

/// Nothing of the first is done when the second looks, so that it meets all of its rows.
#[test]
fn what_another_batch_has_is_skipped_and_done_and_skipped_add_up() {
    let job = twins();
    let sent =
        job.place.run(&["batch", "start", "one.toml", "--limit", "400", "--json"]).ok().json();
    assert_eq!((&sent["sent"], &sent["sealed"]), (&json!(400), &json!(true)));
    let two = job.place.run(&["batch", "run", "two.toml", "--json"]).ok().json();
    assert_eq!((&two["done"], &two["skipped"]), (&json!(ROWS - 400), &json!(400)), "{two}");
    let status = job.place.batch(sent["batch"].as_str().unwrap());
    assert_eq!(status["ready"], 400, "they wait for workers of their own: {status}");
    job.place.run(&["worker", "--slots", "20", "--until-idle"]).ok();
    assert_eq!(job.place.batch(sent["batch"].as_str().unwrap())["done"], 400);
    job.assert_exact();
}

#[test]
fn duplicates_that_are_allowed_are_done_by_both() {
    let job = twins();
    let allow = |file| [file, "--allow-duplicates"];
    // The second must meet the first one's rows: both are started before any is worked on.
    for file in ["one.toml", "two.toml"] {
        let args = [&["batch", "start", "--new", "--json"][..], &allow(file)].concat();
        assert_eq!(job.place.run(&args).ok().json()["sent"], ROWS);
    }
    job.place.run(&["worker", "--slots", "40", "--until-idle"]).ok();
    for batch in job.batches() {
        assert_eq!((&batch["done"], &batch["status"]), (&json!(ROWS), &json!("complete")));
    }
    assert_eq!(job.count("(SELECT row FROM effects GROUP BY row HAVING count(*) = 2)"), ROWS);
    job.place.run(&["verify"]).ok();
}

#[test]
fn another_claim_takes_the_same_rows() {
    let job = twins();
    job.write("two.toml", &[SLOW, ("key = \"id\"", "key = \"id\"\nclaim = \"another matter\"")]);
    for file in ["one.toml", "two.toml"] {
        let sent = job.place.run(&["batch", "start", "--new", "--json", file]).ok().json();
        assert_eq!((&sent["sent"], &sent["skipped"]), (&json!(ROWS), &json!(0)), "{sent}");
    }
}

/// The second run of a file that is being run takes part in it.
#[test]
fn one_holder_when_two_runs_work_on_the_same_batch() {
    let job = twins();
    let slower = (SLOW.0, "script = \"script.toml\"\ndelay = \"100ms\"");
    job.write("one.toml", &[slower]);
    let mut first = job.place.start(&["batch", "run", "one.toml"]);
    job.until_done(10);
    let second =
        job.place.run(&["batch", "run", "one.toml", "--json"]).ok().says("resuming batch").json();
    assert_eq!(first.ends_within(SOON), 0);
    assert_eq!(
        (&second["done"], &second["status"]),
        (&json!(ROWS), &json!("complete")),
        "{second}"
    );
    assert_eq!(second["batch"], job.name());
    let workers = "SELECT count(DISTINCT substr(worker, 1, instr(worker, '-') - 1)) FROM effects";
    assert_eq!(job.query::<u64>(workers), 2, "both had a part in it");
    job.assert_exact();
    assert_eq!(job.count("ends"), 1);
}

/// Both tenants review the same rows at once; a claim of one is no business of the other.
#[test]
fn tenants_neither_see_nor_hinder_each_other() {
    let job = twins();
    let [blue, red] =
        at_once(&job, [&["one.toml", "--tenant", "blue"], &["one.toml", "--tenant", "red"]]);
    let names = [blue, red].map(|run| run.ok().json()["batch"].as_str().unwrap().to_owned());
    assert_ne!(names[0], names[1]);
    let [blue, red] = [("blue", &names[0]), ("red", &names[1])];
    for ((mine, own), (_, others)) in [(blue, red), (red, blue)] {
        let as_tenant =
            |args: &[&str]| job.place.run(&[&["--tenant", mine, "--json"], args].concat());
        let list = as_tenant(&["batch", "list"]).ok().json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!((&list[0]["batch"], &list[0]["tenant"]), (&json!(own), &json!(mine)));
        let rows = as_tenant(&["batch", "rows", own, "--limit", "10000"]).ok().json();
        assert_eq!(rows.as_array().unwrap().len() as u64, number(&list[0], "total"));
        for verb in ["status", "rows", "report", "pause", "resume", "cancel", "retry", "watch"] {
            as_tenant(&["batch", verb, others]).ends(1).says("there is no batch").says("hint:");
        }
        as_tenant(&["batch", "recover", others]).ends(1).says("there is no batch");
        let units = as_tenant(&["unit", "list", "--limit", "10000"]).ok().json();
        assert!(units.as_array().unwrap().iter().all(|unit| unit["tenant"] == mine));
    }
}

/// What one tenant's batch has, another tenant's batch takes all the same.
#[test]
fn the_rows_of_two_tenants_are_counted_for_each() {
    let job = twins();
    for tenant in ["blue", "red"] {
        let args = ["batch", "start", "one.toml", "--tenant", tenant, "--json"];
        let sent = job.place.run(&args).ok().json();
        assert_eq!((&sent["sent"], &sent["skipped"]), (&json!(ROWS), &json!(0)), "{sent}");
    }
    let work = ["worker", "--slots", "20", "--until-idle", "--tenant"];
    job.place.run(&[&work[..], &["blue"]].concat()).ok();
    let done = |tenant: &str| {
        let list = job.place.run(&["batch", "list", "--json", "--tenant", tenant]).ok().json();
        number(&list[0], "done")
    };
    assert_eq!((done("blue"), done("red")), (ROWS, 0), "a worker works for its tenant");
    job.place.run(&[&work[..], &["red"]].concat()).ok();
    assert_eq!((done("blue"), done("red")), (ROWS, ROWS));
    assert_eq!(job.count("effects"), 2 * ROWS);
    job.place.run(&["verify"]).ok();
}

/// Workers that two batches share do each row for the batch it belongs to: by that one's prompt,
/// script and POST.
#[test]
fn a_worker_shared_by_two_batches_works_for_both() {
    let job = twins();
    job.execute("CREATE TABLE notes (row INTEGER, batch TEXT, words TEXT)");
    let post = "fail = \"INSERT INTO failures";
    let notes = "always = \"INSERT INTO notes VALUES (:key, :batch_id, 'SORT')\"\nfail = \"INSERT INTO failures";
    for (file, sort) in [("one.toml", "even"), ("two.toml", "odd")] {
        let notes = notes.replace("SORT", sort);
        let rest = if sort == "even" { 0 } else { 1 };
        let rows = format!("WHERE done = 0 AND id % 2 = {rest}");
        job.write(file, &[SLOW, ("WHERE done = 0", &rows), (post, &notes)]);
        job.place.run(&["batch", "start", file, "--tenant", "blue"]).ok();
    }
    let work = ["worker", "--slots", "10", "--tenant", "blue"];
    let mut workers = [job.place.start(&work), job.place.start(&work)];
    let complete = || job.batches().iter().all(|batch| batch["status"] == "complete");
    eventually(2 * SOON, || complete().then_some(()));
    eventually(SOON, || (job.count("ends") == 2).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0);
    }
    for batch in job.batches() {
        assert_eq!((&batch["total"], &batch["done"]), (&json!(ROWS / 2), &json!(ROWS / 2)));
        let name = batch["batch"].as_str().unwrap();
        assert_eq!(job.count(&format!("effects WHERE batch = '{name}'")), ROWS / 2);
    }
    assert_eq!(
        job.count("notes WHERE words = CASE row % 2 WHEN 0 THEN 'even' ELSE 'odd' END"),
        ROWS
    );
    let batches = "SELECT count(DISTINCT batch || words) FROM notes";
    assert_eq!(job.query::<u64>(batches), 2, "each note is of its own batch");
    job.assert_exact();
    assert_eq!(job.count("ends"), 2);
}
