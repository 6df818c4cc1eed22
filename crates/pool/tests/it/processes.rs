//! Well-behaved worker processes: calls, payloads, progress, environment, recycling, shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_pool::{CallOptions, CallPayload, Channel, ErrorKind, Form, PoolSettings, Program, WorkerPool};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::helpers::{eventually, exactly, example, exists, pool, worker, zombies};

#[tokio::test]
async fn a_call_comes_back_as_the_worker_answered_in_lines_and_in_frames() {
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        let odd = json!({"ä\u{0}\u{2028}": [1, -2.5e300, null, "\"\n\\"], "deep": [[[[{}]]]]});
        let back: Value = pool.call("echo", &odd).await.unwrap();
        assert_eq!(back, odd, "{encoding}");
        let nothing: () = pool.call("noop", &()).await.unwrap();
        assert_eq!(nothing, ());
        pool.close(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn bytes_of_any_size_cross_unharmed() {
    let pool = pool(worker("binary", "well"), exactly(1)).await;
    for size in [0, 1, 16_000, 65_536, 1_000_000, 5_000_000] {
        let bytes: Vec<u8> = (0..size).map(|n: usize| (n % 251) as u8).collect();
        let arguments = CallPayload::bytes(bytes.clone());
        let back = pool.call_raw("echo", arguments, CallOptions::default()).await.unwrap();
        assert_eq!((back.form(), back.as_bytes() == bytes), (Form::Bytes, true), "{size}");
    }
}

#[tokio::test]
async fn an_error_of_the_operation_keeps_its_causes_and_data_and_its_worker_lives_on() {
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        let error = pool.call::<_, ()>("no", &()).await.unwrap_err();
        let (chain, data) = (vec!["because".to_owned()], Some(json!({"code": 7})));
        assert_eq!(error.kind, ErrorKind::Handler { message: "no".to_owned(), chain, data });
        assert_eq!(error.worker.unwrap().pid, Some(pid));
        let error = pool.call::<_, ()>("unheard_of", &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::UnknownOperation { .. }), "{error}");
        assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
    }
}

#[tokio::test]
async fn words_on_how_far_a_call_is_reach_its_caller() {
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        let (to, mut from) = tokio::sync::mpsc::channel(16);
        let options = CallOptions::default().progress(to);
        let done: u32 = pool.call_with("progress", &3, options).await.unwrap();
        let mut heard = Vec::new();
        while let Some(value) = from.recv().await {
            heard.push(value.read::<u32>().unwrap());
        }
        assert_eq!((done, heard), (3, vec![0, 1, 2]), "{encoding}");
    }
}

#[tokio::test]
async fn a_descriptor_of_its_own_keeps_prints_away_from_messages() {
    let program = worker("binary", "well").channel(Channel::Descriptor);
    let pool = pool(program, exactly(1)).await;
    let bytes = CallPayload::bytes(vec![7; 300_000]);
    let back = pool.call_raw("echo", bytes.clone(), CallOptions::default()).await.unwrap();
    assert_eq!(back, bytes);
    pool.close(Duration::from_secs(5)).await;
    assert_eq!(pool.stats().ended, BTreeMap::from([("closing", 1)]));
}

#[tokio::test]
async fn a_worker_has_the_directory_priority_environment_and_group_it_was_given() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let program = worker("json", "well")
        .directory(&directory)
        .nice(7)
        .inherit_only(["PATH", "HOME"])
        .env("HARBOUR", "north");
    let pool = pool(program, exactly(1)).await;
    let about: Value = pool.call("about", &()).await.unwrap();
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    assert_eq!(about, json!({"cwd": directory, "nice": 7, "group": pid}));
    let environment: BTreeMap<String, String> = pool.call("environment", &()).await.unwrap();
    let ours = ["HARBOUR", "LONGSHORE_WORKER", "LONGSHORE_WORKER_ID", "LONGSHORE_WORKER_POOL"];
    for name in ours {
        assert!(environment.contains_key(name), "{name} in {environment:?}");
    }
    assert!(!environment.contains_key("CARGO_MANIFEST_DIR"), "{environment:?}");
    assert_eq!(environment["LONGSHORE_WORKER_POOL"], "test");
}

