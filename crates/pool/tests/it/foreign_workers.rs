//! Misbehaving workers in Perl and plain sh, without an SDK: their standard output is not
//! redirected, and their children inherit all open descriptors.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_pool::{CallOptions, CancelEffect, ErrorKind, PoolSettings, Program, WorkerPool};

use crate::helpers::{eventually, exactly, exists, fixture, pool, runs, zombies};

/// The scripted worker of each language, with this behaviour at start.
fn foreign_workers(start: &str) -> [(&'static str, Program); 2] {
    ["perl", "sh"].map(|command| {
        let file = if command == "perl" { "worker.pl" } else { "worker.sh" };
        (command, Program::command(command).arg(fixture(file)).arg(start))
    })
}

fn short_stop_timeout() -> PoolSettings {
    PoolSettings { stop_timeout: Duration::from_millis(300), ..exactly(1) }
}

#[tokio::test]
async fn one_that_cannot_be_started_is_an_error_with_its_reason() {
    let cases = [
        ("exit", "exit status: 3", "no such module: walrus"),
        ("hang", "not ready within 1s", ""),
        ("half", "before it was ready", ""),
    ];
    for (start, reason, last_words) in cases {
        for (language, program) in foreign_workers(start) {
            let seconds = if start == "hang" { 1 } else { 60 };
            let settings = PoolSettings { start_timeout: Duration::from_secs(seconds), ..exactly(1) };
            let pool = WorkerPool::processes("test", program, settings).await;
            let error = pool.map(|_| ()).unwrap_err();
            let ErrorKind::StartFailed { message, stderr } = &error.kind else { panic!("{error}") };
            assert!(message.contains(reason), "{language} {start}: {message}");
            assert!(stderr.contains(last_words), "{language} {start}: {stderr}");
        }
    }
    eventually("no zombies", || zombies().is_empty()).await;
}

#[tokio::test]
async fn prints_before_and_between_messages_do_no_harm() {
    for (language, program) in foreign_workers("garbage") {
        let pool = pool(program, exactly(1)).await;
        assert_eq!(pool.call::<_, String>("print", &()).await.unwrap(), "printed", "{language}");
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 2, "{language}");
    }
}

#[tokio::test]
async fn one_that_ends_in_a_call_is_replaced_and_its_caller_told_why() {
    for (language, program) in foreign_workers("well") {
        let pool = pool(program, short_stop_timeout()).await;
        let error = pool.call::<_, ()>("exit", &()).await.unwrap_err();
        let ErrorKind::WorkerDied { exit, stderr, .. } = &error.kind else { panic!("{error}") };
        assert_eq!((*exit, stderr.contains("leaving with 4")), (Some(4), true), "{language}");
        let error = pool.call::<_, ()>("half", &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::WorkerDied { exit: Some(0), .. }), "{error}");
        let error = pool.call::<_, ()>("garbage", &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Protocol { .. }), "{language}: {error}");
        let options = CallOptions::default().timeout(Duration::from_millis(300));
        let error = pool.call_with::<_, ()>("nothing", &(), options).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::Killed, .. }), "{error}");
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1, "{language}");
        let counted = BTreeMap::from([("died", 2), ("protocol", 1), ("timeout", 1)]);
        eventually("their ends are counted", || pool.stats().ended == counted).await;
    }
    eventually("no zombies", || zombies().is_empty()).await;
}

#[tokio::test]
async fn one_that_closes_its_input_is_replaced_before_its_callers_run_out_of_time() {
    for (language, program) in foreign_workers("well") {
        let pool = pool(program, short_stop_timeout()).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        pool.call::<_, ()>("close_input", &()).await.unwrap();
        // The worker never reads these calls: they fail when the pool notices it, or run on another
        // worker.
        while let Err(error) = pool.call::<_, u32>("count", &()).await {
            let closed_input = error.to_string().contains("it closed its input");
            assert!(closed_input, "{language}: {error}");
        }
        assert!(!exists(pid));
    }
}

#[tokio::test]
async fn one_that_ignores_stop_and_signals_is_killed_in_time() {
    for (language, program) in foreign_workers("stubborn") {
        let pool = pool(program, short_stop_timeout()).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        pool.close(Duration::from_secs(20)).await;
        assert!(!exists(pid), "{language}");
        eventually("it is counted", || pool.stats().ended.get("closing") == Some(&1)).await;
    }
}

#[tokio::test]
async fn what_it_forked_and_holds_its_pipes_open_hides_no_end_and_ends_with_it() {
    for (language, program) in foreign_workers("well") {
        let pool = pool(program, exactly(1)).await;
        let child: u32 = pool.call("fork", &()).await.unwrap();
        assert!(runs(child), "{language}");
        let error = pool.call::<_, ()>("exit", &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::WorkerDied { exit: Some(4), .. }), "{error}");
        eventually("the child is gone", || !runs(child)).await;
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1, "{language}");
    }
}

#[tokio::test]
async fn a_daemon_that_holds_its_pipes_open_hides_no_end() {
    let [(_, program), _] = foreign_workers("well");
    let pool = pool(program, exactly(1)).await;
    let daemon: u32 = pool.call("daemon", &()).await.unwrap();
    let error = pool.call::<_, ()>("exit", &()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::WorkerDied { exit: Some(4), .. }), "{error}");
    assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
    pool.close(Duration::from_secs(20)).await;
    // It left the group: only the orphan reaper would kill it, when this program is killed.
    let daemon = rustix::process::Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
}
