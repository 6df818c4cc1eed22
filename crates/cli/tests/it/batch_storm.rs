//! Batches under SIGKILL: whatever dies and whenever, each row comes to one end, its effects are
//! there once, and no answer that was kept is asked for again.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::json;

use crate::batch_job::{Dice, Job, Server};
use crate::support::{Running, SOON, eventually, limit, soaked};

/// One row in a hundred is poison, of four sorts in turn.
const SORTS: &str = "CASE WHEN i % 100 <> 7 THEN 'good' WHEN i % 400 = 7 THEN 'bad' \
     WHEN i % 400 = 107 THEN 'silent' WHEN i % 400 = 207 THEN 'refused' ELSE 'gone' END";

/// The sorts that fail: bad JSON, no answer in time, a POST and a PRE that do not work.
const POISON: [&str; 4] = ["bad", "silent", "refused", "gone"];

/// With a clock for the silent ones that others never hear, however busy the machine is, and slow
/// enough for many kills on a fast one. A worker's death uses an attempt.
const EDITS: [(&str, &str); 4] = [
    ("workers = 8", "workers = 20"),
    ("timeout = \"30s\"", "timeout = \"2s\""),
    ("attempts = 2", "attempts = 9"),
    ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"15ms\""),
];

/// An initiator that waits for the workers, so that it can be killed midway.
pub const AHEAD: (&str, &str) = ("key = \"id\"", "key = \"id\"\nahead = 200");

/// A batch with poison in it.
pub struct Storm {
    job: Job,
    rows: u64,
    /// The code of a row whose SQL is refused: by the store, or by the rows' own database.
    refused: &'static str,
}

impl Storm {
    pub fn new(rows: u64, more: &[(&str, &str)]) -> Self {
        let job = Job::new(rows, SORTS).with(&[&EDITS, more].concat());
        Self { job, rows, refused: "effect" }
    }

    /// The same with the rows and the store on these servers.
    pub fn move_to(self, rows: &Server, store: &Server, keys: &[(&str, &str)]) -> Self {
        let refused = if Rc::ptr_eq(rows, store) { "effect" } else { "post-error" };
        Self { job: self.job.move_to(rows, store, keys), refused, ..self }
    }

