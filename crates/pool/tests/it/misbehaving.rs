//! Misbehaving workers. No call hangs, no process is left behind, and the next call succeeds.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_pool::{
    CallError, CallOptions, CancelEffect, ErrorKind, OnTimeout, PoolSettings, Program, WorkerPool,
};

use crate::helpers::{eventually, exactly, example, exists, fixture, pool, runs, worker, zombies};

async fn start_error(program: Program) -> CallError {
    start_error_within(program, 60).await
}

async fn start_error_within(program: Program, seconds: u64) -> CallError {
    let mut settings = exactly(1);
    settings.start_timeout = Duration::from_secs(seconds);
    WorkerPool::processes("test", program, settings).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn one_that_cannot_be_started_is_an_error_with_its_reason() {
    let missing = start_error(Program::command("no-such-program")).await;
    assert!(missing.to_string().contains("cannot run no-such-program"), "{missing}");
    let exits = start_error(worker("json", "exit")).await;
    let ErrorKind::StartFailed { message, stderr } = &exits.kind else { panic!("{exits}") };
    assert!(message.contains("exit status: 3"), "{message}");
    assert!(stderr.contains("no such module: walrus"), "{stderr}");
    let fails = start_error(worker("json", "fail")).await;
    assert!(fails.to_string().contains("no licence"), "{fails}");
    let hangs = start_error_within(worker("json", "hang"), 2).await;
    assert!(hangs.to_string().contains("not ready within 2s"), "{hangs}");
    let version = start_error(worker("json", "version")).await;
    assert!(version.to_string().contains("it speaks version 9, not 1"), "{version}");
    let silent = start_error(Program::command("true")).await;
    assert!(silent.to_string().contains("before it was ready"), "{silent}");
    let cat = start_error_within(Program::command("cat"), 2).await;
    assert!(cat.to_string().contains("not ready within"), "{cat}");
    eventually("no zombies", || zombies().is_empty()).await;
}

#[tokio::test]
async fn one_that_leaves_as_soon_as_it_is_ready_is_not_started_over_and_over() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let script = format!("echo >> {}; exec python3 \"$@\"", starts.display());
    let program = Program::command("sh").args(["-c", &script, "sh"]);
    let program = program.arg(fixture("worker.py")).args(["json", "leave"]);
    let pool = WorkerPool::processes("test", program, exactly(1)).await;
    let error = match pool {
        Ok(pool) => pool.call::<_, ()>("noop", &()).await.unwrap_err(),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.contains("exit status: 5") || text.contains("exit code 5"), "{text}");
    let started = std::fs::read_to_string(&starts).unwrap().lines().count();
    assert!(started < 4, "{started} starts");
}

#[tokio::test]
async fn prints_before_and_between_messages_do_no_harm() {
    let pool = pool(worker("json", "garbage"), exactly(1)).await;
    assert_eq!(pool.call::<_, String>("print", &()).await.unwrap(), "printed");
    assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 2);
}

#[tokio::test]
async fn one_that_dies_in_a_call_is_named_with_its_end_and_last_words_and_replaced() {
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        let error = pool.call::<_, ()>("exit", &4).await.unwrap_err();
        assert_eq!(error.worker.unwrap().pid, Some(pid));
        let ErrorKind::WorkerDied { exit, signal, stderr } = &error.kind else { panic!("{error}") };
        assert_eq!((*exit, *signal), (Some(4), None));
        assert!(stderr.contains("leaving with 4"), "{stderr}");
        let error = pool.call::<_, ()>("die", &"").await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::WorkerDied { signal: Some(9), .. }), "{error}");
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
        let counted = BTreeMap::from([("died", 2)]);
        eventually("its end is counted", || pool.stats().ended == counted).await;
        assert!(!exists(pid));
    }
}

#[tokio::test]
async fn a_call_that_may_be_made_again_is_when_its_worker_died() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool(worker("json", "well"), exactly(1)).await;
    let marker = directory.path().join("died");
    assert_eq!(pool.call::<_, String>("die_once", &marker).await.unwrap(), "lived");
}

#[tokio::test]
async fn calls_behind_the_one_that_died_go_to_another_worker() {
    let mut settings = exactly(1);
    settings.max_calls = None;
    let pool = pool(worker("binary", "well"), settings).await;
    // Fast enough to get calls ahead in its pipe.
    for n in 0..100 {
        pool.call::<_, u32>("echo", &n).await.unwrap();
    }
    let die = pool.call::<_, ()>("exit", &1);
    let numbers: Vec<u32> = (0..20).collect();
    let others = numbers.iter().map(|n| pool.call::<_, u32>("echo", n));
    let (died, others) = tokio::join!(die, futures_util::future::join_all(others));
    assert!(matches!(died.unwrap_err().kind, ErrorKind::WorkerDied { exit: Some(1), .. }));
    let others: Vec<u32> = others.into_iter().map(Result::unwrap).collect();
    assert_eq!(others, numbers);
}

