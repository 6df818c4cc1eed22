//! Batches under SIGKILL of any process at any time: each row ends once, its effects exist once, and
//! no recorded answer is requested again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use serde_json::json;

use crate::batch_job::{BatchJob, Rng, SharedPostgres};
use crate::support::{ChildGuard, TIMEOUT, eventually, pick_size, stretch};

/// One row in a hundred fails, in four ways in turn.
const SORT_SQL: &str = "CASE WHEN i % 100 <> 7 THEN 'good' WHEN i % 400 = 7 THEN 'bad' \
     WHEN i % 400 = 107 THEN 'silent' WHEN i % 400 = 207 THEN 'refused' ELSE 'gone' END";

/// The sorts that fail: invalid JSON, no answer in time, a failing POST, a failing PRE.
const FAILING_SORTS: [&str; 4] = ["bad", "silent", "refused", "gone"];

/// The timeout ends silent rows early, yet is long enough for all others on a busy machine. The delay
/// allows many kills on a fast one. A worker's death uses an attempt.
const STORM_EDITS: [(&str, &str); 4] = [
    ("workers = 8", "workers = 20"),
    ("timeout = \"30s\"", "timeout = \"2s\""),
    ("attempts = 2", "attempts = 9"),
    ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"15ms\""),
];

/// Bounds how far the initiator runs ahead, so that it can be killed midway.
pub const BOUNDED_ENQUEUE: (&str, &str) = ("key = \"id\"", "key = \"id\"\nahead = 200");

/// A batch with failing rows, and how many.
pub struct BatchStorm {
    job: BatchJob,
    rows: u64,
    /// The failure code of a row with refused SQL: by the store, or by the rows' own database.
    refused_code: &'static str,
    has_steps: bool,
}

/// With the last question and POST, a row is: statement, question, command, question, statement. Keys of the table
/// `step_notes`, if it has one, recognise a repeat.
pub const STEPS: (&str, &str) = (
    "[ai]\nprofile = \"script\"",
    "[[step]]\nname = \"seen\"\n\
     sql = \"INSERT INTO step_notes (row, step, n, run_key) VALUES (:key, 'seen', :key, :run_key) ON CONFLICT DO NOTHING\"\n\
     [[step]]\nname = \"look\"\nprofile = \"script\"\nprompt = \"Look at {{ id }}.\"\n\
     [step.schema]\ntype = \"object\"\nrequired = [\"n\"]\nproperties = { n = { type = \"integer\" } }\n\
     [[step]]\nname = \"weigh\"\ncommand = [\"python3\", \"weigh.py\"]\nmax = 4\n\
     [ai]\nprofile = \"script\"",
);

/// The command of [`STEPS`]. Its statement commits with the step's checkpoint. What it does by itself, a line in a file, is
/// done at least once, with one key for each row.
const WEIGH: &str = r#"
import sys
sys.path.insert(0, SDK)
from longshore.worker import Worker

worker = Worker()


@worker.operation("run")
def run(given: dict):
    with open("run-keys", "a") as keys:
        keys.write(given["run_key"] + "\n")
    note = "INSERT INTO step_notes (row, step, n, run_key) VALUES (:key, 'weigh', :n, :run_key) ON CONFLICT DO NOTHING"
    n = given["steps"]["look"]["n"]
    return {"answer": {"n": n}, "effects": [{"sql": note, "params": {"n": n}}]}


worker.run()
"#;

impl BatchStorm {
    pub fn new(rows: u64, more: &[(&str, &str)]) -> Self {
        let job = BatchJob::new(rows, SORT_SQL).with(&[&STORM_EDITS, more].concat());
        let has_steps = more.contains(&STEPS);
        if has_steps {
            let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
            job.dir.write("weigh.py", WEIGH.replace("SDK", &format!("{:?}", sdk.display().to_string())));
        }
        Self { job, rows, refused_code: "effect", has_steps }
    }

    /// Moves the rows and the store to these servers.
    pub fn move_to(self, rows: &SharedPostgres, store: &SharedPostgres, keys: &[(&str, &str)]) -> Self {
        let refused_code = if Rc::ptr_eq(rows, store) { "effect" } else { "post-error" };
        Self { job: self.job.move_to(rows, store, keys), refused_code, ..self }
    }