    /// What a row of this sort comes to.
    fn code(&self, sort: &str) -> &'static str {
        match sort {
            "bad" => "bad-answer",
            "silent" => "timeout",
            "refused" => self.refused,
            "gone" => "pre-error",
            other => panic!("a row of sort {other} failed"),
        }
    }

    /// Every other process brings the batch a step further before it is killed: on a slow machine
    /// they would all be killed at their start.
    fn until_its_share_is_done(&self, kill: usize) {
        if kill % 2 == 1 {
            let share = self.rows * kill as u64 / (kills() as u64 + 2);
            eventually(limit(2 * SOON), || (self.job.count("effects") >= share).then_some(()));
        }
    }

    /// How often the batch was taken up where it was left.
    fn taken_up(&self) -> usize {
        self.job.place.read("stderr").matches("resuming batch").count()
    }

    fn until_taken_up(&self, before: usize) {
        eventually(limit(2 * SOON), || (self.taken_up() > before).then_some(()));
    }

    fn assert_alive(&self, process: &mut Running, kill: usize) {
        let ended = process.0.try_wait().unwrap();
        assert_eq!(ended, None, "it ended before kill {kill}: {}", self.job.place.read("stderr"));
    }

    /// The books after it: every row has ended once, as its sort wants.
    fn assert_exact(&self) {
        let batch = self.job.batch();
        let of = |sort: &str| self.job.count(&format!("rows WHERE sort = '{sort}'"));
        let failed: u64 = POISON.iter().map(|sort| of(sort)).sum();
        assert_eq!((of("good"), failed), (self.rows - self.rows / 100, self.rows / 100));
        assert_eq!(batch["status"], "complete", "{batch}");
        assert_eq!((&batch["total"], &batch["cancelled"]), (&json!(self.rows), &json!(0)));
        assert_eq!((&batch["done"], &batch["failed"]), (&json!(of("good")), &json!(failed)));
        assert_eq!(self.job.count("effects"), of("good"), "one effect for each row that is done");
        assert_eq!(
            self.job.count("effects WHERE row IN (SELECT id FROM rows WHERE sort <> 'good')"),
            0
        );
        self.job.assert_exact();
        self.assert_failures_have_their_reasons();
        self.assert_no_answer_paid_twice();
    }

    /// Each failure is listed with its code and words, and POST heard of it once. (Where POST is
    /// what failed, there is nobody to hear.)
    fn assert_failures_have_their_reasons(&self) {
        let listed = self.job.rows(&self.job.name(), "failed");
        let mut found = BTreeMap::new();
        for row in &listed {
            let sort = format!("SELECT sort FROM rows WHERE id = {}", row["key"]);
            let code = row["code"].as_str().unwrap();
            assert_eq!(code, self.code(&self.job.query::<String>(&sort)), "{row}");
            assert!(!row["reason"].as_str().unwrap().is_empty(), "{row}");
            assert_eq!(
                found.insert(row["key"].as_u64().unwrap(), code),
                None,
                "listed twice: {row}"
            );
        }
        assert_eq!(found.len() as u64, self.rows / 100);
        let told = found.values().filter(|code| **code != self.refused).count() as u64;
        assert_eq!(self.job.count("failures"), told);
        assert_eq!(self.job.query::<u64>("SELECT count(DISTINCT row) FROM failures"), told);
    }

    /// Each answer that is kept is counted in the same transaction, so a row that was asked again
    /// after that would be counted again. The silent and the gone have none.
    fn assert_no_answer_paid_twice(&self) {
        let answered = self.job.count("rows WHERE sort IN ('good', 'bad', 'refused')");
        let sums = &self.job.batch()["sums"];
        assert_eq!(sums["answers"], answered, "{sums}");
        assert_eq!(sums["simulated"], answered, "{sums}");
    }

    fn assert_ended_once(&self) {
        assert_eq!(self.job.count("ends"), 1);
        let end = "SELECT status || ' ' || generation || ' ' || total || ' ' || failed FROM ends";
        let failed = self.rows / 100;
        assert_eq!(self.job.query::<String>(end), format!("complete 1 {} {failed}", self.rows));
    }
}

/// Before which kill the middle of a storm is.
const MIDDLE: usize = 6;

/// How often a process is killed.
fn kills() -> usize {
    soaked(8, 24)
}

/// Lets a run be killed again and again, with something else in the `middle` of the storm.
pub fn kill_runs(storm: &Storm, mut middle: impl FnMut()) {
    storm.job.seed();
    let _watcher = storm.job.watcher();
    let mut dice = Dice(1);
    for kill in 0..kills() {
        let before = storm.taken_up();
        let mut run = storm.job.start(&[]);
        if kill == MIDDLE {
            storm.until_taken_up(before);
            middle();
        }
        storm.until_its_share_is_done(kill);
        dice.moment(400);
        storm.assert_alive(&mut run, kill);
        run.kill();
    }
    let last = storm.job.run(&[]).ends(3).says("resuming batch");
    // Whoever looks first takes back: the watcher, one that was killed later, or this last one.
    let said = storm.job.place.read("stderr") + &last.err;
    assert!(said.contains("rescued units of dead workers"), "{said}");
    let last = last.json();
    assert_eq!((&last["total"], &last["status"]), (&json!(storm.rows), &json!("complete")));
    storm.assert_exact();
    storm.assert_ended_once();
}

/// The initiator and two workers, each a process of its own, are killed in turn, with something
/// else in the `middle` of the storm.
pub fn kill_initiators_and_workers(storm: &Storm, mut middle: impl FnMut()) {
    const WORKERS: usize = 2;
    storm.job.seed();
    let _watcher = storm.job.watcher();
    let work = || storm.job.place.start(&["worker", "--slots", "10"]);
    let initiate = || storm.job.place.start(&["batch", "start", "."]);
    let mut workers: [Running; WORKERS] = std::array::from_fn(|_| work());
    let mut dice = Dice(2);
    for kill in 0..kills() {
        let before = storm.taken_up();
        let mut initiator = initiate();
        if kill == MIDDLE {
            storm.until_taken_up(before);
            middle();
        }
        storm.until_its_share_is_done(kill);
        dice.moment(220);
        storm.assert_alive(&mut initiator, kill);
        initiator.kill();
        if kill % 2 == 0 {
            let victim = &mut workers[kill / 2 % WORKERS];
            victim.kill();
            *victim = work();
        }
    }
    assert_eq!(initiate().ends_within(limit(4 * SOON)), 0);
    let ended = || storm.job.batch()["status"] == "complete";
    eventually(limit(2 * SOON), || ended().then_some(()));
    eventually(SOON, || (storm.job.count("ends") > 0).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0);
    }
    storm.assert_exact();
    storm.assert_ended_once();
}