#[tokio::test]
async fn half_a_message_and_a_closed_output_are_the_end_of_a_worker() {
    for (encoding, operation) in [("json", "half"), ("binary", "half"), ("json", "close_stdout")] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        let error = pool.call::<_, ()>(operation, &()).await.unwrap_err();
        let dead = matches!(error.kind, ErrorKind::WorkerDied { .. } | ErrorKind::Protocol { .. });
        assert!(dead, "{encoding} {operation}: {error}");
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn garbage_and_gigabytes_are_refused_and_their_worker_killed() {
    let mut settings = exactly(1);
    settings.max_frame = 1 << 20;
    let cases =
        [("binary", "garbage"), ("binary", "gigabyte"), ("json", "gigabyte"), ("binary", "claim_gigabyte")];
    for (encoding, operation) in cases {
        let pool = pool(worker(encoding, "well"), settings.clone()).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        let error = pool.call::<_, ()>(operation, &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Protocol { .. }), "{encoding} {operation}: {error}");
        assert!(!exists(pid));
        let counted = BTreeMap::from([("protocol", 1)]);
        eventually("its end is counted", || pool.stats().ended == counted).await;
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_has_its_worker_killed_and_replaced() {
    for operation in ["nothing", "burn"] {
        let pool = pool(worker("json", "well"), exactly(1)).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        let options = CallOptions::default().timeout(Duration::from_millis(200));
        let error = pool.call_with::<_, ()>(operation, &(), options).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::Killed, .. }), "{error}");
        assert_eq!(error.worker.and_then(|worker| worker.pid), Some(pid));
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
        eventually("it is gone", || !exists(pid)).await;
        let counted = BTreeMap::from([("timeout", 1)]);
        eventually("its end is counted", || pool.stats().ended == counted).await;
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_goes_on_where_that_is_wished_and_its_late_answer_is_dropped() {
    let mut settings = exactly(1);
    settings.on_timeout = OnTimeout::Leave;
    let pool = pool(worker("json", "well"), settings).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    let options = CallOptions::default().timeout(Duration::from_millis(50));
    let error = pool.call_with::<_, ()>("sleep", &3.0, options).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::LeftRunning, .. }), "{error}");
    assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
}

#[tokio::test]
async fn a_call_taken_back_that_does_not_stop_has_its_worker_killed_after_a_while() {
    let mut settings = exactly(1);
    settings.stop_timeout = Duration::from_millis(300);
    let pool = pool(worker("json", "well"), settings).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    let token = tokio_util::sync::CancellationToken::new();
    token.cancel();
    let options = CallOptions::default().cancelled_by(token);
    let error = pool.call_with::<_, ()>("nothing", &(), options).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Cancelled { effect: CancelEffect::Asked }), "{error}");
    assert_ne!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
    let counted = BTreeMap::from([("timeout", 1)]);
    eventually("its end is counted", || pool.stats().ended == counted).await;
}

#[tokio::test]
async fn one_that_ignores_stop_and_term_is_killed_in_time() {
    let mut settings = exactly(1);
    settings.stop_timeout = Duration::from_millis(300);
    let pool = pool(worker("json", "stubborn"), settings).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    pool.close(Duration::from_secs(20)).await;
    assert!(!exists(pid));
    let counted = BTreeMap::from([("closing", 1)]);
    eventually("its end is counted", || pool.stats().ended == counted).await;
}

#[tokio::test]
async fn an_idle_one_that_does_not_answer_a_ping_is_replaced() {
    let program = worker("json", "deaf").ping_every(Duration::from_millis(100));
    let pool = WorkerPool::processes("test", program, exactly(1)).await.unwrap();
    eventually("it is noticed", || pool.stats().ended.contains_key("died") || pool.stats().workers == 0)
        .await;
}

#[tokio::test]
async fn an_idle_one_that_answers_pings_is_left_alone() {
    let left_alone = async |encoding| {
        let program = worker(encoding, "well").ping_every(Duration::from_millis(20));
        let pool = pool(program, exactly(1)).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        // The second ping is sent only after the first was answered in time.
        while pool.call::<_, u32>("pings", &()).await.unwrap() < 2 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
    };
    tokio::join!(left_alone("json"), left_alone("binary"));
}