    /// The failure code expected for a row of this sort.
    fn expected_code(&self, sort: &str) -> &'static str {
        match sort {
            "bad" => "bad-answer",
            "silent" => "timeout",
            "refused" => self.refused_code,
            "gone" => "pre-error",
            other => panic!("a row of sort {other} failed"),
        }
    }

    /// Lets every other process bring the batch a step further before it is killed: on a slow machine
    /// all would be killed at their start.
    fn wait_for_share(&self, kill: usize) {
        if kill % 2 == 1 {
            let share = self.rows * kill as u64 / (kill_count() as u64 + 2);
            eventually(stretch(2 * TIMEOUT), || (self.job.count("effects") >= share).then_some(()));
        }
    }

    /// How many runs resumed the batch.
    fn resume_count(&self) -> usize {
        self.job.dir.read("stderr").matches("resuming batch").count()
    }

    fn wait_for_resume(&self, before: usize) {
        eventually(stretch(2 * TIMEOUT), || (self.resume_count() > before).then_some(()));
    }

    fn assert_alive(&self, process: &mut ChildGuard, kill: usize) {
        let ended = process.0.try_wait().unwrap();
        assert_eq!(ended, None, "it ended before kill {kill}: {}", self.job.dir.read("stderr"));
    }

    /// Checks the final state: every row ended once, as its sort demands.
    fn assert_exact(&self) {
        let batch = self.job.batch();
        let of = |sort: &str| self.job.count(&format!("rows WHERE sort = '{sort}'"));
        let failed: u64 = FAILING_SORTS.iter().map(|sort| of(sort)).sum();
        assert_eq!((of("good"), failed), (self.rows - self.rows / 100, self.rows / 100));
        assert_eq!(batch["status"], "complete", "{batch}");
        assert_eq!((&batch["total"], &batch["cancelled"]), (&json!(self.rows), &json!(0)));
        assert_eq!((&batch["done"], &batch["failed"]), (&json!(of("good")), &json!(failed)));
        assert_eq!(self.job.count("effects"), of("good"), "one effect for each row that is done");
        assert_eq!(self.job.count("effects WHERE row IN (SELECT id FROM rows WHERE sort <> 'good')"), 0);
        self.job.assert_exact();
        self.assert_failures_have_their_reasons();
        self.assert_no_answer_paid_twice();
    }

    /// Each failure is listed with its code and message, and POST's `fail` ran once for it, also where
    /// POST itself had failed.
    fn assert_failures_have_their_reasons(&self) {
        let listed = self.job.rows(&self.job.name(), "failed");
        let mut found = BTreeMap::new();
        for row in &listed {
            let sort = format!("SELECT sort FROM rows WHERE id = {}", row["key"]);
            let code = row["code"].as_str().unwrap();
            assert_eq!(code, self.expected_code(&self.job.query::<String>(&sort)), "{row}");
            assert!(!row["reason"].as_str().unwrap().is_empty(), "{row}");
            assert_eq!(found.insert(row["key"].as_u64().unwrap(), code), None, "listed twice: {row}");
        }
        assert_eq!(found.len() as u64, self.rows / 100);
        let reported = found.len() as u64;
        assert_eq!(self.job.count("failures"), reported);
        assert_eq!(self.job.query::<u64>("SELECT count(DISTINCT row) FROM failures"), reported);
    }

    /// An answer is recorded and counted in one transaction, so a row asked again afterwards would be
    /// counted again. Silent and gone rows have no answer.
    fn assert_no_answer_paid_twice(&self) {
        let mut answered = self.job.count("rows WHERE sort IN ('good', 'bad', 'refused')");
        if self.has_steps {
            answered += self.assert_steps_once();
        }
        let sums = &self.job.batch()["sums"];
        assert_eq!(sums["answers"], answered, "{sums}");
        assert_eq!(sums["simulated"], answered, "{sums}");
    }

    /// The statement of each step and of its command is there once for each row; a row's command had one key, however
    /// often it ran. Returns how many questions the steps asked.
    fn assert_steps_once(&self) -> u64 {
        let looked = self.job.count("rows WHERE sort <> 'gone'");
        for (step, rows) in [("seen", self.rows), ("weigh", looked)] {
            assert_eq!(
                self.job.count(&format!("step_notes WHERE step = '{step}' AND n = row")),
                rows,
                "{step}"
            );
        }
        let twice = "(SELECT row FROM step_notes GROUP BY row, step HAVING count(*) > 1) AS twice";
        assert_eq!(self.job.count(twice), 0);
        let keys = self.job.dir.read("run-keys");
        let distinct: BTreeSet<&str> = keys.lines().collect();
        assert_eq!(distinct.len() as u64, looked, "{} runs of the command", keys.lines().count());
        assert!(distinct.iter().all(|key| key.ends_with("-weigh")), "{distinct:?}");
        looked
    }

    fn assert_ended_once(&self) {
        assert_eq!(self.job.count("ends"), 1);
        let end = "SELECT status || ' ' || generation || ' ' || total || ' ' || failed FROM ends";
        let failed = self.rows / 100;
        assert_eq!(self.job.query::<String>(end), format!("complete 1 {} {failed}", self.rows));
    }
}

