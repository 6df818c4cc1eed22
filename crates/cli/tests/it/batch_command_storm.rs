//! Batches with PRE and POST as commands, under SIGKILL of the command's processes, the run and the
//! workers: each row ends once and its effects exist once.

use serde_json::json;

use crate::batch_commands::{assert_no_process_left, job, kill, live_processes_in};
use crate::batch_job::{BatchJob, Rng};
use crate::support::{ChildGuard, TIMEOUT, eventually, pick_size, stretch};

/// Slow enough for many kills. A worker's death uses an attempt.
const STORM_EDITS: [(&str, &str); 3] = [
    ("workers = 8", "workers = 12"),
    ("attempts = 2", "attempts = 30"),
    ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"5ms\""),
];

const SLOW_POST: (&str, &str) = ("PAUSE", "0.01");

/// Kills one of the command's processes that has already handled a call. A process killed before it
/// is ready counts as a failed start, after which rows wait longer.
fn kill_one_process(job: &BatchJob, rng: &mut Rng) -> usize {
    let at_work = live_processes_in(job, "at-work");
    if at_work.is_empty() {
        return 0;
    }
    kill(&at_work[usize::try_from(rng.below(at_work.len() as u64)).unwrap()]);
    1
}

/// Kills the command's processes repeatedly, and the run itself three times.
#[test]
fn effects_exactly_once_in_a_storm_of_killed_commands() {
    let rows = pick_size(250, 6_000);
    let job = job(rows, "'good'", &STORM_EDITS, &[SLOW_POST]);
    job.create();
    let _maintainer = job.start_maintainer();
    let (mut rng, mut kills) = (Rng(3), 0);
    for round in 1..=3_u64 {
        let before = job.count("effects");
        let mut run = job.start(&[]);
        eventually(stretch(2 * TIMEOUT), || (job.count("effects") > before).then_some(()));
        let share = rows * round / 4;
        eventually(stretch(6 * TIMEOUT), || {
            rng.sleep_up_to(150);
            kills += kill_one_process(&job, &mut rng);
            assert_eq!(run.0.try_wait().unwrap(), None, "{}", job.dir.read("stderr"));
            (job.count("effects") >= share).then_some(())
        });
        run.kill();
        assert_no_process_left(&job);
    }
    assert!(kills >= 10, "only {kills} kills");
    let last = job.run(&[]).ok().says("resuming batch").json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(rows), &json!(0)), "{last}");
    assert_eq!(job.count("effects"), rows);
    assert_eq!(job.batch()["sums"]["answers"], rows, "no answer was paid for twice");
    assert_eq!(job.count("ends"), 1);
    job.assert_exact();
    assert_no_process_left(&job);
}

/// One row in twenty fails in PRE.
const FAIL_SOME_PRE: &str = "CASE WHEN i % 20 = 7 THEN 'hopeless' ELSE 'good' END";

/// Kills the command's processes repeatedly, and their workers now and then.
#[test]
fn tally_is_exact_in_a_storm_of_killed_commands_and_workers() {
    let rows = pick_size(200, 6_000);
    let job = job(rows, FAIL_SOME_PRE, &STORM_EDITS, &[SLOW_POST]);
    job.create();
    let _maintainer = job.start_maintainer();
    job.dir.run(&["batch", "start", "."]).ok();
    let work = || job.dir.start(&["worker", "--slots", "6"]);
    let mut workers: [ChildGuard; 2] = std::array::from_fn(|_| work());
    let (mut rng, mut kills) = (Rng(4), [0, 0]);
    let (deaths, failed) = (pick_size(6, 40), rows / 20);
    for death in 1..=deaths {
        // Each kill waits for its share of the rows, so that the kills are spread over the batch.
        let share = (rows - failed) * death / (deaths + 1);
        eventually(stretch(6 * TIMEOUT), || {
            rng.sleep_up_to(150);
            kills[0] += kill_one_process(&job, &mut rng);
            (job.count("effects") >= share).then_some(())
        });
        let victim = &mut workers[usize::try_from(death % 2).unwrap()];
        assert_eq!(victim.0.try_wait().unwrap(), None, "{}", job.dir.read("stderr"));
        victim.kill();
        *victim = work();
        kills[1] += 1;
    }
    assert!(kills[0] >= 6 && kills[1] >= 6, "only {kills:?} kills");
    eventually(stretch(6 * TIMEOUT), || (job.batch()["status"] == "complete").then_some(()));
    eventually(TIMEOUT, || (job.count("ends") > 0).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", job.dir.read("stderr"));
    }
    let batch = job.batch();
    assert_eq!((&batch["total"], &batch["cancelled"]), (&json!(rows), &json!(0)), "{batch}");
    assert_eq!((&batch["done"], &batch["failed"]), (&json!(rows - failed), &json!(failed)));
    assert_eq!(batch["sums"]["answers"], rows - failed, "no answer was paid for twice");
    assert_eq!(job.count("effects"), rows - failed);
    assert_eq!(job.count("failures WHERE code = 'PRE_ERROR' AND row % 20 = 7"), failed);
    assert_eq!(job.count("failures"), failed, "POST ran once for each failure");
    assert_eq!(job.count("ends"), 1);
    job.assert_exact();
    assert_no_process_left(&job);
}
