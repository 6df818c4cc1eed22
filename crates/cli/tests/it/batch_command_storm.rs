//! Batches whose PRE and POST are commands, under SIGKILL: whoever dies, the command's processes, the
//! run or the workers, each row comes to one end and its effects are there once.

use serde_json::json;

use crate::batch_commands::{alive, assert_nobody_is_left, job, kill};
use crate::batch_job::{Dice, Job};
use crate::support::{Running, SOON, eventually, limit, soaked};

/// Slow enough for many kills. A worker's death uses an attempt.
const EDITS: [(&str, &str); 3] = [
    ("workers = 8", "workers = 12"),
    ("attempts = 2", "attempts = 30"),
    ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"5ms\""),
];

const PAUSE: (&str, &str) = ("PAUSE", "0.01");

/// Kills one of the command's processes, if one is at work. One that is killed before it is ready is
/// one that cannot be started: rows wait longer.
fn kill_one(job: &Job, dice: &mut Dice) -> usize {
    let at_work = alive(job, "at-work");
    if at_work.is_empty() {
        return 0;
    }
    kill(&at_work[usize::try_from(dice.roll(at_work.len() as u64)).unwrap()]);
    1
}

/// Processes of the program are killed again and again, and the run itself now and then.
#[test]
fn effects_exactly_once_in_a_storm_of_killed_commands() {
    let rows = soaked(250, 6_000);
    let job = job(rows, "'good'", &EDITS, &[PAUSE]);
    job.create();
    let _watcher = job.watcher();
    let (mut dice, mut kills) = (Dice(3), 0);
    for round in 1..=3_u64 {
        let before = job.count("effects");
        let mut run = job.start(&[]);
        eventually(limit(2 * SOON), || (job.count("effects") > before).then_some(()));
        let share = rows * round / 4;
        eventually(limit(6 * SOON), || {
            dice.moment(150);
            kills += kill_one(&job, &mut dice);
            assert_eq!(run.0.try_wait().unwrap(), None, "{}", job.place.read("stderr"));
            (job.count("effects") >= share).then_some(())
        });
        run.kill();
        assert_nobody_is_left(&job);
    }
    assert!(kills >= 10, "{kills} kills are no storm");
    let last = job.run(&[]).ok().says("resuming batch").json();
    assert_eq!((&last["done"], &last["failed"]), (&json!(rows), &json!(0)), "{last}");
    assert_eq!(job.count("effects"), rows);
    assert_eq!(job.batch()["sums"]["answers"], rows, "no answer was paid for twice");
    assert_eq!(job.count("ends"), 1);
    job.assert_exact();
    assert_nobody_is_left(&job);
}

/// One row in twenty is hopeless: its PRE says so.
const SORTS: &str = "CASE WHEN i % 20 = 7 THEN 'hopeless' ELSE 'good' END";

/// Processes of the program are killed again and again, and the workers that have them now and then.
#[test]
fn tally_is_exact_in_a_storm_of_killed_commands_and_workers() {
    let rows = soaked(200, 6_000);
    let job = job(rows, SORTS, &EDITS, &[PAUSE]);
    job.create();
    let _watcher = job.watcher();
    job.place.run(&["batch", "start", "."]).ok();
    let work = || job.place.start(&["worker", "--slots", "6"]);
    let mut workers: [Running; 2] = std::array::from_fn(|_| work());
    let (mut dice, mut kills) = (Dice(4), [0, 0]);
    let (deaths, failed) = (soaked(6, 40), rows / 20);
    for death in 1..=deaths {
        // Each death finds a share of the rows done, so that not all are at the start.
        let share = (rows - failed) * death / (deaths + 1);
        eventually(limit(6 * SOON), || {
            dice.moment(150);
            kills[0] += kill_one(&job, &mut dice);
            (job.count("effects") >= share).then_some(())
        });
        let victim = &mut workers[usize::try_from(death % 2).unwrap()];
        assert_eq!(victim.0.try_wait().unwrap(), None, "{}", job.place.read("stderr"));
        victim.kill();
        *victim = work();
        kills[1] += 1;
    }
    assert!(kills[0] >= 6 && kills[1] >= 6, "{kills:?} kills are no storm");
    eventually(limit(6 * SOON), || (job.batch()["status"] == "complete").then_some(()));
    eventually(SOON, || (job.count("ends") > 0).then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0, "{}", job.place.read("stderr"));
    }
    let batch = job.batch();
    assert_eq!((&batch["total"], &batch["cancelled"]), (&json!(rows), &json!(0)), "{batch}");
    assert_eq!((&batch["done"], &batch["failed"]), (&json!(rows - failed), &json!(failed)));
    assert_eq!(batch["sums"]["answers"], rows - failed, "no answer was paid for twice");
    assert_eq!(job.count("effects"), rows - failed);
    assert_eq!(job.count("failures WHERE code = 'PRE_ERROR' AND row % 20 = 7"), failed);
    assert_eq!(job.count("failures"), failed, "each is told of once");
    assert_eq!(job.count("ends"), 1);
    job.assert_exact();
    assert_nobody_is_left(&job);
}