/// The kill before which `middle` runs.
const MIDDLE_KILL: usize = 6;

/// How many times a process is killed.
fn kill_count() -> usize {
    pick_size(8, 24)
}

/// Kills a run repeatedly, and calls `middle` halfway.
pub fn kill_runs(storm: &BatchStorm, mut middle: impl FnMut()) {
    storm.job.seed();
    let _maintainer = storm.job.start_maintainer();
    let mut rng = Rng(1);
    for kill in 0..kill_count() {
        let before = storm.resume_count();
        let mut run = storm.job.start(&[]);
        if kill == MIDDLE_KILL {
            storm.wait_for_resume(before);
            middle();
        }
        storm.wait_for_share(kill);
        rng.sleep_up_to(400);
        storm.assert_alive(&mut run, kill);
        run.kill();
    }
    let last = storm.job.run(&[]).ends(3).says("resuming batch");
    // The kills hit rows in flight, which ran again.
    let log = storm.job.dir.read("stderr") + &last.err;
    assert!(log.contains("maybe billed: the worker died"), "{log}");
    let last = last.json();
    assert_eq!((&last["total"], &last["status"]), (&json!(storm.rows), &json!("complete")));
    storm.assert_exact();
    storm.assert_ended_once();
}

/// Kills the initiator and two workers, each a process of its own, in turn, and calls `middle`
/// halfway.
pub fn kill_initiators_and_workers(storm: &BatchStorm, mut middle: impl FnMut()) {
    const WORKERS: usize = 2;
    storm.job.seed();
    let _maintainer = storm.job.start_maintainer();
    let work = || storm.job.dir.start(&["worker", "--slots", "10"]);
    let initiate = || storm.job.dir.start(&["batch", "start", "."]);
    let mut workers: [ChildGuard; WORKERS] = std::array::from_fn(|_| work());
    let mut rng = Rng(2);
    for kill in 0..kill_count() {
        let before = storm.resume_count();
        let mut initiator = initiate();
        if kill == MIDDLE_KILL {
            storm.wait_for_resume(before);
            middle();
        }
        storm.wait_for_share(kill);
        rng.sleep_up_to(220);
        storm.assert_alive(&mut initiator, kill);
        initiator.kill();
        if kill % 2 == 0 {
            let victim = &mut workers[kill / 2 % WORKERS];
            victim.kill();
            *victim = work();
        }
    }
    assert_eq!(initiate().ends_within(stretch(4 * TIMEOUT)), 0);
    let ended = || storm.job.batch()["status"] == "complete";
    eventually(stretch(2 * TIMEOUT), || ended().then_some(()));
    eventually(TIMEOUT, || (storm.job.count("ends") > 0).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0);
    }
    storm.assert_exact();
    storm.assert_ended_once();
}

#[test]
fn effects_exactly_once_and_tally_is_exact_in_a_storm_of_killed_runs() {
    kill_runs(&BatchStorm::new(pick_size(3_000, 10_000), &[]), || {});
}

#[test]
fn steps_are_exactly_once_in_a_storm_of_killed_runs() {
    kill_runs(&BatchStorm::new(pick_size(1_000, 10_000), &[STEPS]), || {});
}

#[test]
fn no_unit_lost_in_a_storm_of_killed_initiators_and_workers() {
    kill_initiators_and_workers(&BatchStorm::new(pick_size(2_000, 10_000), &[BOUNDED_ENQUEUE]), || {});
}