#[tokio::test]
async fn one_that_uses_too_much_memory_is_replaced_between_calls() {
    let mut settings = exactly(1);
    settings.max_memory = Some(100 << 20);
    let pool = pool(worker("json", "well"), settings).await;
    let first: u32 = pool.call("leak", &200).await.unwrap();
    eventually("it is replaced", || !exists(first)).await;
    let counted = BTreeMap::from([("memory", 1)]);
    eventually("its end is counted", || pool.stats().ended == counted).await;
    assert_ne!(pool.call::<_, u32>("pid", &()).await.unwrap(), first);
}

#[tokio::test]
async fn what_it_forked_ends_with_it_however_it_ends() {
    for (operation, end) in [("exit", "died"), ("nothing", "timeout"), ("", "closing")] {
        let pool = pool(worker("json", "well"), exactly(1)).await;
        let grandchild: u32 = pool.call("fork", &()).await.unwrap();
        let options = CallOptions::default().timeout(Duration::from_secs(1));
        match operation {
            "" => pool.close(Duration::from_secs(20)).await,
            operation => _ = pool.call_with::<_, ()>(operation, &1, options).await.unwrap_err(),
        }
        eventually("the grandchild is gone", || !runs(grandchild)).await;
        eventually("its end is counted", || pool.stats().ended.keys().eq([&end])).await;
    }
}

#[tokio::test]
async fn a_call_that_killed_its_worker_is_not_made_again_however_many_were_sent_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note").to_str().unwrap().to_owned();
    let program = Program::command(example("same_binary")).args(["__longshore_worker", "maths"]);
    let pool = pool(program, exactly(1)).await;
    // A worker that is known to be fast gets calls before it has answered.
    for _ in 0..200 {
        pool.call::<_, ()>("die", &(&note, false)).await.unwrap();
    }
    let arguments: Vec<_> = (0..64).map(|n| (&note, n == 40)).collect();
    let calls = arguments.iter().map(|one| pool.call::<_, ()>("die", one));
    let ends = futures_util::future::join_all(calls).await;
    let died: Vec<usize> = (0..64).filter(|n| ends[*n].is_err()).collect();
    assert_eq!(died, [40], "the others were done before, or by another worker");
    assert_eq!(std::fs::read_to_string(note).unwrap(), "begun\n", "at most once");
}

#[tokio::test]
async fn a_call_that_may_have_begun_before_its_worker_was_found_out_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note").to_str().unwrap().to_owned();
    let pool = pool(worker("binary", "well"), exactly(1)).await;
    // Fast enough to get calls ahead in its pipe.
    for n in 0..100 {
        pool.call::<_, u32>("echo", &n).await.unwrap();
    }
    let garble = pool.call::<_, ()>("garble", &());
    let words: Vec<_> = (0..20).map(|n| (&note, n.to_string())).collect();
    let notes = words.iter().map(|one| pool.call::<_, ()>("note", one));
    let (garbled, noted) = tokio::join!(garble, futures_util::future::join_all(notes));
    assert!(matches!(garbled.unwrap_err().kind, ErrorKind::Protocol { .. }));
    let text = std::fs::read_to_string(&note).unwrap_or_default();
    for (n, end) in noted.iter().enumerate() {
        let times = text.lines().filter(|line| *line == n.to_string()).count();
        assert!(times <= 1, "{n} was made {times} times");
        assert!(times == 1 || end.is_err(), "{n} was answered and never made");
    }
}

