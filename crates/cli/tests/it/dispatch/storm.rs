//! Thousands of scripts, while workers, the server and submitting clients are killed at random.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::fixture::{POOL_TIMEOUT, PoolFixture, count_lines, signal};
use crate::support::{CliOutput, eventually, pick_size, stretch};

const THREADS_PER_WORKER: usize = 8;
const WORKERS: usize = 4;

#[test]
fn dispatch_storm() {
    let (scripts, kills): (usize, usize) = pick_size((600, 6), (5_000, 40));
    let pool = PoolFixture::start(&["--workers", "4", "--nthr", "8"]);
    let array = format!("1-{scripts}");
    let more = ["--array", &array, "--output", "none", "--crash-limit", "1000"];
    pool.submit("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.0$((RANDOM % 10))", &more);
    kill_workers_and_servers(&pool, scripts, kills);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&scripts.into(), &0.into()));
    assert_eq!(status["cancelled"], 0);
    let ran = pool.lines("runs");
    let counts = count_lines(&ran);
    assert_eq!(counts.len(), scripts, "every script ran");
    let repeats = ran.len() - scripts;
    // A killed worker costs what it ran, and results that no server had recorded yet: after the death of a server those
    // of the scripts that ran meanwhile.
    let most = kills * THREADS_PER_WORKER * WORKERS;
    assert!(repeats <= most, "{repeats} repeats, not {most}");
    eprintln!("{repeats} repeats after {kills} kills");
    pool.stop();
}

/// Arrays that are submitted one after the other.
const ARRAYS: usize = 10;

#[test]
fn dispatch_storm_of_short_and_long_scripts_and_killed_clients() {
    let (scripts, kills): (usize, usize) = pick_size((1_500, 6), (100_000, 120));
    let (array, singles) = (scripts / ARRAYS, scripts / 100);
    let pool = PoolFixture::start(&["--workers", "4", "--nthr", "8"]);
    // 0, 10 and 100 ms.
    let text = "case $((LONGSHORE_ARRAY_INDEX % 3)) in 1) sleep 0.01;; 2) sleep 0.1;; esac
        echo $LONGSHORE_BATCH $LONGSHORE_ARRAY_INDEX $1 >> runs";
    pool.dir.write("job.sh", text);
    let client = Client::of(&pool);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for part in 0..ARRAYS {
                let (range, name) = (format!("1-{array}"), format!("part-{part}"));
                client.submit_with_kills(part, &["--array", &range, "--name", &name]);
                for nth in (part..singles).step_by(ARRAYS) {
                    let key = format!("single-{nth}");
                    let kept = ["--key", &key, "--window", "kept"];
                    client.submit_with_kills(nth, &[&kept[..], &["--", &key]].concat());
                }
            }
        });
        kill_workers_and_servers(&pool, scripts, kills);
    });
    let all = scripts + singles;
    let status = pool.wait_for_status(|status| status["done"].as_u64() >= Some(all as u64));
    assert_eq!(
        (&status["done"], &status["failed"], &status["cancelled"]),
        (&all.into(), &0.into(), &0.into())
    );
    for part in 0..ARRAYS {
        let name = format!("part-{part}");
        let batch = pool.run(&["batch", "status", &name, "--json"]).ok().json();
        assert_eq!((&batch["done"], &batch["total"]), (&array.into(), &array.into()), "{batch}");
    }
    let ran = pool.lines("runs");
    assert_eq!(count_lines(&ran).len(), all, "every script ran");
    eprintln!("{} repeats after {kills} kills", ran.len() - all);
    pool.stop();
}

/// Runs `submit` for a pool, from another thread.
struct Client {
    program: OsString,
    env: Vec<(OsString, Option<OsString>)>,
    dir: PathBuf,
}

impl Client {
    fn of(pool: &PoolFixture) -> Self {
        let command = pool.command(&[]);
        let owned = |text: &OsStr| text.to_owned();
        let env = command.get_envs().map(|(name, value)| (owned(name), value.map(owned)));
        Self { program: owned(command.get_program()), env: env.collect(), dir: pool.dir.path("") }
    }

    fn submit(&self, what: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        command.args(["submit", "--script", "job.sh", "--output", "none", "--crash-limit", "1000"]);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let command = command.args(what).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Submits what is recognised when it is submitted again. The first clients are killed, earlier or later.
    fn submit_with_kills(&self, seed: usize, what: &[&str]) {
        let random = RandomState::new();
        let mut attempt = 0_u64;
        eventually(stretch(POOL_TIMEOUT), || {
            attempt += 1;
            let client = self.submit(what);
            let choice = random.hash_one((seed, attempt));
            if choice.is_multiple_of(2) && attempt < 3 {
                std::thread::sleep(Duration::from_millis(choice % 61));
                signal(client.id(), "KILL");
            }
            // The server may be away.
            (CliOutput::of(client).code == 0).then_some(())
        });
    }
}

fn kill_workers_and_servers(pool: &PoolFixture, scripts: usize, kills: usize) {
    let random = RandomState::new();
    for kill in 1..=kills {
        let count = kill * scripts / (kills + 2);
        // Longer than other waits: so many scripts take their time.
        eventually(stretch(5 * POOL_TIMEOUT), || (pool.lines("runs").len() >= count).then_some(()));
        // Every third kill hits the server, the others one of the live workers.
        if kill % 3 == 0 {
            pool.kill_server();
            pool.start_server().ok();
        } else {
            let workers =
                eventually(stretch(POOL_TIMEOUT), || Some(pool.worker_pids()).filter(|w| !w.is_empty()));
            signal(workers[random.hash_one(kill) as usize % workers.len()], "KILL");
        }
    }
}