/// While POST keeps failing, a row is asked once, no matter how many attempts and workers try POST.
#[test]
fn no_answer_paid_twice_when_post_fails_and_runs_are_killed() {
    const ROWS: u64 = 200;
    // POST must update the row in `gate`, which does not exist yet.
    let gate = "{ sql = \"UPDATE gate SET passed = passed + 1\", rows = 1 },";
    let gate = format!("success = [\n  {gate}");
    let edits = [("attempts = 2", "attempts = 100000"), ("success = [", &gate)];
    let job = BatchJob::good(ROWS).with(&edits);
    job.create().execute_batch("CREATE TABLE gate (passed INTEGER)").unwrap();
    let _maintainer = job.start_maintainer();
    let answers = || job.batches().first().and_then(|batch| batch["sums"]["answers"].as_u64());
    for kills in 1..=3 {
        let mut run = job.start(&[]);
        // Each time more rows are answered, and all of them have tried POST in vain.
        eventually(TIMEOUT, || answers().filter(|answers| *answers >= kills * ROWS / 3));
        run.kill();
    }
    assert_eq!(job.count("effects"), 0);
    job.execute("INSERT INTO gate VALUES (0)");
    let last = job.run(&[]).ok().json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(ROWS), &json!(0)), "{last}");
    assert_eq!(answers(), Some(ROWS));
    assert_eq!(job.query::<u64>("SELECT passed FROM gate"), ROWS);
    job.assert_exact();
}

#[test]
fn a_batch_in_which_everything_fails_pauses_and_goes_on_once_it_is_mended() {
    const ROWS: u64 = 2_000;
    let job = BatchJob::new(ROWS, "'bad'").with(&[("limit = \"none\"", "limit = 25")]);
    job.run(&[]).ends(4);
    let paused = job.batch();
    assert_eq!(paused["status"], "paused", "{paused}");
    let reason = paused["reason"].as_str().unwrap();
    assert!(reason.contains("threshold is 25"), "{reason}");
    let failed = paused["failed"].as_u64().unwrap();
    // Rows in flight when the threshold was reached still ended.
    assert!((25..150).contains(&failed), "{paused}");
    assert_eq!(paused["sums"]["answers"], failed, "no other rows asked");

    let log = job.run(&[]).ends(1).says("is paused").says("hint:").err;
    assert!(log.contains(reason), "{log}");
    assert_eq!(job.batch()["failed"], failed, "a paused batch does not run");
    job.execute("UPDATE rows SET sort = 'good'");
    job.operate("resume", &[]).ok();
    let last = job.run(&[]).ends(3).says("resuming batch").json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(ROWS - failed), &json!(failed)), "{last}");
    assert_eq!((&last["status"], &last["reason"]), (&json!("complete"), &json!(null)));
    job.assert_exact();
    assert_eq!(job.count("ends"), 1);
}

#[test]
fn a_batch_that_fails_at_its_threshold_gives_up_the_rest() {
    const ROWS: u64 = 2_000;
    let edits = [("limit = \"none\"", "limit = \"5%\"\nthen = \"fail\"")];
    let job = BatchJob::new(ROWS, "'bad'").with(&edits);
    job.run(&[]).ends(3);
    let batch = job.batch();
    assert_eq!(batch["status"], "failed", "{batch}");
    assert!(batch["reason"].as_str().unwrap().contains("the threshold is 5 %"), "{batch}");
    let (failed, cancelled) = (batch["failed"].as_u64().unwrap(), batch["cancelled"].as_u64().unwrap());
    assert_eq!((failed + cancelled, &batch["done"]), (batch["total"].as_u64().unwrap(), &json!(0)));
    assert!(failed < ROWS / 2, "{batch}");
    assert_eq!(batch["sums"]["answers"], failed, "no other rows asked");
    assert_eq!(job.query::<String>("SELECT status FROM ends"), "failed");
    job.assert_exact();
}

/// With `on_lost = "fail"`, a row fails with its worker if its question may have been billed.
#[test]
fn rows_that_were_out_when_the_run_was_killed_are_not_asked_again_if_the_file_says_so() {
    let sorts = "CASE WHEN i <= 5 THEN 'silent' ELSE 'good' END";
    let edits = [("workers = 8", "workers = 8\non_lost = \"fail\"")];
    let job = BatchJob::new(100, sorts).with(&edits);
    job.create();
    let _maintainer = job.start_maintainer();
    let mut run = job.start(&[]);
    job.wait_for_effects(95);
    run.kill();
    let last = job.run(&[]).ends(3).json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(95), &json!(5)), "{last}");
    for row in job.rows(&job.name(), "failed") {
        assert_eq!(row["code"], "lost", "{row}");
        assert!(row["reason"].as_str().unwrap().contains("maybe billed"), "{row}");
    }
    assert_eq!(job.count("failures WHERE code = 'LOST' AND row <= 5"), 5, "POST heard of it");
    job.assert_exact();
}