#[tokio::test]
async fn this_program_is_its_own_worker() {
    let program = Program::command(example("same_binary")).args(["__longshore_worker", "maths"]);
    let pool = pool(program, exactly(1)).await;
    assert_eq!(pool.call::<_, u64>("square", &12).await.unwrap(), 144);
    assert_eq!(pool.call::<_, String>("print", "hello").await.unwrap(), "hello");
    let listed = pool.list_operations();
    let square = listed.iter().find(|one| one.name == "square").unwrap();
    assert!(square.arguments.is_some(), "its schema crosses");
    let large = CallPayload::bytes(vec![3; 2_000_000]);
    let back = pool.call_raw("echo", large.clone(), CallOptions::default()).await.unwrap();
    assert_eq!(back, large);
    let error = pool.call::<_, u64>("square", &"three").await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::BadArguments { .. }), "{error}");
    let error = pool.call::<_, u64>("square", &u64::MAX).await.unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
    pool.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn this_program_is_its_own_worker_on_a_descriptor_of_its_own() {
    let program = Program::command(example("same_binary"))
        .args(["__longshore_worker", "maths"])
        .channel(Channel::Descriptor);
    let pool = pool(program, exactly(1)).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    // Printed text that looks like a message goes to the log, not to the channel.
    let stray = "{\"type\":\"result\",\"id\":1,\"value\":0}";
    assert_eq!(pool.call::<_, String>("print", stray).await.unwrap(), stray);
    let large = CallPayload::bytes(vec![3; 2_000_000]);
    let back = pool.call_raw("echo", large.clone(), CallOptions::default()).await.unwrap();
    assert_eq!(back, large);
    let taken = CancellationToken::new();
    let slow = CallOptions::default().cancelled_by(taken.clone());
    let (answer, ()) = tokio::join!(pool.call_with::<_, u64>("sleep", &600_000, slow), async {
        eventually("it runs", || pool.stats().busy == 1).await;
        taken.cancel();
    });
    assert!(matches!(answer.unwrap_err().kind, ErrorKind::Cancelled { .. }));
    assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid, "it heard that and lives");
    pool.close(Duration::from_secs(5)).await;
    assert_eq!(pool.stats().ended, BTreeMap::from([("closing", 1)]));
    eventually("the process is gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_panic_is_an_error_and_the_worker_that_had_it_is_replaced_in_good_order() {
    let program = Program::command(example("same_binary")).args(["__longshore_worker", "maths"]);
    let pool = pool(program, exactly(1)).await;
    let before: u32 = pool.call("pid", &()).await.unwrap();
    let error = pool.call::<_, ()>("panic", &()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Panic { message: "on purpose".to_owned() });
    eventually("it is replaced", || pool.stats().ended.get("own_wish") == Some(&1)).await;
    assert_ne!(pool.call::<_, u32>("pid", &()).await.unwrap(), before);
}

#[tokio::test]
async fn a_caller_that_takes_its_call_back_has_it_stopped_and_the_worker_kept() {
    let program = Program::command(example("same_binary")).args(["__longshore_worker", "maths"]);
    let pool = pool(program, exactly(1)).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    let token = tokio_util::sync::CancellationToken::new();
    let (to, mut from) = tokio::sync::mpsc::channel(16);
    let options = CallOptions::default().cancelled_by(token.clone()).progress(to);
    let call = pool.call_with::<_, u64>("sleep", &600_000, options);
    let cancel = async {
        from.recv().await;
        token.cancel();
    };
    let (error, ()) = tokio::join!(call, cancel);
    assert!(matches!(error.unwrap_err().kind, ErrorKind::Cancelled { .. }));
    assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
}

#[tokio::test]
async fn a_worker_that_asks_to_be_replaced_is_and_its_answer_counts() {
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), exactly(1)).await;
        let before: u32 = pool.call("retire", &()).await.unwrap();
        eventually("it is replaced", || !exists(before)).await;
        assert_ne!(pool.call::<_, u32>("pid", &()).await.unwrap(), before);
        assert_eq!(pool.stats().ended, BTreeMap::from([("own_wish", 1)]));
    }
}

#[tokio::test]
async fn workers_are_replaced_after_their_number_of_calls_and_no_call_is_lost() {
    let mut settings = exactly(2);
    settings.max_calls = Some(20);
    let pool = pool(worker("json", "well"), settings).await;
    let calls = || pool.stats().ended.get("calls").copied().unwrap_or_default();
    let mut n = 0_u64;
    while calls() < 4 {
        n += 1;
        assert_eq!(pool.call::<_, u64>("echo", &n).await.unwrap(), n);
        assert!(n < 1_000_000, "{:?}", pool.stats());
    }
    assert_eq!(pool.stats().ended.len(), 1);
}