#[tokio::test]
async fn answers_that_come_twice_or_to_nobody_are_dropped() {
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        assert_eq!(pool.call::<_, u32>("twice", &()).await.unwrap(), 1);
        assert_eq!(pool.call::<_, String>("wrong_id", &()).await.unwrap(), "right");
        assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reply_is_lost_or_crossed_with_ten_thousand_calls_and_random_kills() {
    let mut settings = exactly(4);
    (settings.queue, settings.max_calls) = (20_000, Some(2_000));
    settings.timeout = Duration::from_secs(120);
    let pool = pool(worker("binary", "well").arg("storm"), settings).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..10_000_u32 {
        let pool = pool.clone();
        // `echo` is idempotent, so it is retried when its worker dies; `same` is not, and fails.
        let operation = if n % 2 == 0 { "echo" } else { "same" };
        calls.spawn(async move { (n, pool.call::<_, u32>(operation, &n).await) });
    }
    let (mut answers, mut died, mut kills) = (0_u32, 0_u32, 0_u32);
    while let Some(call) = calls.join_next().await {
        match call.unwrap() {
            (n, Ok(back)) => {
                assert_eq!(n, back);
                answers += 1;
            }
            (_, Err(error)) => {
                assert!(matches!(error.kind, ErrorKind::WorkerDied { signal: Some(9), .. }), "{error}");
                died += 1;
            }
        }
        // A hash, so that every run makes the same choice.
        let chosen = (answers + died).wrapping_mul(2_654_435_761) % 64 == 0;
        let stats = pool.stats();
        if chosen && stats.workers - stats.starting > 2 {
            kills += u32::from(kill_a_worker());
        }
    }
    assert_eq!(answers + died, 10_000);
    assert!(kills > 1 && died <= 2 * kills, "{kills} kills, {died} died");
    pool.close(Duration::from_secs(20)).await;
    eventually("no zombies", || zombies().is_empty()).await;
}

/// Kills the oldest worker process of this test, if there is one.
fn kill_a_worker() -> bool {
    use rustix::process::{Pid, Signal, kill_process};
    let victim = children().into_iter().min();
    let victim = victim.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    victim.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

/// The worker processes of this test.
fn children() -> Vec<u32> {
    let own = std::process::id();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let ours = read("stat").unwrap_or_default().contains(&format!(" {own} "));
        ours && read("cmdline").unwrap_or_default().contains("storm")
    })
    .collect()
}

#[tokio::test]
async fn calls_beside_one_that_blocks_their_worker_are_not_blamed_for_it() {
    let program = Program::command("node").arg(fixture("blocking.mjs"));
    let pool = pool(program, exactly(1)).await;
    let limit = || CallOptions::default().timeout(Duration::from_secs(1));
    let blocks = || pool.call_with::<_, u32>("block", &100_000, limit());
    // The same time limit: without blame for the block, it passes for both.
    let ends_too = pool.call_with::<_, u32>("wait", &1, limit());
    let beside = pool.call::<_, u32>("wait", &2);
    let idempotent = pool.call::<_, u32>("wait_idempotent", &3);
    let (hung, ends_too, beside, idempotent) = tokio::join!(blocks(), ends_too, beside, idempotent);
    for error in [hung.unwrap_err(), ends_too.unwrap_err()] {
        let blocked = matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::Blocked, .. });
        assert!(blocked || error.kind == ErrorKind::Interrupted, "{error}");
    }
    assert_eq!(beside.unwrap_err().kind, ErrorKind::Interrupted);
    assert_eq!(idempotent.unwrap(), 3, "it is called again");
    // It runs alone now, so it is to blame.
    let (hung, beside) = tokio::join!(blocks(), pool.call::<_, u32>("wait", &4));
    let error = hung.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { effect: CancelEffect::Killed, .. }), "{error}");
    assert_eq!(beside.unwrap(), 4);
    eventually("both workers are replaced", || pool.stats().ended.get("timeout") == Some(&2)).await;
}

#[tokio::test]
async fn a_new_worker_takes_as_many_waiting_calls_as_it_can_run() {
    let settings = PoolSettings { min: 0, max: 1, ..PoolSettings::default() };
    let pool = pool(worker("json", "concurrent"), settings).await;
    let hang = || pool.call::<_, ()>("nothing", &());
    let all_run = eventually("none waits", || pool.stats().busy == 1 && pool.stats().queue_depth == 0);
    tokio::select! {
        (ended, ..) = async { tokio::join!(hang(), hang(), hang(), hang()) } => panic!("{ended:?}"),
        () = all_run => {}
    }
}

#[tokio::test]
async fn one_call_that_hangs_does_not_take_along_those_beside_it() {
    let mut settings = exactly(1);
    settings.stop_timeout = Duration::from_millis(200);
    let pool = pool(worker("json", "concurrent"), settings).await;
    let first: u32 = pool.call("pid", &()).await.unwrap();
    let options = CallOptions::default().timeout(Duration::from_millis(200));
    let hangs = pool.call_with::<_, ()>("nothing", &(), options);
    let beside = pool.call::<_, f64>("sleep", &1.5);
    let (hangs, beside) = tokio::join!(hangs, beside);
    assert!(matches!(hangs.unwrap_err().kind, ErrorKind::Timeout { effect: CancelEffect::Asked, .. }));
    assert_eq!(beside.unwrap(), 1.5);
    eventually("it is replaced", || !exists(first)).await;
    let counted = BTreeMap::from([("timeout", 1)]);
    eventually("its end is counted", || pool.stats().ended == counted).await;
    assert_ne!(pool.call::<_, u32>("pid", &()).await.unwrap(), first);
}