#[test]
fn effects_exactly_once_and_tally_is_exact_in_a_storm_of_killed_runs() {
    kill_runs(&Storm::new(soaked(3_000, 10_000), &[]), || {});
}

#[test]
fn no_unit_lost_in_a_storm_of_killed_initiators_and_workers() {
    kill_initiators_and_workers(&Storm::new(soaked(2_000, 10_000), &[AHEAD]), || {});
}

/// Rows whose POST does not work for a while, however often it is tried and by whom, are asked
/// once.
#[test]
fn no_answer_paid_twice_when_post_fails_and_runs_are_killed() {
    const ROWS: u64 = 200;
    // POST must change the row of the gate, and there is none yet.
    let gate = "{ sql = \"UPDATE gate SET passed = passed + 1\", rows = 1 },";
    let gate = format!("success = [\n  {gate}");
    let edits = [("attempts = 2", "attempts = 100000"), ("success = [", &gate)];
    let job = Job::good(ROWS).with(&edits);
    job.create().execute_batch("CREATE TABLE gate (passed INTEGER)").unwrap();
    let _watcher = job.watcher();
    let answers = || job.batches().first().and_then(|batch| batch["sums"]["answers"].as_u64());
    for kills in 1..=3 {
        let mut run = job.start(&[]);
        // Each time some more rows have been answered, and all of them tried in vain.
        eventually(SOON, || answers().filter(|answers| *answers >= kills * ROWS / 3));
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
    let job = Job::new(ROWS, "'bad'").with(&[("limit = \"none\"", "limit = 25")]);
    job.run(&[]).ends(4);
    let paused = job.batch();
    assert_eq!(paused["status"], "paused", "{paused}");
    let reason = paused["reason"].as_str().unwrap();
    assert!(reason.contains("threshold is 25"), "{reason}");
    let failed = paused["failed"].as_u64().unwrap();
    // Those that were under way when it was reached still came to their end.
    assert!((25..150).contains(&failed), "{paused}");
    assert_eq!(paused["sums"]["answers"], failed, "no more were asked");

    let said = job.run(&[]).ends(1).says("is paused").says("hint:").err;
    assert!(said.contains(reason), "{said}");
    assert_eq!(job.batch()["failed"], failed, "a paused batch is left alone");
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
    let job = Job::new(ROWS, "'bad'").with(&edits);
    job.run(&[]).ends(3);
    let batch = job.batch();
    assert_eq!(batch["status"], "failed", "{batch}");
    assert!(batch["reason"].as_str().unwrap().contains("the threshold is 5 %"), "{batch}");
    let (failed, cancelled) =
        (batch["failed"].as_u64().unwrap(), batch["cancelled"].as_u64().unwrap());
    assert_eq!((failed + cancelled, &batch["done"]), (batch["total"].as_u64().unwrap(), &json!(0)));
    assert!(failed < ROWS / 2, "{batch}");
    assert_eq!(batch["sums"]["answers"], failed, "no more were asked");
    assert_eq!(job.query::<String>("SELECT status FROM ends"), "failed");
    job.assert_exact();
}

/// Where a question may have been billed and must not be asked again, a row fails with its worker.
#[test]
fn rows_that_were_out_when_the_run_was_killed_are_not_asked_again_if_the_file_says_so() {
    let sorts = "CASE WHEN i <= 5 THEN 'silent' ELSE 'good' END";
    let edits = [("workers = 8", "workers = 8\non_lost = \"fail\"")];
    let job = Job::new(100, sorts).with(&edits);
    job.create();
    let _watcher = job.watcher();
    let mut run = job.start(&[]);
    job.until_done(95);
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
