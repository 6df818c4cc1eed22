//! Scripts through a whole pool.

use std::time::Duration;

use longshore::UnitState;
use longshore_dispatch::request::ShutdownMode;
use longshore_dispatch::script::{RunEnd, RunReport, ScriptOutput};
use longshore_dispatch::worker::{ProgramCommand, WorkerOptions};

use crate::pool_fixture::{LONG, Pool, array, eventually, once, worker_options};

#[tokio::test]
async fn scripts_run_and_their_ends_are_recorded() {
    let pool = Pool::start().await;
    let worker = pool.worker(2);
    let script =
        pool.script("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> seen; exit $((LONGSHORE_ARRAY_INDEX % 2))");
    assert_eq!(pool.submit(array(script, "a", 1, 40)).await, 40);
    let counts = pool.wait_until_idle().await;
    assert_eq!((counts.done, counts.failed), (20, 20));
    let seen = std::fs::read_to_string(pool.path("seen")).unwrap();
    let mut seen: Vec<u32> = seen.lines().map(|line| line.parse().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=40).collect::<Vec<_>>());
    pool.drain().await;
    let summary = worker.summary.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.failed), (20, 20));
}

#[tokio::test]
async fn an_end_tells_code_times_and_the_last_words() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    for (text, state, end) in [
        ("echo hello; exit 0", UnitState::Done, Some(RunEnd::Exited(0))),
        ("echo hello; exit 42", UnitState::Failed, None),
        ("echo hello; no-such-command-here", UnitState::Failed, None),
        ("echo hello; kill -SEGV $$", UnitState::Failed, None),
    ] {
        let (id, submission) = once(pool.script("job.sh", text));
        pool.submit(submission).await;
        let unit = pool.wait_for_end(id).await;
        assert_eq!(unit.state, state, "{text}");
        if let Some(end) = end {
            let report: RunReport = unit.result.unwrap().parse().unwrap();
            assert_eq!((report.end, report.tail.as_str()), (end, "hello\n"));
            assert!(report.queued <= report.started && report.started <= report.ended);
            assert!(report.peak_memory > 0 && !report.cpu.is_zero());
        } else {
            let failure = unit.failure.unwrap();
            assert!(failure.message.contains("output: hello"), "{failure}");
        }
    }
}

#[tokio::test]
async fn a_killed_server_takes_its_workers_and_scripts_back() {
    let mut pool = Pool::start().await;
    let workers = [pool.worker(4), pool.worker(4)];
    let script = pool.script("job.sh", "echo x >> runs; sleep 0.2");
    pool.submit(array(script, "a", 1, 100)).await;
    eventually(async || (pool.counts().await.done > 10).then_some(())).await;
    pool.kill_server().await;
    pool.start_server_again().await;
    let counts = pool.wait_until_idle().await;
    assert_eq!((counts.done, counts.failed), (100, 0));
    let runs = std::fs::read_to_string(pool.path("runs")).unwrap().lines().count();
    assert_eq!(runs, 100, "no script ran twice");
    pool.drain().await;
    for worker in workers {
        worker.summary.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn scripts_of_a_lost_worker_run_again() {
    let pool = Pool::start().await;
    let lost = pool.worker(2);
    let script = pool.script("job.sh", "echo x >> runs; until [ -e go ]; do sleep 0.05; done");
    pool.submit(array(script, "a", 1, 2)).await;
    let runs = || std::fs::read_to_string(pool.path("runs")).unwrap_or_default().lines().count();
    eventually(async || (runs() == 2).then_some(())).await;
    lost.summary.abort();
    std::fs::write(pool.path("go"), "").unwrap();
    let _other = pool.worker(2);
    let counts = pool.wait_until_idle().await;
    assert_eq!((counts.done, counts.failed, runs()), (2, 0, 4));
}

#[tokio::test]
async fn a_worker_that_drains_ends_what_runs_and_gives_back_the_rest() {
    let pool = Pool::start().await;
    let first = pool.worker(1);
    let script = pool.script("job.sh", "echo x >> runs; until [ -e go ]; do sleep 0.02; done");
    pool.submit(array(script, "a", 1, 3)).await;
    let runs = || std::fs::read_to_string(pool.path("runs")).unwrap_or_default().lines().count();
    eventually(async || (runs() == 1).then_some(())).await;
    first.commands.send(ProgramCommand::Drain).await.unwrap();
    std::fs::write(pool.path("go"), "").unwrap();
    let summary = first.summary.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.interrupted), (1, 0));
    let _second = pool.worker(2);
    let counts = pool.wait_until_idle().await;
    assert_eq!((counts.done, runs()), (3, 3), "nothing ran twice");
}

#[tokio::test]
async fn a_drain_of_the_server_does_not_outlast_the_lifetime_of_a_worker() {
    let pool = Pool::start().await;
    let lifetime = Some(Duration::from_secs(8));
    let worker = pool.worker_with(WorkerOptions { lifetime, ..worker_options(pool.folder.path(), 1) });
    let (id, submission) = once(pool.script("job.sh", "echo x >> runs; sleep 1000"));
    pool.submit(submission).await;
    eventually(async || pool.path("runs").exists().then_some(())).await;
    pool.control.shut_down(ShutdownMode::Drain(10 * LONG)).await;
    let summary = tokio::time::timeout(LONG, worker.summary).await.expect("it ends with its lifetime");
    assert_eq!(summary.unwrap().unwrap().interrupted, 1);
    let unit = eventually(async || Some(pool.unit(id).await).filter(|unit| unit.state == UnitState::Ready));
    assert_eq!(unit.await.lost, 0, "the worker has reported it");
}

#[tokio::test]
async fn output_goes_where_it_was_told() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let mut script = pool.script("job.sh", "echo out; echo err >&2");
    let (stdout, stderr) = (pool.path("logs/%u.%a.out"), Some(pool.path("logs/%u.err")));
    script.output = ScriptOutput::Files { stdout, stderr };
    let (id, submission) = once(script);
    pool.submit(submission).await;
    pool.wait_for_end(id).await;
    let read = |name: String| std::fs::read_to_string(pool.path(&name)).unwrap();
    assert_eq!(read(format!("logs/{id}.1.out")), "out\n");
    assert_eq!(read(format!("logs/{id}.err")), "err\n");
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_leaves_no_script_behind() {
    // Before there is a worker the server claims nothing.
    let pool = Pool::start_with_fault("claim", 1, longshore_testkit::Fault::FailAfter).await;
    let (id, submission) = once(pool.script("job.sh", "true"));
    pool.submit(submission).await;
    let _worker = pool.worker(1);
    let unit = pool.wait_for_end(id).await;
    assert_eq!((unit.state, unit.attempt), (longshore::UnitState::Done, 1));
}
