//! Workers in other languages: the SDKs for Python and Node, the examples in Perl and PHP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_pool::{CallOptions, CallPayload, ErrorKind, Form, Program};
use serde_json::{Value, json};

use crate::helpers::{exactly, pool};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The example worker of each language; all have the same operations.
fn workers() -> [(&'static str, Program); 4] {
    let sdk = repository().join("sdk/python");
    [
        ("python", example("python3", "python/worker.py").env("PYTHONPATH", sdk)),
        ("node", example("node", "node/worker.mjs")),
        ("perl", example("perl", "perl/worker.pl")),
        ("php", example("php", "php/worker.php")),
    ]
}

fn example(command: &str, file: &str) -> Program {
    Program::command(command).arg(repository().join("examples/workers").join(file))
}

#[tokio::test]
async fn workers_in_every_language_answer() {
    for (language, program) in workers() {
        let pool = pool(program, exactly(1)).await;
        assert_eq!(pool.call::<_, u32>("double", &21).await.unwrap(), 42, "{language}");
        let odd = json!({"ä\u{2028}": ["", "12", {}, [], null, true], "deep": [[[[{"a": {}}]]]]});
        assert_eq!(pool.call::<_, Value>("echo", &odd).await.unwrap(), odd, "{language}");
        assert_eq!(pool.call::<_, ()>("noop", &()).await.unwrap(), (), "{language}");
        pool.close(Duration::from_secs(10)).await;
        assert_eq!(pool.stats().ended.get("closing"), Some(&1), "{language}");
    }
}

#[tokio::test]
async fn bytes_cross_to_every_language_and_back() {
    for (language, program) in workers() {
        let pool = pool(program, exactly(1)).await;
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let arguments = CallPayload::bytes(bytes.clone());
        let back = pool.call_raw("echo", arguments, CallOptions::default()).await.unwrap();
        assert_eq!((back.form(), back.as_bytes() == bytes), (Form::Bytes, true), "{language}");
    }
}

#[tokio::test]
async fn errors_of_every_language_keep_their_kind_and_their_causes() {
    for (language, program) in workers() {
        let pool = pool(program, exactly(1)).await;
        let error = pool.call::<_, ()>("double", &json!({"not": "a number"})).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::BadArguments { .. }), "{language}: {error}");
        let error = pool.call::<_, ()>("fail", &"so it goes").await.unwrap_err();
        match error.kind {
            ErrorKind::Handler { message, chain, .. } => {
                assert_eq!((message.as_str(), chain.len()), ("so it goes", 1), "{language}");
            }
            other => panic!("{language}: {other}"),
        }
        let error = pool.call::<_, ()>("unheard_of", &()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::UnknownOperation { .. }), "{language}: {error}");
        assert_eq!(pool.call::<_, u32>("double", &21).await.unwrap(), 42, "{language}");
    }
}

#[tokio::test]
async fn progress_of_every_language_reaches_the_caller() {
    for (language, program) in workers() {
        let pool = pool(program, exactly(1)).await;
        let (to, mut from) = tokio::sync::mpsc::channel(16);
        let options = CallOptions::default().progress(to);
        let arguments = json!({"steps": 3, "ms": 1});
        let done: String = pool.call_with("slow", &arguments, options).await.unwrap();
        let mut heard = Vec::new();
        while let Some(value) = from.recv().await {
            heard.push(value.read::<Value>().unwrap()["step"].clone());
        }
        assert_eq!((done.as_str(), heard), ("done", vec![json!(1), json!(2), json!(3)]), "{language}");
    }
}

#[tokio::test]
async fn what_a_worker_prints_does_no_harm_in_any_language() {
    for (language, program) in workers() {
        let pool = pool(program, exactly(1)).await;
        for number in 0..5 {
            let _: Value = pool.call("print", &"words\nand half a line").await.unwrap();
            assert_eq!(pool.call::<_, u32>("double", &number).await.unwrap(), 2 * number, "{language}");
        }
    }
}

#[tokio::test]
async fn calls_at_the_same_time_get_their_own_answers_from_every_language() {
    for (language, program) in workers() {
        let mut settings = exactly(2);
        settings.queue = 300;
        let pool = pool(program, settings).await;
        let calls = (0..300_u32).map(|number| {
            let pool = pool.clone();
            async move { (number, pool.call::<_, u32>("double", &number).await.unwrap()) }
        });
        for (number, double) in futures_util::future::join_all(calls).await {
            assert_eq!(double, 2 * number, "{language}");
        }
    }
}