#[tokio::test]
async fn a_process_performs_no_more_calls_than_its_maximum() {
    for (program, max_calls) in [("well", 1), ("concurrent", 1), ("concurrent", 3)] {
        let settings = PoolSettings { max_calls: Some(max_calls), ..exactly(2) };
        let pool = pool(worker("json", program), settings).await;
        let calls = (0..12).map(|_| pool.call::<_, u32>("pid", &()));
        let mut by_pid = BTreeMap::<u32, u64>::new();
        for pid in futures_util::future::join_all(calls).await {
            *by_pid.entry(pid.unwrap()).or_default() += 1;
        }
        assert!(by_pid.values().all(|calls| *calls <= max_calls), "{program}: {by_pid:?}");
        pool.close(Duration::from_secs(20)).await;
        eventually("no zombies", || zombies().is_empty()).await;
    }
}

#[tokio::test]
async fn closing_lets_workers_finish_what_they_have_and_leaves_nothing() {
    let pool = pool(worker("json", "well"), exactly(2)).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    let call = pool.call::<_, f64>("sleep", &0.3);
    let close = async {
        tokio::task::yield_now().await;
        pool.close(Duration::from_secs(20)).await;
    };
    let (slept, ()) = tokio::join!(call, close);
    assert_eq!(slept.unwrap(), 0.3);
    assert!(!exists(pid));
    assert_eq!(pool.stats().ended, BTreeMap::from([("closing", 2)]));
    eventually("no zombies", || zombies().is_empty()).await;
}

#[tokio::test]
async fn dropping_a_pool_ends_its_processes() {
    let pool = pool(worker("json", "well"), exactly(2)).await;
    let pid: u32 = pool.call("pid", &()).await.unwrap();
    drop(pool);
    eventually("the process is gone", || !exists(pid)).await;
    eventually("no zombies", || zombies().is_empty()).await;
}

#[test]
fn a_runtime_that_ends_takes_the_processes_with_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (pool, pid) = runtime.block_on(async {
        let pool = pool(worker("json", "well"), exactly(2)).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        (pool, pid)
    });
    drop(runtime);
    // A zombie would still exist.
    assert!(!exists(pid));
    drop(pool);
}

#[tokio::test]
async fn arguments_that_do_not_fit_a_frame_are_refused_and_the_worker_is_kept() {
    let mut settings = exactly(1);
    settings.max_frame = 100_000;
    for encoding in ["json", "binary"] {
        let pool = pool(worker(encoding, "well"), settings.clone()).await;
        let pid: u32 = pool.call("pid", &()).await.unwrap();
        let error = pool.call::<_, ()>("echo", &"x".repeat(200_000)).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::TooLarge { limit: 100_000, .. }), "{error}");
        assert_eq!(pool.call::<_, u32>("pid", &()).await.unwrap(), pid);
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_are_refused_before_they_become_part_of_a_line() {
    let pool = pool(worker("json", "well"), exactly(1)).await;
    let text = CallPayload::from_json_text("1, \"operation\": \"exit\"");
    let error = pool.call_raw("echo", text, CallOptions::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::BadArguments { .. }), "{error}");
    assert_eq!(pool.call::<_, u32>("count", &()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_quick_worker_answers_many_callers_in_order_of_their_own() {
    let mut settings = exactly(2);
    (settings.queue, settings.max_calls) = (20_000, None);
    let program = Program::command(example("same_binary")).args(["__longshore_worker", "maths"]);
    for program in [program, worker("binary", "well"), worker("json", "well")] {
        let pool = pool(program, settings.clone()).await;
        let calls = (0..10_000_u32).map(|n| {
            let pool: WorkerPool = pool.clone();
            async move { (n, pool.call::<_, u32>("echo", &n).await.unwrap()) }
        });
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(|(sent, back)| sent == back));
        assert_eq!(pool.stats().ended, BTreeMap::new());
    }
}

#[tokio::test]
async fn a_worker_that_does_several_things_at_once_gets_several_calls() {
    let pool = pool(worker("json", "concurrent"), exactly(1)).await;
    // The first call is slow: the others must run beside it.
    let slow = pool.call::<_, f64>("sleep", &5.0);
    let quick = async {
        let pids = (0..3).map(|_| pool.call::<_, u32>("pid", &()));
        let pids = futures_util::future::join_all(pids).await;
        assert_eq!(pool.stats().busy, 1, "the first still runs");
        pids.into_iter().map(Result::unwrap).collect::<std::collections::BTreeSet<_>>()
    };
    let (slow, pids) = tokio::join!(slow, quick);
    assert_eq!((slow.unwrap(), pids.len()), (5.0, 1));
}
